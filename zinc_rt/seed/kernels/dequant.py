"""Single stored rows: as float32, as the other side of a dot product, and written from float32.

The dot products are one row of the matrix product of docs/how/numerics.md, to the bit: integer products for the
quantised formats, fma chains for the float ones, the 32-lane tree over groups. A raw row is the bytes of one
row, a raw matrix those of its rows one after the other; both may be longer than needed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGMLType, blocks
from zinc_rt.gguf.types import unsupported
from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.matmul import Weight, matmul
from zinc_rt.numerics import GROUP
from zinc_rt.seed.kernels.errors import EmptyInput, InputTooSmall, OutputTooSmall, UnsupportedShape

U8 = npt.NDArray[np.uint8]
RawBytes = bytes | bytearray | memoryview | U8


def row(raw_data: RawBytes, tensor_type: GGMLType, row_index: int, n_cols: int, output: F32) -> None:
    """Write row `row_index` of a raw matrix of `n_cols` columns, as float32, to output[:n_cols].

    Raises EmptyInput for no columns, UnsupportedShape for a row that is not whole blocks, InputTooSmall when
    the matrix has no such row, OutputTooSmall, UnsupportedTensorType.
    """
    raw = _raw_row("row", raw_data, tensor_type, row_index, n_cols)
    _room("row", output, n_cols)
    output[:n_cols] = blocks.dequantize(tensor_type, raw)[0]


def dot_row(raw_data: RawBytes, tensor_type: GGMLType, row_index: int, input: npt.ArrayLike) -> np.float32:
    """Row `row_index` of a raw matrix, of as many columns as `input` is long, times `input` (float32).

    Raises EmptyInput, UnsupportedShape, InputTooSmall, UnsupportedTensorType, as `row` does.
    """
    return _dot("dot_row", raw_data, tensor_type, row_index, input)


def _dot_of(tensor_type: GGMLType) -> Callable[[RawBytes, npt.ArrayLike], np.float32]:
    """The product of one row of a type."""
    name = f"dot_{tensor_type.name.lower().replace('_k', 'k')}_row"

    def dot(raw_row: RawBytes, input: npt.ArrayLike) -> np.float32:
        return _dot(name, raw_row, tensor_type, 0, input)

    dot.__name__ = dot.__qualname__ = name
    dot.__doc__ = f"A {tensor_type.name} row times `input`. Raises EmptyInput, InputTooSmall, UnsupportedShape."
    return dot


dot_f32_row = _dot_of(GGMLType.F32)
dot_f16_row = _dot_of(GGMLType.F16)
dot_bf16_row = _dot_of(GGMLType.BF16)
dot_q8_0_row = _dot_of(GGMLType.Q8_0)
dot_q4_0_row = _dot_of(GGMLType.Q4_0)
dot_q4k_row = _dot_of(GGMLType.Q4_K)
dot_q5k_row = _dot_of(GGMLType.Q5_K)
dot_q6k_row = _dot_of(GGMLType.Q6_K)


def quantize_row_to_q4_0(input: npt.ArrayLike, output: U8) -> None:
    """Write `input` as Q4_0 blocks (18 bytes for 32 elements) to the start of `output`.

    Raises EmptyInput, UnsupportedShape unless in 32s, OutputTooSmall, InvalidBlocks for a value that is not
    finite.
    """
    _quantize("quantize_row_to_q4_0", GGMLType.Q4_0, input, output)


def quantize_row_to_q8_0(input: npt.ArrayLike, output: U8) -> None:
    """Write `input` as Q8_0 blocks (34 bytes for 32 elements) to the start of `output`.

    Raises EmptyInput, UnsupportedShape unless in 32s, OutputTooSmall, InvalidBlocks for a value that is not
    finite.
    """
    _quantize("quantize_row_to_q8_0", GGMLType.Q8_0, input, output)


def fill_input_sum32(input: npt.ArrayLike, output: F32) -> None:
    """Write to output[g] the float32 sum of input[32 g : 32 g + 32], added up in index order from +0.0.

    Each addition rounds to float32. Raises EmptyInput, UnsupportedShape unless in 32s, OutputTooSmall.
    """
    x = _input("fill_input_sum32", input)
    _whole("fill_input_sum32", x.size, GROUP)
    n_groups = x.size // GROUP
    _room("fill_input_sum32", output, n_groups)
    sums = np.zeros(n_groups, np.float32)
    with np.errstate(all="ignore"):
        for column in x.reshape(n_groups, GROUP).T:
            sums += column
    output[:n_groups] = sums


def _input(kernel: str, input: npt.ArrayLike) -> F32:
    x = np.ravel(np.asarray(input, np.float32))
    if x.size == 0:
        raise EmptyInput(f"{kernel}: the input is empty; at least one element is needed")
    return x


def _whole(kernel: str, n: int, size: int) -> None:
    if n % size:
        raise UnsupportedShape(f"{kernel}: {n} elements are not a multiple of {size}, the size of a block")


def _room(kernel: str, output: npt.NDArray[np.generic], needed: int) -> None:
    if output.size < needed:
        raise OutputTooSmall(f"{kernel}: the output has room for {output.size} elements, {needed} are needed")


def _raw_row(kernel: str, raw_data: RawBytes, tensor_type: GGMLType, row_index: int, n_cols: int) -> U8:
    """uint8[1, row_bytes]."""
    if not tensor_type.supported:
        raise unsupported(tensor_type)
    if n_cols <= 0:
        raise EmptyInput(f"{kernel}: a row of {n_cols} columns; at least one is needed")
    _whole(kernel, n_cols, tensor_type.block_size)
    if not isinstance(raw_data, np.ndarray):
        raw_data = np.frombuffer(raw_data, np.uint8)
    raw = raw_data.reshape(-1)
    row_bytes = tensor_type.row_bytes(n_cols)
    start = row_index * row_bytes
    if row_index < 0 or start + row_bytes > raw.size:
        raise InputTooSmall(
            f"{kernel}: row {row_index} of {n_cols} {tensor_type.name} elements takes bytes {start} to "
            f"{start + row_bytes - 1}, the data have {raw.size}"
        )
    return raw[None, start : start + row_bytes]


def _dot(kernel: str, raw_data: RawBytes, tensor_type: GGMLType, row_index: int, input: npt.ArrayLike) -> np.float32:
    x = _input(kernel, input)
    raw = _raw_row(kernel, raw_data, tensor_type, row_index, x.size)
    result: np.float32 = matmul(x[None, :], Weight.from_raw(tensor_type, raw))[0, 0]
    return result


def _quantize(kernel: str, tensor_type: GGMLType, input: npt.ArrayLike, output: U8) -> None:
    x = _input(kernel, input)
    _whole(kernel, x.size, tensor_type.block_size)
    raw = blocks.quantize(tensor_type, x[None, :])[0]
    _room(kernel, output, raw.size)
    output[: raw.size] = raw
