"""The command processor's position in a stream, and errors that name it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from amdgpu_emu.errors import GpuFault, GpuHang
from zinc_rt.amdgpu.pm4.decoder import packet_at


@dataclass
class Position:
    """A position in a stream of packets. words: the packets; at: dword offset of the packet in it; index: how many
    packets came before it there; base: offset of the first word in the whole stream, which a ring that wraps needs.
    """

    stream: str
    words: Sequence[int] = ()
    at: int = 0
    index: int = 0
    base: int = 0
    gfx: int = 12

    def text(self) -> str:
        """The packet at the position, decoded."""
        if not self.at < len(self.words):
            return "no packet"
        return replace(packet_at(self.words, self.at), problems=()).text(self.gfx)

    def __str__(self) -> str:
        return f"packet {self.index} at dword {self.base + self.at} of {self.stream}"


class PacketHang(GpuHang):
    """A packet that the command processor cannot run. index, offset: which packet of the stream, at which dword;
    packet: the packet, decoded; reason: what is wrong.
    """

    def __init__(self, position: Position, reason: str) -> None:
        self.index, self.offset = position.index, position.base + position.at
        self.packet, self.reason = position.text(), reason
        super().__init__(f"{position}: {self.packet}: {reason}")


class PacketFault(GpuFault):
    """A packet that accessed memory it must not. index, offset, packet: as `PacketHang`."""

    def __init__(self, position: Position, fault: GpuFault) -> None:
        self.index, self.offset = position.index, position.base + position.at
        self.packet = position.text()
        super().__init__(fault.va, fault.access, fault.reason, f"{fault.nearest}; {position}: {self.packet}")
