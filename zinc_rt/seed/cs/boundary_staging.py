"""Operands on their way into the input buffer, results on their way out: shapes, sizes, places.

The input vector lies at byte 0, the weights behind it at the next multiple of 64.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zinc_rt.seed.cs.boundary_programs import pair, record_dispatch
from zinc_rt.seed.cs.errors import InputTooLarge, OutputTooLarge, ShapeMismatch, ValueOutOfRange

if TYPE_CHECKING:
    from zinc_rt.amdgpu.pm4 import PacketBuilder
    from zinc_rt.seed.cs.boundary import TokenBoundary
    from zinc_rt.seed.cs.sentinels import BoundaryOperation

NO_ID = 0xFFFF_FFFF
"""What words for ids hold before a kernel writes them."""
NO_FLOAT = 0x7FC0_0000
"""What words for floats hold before: a quiet NaN."""
BLOCK = 32
Q4_0_BYTES, Q8_0_BYTES = 18, 34
_ALIGN = 64
_DWORD = 0xFFFF_FFFF

Bytes = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]


def row_bytes_f32(cols: int) -> int:
    """Of a row of floats. Raises `ShapeMismatch`."""
    return 4 * _columns(cols, 64)


def row_bytes_q4_0(cols: int) -> int:
    """Of a Q4_0 row. Raises `ShapeMismatch`."""
    return _columns(cols, BLOCK) // BLOCK * Q4_0_BYTES


def row_bytes_q8_0(cols: int) -> int:
    """Of a Q8_0 row. Raises `ShapeMismatch`."""
    return _columns(cols, BLOCK) // BLOCK * Q8_0_BYTES


def _columns(cols: int, multiple: int) -> int:
    if not 0 < cols <= _DWORD or cols % multiple:
        raise ShapeMismatch(f"{cols} columns; a row has a multiple of {multiple}")
    return cols


def checked_rows(rows: int, *, empty: bool = False) -> int:
    """A number of rows. empty: whether it may be 0. Raises `ShapeMismatch`."""
    if not (0 if empty else 1) <= rows <= _DWORD:
        raise ShapeMismatch(f"{rows} rows; there must be at least {int(not empty)}")
    return rows


def vector(values: Any, what: str) -> Floats:
    """f32[n] of an array or a sequence of numbers, each rounded once. Raises `ShapeMismatch` for other shapes."""
    try:
        with np.errstate(over="ignore"):
            floats = np.ascontiguousarray(values, np.float32)
    except (TypeError, ValueError) as error:
        raise ShapeMismatch(f"{what} is no vector of numbers: {error}") from None
    if np.ndim(values) != 1:
        raise ShapeMismatch(f"{what} has the shape {np.shape(values)}; it must be a vector")
    return floats


def packed(weights: Any, n_bytes: int, what: str, *, exactly: bool = False) -> Bytes:
    """The first `n_bytes` of packed rows: bytes, or a contiguous array. exactly: there must be no more.

    Raises `ShapeMismatch`.
    """
    try:
        raw = np.frombuffer(weights, np.uint8)
    except (TypeError, ValueError) as error:
        raise ShapeMismatch(f"{what} are no contiguous bytes: {error}") from None
    if len(raw) < n_bytes or (exactly and len(raw) > n_bytes):
        raise ShapeMismatch(f"{what}: {len(raw)} bytes; the rows take {n_bytes}")
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


def token(value: int, what: str) -> int:
    """A token id. Raises `ValueOutOfRange`."""
    if not 0 <= value <= _DWORD:
        raise ValueOutOfRange(f"{what} is {value}; a token id is 0 to {_DWORD}")
    return value


def bits_of(value: float) -> int:
    """A number's bits as float32, rounded once; those of a NaN that is a float32 survive."""
    with np.errstate(over="ignore"):
        return int(np.float32(value).view(np.uint32))


@dataclass(frozen=True)
class Product:
    """Rows times an input vector. kernel: its name; parts: packed rows, one part behind the other; cols, rows: of all;
    n_words: what the kernel writes; before: what these words hold before, in turns.
    """

    operation: BoundaryOperation
    kernel: str
    x: Floats
    parts: Sequence[Bytes]
    cols: int
    rows: int
    n_words: int
    before: tuple[int, ...] = (NO_FLOAT,)


def multiply(boundary: TokenBoundary, product: Product) -> npt.NDArray[np.uint32]:
    """The words that the kernel wrote. Raises as `TokenBoundary`'s products say."""
    if len(product.x) != product.cols:
        raise ShapeMismatch(f"the input has {len(product.x)} elements, the rows {product.cols} columns")
    at = -(-product.x.nbytes // _ALIGN) * _ALIGN
    weights = sum(map(len, product.parts))
    check_room(boundary, at + weights, 4 * product.n_words)

    def stage() -> None:
        memory = boundary.input_map.view(np.uint8)
        memory[: product.x.nbytes] = product.x.view(np.uint8)
        place = at
        for part in product.parts:
            memory[place : place + len(part)] = part
            place += len(part)

    words = (
        *pair(boundary.input_va), *pair(boundary.output_va), *pair(boundary.input_va + at), product.cols, product.rows,
    )  # fmt: skip
    return run(boundary, product.operation, product.kernel, words, stage, product.n_words, product.before)


def check_room(boundary: TokenBoundary, n_input: int, n_output: int) -> None:
    """Raise `InputTooLarge` or `OutputTooLarge` unless so many bytes fit; `BackendClosed` after the end."""
    with boundary.exclusive():
        if n_input > (room := boundary.input_map.nbytes):
            raise InputTooLarge(f"the operands take {n_input} bytes; the input buffer has {room}")
        if n_output > (room := boundary.output_map.nbytes):
            raise OutputTooLarge(f"the results take {n_output} bytes; the output buffer has {room}")


def run(
    boundary: TokenBoundary,
    operation: BoundaryOperation,
    kernel: str,
    user_data: Sequence[int],
    stage: Callable[[], object],
    n_words: int,
    before: tuple[int, ...],
) -> npt.NDArray[np.uint32]:
    """One dispatch: u32[n_words] that the kernel left in the output. before: what they hold before, in turns."""

    def prepare() -> None:
        stage()
        boundary.output_map[:n_words] = np.resize(np.array(before, np.uint32), n_words)

    def record(builder: PacketBuilder, signal_va: int, expected: int) -> None:
        record_dispatch(builder, boundary.programs[kernel], user_data)
        builder.release_mem_signal(signal_va, expected)

    with boundary.exclusive():
        boundary.perform(operation, prepare, record)
        return boundary.output_map[:n_words].copy()
