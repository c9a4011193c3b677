"""Rows, packed and as numbers; their products in exact rational arithmetic: docs/how/numerics.md, "Row products"."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tests.lang.rounding import convert, fused

Floats = npt.NDArray[np.float32]
BLOCK = 32


def pack_q4_0(rng: np.random.Generator, rows: int, cols: int, scale: float = 0.01) -> bytes:
    """Random Q4_0 rows."""
    return b"".join(_scale(rng, scale) + rng.bytes(16) for _ in range(rows * cols // BLOCK))


def pack_q8_0(rng: np.random.Generator, rows: int, cols: int, scale: float = 0.01) -> bytes:
    """Random Q8_0 rows."""
    return b"".join(_scale(rng, scale) + rng.bytes(32) for _ in range(rows * cols // BLOCK))


def _scale(rng: np.random.Generator, scale: float) -> bytes:
    return struct.pack("<e", float(rng.normal()) * scale)


def weights_of(kind: str, raw: bytes, cols: int) -> list[list[float]]:
    """The rows as numbers."""
    if kind == "f32":
        flat = list(struct.unpack(f"<{len(raw) // 4}f", raw))
    elif kind == "q4_0":
        flat = []
        for at in range(0, len(raw), 18):
            (d,) = struct.unpack_from("<e", raw, at)
            quants = raw[at + 2 : at + 18]
            flat += [d * ((q & 15) - 8) for q in quants] + [d * ((q >> 4) - 8) for q in quants]
    else:
        flat = []
        for at in range(0, len(raw), 34):
            d, *quants = struct.unpack_from("<e32b", raw, at)
            flat += [d * q for q in quants]
    return [flat[i : i + cols] for i in range(0, len(flat), cols)]


def product(row: Sequence[float], x: Sequence[float]) -> float:
    """Fma chains over groups of 32, then the tree over 32 lanes."""
    groups = []
    for at in range(0, len(row), BLOCK):
        acc = 0.0
        for w, v in zip(row[at : at + BLOCK], x[at : at + BLOCK], strict=True):
            acc = fused(w, v, acc, "f32")
        groups.append(acc)
    lanes = []
    for lane in range(32):
        total = 0.0
        for value in groups[lane::32]:
            total = convert(total + value, "f32")
        lanes.append(total)
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [convert(a + b, "f32") for a, b in zip(lanes[:half], lanes[half:], strict=True)]
    return lanes[0]


def products(kind: str, raw: bytes, cols: int, x: Sequence[float]) -> Floats:
    """f32[rows]."""
    return np.array([product(row, [float(v) for v in x]) for row in weights_of(kind, raw, cols)], np.float32)


def same(a: Floats, b: Floats) -> bool:
    """Equal to the last bit, a NaN equal to any NaN."""
    return bool(
        np.array_equal(np.where(np.isnan(a), 0, a.view(np.uint32)), np.where(np.isnan(b), 0, b.view(np.uint32)))
        and np.array_equal(np.isnan(a), np.isnan(b))
    )
