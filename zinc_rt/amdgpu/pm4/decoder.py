"""Reads any stream of dwords as PM4: packets with named fields, and what is wrong where. It never raises on a stream.

The inverse of the builder: nothing of a stream gets lost.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from zinc_rt.amdgpu.pm4 import opcodes as op
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.pm4 import values as v
from zinc_rt.amdgpu.pm4.fields import Bits, Field, PacketSpec, TaggedAddress

_SHOWN = 8
"""Values of a long list that are printed."""
_BASES = {
    op.SET_SH_REG: ("SH", reg.SH_COUNT),
    op.SET_CONTEXT_REG: ("CONTEXT", reg.CONTEXT_COUNT),
    op.SET_UCONFIG_REG: ("UCONFIG", reg.UCONFIG_COUNT),
}


@dataclass(frozen=True)
class DecodedPacket:
    """A packet, or dwords that are none.

    offset: of its header in the stream, dwords; words: all of it; opcode: None where there is no header; fields: by
    name, empty for packets that the table lacks; problems: what makes it malformed, empty when nothing does.
    """

    offset: int
    words: tuple[int, ...]
    opcode: int | None = None
    fields: dict[str, int | tuple[int, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def spec(self) -> PacketSpec | None:
        """Its entry in the table."""
        return None if self.opcode is None else op.PACKETS.get(self.opcode)

    @property
    def name(self) -> str:
        """What it is called."""
        return "malformed" if self.opcode is None else op.name_of(self.opcode)

    def text(self, gfx: int = 12) -> str:
        """One line: the name, the fields that are not zero, what is wrong. gfx: whose registers."""
        parts = [self.name, *_shown(self, gfx)]
        if self.opcode is not None and self.words[0] & op.SHADER_TYPE:
            parts.append("shader_type=1")
        if self.opcode is not None and self.words[0] & op.PREDICATE:
            parts.append("predicate=1")
        return " ".join(parts) + "".join(f"  !! {problem}" for problem in self.problems)


def decode(words: Sequence[int]) -> list[DecodedPacket]:
    """All packets of a stream. Dwords that start no packet are collected up to the next one that does."""
    stream = [int(word) & 0xFFFFFFFF for word in words]
    found: list[DecodedPacket] = []
    at = 0
    while at < len(stream):
        packet = packet_at(stream, at)
        if packet.opcode is None and found and found[-1].opcode is None:
            before = found.pop()
            packet = DecodedPacket(before.offset, before.words + packet.words, None, {}, before.problems)
        found.append(packet)
        at = packet.offset + len(packet.words)
    return found


def packet_at(stream: Sequence[int], at: int) -> DecodedPacket:
    """The packet whose header is at a dword offset within the stream."""
    head = stream[at]
    if head >> 30 != op.TYPE3:
        return DecodedPacket(at, (head,), None, {}, (f"a header of type {head >> 30}, not 3",))
    opcode = head >> 8 & 0xFF
    problems = [] if not head & op.HEADER_RESERVED else [f"header bits {head & op.HEADER_RESERVED:#x} are reserved"]
    if head >> 16 & 0x3FFF == 0x3FFF and opcode == op.NOP:
        return DecodedPacket(at, (head,), opcode, {}, tuple(problems))
    n_body = (head >> 16 & 0x3FFF) + 1
    words = tuple(stream[at : at + 1 + n_body])
    spec = op.PACKETS.get(opcode)
    if len(words) < 1 + n_body:
        problems.append(f"it has {n_body} body dwords; the stream ends after {len(words) - 1}")
    if spec is None:
        if opcode not in op.OTHER_NAMES:
            problems.append("unknown opcode")
        return DecodedPacket(at, words, opcode, {}, tuple(problems))
    fields, wrong = spec.decode(words[1:])
    if len(words) == 1 + n_body:
        problems += wrong
    return DecodedPacket(at, words, opcode, fields, tuple(problems + _bounds(opcode, fields)))


def render(packets: Iterable[DecodedPacket], gfx: int = 12) -> Iterator[str]:
    """Lines to print: offset of the header in dwords, header, packet. Same offsets as in the emulator's messages."""
    for packet in packets:
        yield f"{packet.offset:6}  {packet.words[0]:08X}  {packet.text(gfx)}"


def _bounds(opcode: int, fields: dict[str, int | tuple[int, ...]]) -> list[str]:
    values, first = fields.get("values"), fields.get("register")
    if opcode not in _BASES or not isinstance(values, tuple) or not isinstance(first, int):
        return []
    space, count = _BASES[opcode]
    if first + len(values) > count:
        return [f"registers {first:#x}..{first + len(values) - 1:#x}; the {space} space has {count:#x}"]
    return []


def _shown(packet: DecodedPacket, gfx: int) -> Iterator[str]:
    spec = packet.spec
    if spec is None:
        yield from _words(packet.words[1:] if packet.opcode is not None else packet.words)
        return
    if packet.opcode == op.SET_SH_REG and "values" in packet.fields:
        yield from _registers(packet, gfx)
        return
    if packet.opcode == op.NOP:
        yield f"{len(packet.words)} dwords"
        payload = packet.words[1:]
        if any(payload):
            yield from _words(payload)
        return
    known = {f.name: f for f in _bit_fields(spec, packet, gfx)}
    for field_name, value in packet.fields.items():
        name = field_name if gfx >= _TEMPORAL_SINCE else field_name.replace("temporal", "cache_policy")
        if isinstance(value, tuple):
            yield f"{name}={_list(value)}"
        elif name in known and (value or known[name].values is not None):
            if known[name].values is None or value or name in _WORTH_ZERO:
                yield f"{name}={known[name].show(value)}"
        elif name not in known and (value or name not in _IDLE_ZERO):
            yield f"{name}={value:#x}" if value > 9 else f"{name}={value}"


_TEMPORAL_SINCE = 12
_WORTH_ZERO = {"function", "mem_space", "dst_sel", "src_sel", "data_sel"}
_IDLE_ZERO = {"reserved", "coher_base", "context_id", "poll_interval", "source"}


def _bit_fields(spec: PacketSpec, packet: DecodedPacket, gfx: int) -> Iterator[Field]:
    body = packet.words[1:]
    for slot in spec.layout_of(body[0] if body else 0, len(body)):
        if isinstance(slot, Bits):
            yield from (_of_generation(field, gfx) for field in slot.fields)
        elif isinstance(slot, TaggedAddress):
            yield slot.tag


def _of_generation(field: Field, gfx: int) -> Field:
    """A field with the name and the values that its bits had before gfx12."""
    if gfx >= _TEMPORAL_SINCE or field.values is not v.Temporal:
        return field
    return replace(field, name=field.name.replace("temporal", "cache_policy"), values=v.CachePolicy)


def _registers(packet: DecodedPacket, gfx: int) -> Iterator[str]:
    table = reg.registers(gfx)
    first, values = packet.fields["register"], packet.fields["values"]
    assert isinstance(first, int)
    assert isinstance(values, tuple)
    for name in ("vmid_shift", "index"):
        if packet.fields[name]:
            yield f"{name}={packet.fields[name]}"
    for i, value in enumerate(values):
        register = table.get(first + i)
        if register is None:
            yield f"SH[{first + i:#x}]={value:#x}"
            continue
        parts = [f"{f.name}={f.show(f.of(value))}" for f in register.fields if f.of(value) and len(register.fields) > 1]
        yield f"{register.name}={value:#x}" + (f"({' '.join(parts)})" if parts else "")


def _words(words: Sequence[int]) -> Iterator[str]:
    if words:
        yield _list(words)


def _list(values: Sequence[int]) -> str:
    more = f", ... {len(values)} in all" if len(values) > _SHOWN else ""
    return f"[{', '.join(f'{value:#x}' for value in values[:_SHOWN])}{more}]"
