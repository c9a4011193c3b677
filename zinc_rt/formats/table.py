"""The block formats that can be computed with: one record each. Every other list of formats is derived from `FORMATS`.

A format stores elements in blocks. A block holds groups of 32 elements, which share an exact integer dot product
(docs/numerics.md): one group, or eight in a super-block. Layouts follow `ggml-common.h` (ggml repository); numbers are
little endian.

A record says where the parts of a block lie and of which *kind* they are. Decoders know kinds, never names, so a format
of known kinds needs its record and nothing else. Kernels look records up by name when they are compiled and refuse what
they do not know.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from zinc_rt.formats import grids
from zinc_rt.numerics import GROUP


class Kind(StrEnum):
    """How the integers of a group lie; `Format.q` is where they begin, `Format.high` where their upper bits do.

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


class Scale(StrEnum):
    """What an integer is multiplied with; `Format.d` and `Format.minimum` are where float16 numbers lie."""

    NONE = "none"
    BLOCK = "block"
    """d, for the block's one group; where there is a minimum m, it is added: d * q + m."""
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


class Signs(StrEnum):
    """How a grid's signs are stored. Of seven bits the eighth makes the number of ones even."""

    WORDS = "words"
    """A word for each group: seven bits for each 8 elements, and 4 bits of scale on top."""
    IN_INDEX = "in index"
    """The upper seven of 16 bits, whose lower nine are the index of 8 elements."""
    BYTES = "bytes"
    """A bit for each element."""


@dataclass(frozen=True)
class Grid:
    """Indices of a table of vectors. Places are bytes from the block's beginning.

    table: its name in `zinc_rt.formats.grids`. width: elements of a vector, 8 or 4. peak: the largest size in it.
    step: bytes from the indices of a group to the next group's, which begin at `Format.q`.
    signs, sign_place, sign_step: how signs lie, where they begin, bytes from one group to the next.
    high: where a byte for each group has the bits above the low eight of its indices: `high_bits` for each.
    """

    table: str
    width: int
    peak: int
    step: int
    signs: str
    sign_place: int = 0
    sign_step: int = 0
    high: int | None = None
    high_bits: int = 0

    @property
    def index_bits(self) -> int:
        """Bits of an index above the low eight, wherever they are stored."""
        return 1 if self.signs == Signs.IN_INDEX else self.high_bits

    @property
    def words(self) -> tuple[int, ...]:
        """The table: sizes of four elements in a word, width / 4 words for each vector."""
        return grids.words(self.table)

    @property
    def lines(self) -> int:
        """Words that hold the low bytes of a group's indices."""
        return GROUP // self.width // 4


SUPER_GROUPS: Final = 8
"""Groups of a super-block."""
FLOAT_KINDS: Final = (Kind.F32, Kind.F16, Kind.BF16)
_LARGEST_SCALE: Final[dict[str, int]] = {
    Scale.SIX_BIT: 63,
    Scale.INT8_HALVES: 128,
    Scale.SIX_BIT_SIGNED: 32,
    Scale.SIX_BIT_HALVES: 32,
    Scale.FOUR_BIT_HALVES: 15,
    Scale.ODD_WORD: 31,
    Scale.ODD_NIBBLES: 31,
    Scale.ODD_HALVES: 31,
}
ODD_SCALES: Final = (Scale.ODD_WORD, Scale.ODD_NIBBLES, Scale.ODD_HALVES)
HALF_SCALES: Final = (
    Scale.INT8_HALVES,
    Scale.SIX_BIT_HALVES,
    Scale.FOUR_BIT_HALVES,
    Scale.E4M3_HALVES,
    Scale.ODD_HALVES,
)
"""Scales of 16 elements: the halves of a group have sums of their own."""
WITH_MINIMA: Final = (Scale.SIX_BIT, Scale.FOUR_BIT_HALVES)
_FACTORS: Final[dict[str, int]] = {
    Scale.POWER_OF_TWO: 1,
    Scale.SIX_BIT: 4,
    Scale.INT8_HALVES: 3,
    Scale.SIX_BIT_SIGNED: 2,
    Scale.SIX_BIT_HALVES: 3,
    Scale.FOUR_BIT_HALVES: 6,
    Scale.E4M3_HALVES: 2,
    Scale.ODD_WORD: 2,
    Scale.ODD_NIBBLES: 2,
    Scale.ODD_HALVES: 3,
}
NIBBLE_KINDS: Final = (Kind.NIBBLES, Kind.PAIRS, Kind.HALVES)
"""Kinds that keep the four low bits of two integers in a byte."""
CODED_KINDS: Final = (*NIBBLE_KINDS, Kind.EIGHTS)
"""Kinds of four bits, which may be indices of a codebook."""
CODEBOOK: Final = 16
"""Entries of a codebook: four bits choose one."""
_LOW_BITS: Final[dict[str, int]] = {**dict.fromkeys(CODED_KINDS, 4), Kind.QUARTERS: 2}
_NARROW: Final = (-16, 47)
"""Integers that six bits hold once 16 is added."""


@dataclass(frozen=True)
class Format:
    """One format. Places are bytes from the block's beginning.

    name: as in `GGMLType`. block, block_bytes: elements and bytes of a block.
    kind, q, high, high_bits: the integers' low bits and the bits above them.
    offset: what is subtracted from an integer. codebook: what it stands for, where that is no number of its own.
    grid: where indices and signs lie, for kind GRID.
    scale, d, scales, minimum: what it is multiplied with, and what is added then. unit: a power of two that d is
        multiplied with first.
    """

    name: str
    block: int
    block_bytes: int
    kind: str
    scale: str = Scale.NONE
    q: int = 0
    high: int | None = None
    high_bits: int = 0
    offset: int = 0
    codebook: tuple[int, ...] = ()
    d: int = 0
    scales: int | None = None
    minimum: int | None = None
    grid: Grid | None = None
    unit: float = 1.0
    groups: int = field(init=False)
    """Groups of a block; 0 for plain numbers, which need no whole groups."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "groups", self.block // GROUP)
        for wrong, why in self._contradictions():
            if wrong:
                raise ValueError(f"the record of {self.name}: {why}")

    def _contradictions(self) -> Iterator[tuple[bool, str]]:
        """What no block can be, with words for it: decoders do not look for these."""
        yield self.quantized == (self.scale == Scale.NONE), "integers have scales, and plain numbers have none"
        yield (self.high is None) != (self.high_bits == 0), "the place of high bits and their number belong together"
        yield self.kind == Kind.BYTES and self.high_bits != 0, "bytes have no high bits"
        low, high = self.integers if self.quantized else (0, 0)
        yield low < -128 or high > 127, f"integers from {low} to {high} do not fit a byte with a sign"
        yield bool(self.codebook) and self.offset != 0, "a codebook has no offset"
        yield (self.kind == Kind.GRID) != (self.grid is not None), "a grid and its kind belong together"
        small = self.scale in _LARGEST_SCALE and self.scale != Scale.ODD_WORD
        yield small != (self.scales is not None), f"the place of small scales goes with their kind, not {self.scale!s}"
        yield small and self.groups != SUPER_GROUPS, f"small scales are those of {SUPER_GROUPS} groups"
        yield self.scale in WITH_MINIMA and self.minimum is None, f"scales of kind {self.scale!s} come with minima"
        without = small and self.scale not in WITH_MINIMA
        yield without and self.minimum is not None, f"scales of kind {self.scale!s} come without minima"
        power = self.scale == Scale.POWER_OF_TWO
        yield power and (self.groups != 1 or self.minimum is not None), "a power of two is the one scale of 32 elements"

    @property
    def quantized(self) -> bool:
        """Whether a product takes int8 activations."""
        return self.kind not in FLOAT_KINDS

    @property
    def group_shift(self) -> int:
        """log2 of the groups of a block, for quantised formats."""
        return self.groups.bit_length() - 1

    @property
    def group_bytes(self) -> int:
        """Bytes of 32 plain numbers."""
        return self.block_bytes * GROUP // self.block

    @property
    def halves(self) -> tuple[int, ...]:
        """Where the float16 numbers of a block lie."""
        if self.scale in (Scale.NONE, Scale.POWER_OF_TWO, Scale.E4M3_HALVES):
            return ()
        return (self.d,) if self.minimum is None else (self.d, self.minimum)

    @property
    def factors(self) -> int:
        """Numbers that a group's integer sums are multiplied with: its scales and minima, widened."""
        return _FACTORS.get(self.scale, len(self.halves))

    @property
    def low_bits(self) -> int:
        """Bits of an integer below the high ones: 4, or 2. Raises KeyError for kinds without parts."""
        return _LOW_BITS[self.kind]

    @property
    def scaled_halves(self) -> bool:
        """Whether each 16 elements have a scale of their own."""
        return self.scale in HALF_SCALES

    @property
    def wide(self) -> bool:
        """Whether an integer needs a whole byte, also when it is made unsigned."""
        return self.kind in (Kind.BYTES, Kind.GRID) or bool(self.codebook and not self._narrow)

    @property
    def bias(self) -> int:
        """What makes the integers unsigned, as the kernels add it: for plain bits the offset that they carry."""
        if self.wide:
            return 128 + self.offset
        return -_NARROW[0] if self.codebook else self.offset

    @property
    def _narrow(self) -> bool:
        return _NARROW[0] <= min(self.codebook) and max(self.codebook) <= _NARROW[1]

    @property
    def integers(self) -> tuple[int, int]:
        """The least and the greatest integer that enters a dot product. Raises ValueError for plain numbers."""
        if not self.quantized:
            raise ValueError(f"{self.name} has no integers")
        if self.codebook:
            return min(self.codebook), max(self.codebook)
        if self.grid is not None:
            return -self.grid.peak, self.grid.peak
        if self.kind == Kind.BYTES:
            return -128 - self.offset, 127 - self.offset
        low_bits = _LOW_BITS.get(self.kind, 4)
        return -self.offset, (1 << low_bits << self.high_bits) - 1 - self.offset

    @property
    def largest_sum(self) -> int:
        """A bound on every integer that becomes a float32: it is exact below 2^24 (docs/numerics.md)."""
        isum = max(map(abs, self.integers)) * 127 * GROUP
        return isum * _LARGEST_SCALE.get(self.scale, 1)


_NON_LINEAR: Final = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
_E2M1: Final = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)
"""Twice the values of a float of 4 bits: sign, two bits of exponent, one of mantissa."""

_RECORDS: Final = (
    Format("F32", 1, 4, Kind.F32),
    Format("F16", 1, 2, Kind.F16),
    Format("BF16", 1, 2, Kind.BF16),
    Format("Q4_0", 32, 18, Kind.NIBBLES, Scale.BLOCK, q=2, offset=8),
    Format("Q4_1", 32, 20, Kind.NIBBLES, Scale.BLOCK, q=4, minimum=2),
    Format("Q5_0", 32, 22, Kind.NIBBLES, Scale.BLOCK, q=6, high=2, high_bits=1, offset=16),
    Format("Q5_1", 32, 24, Kind.NIBBLES, Scale.BLOCK, q=8, high=4, high_bits=1, minimum=2),
    Format("Q8_0", 32, 34, Kind.BYTES, Scale.BLOCK, q=2),
    Format("Q4_K", 256, 144, Kind.PAIRS, Scale.SIX_BIT, q=16, scales=4, minimum=2),
    Format("Q5_K", 256, 176, Kind.PAIRS, Scale.SIX_BIT, q=48, high=16, high_bits=1, scales=4, minimum=2),
    Format("Q6_K", 256, 210, Kind.HALVES, Scale.INT8_HALVES, q=0, high=128, high_bits=2, offset=32, d=208, scales=192),
    Format("IQ4_NL", 32, 18, Kind.NIBBLES, Scale.BLOCK, q=2, codebook=_NON_LINEAR),
    Format("MXFP4", 32, 17, Kind.NIBBLES, Scale.POWER_OF_TWO, q=1, codebook=_E2M1),
    Format("IQ4_XS", 256, 136, Kind.NIBBLES, Scale.SIX_BIT_SIGNED, q=8, scales=2, codebook=_NON_LINEAR),
    Format("Q3_K", 256, 110, Kind.QUARTERS, Scale.SIX_BIT_HALVES, 32, high=0, high_bits=1, offset=4, d=108, scales=96),
    Format("Q2_K", 256, 84, Kind.QUARTERS, Scale.FOUR_BIT_HALVES, q=16, d=80, minimum=82, scales=0),
    Format("NVFP4", 64, 36, Kind.EIGHTS, Scale.E4M3_HALVES, q=4, codebook=_E2M1),
    Format(
        "IQ2_XXS", 256, 66, Kind.GRID, Scale.ODD_WORD, 2, unit=0.125, grid=Grid("IQ2_XXS", 8, 43, 8, Signs.WORDS, 6, 8)
    ),
    Format(
        "IQ2_XS",
        256,
        74,
        Kind.GRID,
        Scale.ODD_HALVES,
        2,
        scales=66,
        unit=0.125,
        grid=Grid("IQ2_XS", 8, 43, 8, Signs.IN_INDEX),
    ),
    Format(
        "IQ2_S",
        256,
        82,
        Kind.GRID,
        Scale.ODD_HALVES,
        2,
        scales=74,
        unit=0.125,
        grid=Grid("IQ2_S", 8, 43, 4, Signs.BYTES, 34, 4, 66, 2),
    ),
    Format(
        "IQ3_XXS", 256, 98, Kind.GRID, Scale.ODD_WORD, 2, unit=0.25, grid=Grid("IQ3_XXS", 4, 62, 8, Signs.WORDS, 66, 4)
    ),
    Format(
        "IQ3_S",
        256,
        110,
        Kind.GRID,
        Scale.ODD_NIBBLES,
        2,
        scales=106,
        grid=Grid("IQ3_S", 4, 15, 8, Signs.BYTES, 74, 4, 66, 1),
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
