"""Errors of the backends."""

from __future__ import annotations

from zinc_rt.errors import BackendError


class UnsupportedOp(BackendError):
    """The graph holds an operation that this backend has no kernel for."""


class MissingBinding(BackendError):
    """A weight or constant of the graph was not given to `lower`."""


class StepTooLarge(BackendError):
    """A step has more rows or wanted logits than the graph was lowered for."""
