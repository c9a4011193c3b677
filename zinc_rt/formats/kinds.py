"""The kinds of a block's parts: integers, scales, signs. Decoders know kinds, never names of formats."""

from __future__ import annotations

from enum import StrEnum
from typing import Final


class CodeLayout(StrEnum):
    """How the integers of a group lie. They begin at `Format.q`, and their upper bits at `Format.high`.

    In groups of 32: element e of group g of the block.
    """

    F32 = "f32"
    F16 = "f16"
    BF16 = "bf16"
    BYTES = "bytes"
    """A signed byte each."""
    NIBBLES = "nibbles"
    """16 bytes: elements 0 to 15 in low halves, 16 to 31 in high ones. Fifth bits: bit e of 4 bytes."""
    PAIRS = "pairs"
    """32 bytes for groups 2k and 2k + 1: low halves, high halves. Fifth bits: bit g of byte e of 32."""
    HALVES = "halves"
    """64 bytes for each four groups: low halves of byte 32k + e for group k, high ones for group k + 2. Two more bits:
    bits 2k and 2k + 1 of byte e of 32, again for each four groups.
    """
    EIGHTS = "eights"
    """8 bytes for each 16 elements: the first 8 in low halves, the last 8 in high ones."""
    GRID = "grid"
    """Indices of a table of vectors and signs; `Format.grid` says where."""
    QUARTERS = "quarters"
    """32 bytes for each four groups: bits 2k and 2k + 1 of byte e for group k. A third bit: bit g of byte e of 32."""
    FOURS = "fours"
    """8 bytes: bits 2k and 2k + 1 of byte i for element 4i + k."""
    SIGN_BITS = "sign bits"
    """4 bytes: bit k of byte i for element 8i + k, which is 2 where it is set and 0 where not."""
    TRITS = "trits"
    """A block of 256 as digits of base 3, five in a byte, which is v * 256 / 243 rounded up for the number v that they
    form, the first digit the most significant one. 32 bytes: digit k of byte e for element e of group k. 16 bytes:
    digit k of byte e for element 160 + 16k + e. 4 bytes of four digits and a zero: the same for element 240 + 4k + e.
    """
    SHIFTED_GRID = "shifted grid"
    """Indices of a table of vectors of -1, 0 and 1, to which an eighth is added, or from which it is taken away:
    `Format.grid` says where. Integers are eight times that, and 9 more: 0, 2, 8, 10, 16, 18.
    """


class Scale(StrEnum):
    """The factors of an integer. `Format.d` and `Format.minimum` are the places of float16 numbers."""

    NONE = "none"
    BLOCK = "block"
    """d, for all of the block; where there is a minimum m, it is added: d * q + m."""
    SIX_BIT = "six bit"
    """12 bytes at `Format.scales` with scales sc and minima mn of eight groups: d * sc * q - dmin * mn."""
    INT8_HALVES = "int8 halves"
    """A signed byte at `Format.scales` for each 16 elements: d * sc * q."""
    POWER_OF_TWO = "power of two"
    """d is a byte e: 2^(e - 128) * q."""
    SIX_BIT_SIGNED = "six bit signed"
    """6 bytes at `Format.scales` with a scale of each of eight groups: d * (sc - 32) * q."""
    SIX_BIT_HALVES = "six bit halves"
    """12 bytes at `Format.scales` with a scale of each 16 elements: d * (sc - 32) * q."""
    FOUR_BIT_HALVES = "four bit halves"
    """A byte at `Format.scales` for each 16 elements: sc in its low half, mn in its high: d * sc * q - dmin * mn."""

    E4M3_HALVES = "e4m3 halves"
    """A byte at `Format.d` for each 16 elements, a float of 4 and 3 bits without a sign: half of it times q."""
    ODD_WORD = "odd word"
    """d * unit * (2 s + 1) * q, with s the upper 4 bits of the group's word of signs."""
    ODD_NIBBLES = "odd nibbles"
    """The same, with s a nibble at `Format.scales` for each group."""
    ODD_HALVES = "odd halves"
    """The same, with s a nibble at `Format.scales` for each 16 elements."""
    ODD_TOP = "odd top"
    """The same, with s bits 12 to 14 of the group's 16 bits at `Grid.high`."""
    ODD_THREES = "odd threes"
    """The same, with s three bits for each 16 elements, four in each of four words of 16 bits at `Format.scales`, from
    the lowest on; the top four bits of the words are those of d, the first word's the lowest.
    """


class Signs(StrEnum):
    """How a grid's signs are stored. Of seven bits the eighth makes the number of ones even."""

    WORDS = "words"
    """A word for each group: seven bits for each 8 elements, and 4 bits of scale on top."""
    IN_INDEX = "in index"
    """The upper seven of 16 bits, whose lower nine are the index of 8 elements."""
    BYTES = "bytes"
    """A bit for each element."""
    SHIFT_OF_GROUP = "shift of group"
    """Of a shifted grid: bit 15 of the group's 16 bits at `Grid.high` takes the eighths of the group away."""
    SHIFT_OF_EIGHTS = "shift of eights"
    """The top bits of the nibbles of these 16 bits, each for 8 elements; the other three belong to the index."""


SUPER_GROUPS: Final = 8
"""Groups of a super-block."""
FLOAT_KINDS: Final = (CodeLayout.F32, CodeLayout.F16, CodeLayout.BF16)
ODD_SCALES: Final = (Scale.ODD_WORD, Scale.ODD_NIBBLES, Scale.ODD_HALVES, Scale.ODD_TOP, Scale.ODD_THREES)
HALF_SCALES: Final = (
    Scale.INT8_HALVES,
    Scale.SIX_BIT_HALVES,
    Scale.FOUR_BIT_HALVES,
    Scale.E4M3_HALVES,
    Scale.ODD_HALVES,
    Scale.ODD_THREES,
)
"""Scales of 16 elements: the halves of a group have sums of their own."""
WITH_MINIMA: Final = (Scale.SIX_BIT, Scale.FOUR_BIT_HALVES)
NIBBLE_KINDS: Final = (CodeLayout.NIBBLES, CodeLayout.PAIRS, CodeLayout.HALVES)
"""Kinds that keep the four low bits of two integers in a byte."""
CODED_KINDS: Final = (*NIBBLE_KINDS, CodeLayout.EIGHTS)
"""Kinds of four bits, which may be indices of a codebook."""
GRID_KINDS: Final = (CodeLayout.GRID, CodeLayout.SHIFTED_GRID)
"""Kinds that store indices of vectors."""
PAIR_KINDS: Final = (CodeLayout.QUARTERS, CodeLayout.FOURS, CodeLayout.TRITS, CodeLayout.SHIFTED_GRID)
"""Kinds whose integers two bits choose, beside those of `Format.high`."""
OFFSET_KINDS: Final = (*NIBBLE_KINDS, *PAIR_KINDS, CodeLayout.SIGN_BITS)
"""Kinds whose integers are stored without a sign: `Format.offset` is subtracted."""
CODEBOOK: Final = 16
"""Entries of a codebook: four bits choose one."""
