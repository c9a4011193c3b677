"""`Background`: the tasks and threads of a server that run beside its requests."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Starts tasks and threads, and notes which of them an error ends: its trace is logged, and `wrong` stays set.
    Whoever starts one ends it.

    log: of the server; None for the logger of this module.
    """

    def __init__(self, log: logging.Logger | None = None) -> None:
        self.wrong: str | None = None
        """Which work ended first, and why; None while all of it runs. `/health` says so."""
        self._log = log or logging.getLogger(__name__)

    def task(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a coroutine as a task of the running event loop."""
        task = asyncio.create_task(work, name=f"zinc-{name}")
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
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
        thread.start()
        return thread

    def _failed(self, name: str, error: BaseException) -> None:
        self.wrong = self.wrong or f"{name} ended: {type(error).__name__}: {error}"
        self._log.error("background work ended", exc_info=error, extra={"facts": {"name": name}})
