"""The errors of the scalar kernels, named as the kernel pages name them."""

from __future__ import annotations

from zinc_rt.gguf.errors import UnsupportedTensorType
from zinc_rt.kernels.errors import KernelInputError, ShapeMismatch, TokenOutOfRange

__all__ = [
    "EmptyInput",
    "InputTooSmall",
    "InvalidTopK",
    "KernelInputError",
    "OutputTooSmall",
    "ShapeMismatch",
    "TokenOutOfRange",
    "TooManyExperts",
    "UnsupportedShape",
    "UnsupportedTensorType",
]


class EmptyInput(KernelInputError):
    """An operand that must hold at least one element holds none."""


class TooManyExperts(KernelInputError):
    """A router has more experts than the kernel takes."""


class InvalidTopK(KernelInputError):
    """The number of experts to pick is zero or above the number of experts."""


class OutputTooSmall(KernelInputError):
    """The buffer for the result is shorter than the result."""


class InputTooSmall(KernelInputError):
    """An operand is shorter than the kernel needs."""


class UnsupportedShape(KernelInputError):
    """A row length that the block format cannot hold, such as one that is not a multiple of 32."""
