"""How matrices lie in memory: tiles of 16 rows, groups of 32 columns in the visiting order of docs/numerics.md.

The tree over 32 lanes adds the groups l, l + 32, … of a lane in order, then lanes pairwise at distance 16, 8, 4, 2, 1.
A kernel that holds 16 rows in a vector goes through the lanes in bit-reversed order and merges sums like a binary
counter, so a tile stores its groups in that order and is read straight through.

A tile is, in this order: scales of super-blocks, scales of groups, bits of the weights. Within a group of weights
line i (of 8) holds columns 4i … 4i+3 of the 16 rows, 64 bytes: an operand of a dot product of bytes. Weights of 4 bits
keep line i in low nibbles and line i + 4 in high ones, in 4 lines; a fifth bit lies in one more line (bit i belongs to
line i); fifth and sixth bits of Q6_K in two (bits 2i, 2i+1 belong to line i, or i + 4 in the second).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGMLType

TILE_ROWS = 16
GROUP = 32
BLOCK_ROWS = 16
"""Rows of activations that lie together in a `Pack`."""


@dataclass(frozen=True)
class Format:
    """Bytes of a tile's parts. super_scales: for each 256 columns; scales, weights: for each group."""

    super_scales: int
    scales: int
    weights: int
    quantized: bool = True


_H = 2 * TILE_ROWS  # a float16 for each row

FORMATS: dict[GGMLType, Format] = {
    GGMLType.Q8_0: Format(0, _H, 512),
    GGMLType.Q4_0: Format(0, _H, 256),
    GGMLType.Q4_1: Format(0, 2 * _H, 256),
    GGMLType.Q5_0: Format(0, _H, 320),
    GGMLType.Q5_1: Format(0, 2 * _H, 320),
    GGMLType.Q4_K: Format(2 * _H, 32, 256),
    GGMLType.Q5_K: Format(2 * _H, 32, 320),
    GGMLType.Q6_K: Format(_H, 32, 384),
    GGMLType.F16: Format(0, 0, 1024, quantized=False),
    GGMLType.BF16: Format(0, 0, 1024, quantized=False),
    GGMLType.F32: Format(0, 0, 2048, quantized=False),
}


def n_groups(n_in: int) -> int:
    """Groups of a row; the last may be short."""
    return -(-n_in // GROUP)


def n_tiles(n_out: int) -> int:
    """Tiles of a matrix; the last may be short."""
    return -(-n_out // TILE_ROWS)


def tile_bytes(kind: GGMLType, n_in: int) -> int:
    """Bytes of a tile, a multiple of 64."""
    part, groups = FORMATS[kind], n_groups(n_in)
    scales = groups // 8 * part.super_scales + groups * part.scales
    return -(-scales // 64) * 64 + groups * part.weights


def matrix_bytes(kind: GGMLType, n_out: int, n_in: int) -> int:
    """Bytes of a whole matrix in tiles."""
    return n_tiles(n_out) * tile_bytes(kind, n_in)


def visiting_order(groups: int) -> npt.NDArray[np.int32]:
    """The place of each group in a tile, i32[groups]."""
    order = [g for lane in range(32) for g in range(int(f"{lane:05b}"[::-1], 2), groups, 32)]
    place = np.empty(groups, np.int32)
    place[order] = np.arange(groups, dtype=np.int32)
    return place
