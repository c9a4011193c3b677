"""The errors of the kernels."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class KernelInputError(ZincError):
    """A kernel was called with operands that it cannot take."""


class ShapeMismatch(KernelInputError):
    """Operands whose lengths must agree do not."""


class TokenOutOfRange(KernelInputError):
    """A token id is negative or not below the vocabulary size."""
