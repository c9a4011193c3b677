"""What blocks hold, by the `gguf` package, and by formulas of single elements for the formats that it does not read."""

from __future__ import annotations

from collections.abc import Callable

import gguf
import numpy as np

from zinc_rt.gguf import GGMLType

SIZES = {GGMLType(int(theirs)): size for theirs, size in gguf.GGML_QUANT_SIZES.items()} | {GGMLType.Q2_0: (64, 18)}
"""Elements and bytes of a block."""


def _q1_0(block: bytes, i: int) -> int:
    return 1 if block[2 + i // 8] >> i % 8 & 1 else -1


def _q2_0(block: bytes, i: int) -> int:
    return (block[2 + i // 4] >> 2 * (i % 4) & 3) - 1


_FORMULAS: dict[GGMLType, Callable[[bytes, int], int]] = {GGMLType.Q1_0: _q1_0, GGMLType.Q2_0: _q2_0}
"""The integer of element i of a block that begins with d."""


def dequantized(kind: GGMLType, raw: np.ndarray) -> np.ndarray:
    """Values of stored rows, u8[n_rows, row_bytes]: f32[n_rows, n]."""
    formula = _FORMULAS.get(kind)
    with np.errstate(all="ignore"):
        if formula is None:
            return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(int(kind)))
        size, n_bytes = SIZES[kind]
        blocks = np.ascontiguousarray(raw).reshape(-1, n_bytes)
        ints = [[formula(block.tobytes(), i) for i in range(size)] for block in blocks]
        d = np.ascontiguousarray(blocks[:, :2]).view("<f2").astype(np.float64)
        values = d * np.array(ints, np.float64).reshape(len(blocks), size)
    return values.astype(np.float32).reshape(len(raw), raw.shape[1] // n_bytes * size)
