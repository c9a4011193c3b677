"""Errors of the rings."""

from __future__ import annotations

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
