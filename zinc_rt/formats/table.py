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


SUPER_GROUPS: Final = 8
"""Groups of a super-block."""
FLOAT_KINDS: Final = (Kind.F32, Kind.F16, Kind.BF16)
_LARGEST_SCALE: Final[dict[str, int]] = {
    Scale.SIX_BIT: 63,
    Scale.INT8_HALVES: 128,
    Scale.SIX_BIT_SIGNED: 32,
    Scale.SIX_BIT_HALVES: 32,
    Scale.FOUR_BIT_HALVES: 15,
}
HALF_SCALES: Final = (Scale.INT8_HALVES, Scale.SIX_BIT_HALVES, Scale.FOUR_BIT_HALVES)
"""Scales of 16 elements: the halves of a group have sums of their own."""
WITH_MINIMA: Final = (Scale.SIX_BIT, Scale.FOUR_BIT_HALVES)
_FACTORS: Final[dict[str, int]] = {
    Scale.POWER_OF_TWO: 1,
    Scale.SIX_BIT: 4,
    Scale.INT8_HALVES: 3,
    Scale.SIX_BIT_SIGNED: 2,
    Scale.SIX_BIT_HALVES: 3,
    Scale.FOUR_BIT_HALVES: 6,
}
NIBBLE_KINDS: Final = (Kind.NIBBLES, Kind.PAIRS, Kind.HALVES)
"""Kinds that keep the four low bits of two integers in a byte."""
CODEBOOK: Final = 16
"""Entries of a codebook: four bits choose one."""
_LOW_BITS: Final[dict[str, int]] = {**dict.fromkeys(NIBBLE_KINDS, 4), Kind.QUARTERS: 2}
_NARROW: Final = (-16, 47)
"""Integers that six bits hold once 16 is added."""


@dataclass(frozen=True)
class Format:
    """One format. Places are bytes from the block's beginning.

    name: as in `GGMLType`. block, block_bytes: elements and bytes of a block.
    kind, q, high, high_bits: the integers' low bits and the bits above them.
    offset: what is subtracted from an integer. codebook: what it stands for, where that is no number of its own.
    scale, d, scales, minimum: what it is multiplied with, and what is added then.
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
        small = self.scale in _LARGEST_SCALE
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
        if self.scale in (Scale.NONE, Scale.POWER_OF_TWO):
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
        return self.kind == Kind.BYTES or bool(self.codebook and not self._narrow)

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
)

FORMATS: Final[dict[str, Format]] = {record.name: record for record in _RECORDS}
"""Every format by name, in the order in which lists show them."""


def quantized() -> tuple[Format, ...]:
    """The formats whose products take int8 activations."""
    return tuple(f for f in FORMATS.values() if f.quantized)


def floats() -> tuple[Format, ...]:
    """The formats of plain numbers."""
    return tuple(f for f in FORMATS.values() if not f.quantized)
