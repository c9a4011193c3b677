"""Element types of buffers."""

from __future__ import annotations

import enum


class DType(enum.StrEnum):
    """Element types, called as in GGUF but lower case. The `q*` types hold blocks of elements along a row."""

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    I32 = "i32"
    Q4_0 = "q4_0"
    Q4_1 = "q4_1"
    Q5_0 = "q5_0"
    Q5_1 = "q5_1"
    Q8_0 = "q8_0"
    Q4_K = "q4_k"
    Q5_K = "q5_k"
    Q6_K = "q6_k"

    @property
    def block_size(self) -> int:
        """Elements of one block; 1 for the plain types."""
        return _BLOCKS[self][0]

    @property
    def block_bytes(self) -> int:
        """Bytes of one block."""
        return _BLOCKS[self][1]

    @property
    def is_quantized(self) -> bool:
        """Whether elements come in blocks."""
        return self.block_size > 1

    def row_bytes(self, n: int) -> int:
        """Bytes of a row of `n` elements, counting a started block as a whole one."""
        return -(-n // self.block_size) * self.block_bytes


_BLOCKS = {
    DType.F32: (1, 4), DType.F16: (1, 2), DType.BF16: (1, 2), DType.I32: (1, 4),
    DType.Q4_0: (32, 18), DType.Q4_1: (32, 20), DType.Q5_0: (32, 22), DType.Q5_1: (32, 24),
    DType.Q8_0: (32, 34), DType.Q4_K: (256, 144), DType.Q5_K: (256, 176), DType.Q6_K: (256, 210),
}  # fmt: skip
