"""How a packet's dwords are divided: bit fields, values, addresses. `opcodes` has the table, `registers` the registers.

A layout is a sequence of slots. A slot takes one dword (`Bits`, `Value`), two (`Address`, `Long`: low dword first) or
all that are left (`Rest`). Names are unique within a packet, so that its fields are a flat mapping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from itertools import pairwise

from zinc_rt.amdgpu.pm4.errors import InvalidField

Fields = Mapping[str, "int | tuple[int, ...]"]
DWORD = 0xFFFFFFFF


@dataclass(frozen=True)
class Field:
    """`bits` bits from bit `low` on. values: what the numbers are called; a number that has no name is reserved."""

    name: str
    low: int
    bits: int = 1
    values: type[IntEnum] | None = None

    @property
    def mask(self) -> int:
        """Its bits, in place."""
        return ((1 << self.bits) - 1) << self.low

    def of(self, word: int) -> int:
        """Its number in a dword."""
        return word >> self.low & ((1 << self.bits) - 1)

    def place(self, number: int) -> int:
        """The number, in place. Raises `InvalidField` when it has too many bits."""
        if not 0 <= number < 1 << self.bits:
            raise InvalidField(f"{self.name} is {number:#x}; the field has {self.bits} bits")
        return int(number) << self.low

    def show(self, number: int) -> str:
        """The number's name, or the number."""
        if self.values is not None and number in self.values._value2member_map_:
            return self.values(number).name
        return str(number) if number < 10 else f"{number:#x}"


@dataclass(frozen=True)
class Bits:
    """One dword of bit fields. Bits that no field covers are reserved and zero."""

    fields: tuple[Field, ...]

    n_dwords = 1

    @cached_property
    def mask(self) -> int:
        """All bits that mean something."""
        return sum(field.mask for field in self.fields)

    def decode(self, words: Sequence[int]) -> Iterator[tuple[str, int]]:
        """Names and numbers."""
        return ((field.name, field.of(words[0])) for field in self.fields)

    def encode(self, fields: Fields) -> list[int]:
        """The dword; fields that are not given are zero."""
        return [sum(field.place(_number(fields, field.name, 0)) for field in self.fields)]

    def problems(self, words: Sequence[int]) -> Iterator[str]:
        """What is wrong with the dword."""
        word = words[0]
        if word & ~self.mask:
            yield f"reserved bits {word & ~self.mask:#x} are set"
        for field in self.fields:
            if field.values is not None and field.of(word) not in field.values._value2member_map_:
                yield f"{field.name} {field.of(word)} is reserved"


@dataclass(frozen=True)
class Value:
    """One dword that is a number. bits: how many of them count, the others are zero."""

    name: str
    bits: int = 32

    n_dwords = 1

    def decode(self, words: Sequence[int]) -> Iterator[tuple[str, int]]:
        """Name and number."""
        yield self.name, words[0]

    def encode(self, fields: Fields) -> list[int]:
        """The dword; zero when it is not given."""
        return [_fitting(self.name, _number(fields, self.name, 0), 32)]

    def problems(self, words: Sequence[int]) -> Iterator[str]:
        """What is wrong with the dword."""
        if words[0] >> self.bits:
            yield f"{self.name} is {words[0]:#x}; it has {self.bits} bits"


@dataclass(frozen=True)
class Long:
    """Two dwords that are one number."""

    name: str

    n_dwords = 2

    def decode(self, words: Sequence[int]) -> Iterator[tuple[str, int]]:
        """Name and number."""
        yield self.name, words[0] | words[1] << 32

    def encode(self, fields: Fields) -> list[int]:
        """Both dwords; zero when it is not given."""
        number = _fitting(self.name, _number(fields, self.name, 0), 64)
        return [number & DWORD, number >> 32]

    def problems(self, words: Sequence[int]) -> Iterator[str]:
        """Nothing can be wrong."""
        yield from ()


@dataclass(frozen=True)
class Address(Long):
    """Two dwords that are a GPU address, a multiple of `align` bytes, at most 48 bits (sign-extended above)."""

    align: int = 4

    def problems(self, words: Sequence[int]) -> Iterator[str]:
        """Misaligned, or none that a GPU of these generations can have."""
        address = words[0] | words[1] << 32
        if address % self.align:
            yield f"{self.name} {address:#x} is not a multiple of {self.align}"
        yield from _too_high(self.name, address)


@dataclass(frozen=True)
class TaggedAddress(Long):
    """Two dwords that are a dword's GPU address; a field uses the lowest bits, which an address leaves free."""

    tag: Field = Field("tag", 0)

    def decode(self, words: Sequence[int]) -> Iterator[tuple[str, int]]:
        """Names and numbers of the address and of the field."""
        yield self.name, (words[0] & ~3) | words[1] << 32
        yield self.tag.name, self.tag.of(words[0])

    def encode(self, fields: Fields) -> list[int]:
        """Both dwords; zero when they are not given."""
        low, high = super().encode(fields)
        if low & 3:
            raise InvalidField(f"{self.name} {low | high << 32:#x} is not a multiple of 4")
        return [low | self.tag.place(_number(fields, self.tag.name, 0)), high]

    def problems(self, words: Sequence[int]) -> Iterator[str]:
        """Low bits that neither use."""
        if words[0] & 3 & ~self.tag.mask:
            yield f"reserved bits {words[0] & 3 & ~self.tag.mask:#x} are set"
        yield from _too_high(self.name, words[0] | words[1] << 32)


@dataclass(frozen=True)
class Rest:
    """All dwords that are left, at least `minimum`."""

    name: str
    minimum: int = 1

    n_dwords = 0

    def decode(self, words: Sequence[int]) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Name and numbers."""
        yield self.name, tuple(words)

    def encode(self, fields: Fields) -> list[int]:
        """The dwords."""
        values = fields.get(self.name, ())
        if isinstance(values, int):
            raise InvalidField(f"{self.name} is one number; it must be a sequence of dwords")
        return [_fitting(self.name, value, 32) for value in values]

    def problems(self, words: Sequence[int]) -> Iterator[str]:
        """Nothing can be wrong; the packet checks the count."""
        yield from ()


Slot = Bits | Value | Long | Rest
Layout = tuple[Slot, ...]


@dataclass(frozen=True)
class PacketSpec:
    """One kind of packet.

    choose: layouts differ with the first body dword and the body's length; this picks one. None for both: the length
    that the writer wants is not known, the first slot decides alone.
    """

    name: str
    opcode: int
    layout: Layout
    choose: Callable[[int, int | None], Layout] | None = None
    shader_type: bool = True  # bit 1 of the header may be set

    def layout_of(self, first: int, n_body: int | None = None) -> Layout:
        """The layout of a packet with this first dword behind the header."""
        return self.layout if self.choose is None else self.choose(first, n_body)

    def decode(self, body: Sequence[int]) -> tuple[dict[str, int | tuple[int, ...]], list[str]]:
        """Fields by name, and what is wrong with the body. Dwords of a body that is too short have no fields."""
        fields: dict[str, int | tuple[int, ...]] = {}
        layout = self.layout_of(body[0] if body else 0, len(body))
        problems = self._length(layout, len(body))
        at = 0
        for slot in layout:
            words = body[at:] if isinstance(slot, Rest) else body[at : at + slot.n_dwords]
            if len(words) < slot.n_dwords:
                break
            fields.update(slot.decode(words))
            problems += slot.problems(words)
            at += len(words)
        return fields, problems

    def encode(self, fields: Fields, n_body: int | None = None) -> list[int]:
        """The body. n_body: its length, for packets whose optional dwords are wanted.

        Raises `InvalidField`: a value too large, a name that the packet lacks.
        """
        first = self.layout[0].encode(fields)
        layout = self.layout_of(first[0] if first else 0, n_body)
        known = {name for slot in layout for name in _names(slot)}
        if unknown := sorted(set(fields) - known):
            raise InvalidField(f"{self.name} has no field {unknown[0]}; it has {', '.join(sorted(known))}")
        return [word for slot in layout for word in slot.encode(fields)]

    @staticmethod
    def _length(layout: Layout, n: int) -> list[str]:
        fixed = sum(slot.n_dwords for slot in layout)
        least = next((slot.minimum for slot in layout if isinstance(slot, Rest)), None)
        if least is None and n != fixed:
            return [f"the body has {n} dwords; it must have {fixed}"]
        if least is not None and n < fixed + least:
            return [f"the body has {n} dwords; it must have at least {fixed + least}"]
        return []


def _names(slot: Slot) -> list[str]:
    if isinstance(slot, Bits):
        return [field.name for field in slot.fields]
    return [slot.name, slot.tag.name] if isinstance(slot, TaggedAddress) else [slot.name]


def _too_high(name: str, address: int) -> Iterator[str]:
    if address >> 47 not in (0, 0x1FFFF):
        yield f"{name} {address:#x} is not a 48-bit address"


def _number(fields: Fields, name: str, default: int) -> int:
    value = fields.get(name, default)
    if isinstance(value, tuple):
        raise InvalidField(f"{name} is a sequence; it must be one number")
    return value


def _fitting(name: str, value: int, bits: int) -> int:
    number = int(value)
    if not 0 <= number < 1 << bits:
        raise InvalidField(f"{name} is {number:#x}; it must have at most {bits} bits")
    return number


def bits(*fields: Field) -> Bits:
    """A dword of fields, from the lowest bit up."""
    for below, above in pairwise(fields):
        if below.low + below.bits > above.low:
            raise InvalidField(f"{below.name} and {above.name} overlap")
    return Bits(fields)
