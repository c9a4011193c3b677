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


class ByteRange(Protocol):
    """Bytes in a file or in memory."""

    def flat(self) -> U8:
        """All of them."""

    def release(self) -> None:
        """Free the memory behind them, if they can be read again."""


@dataclass(frozen=True)
class SmallArray:
    """A few numbers in memory, f32[n]."""

    values: F32

    def flat(self) -> U8:
        """Their bytes."""
        return self.values.astype("<f4").view(np.uint8)

    def release(self) -> None:
        """Nothing: they cannot be read again."""


@dataclass(frozen=True)
class Blocks:
    """A tensor in MXFP4 as Hugging Face folders have it, in the blocks of GGUF.

    Two elements of a byte are neighbours there, and 16 elements apart here; the scale stands before its block.

    Args:
        nibbles: uint8[.., n_rows, groups, 16].
        scales: uint8[.., n_rows, groups], the exponents.
    """

    nibbles: ByteRange
    scales: ByteRange

    def flat(self) -> U8:
        """All blocks, one after the other."""
        return self.rows(slice(None), 17).reshape(-1)

    def rows(self, which: slice | Index, size: int) -> U8:
        """The blocks of some rows of so many bytes: uint8[rows, size]."""
        groups = size // 17
        pairs = self.nibbles.flat().reshape(-1, groups, 16)[which]
        scales = self.scales.flat().reshape(-1, groups, 1)[which]
        codes = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(*pairs.shape[:-1], 32)
        halves = codes[..., :16] | codes[..., 16:] << 4
        return np.asarray(np.concatenate([scales, halves], axis=-1).reshape(len(pairs), -1), np.uint8)

    def release(self) -> None:
        """Free the memory behind both."""
        self.nibbles.release()
        self.scales.release()


@dataclass(frozen=True)
class Columns:
    """Matrices that are stored with their inputs first, so that columns are the rows of the new file.

    Args:
        stored: elements[matrices, inputs, n_outputs].
        item: bytes of an element.
        n_inputs: how many are stored, where those of the rows are the first ones; 0 for as many as rows have.
    """

    stored: ByteRange
    n_outputs: int
    item: int
    n_inputs: int = 0

    def flat(self) -> U8:
        """All matrices as they are stored."""
        return self.stored.flat()

    def rows(self, which: slice | Index, size: int) -> U8:
        """Some columns, those of the second matrix behind those of the first: uint8[columns, size]."""
        taken = size // self.item
        elements = self.flat().view(f"<u{self.item}").reshape(-1, self.n_inputs or taken, self.n_outputs)[:, :taken]
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
    parts: Sequence[ByteRange]
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
        only = self.parts[0]
        if isinstance(only, Blocks | Columns):
            return only.rows(slice(start, stop) if self.index is None else self.index[start:stop], size)
        if self.index is not None:
            return np.asarray(self.parts[0].flat().reshape(-1, size)[self.index[start:stop]])
        found, first = [], 0
        for part in self.parts:
            rows = part.flat().reshape(-1, size)
            if start < first + len(rows) and first < stop:
                found.append(rows[max(0, start - first) : stop - first])
            first += len(rows)
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
