"""Tensors of the new file, as recipes: which stored rows they are made of, in which order, and what happens to values.

Nothing is read before rows are asked for, and no more than those.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from zinc_rt.gguf.dequantize import dequantize
from zinc_rt.gguf.quantize import check_range, quantize
from zinc_rt.gguf.tensors import TensorInfo
from zinc_rt.gguf.types import GGMLType

F32 = NDArray[np.float32]
U8 = NDArray[np.uint8]
Index = NDArray[np.intp]
Values = Callable[[F32], F32]


class RowBytes(Protocol):
    """Rows in a file or in memory."""

    def rows(self, which: slice | Index, size: int) -> U8:
        """Some rows of so many bytes: uint8[rows, size]."""

    def count(self, size: int) -> int:
        """How many rows of so many bytes there are."""

    def release(self) -> None:
        """Free the memory behind them, if they can be read again."""


@dataclass(frozen=True)
class SmallArray:
    """A few numbers in memory, f32[n]."""

    values: F32

    def rows(self, which: slice | Index, size: int) -> U8:
        """Some rows of so many bytes: uint8[rows, size]."""
        return self.values.astype("<f4").view(np.uint8).reshape(-1, size)[which]

    def count(self, size: int) -> int:
        """How many rows of so many bytes there are."""
        return self.values.nbytes // size

    def release(self) -> None:
        """Nothing: they cannot be read again."""


@dataclass(frozen=True)
class WholeNumbers:
    """Integers of 64 bits as such of 32, int32[n_rows, n]."""

    stored: RowBytes

    def rows(self, which: slice | Index, size: int) -> U8:
        """Some rows of so many bytes: uint8[rows, size]."""
        return self.stored.rows(which, 2 * size).view("<i8").astype("<i4").view(np.uint8)

    def count(self, size: int) -> int:
        """How many rows of so many bytes there are."""
        return self.stored.count(2 * size)

    def release(self) -> None:
        """Free the memory behind them."""
        self.stored.release()


@dataclass(frozen=True)
class Columns:
    """Matrices that are stored with their inputs first, so that columns are the rows of the new file.

    Args:
        stored: elements[matrices, inputs, n_outputs].
        item: bytes of an element.
        n_inputs: how many are stored, where those of the rows are the first ones; 0 for as many as rows have.
    """

    stored: RowBytes
    n_outputs: int
    item: int
    n_inputs: int = 0

    def count(self, size: int) -> int:
        """How many columns of so many bytes there are."""
        matrix = self.n_inputs or size // self.item
        return self.stored.count(self.n_outputs * self.item) // matrix * self.n_outputs

    def rows(self, which: slice | Index, size: int) -> U8:
        """Some columns, those of the second matrix behind those of the first: uint8[columns, size]."""
        taken = size // self.item
        inputs = self.stored.rows(slice(None), self.n_outputs * self.item).view(f"<u{self.item}")
        elements = inputs.reshape(-1, self.n_inputs or taken, self.n_outputs)[:, :taken]
        numbers = np.arange(len(elements) * self.n_outputs)[which]
        made = np.empty((len(numbers), taken), elements.dtype)
        matrix = numbers // self.n_outputs
        for one in np.unique(matrix):
            here = matrix == one
            made[here] = elements[one][:, numbers[here] - one * self.n_outputs].T
        return made.view(np.uint8)

    def release(self) -> None:
        """Free the memory behind them."""
        self.stored.release()


@dataclass(frozen=True)
class Made:
    """A tensor of the new file.

    Args:
        info: its name, shape and type, as if it stood in a file; no offset.
        parts: the stored tensors whose rows are its rows, one after the other.
        source: the type of the stored elements.
        width: elements of a stored row.
        index: which rows of its one part its rows are; None for all, in their order.
        values: f32[n, width] to f32[n, elements of a row], what happens to rows; None for nothing.
        factors: of runs of rows, each with how many they are; the last one goes on to the end.
    """

    info: TensorInfo
    parts: Sequence[RowBytes]
    source: GGMLType
    width: int
    index: Index | None = None
    values: Values | None = None
    factors: Sequence[tuple[int, float]] = ()

    def rows(self, start: int, stop: int) -> U8:
        """Rows in the bytes of the tensor's type: uint8[stop - start, row_bytes]."""
        raw = self._stored(start, stop)
        if self.values is None and not self.factors and self.source is self.info.type:
            return raw
        x = dequantize(self.source, raw)
        if self.values is not None:
            x = np.ascontiguousarray(self.values(x))
        if self.factors:
            ends = np.cumsum([n for n, _ in self.factors[:-1]])
            run = np.searchsorted(ends, np.arange(start, stop), side="right")
            x = x * np.array([factor for _, factor in self.factors], np.float32)[run, None]
        check_range(self.info.type, x, start)
        return quantize(self.info.type, x)

    def _stored(self, start: int, stop: int) -> U8:
        size = self.source.row_bytes(self.width)
        if self.index is not None:
            return self.parts[0].rows(self.index[start:stop], size)
        found, first = [], 0
        for part in self.parts:
            n = part.count(size)
            if start < first + n and first < stop:
                found.append(part.rows(slice(max(0, start - first), stop - first), size))
            first += n
        return found[0] if len(found) == 1 else np.concatenate(found)

    def release(self) -> None:
        """Free the memory behind the parts."""
        for part in self.parts:
            part.release()


def tensor_info(name: str, shape: Sequence[int], type: GGMLType) -> TensorInfo:
    """What a file would say of a tensor, without an offset. Raises GGUFError for rows that are no whole blocks."""
    n_rows = math.prod(shape[:-1])
    return TensorInfo(name, tuple(shape), type, 0, n_rows * type.row_bytes(shape[-1]))


def held(name: str, values: F32) -> Made:
    """A tensor of numbers in memory."""
    info = tensor_info(name, values.shape, GGMLType.F32)
    return Made(info, (SmallArray(np.ascontiguousarray(values, np.float32).reshape(-1)),), GGMLType.F32, info.shape[-1])
