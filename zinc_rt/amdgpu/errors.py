"""Errors of the AMD driver."""

from __future__ import annotations

import os

from zinc_rt.errors import BackendError


class FenceTimeout(BackendError):
    """A submission did not retire within the timeout."""


class SignalMismatch(BackendError):
    """The fence retired, but the signal is not the one that the packets were to write."""


class InterfaceError(BackendError):
    """The driver refused a step. step: which one; errno: the kernel's answer, None when there was none."""

    def __init__(self, step: str, errno: int | None, advice: str = "") -> None:
        reason = f": {os.strerror(errno)} (errno {errno})" if errno is not None else ""
        super().__init__(f"{step} failed{reason}{'; ' + advice if advice else ''}")
        self.step, self.errno = step, errno


class PoolIntegrityError(BackendError):
    """The books of a memory pool do not add up: bytes lost, owned twice, or free and owned at once."""


class DeviceLost(BackendError):
    """The GPU hung, was reset or left the bus; nothing on it can be trusted. A new process may open it again."""
