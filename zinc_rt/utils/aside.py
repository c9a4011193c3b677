"""`Aside`: runs a function on another thread while the caller goes on, and gives its result later."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Aside(Generic[T]):
    """`start` calls `work` on another thread; `result` waits for it. `work` may also be set later, before `start`."""

    def __init__(self, name: str, work: Callable[[], T] | None = None) -> None:
        self.work = work
        self._made: list[T] = []
        self._error: BaseException | None = None
        self._name = name
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin, unless it has begun."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=self._name)
            self._thread.start()

    def _run(self) -> None:
        assert self.work is not None
        try:
            self._made.append(self.work())
        except BaseException as error:  # raised again by `result`
            self._error = error

    def join(self) -> None:
        """Wait until the work is done, if it was started."""
        if self._thread is not None:
            self._thread.join()

    def result(self) -> T:
        """What the work returned. Raises what it raised."""
        self.start()
        self.join()
        if self._error is not None:
            raise self._error
        return self._made[0]
