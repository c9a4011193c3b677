"""The single-row kernels that read a weight matrix: embed, matvec, lm_head.

`row_scratch` is the caller's buffer for one dequantised row in runtimes that need one. The integer products here
do not, but its length is checked all the same so that a call that works here works there.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.elementwise import add_rows
from zinc_rt.kernels.reference.matmul import Weight, matmul
from zinc_rt.seed.kernels.checks import as_f32, exact_length, token_in_range
from zinc_rt.seed.kernels.errors import ShapeMismatch

RawBytes = bytes | bytearray | memoryview | npt.NDArray[np.uint8]


def weight_of(kernel: str, raw_data: RawBytes, tensor_type: GGMLType, n_rows: int, n_in: int) -> Weight:
    """The packed matrix [n_rows, n_in] at the start of `raw_data`; raises `ShapeMismatch` when it is too short."""
    raw = np.frombuffer(raw_data, np.uint8)
    row_bytes = tensor_type.row_bytes(n_in)
    if raw.size < n_rows * row_bytes:
        raise ShapeMismatch(
            f"{kernel}: {n_rows} {tensor_type.name} rows of {n_in} need {n_rows * row_bytes} bytes, got {raw.size}"
        )
    return Weight.from_raw(tensor_type, raw[: n_rows * row_bytes].reshape(n_rows, row_bytes))


def embed(
    raw_data: RawBytes, tensor_type: GGMLType, token_id: int, hidden_dim: int, vocab_size: int, output: F32
) -> None:
    """Row `token_id` of the embedding, dequantised. Raises `TokenOutOfRange`, `ShapeMismatch`."""
    token_in_range("embed", token_id, vocab_size)
    exact_length("embed", "output", output, hidden_dim)
    output[...] = weight_of("embed", raw_data, tensor_type, vocab_size, hidden_dim).rows(np.array([token_id]))[0]


def matvec(
    raw_data: RawBytes,
    tensor_type: GGMLType,
    input: npt.ArrayLike,
    row_scratch: F32,
    output: F32,
    accumulate: bool = False,
) -> None:
    """output = W input, or output + W input; output.size rows. Raises `EmptyInput`, `ShapeMismatch`."""
    (x,) = as_f32("matvec", input=input)
    exact_length("matvec", "row_scratch", row_scratch, x.size)
    y = matmul(x[None, :], weight_of("matvec", raw_data, tensor_type, output.size, x.size))[0]
    output[...] = add_rows(output, y) if accumulate else y


def lm_head(raw_data: RawBytes, tensor_type: GGMLType, hidden: npt.ArrayLike, row_scratch: F32, logits: F32) -> None:
    """logits = W hidden for logits.size vocabulary rows. Raises `EmptyInput`, `ShapeMismatch`."""
    (x,) = as_f32("lm_head", hidden=hidden)
    exact_length("lm_head", "row_scratch", row_scratch, x.size)
    logits[...] = matmul(x[None, :], weight_of("lm_head", raw_data, tensor_type, logits.size, x.size))[0]
