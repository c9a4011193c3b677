"""`Background`: the tasks and threads of a server that run beside its requests."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final

_LAST_SECONDS: Final = 1.0
"""For what still runs when the server ends."""


class Background:
    """Owns tasks and threads: starts them, notes which of them an error ends, and ends them. An error's trace is
    logged, and `wrong` stays set.

    Whoever starts one may `end` or `join` it; `close` sees to all that are left. Belongs to the event loop's thread,
    and before there is a loop to the thread that will run it.

    log: of the server; None for the logger of this module.
    """

    def __init__(self, log: logging.Logger | None = None) -> None:
        self.wrong: str | None = None
        """Which work ended first, and why; None while all of it runs. `/health` says so."""
        self._log = log or logging.getLogger(__name__)
        self._tasks: set[asyncio.Task[None]] = set()
        self._threads: list[threading.Thread] = []

    def task(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task of the running event loop."""
        task = asyncio.create_task(work, name=f"zinc-{name}")
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failed(task.get_name(), error)

    def thread(self, name: str, work: Callable[[], None]) -> threading.Thread:
        """Run a function on a thread that does not keep the process alive."""

        def run() -> None:
            try:
                work()
            except BaseException as error:  # nobody else would hear of it
                self._failed(thread.name, error)

        thread = threading.Thread(target=run, name=f"zinc-{name}", daemon=True)
        self._threads = [*filter(threading.Thread.is_alive, self._threads)]
        thread.start()
        self._threads.append(thread)
        return thread

    def _failed(self, name: str, error: BaseException) -> None:
        self.wrong = self.wrong or f"{name} ended: {type(error).__name__}: {error}"
        self._log.error("background work ended", exc_info=error, extra={"facts": {"name": name}})

    async def end(self, *tasks: asyncio.Task[None]) -> None:
        """Cancel tasks and wait until they are over."""
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def join(self, thread: threading.Thread, seconds: float | None = None) -> None:
        """Wait until a thread is over, which has been told to end. One that takes longer is logged and left."""
        thread.join(seconds)
        if thread.is_alive():
            self._log.warning("background work is left", extra={"facts": {"name": thread.name}})

    async def close(self) -> None:
        """End all that still runs. A thread has a second: one that nobody can tell to end is left then."""
        await self.end(*self._tasks)
        for thread in filter(threading.Thread.is_alive, self._threads):
            await asyncio.to_thread(self.join, thread, _LAST_SECONDS)
