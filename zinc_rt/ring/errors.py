"""Errors of the rings."""

from __future__ import annotations

import os

from zinc_rt.errors import ZincError


class RingError(ZincError):
    """A ring cannot do what was asked."""


class RingClosed(RingError):
    """The ring was closed before the call."""


class UnsupportedOp(RingError):
    """The graph holds an operation that this ring has no kernel for."""


class MissingBinding(RingError):
    """A weight or constant of the graph was not given to `lower`."""


class StepTooLarge(RingError):
    """A step has more rows or wanted logits than the batch was lowered for."""


class FenceTimeout(RingError):
    """A submission did not retire within the timeout."""


class SignalMismatch(RingError):
    """The fence retired, but the signal is not the one that the packets were to write."""


class DoorError(RingError):
    """The driver refused a step. step: which one; errno: the kernel's answer, None when there was none."""

    def __init__(self, step: str, errno: int | None, advice: str = "") -> None:
        reason = f": {os.strerror(errno)} (errno {errno})" if errno is not None else ""
        super().__init__(f"{step} failed{reason}{'; ' + advice if advice else ''}")
        self.step, self.errno = step, errno


class PoolIntegrityError(RingError):
    """The books of a memory pool do not add up: bytes lost, owned twice, or free and owned at once."""


class DeviceLost(RingError):
    """The GPU hung, was reset or left the bus; nothing on it can be trusted. A new process may open it again."""
