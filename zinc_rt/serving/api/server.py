"""`serve`: one process that listens, loads, answers, reloads its files on SIGHUP, and drains on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn

from zinc_rt.errors import EXIT_INTERRUPTED, UsageError, ZincError
from zinc_rt.scheduler.messages import EngineInfo
from zinc_rt.serving.api.app import App
from zinc_rt.serving.api.auditing import Auditor
from zinc_rt.serving.api.config import ServerConfig, TenantConfigs, read_tenants
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.keys import ApiKeys, digest, read_keys
from zinc_rt.serving.api.logs import tell
from zinc_rt.serving.api.protocol import make_protocol
from zinc_rt.serving.api.service import Service
from zinc_rt.serving.api.web import is_loopback

_LAST_WORDS = 2.0
"""Seconds for error events to reach clients when the time to drain is over."""


@dataclass(frozen=True, slots=True)
class Files:
    """The contents of the files of tenants and keys."""

    tenants: TenantConfigs
    keys: ApiKeys | None


def read_files(config: ServerConfig) -> Files:
    """Read and check them. Raises `UsageError`."""
    tenants = read_tenants(config.tenants) if config.tenants is not None else TenantConfigs()
    keys = read_keys(config.keys) if config.keys is not None else None
    if config.api_keys:
        keys = ApiKeys({} if keys is None else keys.digests, frozenset(map(digest, config.api_keys)))
    return Files(tenants, keys)


def check_exposure(config: ServerConfig) -> None:
    """Refuse to be reached from other machines without keys, unless told so. Raises `UsageError`."""
    if config.keys is None and not config.api_keys and not config.no_auth and not is_loopback(config.host):
        raise UsageError(
            f"--host {config.host} lets other machines in and there are no keys; give --api-key-file"
            " (`zinc keys new TENANT --file FILE` makes one) or --api-key, or --no-auth to serve everyone"
        )


def listen(config: ServerConfig) -> socket.socket:
    """A socket that listens. Port 0 takes a free one. Raises `ZincError`."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(
            config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = socket.socket(family, kind, proto)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(2048)
        except OSError:
            sock.close()
            raise
        return sock
    except OSError as error:
        why = error.strerror or str(error)
        raise ZincError(f"cannot listen on {config.host}:{config.port}: {why}; choose another --port") from None


def tls_of(config: ServerConfig) -> ssl.SSLContext | None:
    """What encrypts connections, None where nothing does. Raises `UsageError`."""
    return None if config.certificate is None else config.certificate.context()


def url_of(sock: socket.socket, tls: bool) -> str:
    """The address of a socket that listens."""
    host, port = sock.getsockname()[:2]
    scheme = "https" if tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def bare_config(app: object, tls: ssl.SSLContext | None = None, **more: Any) -> uvicorn.Config:
    """uvicorn's settings for an application that logs, and says who it is, by itself."""
    config = uvicorn.Config(
        app,  # type: ignore[arg-type]  # ASGI's own types are wider than uvicorn's
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        **more,
    )
    if tls is not None:
        config.load()
        config.ssl = tls
    return config


class BareServer(uvicorn.Server):
    """uvicorn without its handlers of signals: they would cut streams off."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to `Server`."""
        yield


class Server:
    """A service and the socket that it is reached by."""

    def __init__(self, service: Service, sock: socket.socket, started: Callable[[str], None] | None = None) -> None:
        """started: is given the server's address, once requests are answered."""
        self.service = service
        self._sock, self._started = sock, started
        self._tls = tls_of(service.config)
        self._auditor: Auditor | None = None
        self._signals = 0
        self._first_signal = 0
        self._over = asyncio.Event()
        self._quiet = asyncio.Event()

    @property
    def url(self) -> str:
        """Where it listens."""
        return url_of(self._sock, self._tls is not None)

    async def run(self, signals: bool = True) -> int:
        """Serve until a signal, or `stop`, ends it; returns the exit code. Raises what loading the model raises."""
        service = self.service
        allow_files(service.tenants.limits.connections + 64)
        log_uvicorn(service.log)
        config = bare_config(
            App(service),
            tls=self._tls,
            http=make_protocol(lambda: service.tenants.limits),
            timeout_keep_alive=75,
            timeout_graceful_shutdown=int(_LAST_WORDS),
        )
        http = BareServer(config)
        service.loading = "loading"
        serving = service.background.task("http", http.serve(sockets=[self._sock]))
        if signals:
            self._handle_signals()
        loading = asyncio.create_task(service.start())
        over = asyncio.create_task(self._over.wait())
        try:
            await asyncio.wait({loading, over, serving}, return_when=asyncio.FIRST_COMPLETED)
            if loading.done():
                self._ready(loading.result())
                if service.records is not None and service.config.audit:
                    self._auditor = Auditor(service, service.records, service.config.audit)
            await asyncio.wait({over, serving}, return_when=asyncio.FIRST_COMPLETED)
            await self._end_streams()
        finally:
            for task in (loading, over):
                task.cancel()
            http.should_exit = True
            await asyncio.gather(serving, loading, over, return_exceptions=True)
            if self._auditor is not None:
                await self._auditor.close()
            await service.close()
        return EXIT_INTERRUPTED if self._first_signal == signal.SIGINT else 0

    def _ready(self, info: EngineInfo | None) -> None:
        service = self.service
        if service.table is not None:
            tell(service.log, "ready", url=self.url, models=service.table.names)
        elif info is not None:
            tell(service.log, "ready", url=self.url, model=service.model.name, n_ctx=info.n_ctx, slots=info.n_slots)
        if self._started is not None:
            self._started(self.url)

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop, number)
        loop.add_signal_handler(signal.SIGHUP, self.reload)

    def stop(self, number: int = signal.SIGTERM) -> None:
        """End: the first call lets running requests finish, the second one does not."""
        self._signals += 1
        if self._signals > 1:
            self._quiet.set()
            return
        self._first_signal = number
        service = self.service
        service.drain()
        tell(service.log, "draining", requests=len(service.running), seconds=service.config.drain)
        self._draining = self.service.background.task("drain", self._drain())

    async def _drain(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.service.config.drain):
                while self.service.running and not self._quiet.is_set():
                    await asyncio.sleep(0.05)
        self._over.set()

    async def _end_streams(self) -> None:
        """Tell the requests that still run that it is over; uvicorn would wait for them for ever."""
        error = ApiError(503, "the server ends; send the request again", code="shutting_down", retry_after=5)
        for call in list(self.service.running.values()):
            call.abort(error)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                while self.service.running:
                    await asyncio.sleep(0.01)

    def reload(self) -> None:
        """Read the files of tenants, keys and TLS again; what cannot be used changes nothing and is logged."""
        service = self.service
        try:
            files = read_files(service.config)
            if self._tls is not None and (certificate := service.config.certificate) is not None:
                certificate.context()  # a pair that does not fit would spoil the one in use
                certificate.load_into(self._tls)
        except ZincError as error:
            tell(service.log, "not reloaded", logging.ERROR, message=str(error))
            return
        service.replace(files.tenants, files.keys)
        tell(service.log, "reloaded", tenants=sorted(files.tenants.named))


def allow_files(wanted: int) -> None:
    """Let the process open as many files as it may have connections."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def log_uvicorn(log: logging.Logger) -> None:
    """uvicorn's warnings as lines of our log, with the level debug all that it says."""
    logger = logging.getLogger("uvicorn.error")
    logger.handlers = list(log.handlers)
    logger.setLevel(log.level if log.level != logging.INFO else logging.WARNING)
    logger.propagate = False
