"""`start_router`: from a command line to a router that runs."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Sequence
from pathlib import Path

import uvicorn

from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.limits import Limits
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.protocol import make_protocol
from zinc_rt.serving.api.server import BareServer, allow_files, bare_config, listen, log_uvicorn, tls_of, url_of
from zinc_rt.serving.route.backends import RouteBackends
from zinc_rt.serving.route.router import Router, make_client

_DRAIN = 30.0
"""Seconds that requests get to their ends after the first signal."""


def start_router(
    urls: Sequence[str], config: ServerConfig, started: Callable[[str], None], issuers: Path | None = None
) -> int:
    """Route until a signal ends it; returns the exit code. started: gets the address once requests are passed on.

    Raises `UsageError` for addresses that are none, `ZincError`.
    """
    tls = tls_of(config)
    http = make_client(issuers)
    log = make_logger(level=config.log_level)
    backends = RouteBackends(urls, http, log)
    tracer = None
    if config.otlp_endpoint is not None:
        from zinc_rt.serving.route.tracing import RouteTracer

        tracer = RouteTracer(config.otlp_endpoint, log)
    allow_files(2 * Limits().connections + 64)
    sock = listen(config)
    log_uvicorn(log)
    router = Router(backends, http, log, web=config.web, tracer=tracer)
    settings = bare_config(
        router, tls=tls, date_header=False, http=make_protocol(Limits), timeout_graceful_shutdown=int(_DRAIN)
    )
    try:
        return asyncio.run(_run(BareServer(settings), router, sock, lambda: started(url_of(sock, tls is not None))))
    finally:
        sock.close()


async def _run(server: uvicorn.Server, router: Router, sock: socket.socket, started: Callable[[], None]) -> int:
    backends = router.backends
    loop = asyncio.get_running_loop()
    signals: list[int] = []

    def stop(number: int) -> None:
        signals.append(number)
        server.should_exit = True
        server.force_exit = len(signals) > 1

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop, number)
    await backends.look()
    router.background.task("route-watch", backends.watch())
    serving = router.background.task("route", server.serve(sockets=[sock]))
    started()
    try:
        await serving
    finally:
        await router.close()
    return 0
