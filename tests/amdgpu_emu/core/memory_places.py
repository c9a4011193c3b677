"""Registers and memory of the model of memory instructions, and the places that the lanes of an instruction reach."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from amdgpu_emu.isa.instruction import Instruction, OperandKind
from tests.amdgpu_emu.core.one import signed

SHARED, PRIVATE = 1 << 48, 2 << 48
U32 = (1 << 32) - 1
Place = tuple[str, int, int, int]
"""Space, wave, lane, byte."""


@dataclass
class State:
    """Registers by wave, and memory. v: [wave][register][lane]; workgroup: of each wave; scratch: where it begins and
    how many bytes a wave has; nans: places whose bytes must be a NaN of so many bits, whichever."""

    lanes: int
    v: list[list[list[int]]]
    s: list[list[int]]
    m0: list[int]
    on: list[list[bool]]
    workgroup: list[int]
    base: int
    memory: bytearray
    lds: list[bytearray]
    scratch: tuple[int, int]
    nans: list[tuple[Place, int]] = field(default_factory=list)

    def active(self) -> Iterator[tuple[int, int]]:
        """Waves and lanes in the order in which they take turns."""
        for wave, on in enumerate(self.on):
            for lane in range(self.lanes):
                if on[lane]:
                    yield wave, lane

    def _byte(self, place: Place, k: int) -> tuple[bytearray, int]:
        space, wave, lane, at = place
        at += k
        if space == "lds":
            return self.lds[self.workgroup[wave]], at
        if space == "scratch":
            start, each = self.scratch
            at = start + wave * each + at // 4 * 4 * self.lanes + 4 * lane + at % 4
        return self.memory, at - self.base

    def load(self, place: Place, n: int) -> int:
        found = 0
        for k in range(n):
            memory, at = self._byte(place, k)
            assert at >= 0
            found |= memory[at] << 8 * k
        return found

    def store(self, place: Place, n: int, number: int) -> None:
        for k in range(n):
            memory, at = self._byte(place, k)
            assert at >= 0
            memory[at] = number >> 8 * k & 255

    def vgpr(self, wave: int, lane: int, register: int, dwords: int = 1) -> int:
        return sum(self.v[wave][register + k][lane] << 32 * k for k in range(dwords))

    def put(self, wave: int, lane: int, register: int, dwords: int, number: int) -> None:
        for k in range(dwords):
            self.v[wave][register + k][lane] = number >> 32 * k & U32

    def sgpr(self, wave: int, register: int, dwords: int = 1) -> int:
        return sum(self.s[wave][register + k] << 32 * k for k in range(dwords))


Definition = Callable[[State, Instruction], None]
Where = Callable[[State, Instruction, int, int], Place | None]


# Places. None: out of a buffer's range.


def flat(state: State, ins: Instruction, wave: int, lane: int) -> Place:
    at = state.vgpr(wave, lane, ins.src[0].index, 2) + ins.modifiers.get("offset", 0)
    if at >> 32 == SHARED >> 32:
        return "lds", wave, lane, at & U32
    if at >> 32 == PRIVATE >> 32:
        return "scratch", wave, lane, at & U32
    return "global", wave, lane, at


def glob(state: State, ins: Instruction, wave: int, lane: int) -> Place:
    base = ins.src[-1]
    if base.kind is OperandKind.SGPR:
        at = state.sgpr(wave, base.index, 2) + state.vgpr(wave, lane, ins.src[0].index)
    else:
        at = state.vgpr(wave, lane, ins.src[0].index, 2)
    return "global", wave, lane, at + ins.modifiers.get("offset", 0)


def private(state: State, ins: Instruction, wave: int, lane: int) -> Place:
    at = ins.modifiers.get("offset", 0)
    if ins.src[0].kind is OperandKind.VGPR:
        at += signed(state.vgpr(wave, lane, ins.src[0].index), 32)
    if ins.src[-1].kind is OperandKind.SGPR:
        at += signed(state.sgpr(wave, ins.src[-1].index), 32)
    return "scratch", wave, lane, at


def local(state: State, ins: Instruction, wave: int, lane: int) -> Place:
    return "lds", wave, lane, state.vgpr(wave, lane, ins.src[0].index) + ins.modifiers.get("offset", 0)


def buffer(n: int) -> Where:
    def where(state: State, ins: Instruction, wave: int, lane: int) -> Place | None:
        address, resource, more = ins.src[-3:]
        base = state.sgpr(wave, resource.index, 2)
        stride, swizzle, base = base >> 48 & 0x3FFF, base >> 62, base & (1 << 48) - 1
        records, last = state.sgpr(wave, resource.index + 2), state.sgpr(wave, resource.index + 3)
        register = address.index
        index = 0
        if ins.modifiers.get("idxen"):
            index += state.vgpr(wave, lane, register)
            register += 1
        if last >> 23 & 1:
            index += lane
        offset = ins.modifiers.get("offset", 0)
        if ins.modifiers.get("offen"):
            offset += state.vgpr(wave, lane, register)
        check = last >> 28 & 3
        if check == 0 or (check == 3 and swizzle and stride):
            good = index < records and offset + n <= stride
        elif check == 3:
            good = offset + n <= records
        else:
            good = index < records if check == 1 else records != 0
        if not good:
            return None
        if swizzle:
            piece, neighbours = (None, 4, 8, 16)[swizzle], (8, 16, 32, 64)[last >> 21 & 3]
            assert piece is not None
            at = (index // neighbours * stride + offset // piece * piece) * neighbours
            at += index % neighbours * piece + offset % piece
        else:
            at = index * stride + offset
        soffset = state.sgpr(wave, more.index) if more.kind is OperandKind.SGPR else 0
        return "global", wave, lane, base + at + soffset

    return where
