"""Operand checks shared by the kernels' single-row entry points."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.reference.arith import F32
from zinc_rt.seed.kernels.errors import EmptyInput, ShapeMismatch, TokenOutOfRange


def as_f32(kernel: str, **operands: npt.ArrayLike) -> list[F32]:
    """The operands as 1-D float32 arrays, in the order given; raises `EmptyInput` for an empty one."""
    arrays = []
    for name, value in operands.items():
        array = np.ravel(np.asarray(value, np.float32))
        if array.size == 0:
            raise EmptyInput(f"{kernel}: {name} is empty; at least one element is needed")
        arrays.append(array)
    return arrays


def same_length(kernel: str, **operands: npt.NDArray[np.generic]) -> None:
    """Raise `ShapeMismatch`, naming the operands, unless all have the same number of elements."""
    if len({a.size for a in operands.values()}) > 1:
        sizes = ", ".join(f"{name} {a.size}" for name, a in operands.items())
        raise ShapeMismatch(f"{kernel}: operands must have equal lengths, got {sizes}")


def exact_length(kernel: str, name: str, array: npt.NDArray[np.generic], length: int) -> None:
    """Raise `ShapeMismatch` unless `array` has `length` elements."""
    if array.size != length:
        raise ShapeMismatch(f"{kernel}: {name} has {array.size} elements, {length} are needed")


def token_in_range(kernel: str, token_id: int, vocab_size: int) -> None:
    """Raise `TokenOutOfRange` unless 0 <= token_id < vocab_size."""
    if not 0 <= token_id < vocab_size:
        raise TokenOutOfRange(f"{kernel}: token id {token_id} is outside the vocabulary of {vocab_size}")
