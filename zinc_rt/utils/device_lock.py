"""Guards a device: one lock for its threads, and the checks before every use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from zinc_rt.errors import BackendError, DeviceLost
from zinc_rt.utils.linux import Linux


class DeviceLock:
    """Threads take turns, also with a wait. A forked child is refused: the device's memory and queue are its parent's.

    After the device was lost every use raises `DeviceLost`, after `close` `BackendError`.

    label: for messages; lock: held during a turn; lost: why the device is gone, None while it is there.
    """

    def __init__(self, linux: Linux, label: str) -> None:
        self._linux, self._label = linux, label
        self._pid = linux.pid()
        self.lock = threading.RLock()
        self._closed = False
        self.lost: str | None = None

    @contextmanager
    def entered(self, about_loss: Callable[[], str] = lambda: "") -> Iterator[None]:
        """The caller's turn. about_loss: what to add to the first `DeviceLost` that comes from inside.

        Raises `DeviceLost`, `BackendError` in a forked child.
        """
        if self._linux.pid() != self._pid:
            raise BackendError(
                f"{self._label} was opened by process {self._pid}, this is {self._linux.pid()}: a forked child has to"
                " open the device itself"
            )
        with self.lock:
            if self._closed:
                raise BackendError(f"{self._label} was closed")
            if self.lost is not None:
                raise DeviceLost(self.lost)
            try:
                yield
            except DeviceLost as error:
                if self.lost is None:
                    added = about_loss()
                    self.lost = f"{error}; {added}" if added else str(error)
                raise DeviceLost(self.lost) from None

    def close(self, give_back: Callable[[], None]) -> None:
        """Call `give_back` once, when nobody is inside. In a forked child and the second time: nothing."""
        if self._linux.pid() != self._pid:
            return
        with self.lock:
            if not self._closed:
                self._closed = True
                give_back()
