"""The record of a block format: where the parts of a block lie, of which kind they are, and what follows from that."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from zinc_rt.formats import grids
from zinc_rt.formats.kinds import (
    CODED_KINDS,
    FLOAT_KINDS,
    GRID_KINDS,
    HALF_SCALES,
    PAIR_KINDS,
    SUPER_GROUPS,
    WITH_MINIMA,
    CodeLayout,
    Scale,
    Signs,
)
from zinc_rt.numerics import GROUP

_LARGEST_SCALE: Final[dict[str, int]] = {
    Scale.SIX_BIT: 63,
    Scale.INT8_HALVES: 128,
    Scale.SIX_BIT_SIGNED: 32,
    Scale.SIX_BIT_HALVES: 32,
    Scale.FOUR_BIT_HALVES: 15,
    Scale.ODD_WORD: 31,
    Scale.ODD_NIBBLES: 31,
    Scale.ODD_HALVES: 31,
    Scale.ODD_TOP: 15,
    Scale.ODD_THREES: 15,
}
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
    Scale.ODD_TOP: 2,
    Scale.ODD_THREES: 2,
}
_LARGEST_FLOAT: Final[dict[str, float]] = {
    CodeLayout.F32: 3.4028234663852886e38,
    CodeLayout.F16: 65504.0,
    CodeLayout.BF16: 3.3895313892515355e38,
}
_LARGEST_D: Final[dict[str, float]] = {Scale.POWER_OF_TWO: 2.0**124, Scale.E4M3_HALVES: 448.0 / 2}
"""The largest scale, where that is no float16. Larger powers of two times the integers of 4 bits are no float32."""
_LOW_BITS: Final[dict[str, int]] = {
    **dict.fromkeys(CODED_KINDS, 4),
    **dict.fromkeys(PAIR_KINDS, 2),
    CodeLayout.SIGN_BITS: 1,
}
_LARGEST_CODE: Final[dict[str, int]] = {CodeLayout.SIGN_BITS: 2, CodeLayout.TRITS: 2, CodeLayout.SHIFTED_GRID: 18}
"""The largest stored integer, where that is not the largest number of so many bits."""
_NARROW: Final = ((-16, 47), (-64, 63))
"""Integers that six bits hold once 16 is added, and seven once 64 is."""


@dataclass(frozen=True)
class Grid:
    """Indices of a table of vectors. Places are bytes from the block's beginning.

    table: its name in `zinc_rt.formats.grids`. width: elements of a vector, 8 or 4.
    step: bytes from the indices of a group to the next group's, which begin at `Format.q`.
    signs, sign_place, sign_step: how signs lie, where they begin, bytes from one group to the next.
    high: where a byte for each group, or 16 bits in a shifted grid, have the bits above the low eight of its indices:
        `high_bits` for each.
    """

    table: str
    width: int
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
    def high_step(self) -> int:
        """Bits from those of one index to those of the next."""
        return 4 if self.signs == Signs.SHIFT_OF_EIGHTS else self.index_bits

    @property
    def words(self) -> tuple[int, ...]:
        """The table: sizes of four elements in a word, width / 4 words for each vector."""
        return grids.words(self.table)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers in the table, in rising order."""
        return grids.PACKED[self.table].values

    @property
    def peak(self) -> int:
        """The largest of them."""
        return self.sizes[-1]

    @property
    def size_shift(self) -> int:
        """How far right a size is shifted to become its place in `sizes`. Raises ValueError where none will do."""
        for shift in range(8):
            if [size >> shift for size in self.sizes] == [*range(len(self.sizes))]:
                return shift
        raise ValueError(f"no shift makes the sizes {self.sizes} of a grid their places; kernels know no other way")

    @property
    def size_bits(self) -> int:
        """Bits of such a place."""
        return (len(self.sizes) - 1).bit_length()

    @property
    def signed_sizes(self) -> tuple[int, ...]:
        """16 numbers: what the places stand for, with the bit above them as the sign."""
        n = 1 << self.size_bits
        sizes = (*self.sizes, *[0] * (n - len(self.sizes)))
        return (*sizes, *[-size for size in sizes], *[0] * (16 - 2 * n))

    @property
    def lines(self) -> int:
        """Words that hold the low bytes of a group's indices."""
        return GROUP // self.width // 4


@dataclass(frozen=True)
class Format:
    """One format. Places are bytes from the block's beginning.

    name: as in `GGMLType`. block, block_bytes: elements and bytes of a block.
    kind, q, high, high_bits: the integers' low bits and the bits above them.
    offset: subtracted from an integer. codebook: the numbers that integers stand for, if they are codes.
    grid: where indices and signs lie, for kind GRID.
    scale, d, scales, minimum: the factors of an integer, and the number that is added then. unit: a power of two that d
        is multiplied with first.
    written: the largest stored integer that writers use, where readers take more.
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
    written: int | None = None
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
        yield self.kind == CodeLayout.BYTES and self.high_bits != 0, "bytes have no high bits"
        low, high = self.integers if self.quantized else (0, 0)
        yield low < -128 or high > 127, f"integers from {low} to {high} do not fit a byte with a sign"
        yield bool(self.codebook) and self.offset != 0, "a codebook has no offset"
        yield (self.kind in GRID_KINDS) != (self.grid is not None), "a grid and its kind belong together"
        small = self.scale in _LARGEST_SCALE and self.scale not in (Scale.ODD_WORD, Scale.ODD_TOP)
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
        if self.scale in (Scale.NONE, Scale.POWER_OF_TWO, Scale.E4M3_HALVES, Scale.ODD_THREES):
            return ()
        return (self.d,) if self.minimum is None else (self.d, self.minimum)

    @property
    def n_halves(self) -> int:
        """How many there are, those without a place of their own counted."""
        return 1 if self.scale == Scale.ODD_THREES else len(self.halves)

    @property
    def factors(self) -> int:
        """Numbers that a group's integer sums are multiplied with: its scales and minima, widened."""
        return _FACTORS.get(self.scale, len(self.halves))

    @property
    def low_bits(self) -> int:
        """Bits that choose an integer, below the high ones: 4, 2 or 1. Raises KeyError for kinds without parts."""
        return _LOW_BITS[self.kind]

    @property
    def scaled_halves(self) -> bool:
        """Whether each 16 elements have a scale of their own."""
        return self.scale in HALF_SCALES

    @property
    def wide(self) -> bool:
        """Whether an integer needs a whole byte, also when it is made unsigned."""
        if self.looked_up:
            return self._bits is None
        return self.kind == CodeLayout.BYTES

    @property
    def looked_up(self) -> bool:
        """Whether bits stand for integers by a table."""
        return bool(self.codebook) or self.kind == CodeLayout.GRID

    @property
    def bias(self) -> int:
        """What makes the integers unsigned, as the kernels add it: for plain bits the offset that they carry."""
        if self.wide:
            return 128 + self.offset
        if self.eighths:  # the sums that eighths are multiplied with take it away
            return 0
        return self.offset if self._bits is None else -self._bits[0]

    @property
    def _bits(self) -> tuple[int, int] | None:
        """Those of `_NARROW` that integers which are looked up keep to."""
        least, most = self.integers
        return next((n for n in _NARROW if self.looked_up and n[0] <= least and most <= n[1]), None)

    @property
    def eighths(self) -> bool:
        """Whether a weight is a whole number and an eighth more or less: the CPU multiplies sums with the eighths."""
        return self.kind == CodeLayout.SHIFTED_GRID

    @property
    def integers(self) -> tuple[int, int]:
        """The least and the greatest integer that enters a dot product. Raises ValueError for plain numbers."""
        if not self.quantized:
            raise ValueError(f"{self.name} has no integers")
        if self.codebook:
            return min(self.codebook), max(self.codebook)
        if self.kind == CodeLayout.GRID and self.grid is not None:
            return -self.grid.peak, self.grid.peak
        if self.kind == CodeLayout.BYTES:
            return -128 - self.offset, 127 - self.offset
        most = (1 << _LOW_BITS.get(self.kind, 4) << self.high_bits) - 1
        return -self.offset, _LARGEST_CODE.get(self.kind, most) - self.offset

    @property
    def levels(self) -> tuple[int, ...]:
        """The integers that writers use, in rising order. Raises ValueError for plain numbers."""
        low, high = self.integers
        if self.codebook:
            return tuple(sorted(set(self.codebook)))
        top = high if self.written is None else self.written - self.offset
        return tuple(range(low, top + 1, 2 if self.kind == CodeLayout.SIGN_BITS else 1))

    @property
    def largest(self) -> float:
        """The largest size of values of both signs that can be stored.

        Where there is a minimum it holds all that is below zero, by its own: the integers are never negative.
        """
        if not self.quantized:
            return _LARGEST_FLOAT[self.kind]
        scale = (
            _LARGEST_D.get(self.scale, _LARGEST_FLOAT[CodeLayout.F16]) * self.unit * _LARGEST_SCALE.get(self.scale, 1)
        )
        low, high = self.integers
        return scale * (min(-low, high) if self.minimum is None else 1)

    @property
    def largest_sum(self) -> int:
        """A bound on every integer that becomes a float32: it is exact below 2^24 (docs/how/numerics.md)."""
        isum = max(map(abs, self.integers)) * 127 * GROUP
        return isum * _LARGEST_SCALE.get(self.scale, 1)
