"""What an operation's operands must be: shapes, sizes, ranges."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGMLType
from zinc_rt.seed.cs.errors import ShapeMismatch

_DWORD = 0xFFFF_FFFF

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def row_bytes(kind: GGMLType, cols: int) -> int:
    """Bytes of a packed row; rows of floats come in 64s. Raises `ShapeMismatch`."""
    return kind.row_bytes(_columns(cols, 64 if kind is GGMLType.F32 else kind.block_size))


def _columns(cols: int, multiple: int) -> int:
    if not 0 < cols <= _DWORD or cols % multiple:
        raise ShapeMismatch(f"{cols} columns; a row has a multiple of {multiple}")
    return cols


def checked_rows(rows: int, *, empty: bool = False) -> int:
    """A number of rows. empty: whether it may be 0. Raises `ShapeMismatch`."""
    if not (0 if empty else 1) <= rows <= _DWORD:
        raise ShapeMismatch(f"{rows} rows; there must be at least {int(not empty)}")
    return rows


def vector(values: Any, label: str) -> Floats:
    """f32[n] of an array or a sequence of numbers, each rounded once. Raises `ShapeMismatch` for other shapes."""
    try:
        with np.errstate(over="ignore"):
            floats = np.ascontiguousarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise ShapeMismatch(f"{label} is no vector of numbers: {error}") from None
    if np.ndim(values) != 1:
        raise ShapeMismatch(f"{label} has the shape {np.shape(values)}; it must be a vector")
    return floats


def packed(weights: Any, n_bytes: int, label: str, *, exactly: bool = False) -> Bytes:
    """The first `n_bytes` of packed rows: bytes, or a contiguous array. exactly: there must be no more.

    Raises `ShapeMismatch`.
    """
    try:
        raw = np.frombuffer(weights, np.uint8)
    except (TypeError, ValueError) as error:
        raise ShapeMismatch(f"{label} are no contiguous bytes: {error}") from None
    if len(raw) < n_bytes or (exactly and len(raw) > n_bytes):
        raise ShapeMismatch(f"{label}: {len(raw)} bytes; the rows take {n_bytes}")
    return raw[:n_bytes]


def target(output: Any, rows: int) -> Floats:
    """Where `rows` results go: a writable f32 vector. Raises `ShapeMismatch`."""
    if not isinstance(output, np.ndarray) or output.dtype != np.float32 or output.ndim != 1:
        kind = f"{output.dtype}{list(output.shape)}" if isinstance(output, np.ndarray) else type(output).__name__
        raise ShapeMismatch(f"the output is {kind}; it must be a vector float32[rows]")
    if len(output) < rows:
        raise ShapeMismatch(f"the output has {len(output)} elements; it must have one for each of {rows} rows")
    if not output.flags.writeable:
        raise ShapeMismatch("the output is read-only; results are written into it")
    return output


def token(value: int, label: str) -> int:
    """A token id. Raises `BackendError`."""
    if not 0 <= value <= _DWORD:
        raise BackendError(f"{label} is {value}; a token id is 0 to {_DWORD}")
    return value


def bits_of(value: float) -> int:
    """A number's bits as float32, rounded once; those of a NaN that is a float32 survive."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.uint32))
