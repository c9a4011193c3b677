"""Fences: each stands for an event that happens once, perhaps with an error."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from amdgpu_emu.errors import CallRefused

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile

_SLICE = 0.1
"""Seconds between two polls of a waiter, for events that nothing signals, such as the loss of the device."""


class Fence:
    """A fence. done: its event has happened; error: the errno it ended with, 0 for none; started: of a job, that it was
    handed to the hardware.
    """

    def __init__(self, name: str, *, done: bool = False) -> None:
        self.name, self.done, self.error = name, done, 0
        self.started: Fence | None = None
        self.point: tuple[int, int] | None = None  # of a user queue: address and the value it reaches there
        self._callbacks: list[Callable[[], None]] = []

    def then(self, callback: Callable[[], None]) -> None:
        """Call a function once the fence is done: now, or when it is signalled."""
        if self.done:
            callback()
        else:
            self._callbacks.append(callback)

    def signal(self, error: int = 0) -> None:
        """Mark the fence as done. Signalling again changes nothing."""
        if self.done:
            return
        self.done, self.error = True, error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()


def signalled(name: str = "signalled") -> Fence:
    """Make a fence that is done already."""
    return Fence(name, done=True)


def merged(fences: Iterable[Fence], name: str) -> Fence:
    """Make a fence that is done when all the given ones are, with their first error."""
    parts = [fence for fence in fences if not fence.done or fence.error]
    whole = Fence(name)
    if not parts:
        return signalled(name)

    def look() -> None:
        if all(part.done for part in parts):
            whole.signal(next((part.error for part in parts if part.error), 0))

    for part in parts:
        part.then(look)
    return whole


def wait_until(file: DrmFile, ready: Callable[[], bool], deadline: int | None) -> bool:
    """Wait, with the machine unlocked, until `ready` or a deadline in nanoseconds of CLOCK_MONOTONIC (None: for ever).

    Returns whether it is ready. Raises `CallRefused` (ENODEV) when the device goes meanwhile.
    """
    while not ready():
        seconds = _SLICE
        if deadline is not None:
            left = (deadline - file.process.monotonic_ns()) / 1e9
            if left <= 0:
                return False
            seconds = min(seconds, left)
        file.machine.clock.wait(file.machine.changed, seconds)
        file.check_device()
    return True


def deadline_of(timeout: int) -> int | None:
    """The deadline of an absolute timeout of amdgpu, 64 bits: negative if signed means none, the past a poll."""
    return None if timeout >> 63 else timeout


def raise_error(error: int, what: str) -> None:
    """Raise a fence's error as the errno of the call that waited."""
    if error:
        why = {errno.ETIME: "its job hung", errno.ECANCELED: "its job was lost in a reset"}.get(error, "it failed")
        raise CallRefused(error, f"{what}: {why}")
