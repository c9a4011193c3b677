"""The servers behind a router: which of them answer, how busy they are, and which one a request goes to."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx2

from zinc_rt.errors import UsageError
from zinc_rt.serving.api.logs import tell
from zinc_rt.serving.route.ranking import ranked

_LOOK_SECONDS: Final = 1.0
_LOOK_TIMEOUT: Final = 5.0
_FOR_EVER: Final = 1e9
_SLOW: Final = 3
"""Looks in a row after which a server that takes its time counts as gone: a busy machine is slow, too."""


class RouteBackend:
    """One server. wrong: why it gets no requests, None while it does."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.wrong: str | None = "not asked yet"
        self.model: str | None = None
        self.keyless: bool | None = None  # whether it answers requests without a key; None: not known
        self.slow = 0  # looks in a row that took too long
        self.reported = 0  # requests that it has, by its own word
        self.in_flight = 0  # requests that it has of this router
        self._attempts: set[asyncio.Timeout] = set()

    @property
    def load(self) -> int:
        """Requests that it has: its own count is a second old, ours does not know of other routers."""
        return max(self.reported, self.in_flight) if self.wrong is None else self.in_flight

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[asyncio.Timeout]:
        """Do what is inside as long as the server gives signs of life.

        What is inside may set a nearer time, or none while it does not wait for the server. Raises `TimeoutError`.
        """
        async with asyncio.timeout(_FOR_EVER) as limit:
            self._attempts.add(limit)
            try:
                yield limit
            finally:
                self._attempts.discard(limit)

    def hangs(self) -> None:
        """The server takes connections and says nothing: what waits for it waits no longer."""
        for limit in self._attempts:
            if limit.when() is not None:
                limit.reschedule(0)

    def facts(self) -> dict[str, Any]:
        """The facts about it that the router reports."""
        return {"url": self.url, "status": self.wrong or "ok", "load": self.load}


class RouteBackends:
    """All servers of a router. They must serve one model with one version of the numerics: a stream that moves to
    another server continues with the same bytes only then.

    patience: seconds that a health check may take; a server counts as gone after three checks in a row that took
    longer.

    Raises:
        UsageError: no address, one twice, or one that is no http address.
    """

    def __init__(
        self, urls: Sequence[str], http: httpx2.AsyncClient, log: logging.Logger, patience: float = _LOOK_TIMEOUT
    ) -> None:
        if not urls:
            raise UsageError("there are no servers to route to; give their addresses with -b")
        self.all = [RouteBackend(checked(url)) for url in urls]
        twice = [url for url, n in Counter(backend.url for backend in self.all).items() if n > 1]
        if twice:
            raise UsageError(f"{twice[0]} is given twice")
        self._http, self._log, self._patience = http, log, patience

    @property
    def healthy(self) -> list[RouteBackend]:
        """Those that get requests."""
        return [backend for backend in self.all if backend.wrong is None]

    @property
    def keyless(self) -> bool:
        """Whether one of them answers requests without a key, or nothing is known of any."""
        known = [backend.keyless for backend in self.all if backend.keyless is not None]
        return any(known) or not known

    def ranked(self, key: bytes) -> list[RouteBackend]:
        """All healthy servers, the one to try first in front."""
        healthy = {backend.url: backend for backend in self.healthy}
        return [healthy[url] for url in ranked(key, {url: backend.load for url, backend in healthy.items()})]

    async def watch(self) -> None:
        """Ask all servers how they are, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Ask all servers once."""
        await asyncio.gather(*(self._look(backend) for backend in self.all))

    async def _look(self, backend: RouteBackend) -> None:
        before = backend.wrong
        try:
            ready = await self._http.get(f"{backend.url}/health", timeout=self._patience)
            facts = (await self._http.get(f"{backend.url}/health/progress", timeout=self._patience)).json()
            backend.model = str(facts["fingerprint"])
            backend.reported = int(facts["requests"])
            backend.keyless = facts.get("keyless") is not False
            backend.wrong = None if ready.status_code == 200 else str(ready.json().get("status"))
            backend.slow = 0
        except httpx2.TimeoutException:
            backend.slow += 1
            if backend.slow >= _SLOW:
                backend.wrong = f"it does not answer within {self._patience:g} s"
                backend.hangs()
        except httpx2.HTTPError as error:
            backend.wrong = f"it does not answer: {type(error).__name__}"
        except (ValueError, KeyError, TypeError, AttributeError):
            backend.wrong = "it answers, but not as a zinc server"
        if backend.wrong is None and (other := self._other_model(backend)) is not None:
            backend.wrong = f"it serves another model, or with other bits, than {other.url}"
        if backend.wrong != before:
            tell(self._log, "backend", **backend.facts())

    def _other_model(self, backend: RouteBackend) -> RouteBackend | None:
        """A server that gets requests and has another model."""
        return next((b for b in self.healthy if b is not backend and b.model != backend.model), None)

    def failed(self, backend: RouteBackend, why: str) -> None:
        """A request found that a server does not answer; the next look may find otherwise."""
        if backend.wrong is None:
            backend.wrong = why
            tell(self._log, "backend", **backend.facts())


def checked(url: str) -> str:
    """An address as it is used. Raises `UsageError`."""
    try:
        parts = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise UsageError(f"{url[:80]!r} is no address: {error}") from None
    if parts.scheme not in ("http", "https") or not parts.host or parts.path not in ("", "/") or parts.query:
        raise UsageError(f"{url[:80]!r} must be like http://host:port")
    return str(parts.copy_with(path="")).rstrip("/")
