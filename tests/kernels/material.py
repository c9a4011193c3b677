"""Rows to feed kernels: packed weights and activations, ordinary and adversarial."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import numpy as np
import pytest

from zinc_rt.formats import table
from zinc_rt.gguf import GGMLType

T = GGMLType
QUANTISED = tuple(T[f.name] for f in table.quantized())
FLOATS = tuple(T[f.name] for f in table.floats())
SUPER = tuple(T[f.name] for f in table.quantized() if f.groups > 1)
OF_EACH_KIND = (
    *("Q4_0", "Q5_1", "IQ4_NL", "Q8_0", "Q5_K", "Q6_K", "MXFP4", "IQ4_XS", "Q3_K", "Q2_K", "NVFP4"),
    *("IQ2_XXS", "IQ2_S", "IQ3_S", "Q2_0", "TQ2_0", "TQ1_0", "Q1_0", "IQ1_M", "IQ1_S", "F32", "F16", "BF16"),
)
"""A format of each way to hold integers, scales and minima. Products of the others are slow tests; how each format is
decoded, the tests of embeddings check for all of them.
"""
FEW = ("Q8_0", "Q4_K", "IQ2_S", "NVFP4", "F16")
"""For what depends on how blocks are read rather than on how they are decoded."""
SCALE_BYTES = {T[f.name]: f.halves for f in table.quantized()}
"""Where the float16 scales of a block lie."""
EXPONENT = {T[f.name]: f.d for f in table.quantized() if f.scale == table.Scale.POWER_OF_TWO}
"""Where the exponent of a block lies, for formats whose scale is a power of two."""
SCATTERED = {T[f.name]: f.scales for f in table.quantized() if f.scale == table.Scale.ODD_THREES}
"""Where four words of 16 bits lie whose top nibbles are those of the block's float16."""

FINITE_F16 = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x1400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF]
WILD_F16 = [*FINITE_F16, 0x7C00, 0xFC00, 0x7E00, 0xFE01]
AWKWARD_E = [0, 1, 2, 3, 100, 128, 200, 254, 255]


def by_kind(formats: Iterable[GGMLType | str], soon: Collection[str] = OF_EACH_KIND) -> list[Any]:
    """Parameters of a test by their names: one format of each kind by default, the others where slow tests run."""
    names = {of: of if isinstance(of, str) else of.name for of in formats}
    marks = {name: () if name in soon else pytest.mark.slow for name in names.values()}
    return [pytest.param(of, id=name, marks=marks[name]) for of, name in names.items()]


def put_halves(kind: GGMLType, blocks: np.ndarray, at: int, halves: np.ndarray) -> None:
    """Write float16 numbers of blocks, u8[..., block_bytes], as their place `at` wants them."""
    bits = halves.astype("<f2").view("<u2")[..., None]
    if SCATTERED.get(kind) != at:
        blocks[..., at : at + 2] = bits.view(np.uint8)
        return
    words = np.ascontiguousarray(blocks[..., at : at + 8]).view("<u2")
    nibbles = bits >> np.arange(0, 16, 4, dtype=np.uint16) & 15
    blocks[..., at : at + 8] = (words & 0xFFF | nibbles << 12).astype("<u2").view(np.uint8)


def places_of_halves(kind: GGMLType) -> tuple[int, ...]:
    """What `put_halves` takes for the float16 numbers of a block."""
    return (*SCALE_BYTES[kind], *((SCATTERED[kind],) if kind in SCATTERED else ()))


def packed_rows(kind: GGMLType, rng: np.random.Generator, n_rows: int, n_in: int) -> np.ndarray:
    """u8[n_rows, row_bytes]: any integers, scales of ordinary sizes and both signs."""
    raw = rng.integers(0, 256, (n_rows, n_in // kind.block_size, kind.block_bytes), np.uint8)
    for at in places_of_halves(kind):
        put_halves(kind, raw, at, rng.standard_normal(raw.shape[:2]) * 2.0 ** rng.integers(-9, 2, raw.shape[:2]))
    if kind in EXPONENT:
        raw[:, :, EXPONENT[kind]] = rng.integers(116, 130, raw.shape[:2])
    return raw.reshape(n_rows, -1)


def adversarial_rows(
    kind: GGMLType, rng: np.random.Generator, n_rows: int, n_in: int, scales: list[int] = FINITE_F16
) -> np.ndarray:
    """As `packed_rows`, with awkward scales in most blocks and integers that are all at one end in some."""
    raw = packed_rows(kind, rng, n_rows, n_in).reshape(n_rows, -1, kind.block_bytes)
    extreme = rng.random(raw.shape[:2]) < 0.3
    raw[extreme] = rng.choice([0x00, 0xFF, 0x80, 0x7F, 0x88], (int(extreme.sum()), 1))
    for at in places_of_halves(kind):
        put_halves(kind, raw, at, rng.choice(scales, raw.shape[:2]).astype("<u2").view("<f2"))
    if kind in EXPONENT:
        raw[:, :, EXPONENT[kind]] = rng.choice(AWKWARD_E, raw.shape[:2])
    return raw.reshape(n_rows, -1)


def float_rows(kind: GGMLType, x: np.ndarray) -> np.ndarray:
    """x stored as a float format, truncated for BF16: u8[n_rows, row_bytes]."""
    if kind is T.F32:
        return x.astype("<f4").view(np.uint8)
    if kind is T.F16:
        with np.errstate(over="ignore"):
            return x.astype("<f2").view(np.uint8)
    return (x.astype("<f4").view("<u4") >> 16).astype("<u2").view(np.uint8)


def widened(kind: GGMLType, raw: np.ndarray) -> np.ndarray:
    """The float32 values of stored float rows."""
    if kind is T.F32:
        return raw.view("<f4")
    if kind is T.F16:
        return raw.view("<f2").astype(np.float32)
    return (raw.view("<u2").astype("<u4") << 16).view("<f4")


def activations(rng: np.random.Generator, n_rows: int, n_in: int) -> np.ndarray:
    """f32[n_rows, n_in], ordinary: every group of 32 with a size of its own."""
    x = rng.standard_normal((n_rows, n_in))
    sizes = np.repeat(2.0 ** rng.integers(-6, 7, (n_rows, -(-n_in // 32))), 32, axis=1)[:, :n_in]
    return (x * sizes).astype(np.float32)


def adversarial_activations(rng: np.random.Generator, n_rows: int, n_in: int, *, finite: bool = True) -> np.ndarray:
    """f32[n_rows, n_in] with groups of zeros, subnormals, ties, huge, tiny and lopsided values."""
    x = activations(rng, n_rows, n_in).reshape(n_rows, -1)
    for row in x:
        for start in range(0, n_in, 32):
            row[start : start + 32] = _awkward(rng, row[start : start + 32], finite)
    return x


def _awkward(rng: np.random.Generator, group: np.ndarray, finite: bool) -> np.ndarray:
    n = group.size
    sign = rng.choice(np.float32([-1, 1]), n)
    ties = (rng.integers(-126, 127, n) + 0.5).astype(np.float32)
    ties[0] = 127.0  # d is a power of two, so x / d are exact halves
    step = np.float32(2.0 ** rng.integers(-20, 20))
    kinds = [
        group,
        np.zeros(n, np.float32) * sign,
        sign * np.float32(2.0**-149) * rng.integers(0, 1 << 20, n).astype(np.float32),
        ties * step,
        sign * np.float32(3.4e38) * rng.random(n).astype(np.float32),
        np.where(np.arange(n) == n // 2, np.float32(3.4028235e38), group),
        sign * np.float32(127 * 2.0**-126) * np.float32([1.0, 0.999])[rng.integers(0, 2, n)],  # about the rule for d
        np.full(n, -1.5, np.float32) * step,  # all at the maximum
        np.ldexp(group, rng.integers(-140, 0, n)).astype(np.float32),
    ]
    if not finite:
        bad = group.copy()
        bad[rng.integers(0, n)] = rng.choice(np.float32([np.nan, np.inf, -np.inf]))
        kinds.append(bad)
    return kinds[rng.integers(0, len(kinds))]
