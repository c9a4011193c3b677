"""Errors of `TokenBoundary` beside those of the driver."""

from __future__ import annotations

from zinc_rt.errors import BackendError
from zinc_rt.kernels.errors import ShapeMismatch

__all__ = [
    "ArgmaxRangeInvalidToken",
    "ArgmaxTop2InvalidToken",
    "InputTooLarge",
    "OutputTooLarge",
    "ShapeMismatch",
    "ValueOutOfRange",
]


class ValueOutOfRange(BackendError):
    """A value does not fit into the packet's field."""


class InputTooLarge(BackendError):
    """The operands do not fit into the input buffer."""


class OutputTooLarge(BackendError):
    """The result does not fit into the output buffer."""


class ArgmaxTop2InvalidToken(BackendError):
    """The kernel chose neither of the two tokens: it did not run, or wrote something else."""


class ArgmaxRangeInvalidToken(BackendError):
    """The kernel chose a token or row outside of the range: it did not run, or wrote something else."""
