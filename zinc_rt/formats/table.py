"""The block formats that can be computed with: one record each. Every other list of formats is derived from `FORMATS`.

A format stores elements in blocks. A block holds groups of 32 elements, which share an exact integer dot product
(docs/how/numerics.md): one group or several, eight in a super-block. Layouts follow `ggml-common.h` (ggml repository);
numbers are little endian.

A record says where the parts of a block lie and of which *kind* they are. Decoders know kinds, never names, so a format
of known kinds needs its record and nothing else. Kernels look records up by name when they are compiled and refuse what
they do not know.
"""

from __future__ import annotations

from typing import Final

from zinc_rt.formats.kinds import CodeLayout, Scale, Signs
from zinc_rt.formats.record import Format, Grid

_NON_LINEAR: Final = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1: Final = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the values of a float of 4 bits: sign, two bits of exponent, one of mantissa."""

_RECORDS: Final = (
    Format("F32", 1, 4, CodeLayout.F32),
    Format("F16", 1, 2, CodeLayout.F16),
    Format("BF16", 1, 2, CodeLayout.BF16),
    Format("Q4_0", 32, 18, CodeLayout.NIBBLES, Scale.BLOCK, q=2, offset=8),
    Format("Q4_1", 32, 20, CodeLayout.NIBBLES, Scale.BLOCK, q=4, minimum=2),
    Format("Q5_0", 32, 22, CodeLayout.NIBBLES, Scale.BLOCK, q=6, high=2, high_bits=1, offset=16),
    Format("Q5_1", 32, 24, CodeLayout.NIBBLES, Scale.BLOCK, q=8, high=4, high_bits=1, minimum=2),
    Format("Q8_0", 32, 34, CodeLayout.BYTES, Scale.BLOCK, q=2),
    Format("Q4_K", 256, 144, CodeLayout.PAIRS, Scale.SIX_BIT, q=16, scales=4, minimum=2),
    Format("Q5_K", 256, 176, CodeLayout.PAIRS, Scale.SIX_BIT, q=48, high=16, high_bits=1, scales=4, minimum=2),
    Format(
        "Q6_K", 256, 210, CodeLayout.HALVES, Scale.INT8_HALVES, q=0, high=128, high_bits=2, offset=32, d=208, scales=192
    ),
    Format("IQ4_NL", 32, 18, CodeLayout.NIBBLES, Scale.BLOCK, q=2, codebook=_NON_LINEAR),
    Format("MXFP4", 32, 17, CodeLayout.NIBBLES, Scale.POWER_OF_TWO, q=1, codebook=_E2M1),
    Format("IQ4_XS", 256, 136, CodeLayout.NIBBLES, Scale.SIX_BIT_SIGNED, q=8, scales=2, codebook=_NON_LINEAR),
    Format(
        "Q3_K", 256, 110, CodeLayout.QUARTERS, Scale.SIX_BIT_HALVES, 32, high=0, high_bits=1, offset=4, d=108, scales=96
    ),
    Format("Q2_K", 256, 84, CodeLayout.QUARTERS, Scale.FOUR_BIT_HALVES, q=16, d=80, minimum=82, scales=0),
    Format("NVFP4", 64, 36, CodeLayout.EIGHTS, Scale.E4M3_HALVES, q=4, codebook=_E2M1),
    Format(
        "IQ2_XXS",
        256,
        66,
        CodeLayout.GRID,
        Scale.ODD_WORD,
        2,
        unit=0.125,
        grid=Grid("IQ2_XXS", 8, 8, Signs.WORDS, 6, 8),
    ),
    Format(
        "IQ2_XS",
        256,
        74,
        CodeLayout.GRID,
        Scale.ODD_HALVES,
        2,
        scales=66,
        unit=0.125,
        grid=Grid("IQ2_XS", 8, 8, Signs.IN_INDEX),
    ),
    Format(
        "IQ2_S",
        256,
        82,
        CodeLayout.GRID,
        Scale.ODD_HALVES,
        2,
        scales=74,
        unit=0.125,
        grid=Grid("IQ2_S", 8, 4, Signs.BYTES, 34, 4, 66, 2),
    ),
    Format(
        "IQ3_XXS",
        256,
        98,
        CodeLayout.GRID,
        Scale.ODD_WORD,
        2,
        unit=0.25,
        grid=Grid("IQ3_XXS", 4, 8, Signs.WORDS, 66, 4),
    ),
    Format(
        "IQ3_S",
        256,
        110,
        CodeLayout.GRID,
        Scale.ODD_NIBBLES,
        2,
        scales=106,
        grid=Grid("IQ3_S", 4, 8, Signs.BYTES, 74, 4, 66, 1),
    ),
    Format("Q2_0", 64, 18, CodeLayout.FOURS, Scale.BLOCK, q=2, offset=1),
    Format("TQ2_0", 256, 66, CodeLayout.QUARTERS, Scale.BLOCK, q=0, d=64, offset=1, written=2),
    Format("TQ1_0", 256, 54, CodeLayout.TRITS, Scale.BLOCK, q=0, d=52, offset=1),
    Format("Q1_0", 128, 18, CodeLayout.SIGN_BITS, Scale.BLOCK, q=2, offset=1),
    Format(
        "IQ1_M",
        256,
        56,
        CodeLayout.SHIFTED_GRID,
        Scale.ODD_THREES,
        0,
        offset=9,
        scales=48,
        unit=0.125,
        grid=Grid("IQ1_S", 8, 4, Signs.SHIFT_OF_EIGHTS, high=32, high_bits=3),
    ),
    Format(
        "IQ1_S",
        256,
        50,
        CodeLayout.SHIFTED_GRID,
        Scale.ODD_TOP,
        2,
        offset=9,
        unit=0.125,
        grid=Grid("IQ1_S", 8, 4, Signs.SHIFT_OF_GROUP, high=34, high_bits=3),
    ),
)

FORMATS: Final[dict[str, Format]] = {record.name: record for record in _RECORDS}
"""Every format by name, in the order in which lists show them."""


def quantized() -> tuple[Format, ...]:
    """The formats whose products take int8 activations."""
    return tuple(f for f in FORMATS.values() if f.quantized)


def floats() -> tuple[Format, ...]:
    """The formats of plain numbers."""
    return tuple(f for f in FORMATS.values() if not f.quantized)
