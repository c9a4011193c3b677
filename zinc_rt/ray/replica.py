"""`Replica`: a server without a socket. It gets requests from Ray and gives the messages of its answers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final

from ray import serve

from zinc_rt.errors import ZincError
from zinc_rt.ray.passed import Passed, Taken
from zinc_rt.ray.settings import Settings
from zinc_rt.serving.api.app import App
from zinc_rt.serving.api.health import unhealthy
from zinc_rt.serving.api.start import make_service

Message = MutableMapping[str, Any]

_LEAVES: Final = 5.0
"""Seconds for a request to end by itself whose client is gone."""


_PATIENCE: Final = 120.0
"""Seconds for which a replica may be unwell: its engine may load a large model again."""


class Replica:
    """The server in a process of Ray. Belongs to the event loop that Ray runs it on; the engine has its own process."""

    async def __init__(self, settings: Settings) -> None:  # type: ignore[misc]  # Ray awaits it
        self.name: str = serve.get_replica_context().replica_id.unique_id
        self._service = make_service(settings.config, settings.choice)
        self._app = App(self._service)
        self._patience = Patience()
        self._service.loaded(await self._service.client.start())

    async def answer(self, passed: Passed) -> AsyncIterator[Taken | list[Message]]:
        """One request: that it is here, then what there is of the answer, each time."""
        yield Taken(self.name)
        exchange = _Exchange(passed.body)
        task = asyncio.create_task(self._app(passed.scope(), exchange.receive, exchange.send))
        task.add_done_callback(exchange.over)
        try:
            while messages := await exchange.take():
                yield messages
            await task
        finally:
            exchange.leave()
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.wait({task}), _LEAVES)
            task.cancel()

    async def check_health(self) -> None:
        """Ray asks every few seconds. Raises `ZincError`."""
        self._patience.check(unhealthy(self._service))

    async def __del__(self) -> None:
        """Ray awaits it once, when the replica has answered what it had."""
        self._service.draining = True
        await self._service.close()


class Patience:
    """Measures how long a replica has been unhealthy."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._since: float | None = None

    def check(self, state: str | None) -> None:
        """state: what is wrong now, None for nothing. Raises `ZincError` where something has been for long."""
        if state is None:
            self._since = None
            return
        now = self._clock()
        self._since = now if self._since is None else self._since
        if now - self._since >= _PATIENCE:
            raise ZincError(f"unwell for {now - self._since:.0f} s: {state}")


class _Exchange:
    """Both directions of one request."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body
        self._left = asyncio.Event()
        self._waiting = asyncio.Event()
        self._messages: list[Message] = []
        self._over = False

    async def receive(self) -> Message:
        """The body, then nothing until the client leaves."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Keep a message until `take`."""
        self._messages.append(message)
        self._waiting.set()

    async def take(self) -> list[Message]:
        """All messages since the last call; waits for one. None of them: the answer is complete."""
        while not self._messages and not self._over:
            self._waiting.clear()
            await self._waiting.wait()
        taken, self._messages = self._messages, []
        return taken

    def over(self, _: object) -> None:
        """Nothing more will be sent."""
        self._over = True
        self._waiting.set()

    def leave(self) -> None:
        """The client is gone, or has all."""
        self._left.set()
