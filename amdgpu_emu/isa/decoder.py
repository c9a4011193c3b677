"""Decodes bytes to instructions.

The highest bits of the first word tell the format (RDNA 4 ISA, "Microcode formats").
"""

from __future__ import annotations

from collections.abc import Iterator

from amdgpu_emu.isa import decode_gfx11
from amdgpu_emu.isa.decode_dual import vopd
from amdgpu_emu.isa.decode_memory import ds, vbuffer, vmem
from amdgpu_emu.isa.decode_scalar import smem, sop
from amdgpu_emu.isa.decode_vector import short, vop3, vop3p
from amdgpu_emu.isa.instruction import Instruction
from amdgpu_emu.isa.operands import InstructionWords


def decode(code: bytes, address: int = 0, *, at: int = 0, wave: int = 32, gfx: int = 12) -> Instruction:
    """Decode the instruction at byte `at` of the code, whose address is `address + at`.

    wave: lanes of a wave, 32 or 64; gfx: 12, or 11 for what our kernels contain there. Raises `UnknownInstruction`
    where there is no such instruction, where reserved fields are set, and where the code ends in it.
    """
    c = InstructionWords(code, at, address + at, wave, gfx)
    word = c.words[0]
    if not word >> 31:
        return short(c)
    if word >> 30 == 0b10:
        return sop(c)
    match word >> 26:
        case 0b110010:
            return vopd(c)
        case 0b110101:
            return vop3(c)
        case 0b110110:
            return ds(c)
        case 0b111101:
            return smem(c) if gfx == 12 else decode_gfx11.smem(c)
        case 0b110111 if gfx == 11:
            return decode_gfx11.vmem(c)
        case 0b111000 if gfx == 11:
            return decode_gfx11.invalidate(c)
    match word >> 24:
        case 0xCC:
            return vop3p(c)
        case 0xC4 if gfx == 12:
            return vbuffer(c)
        case 0xEC | 0xED | 0xEE if gfx == 12:
            return vmem(c)
    return c.refuse("no known format begins like this")


def instructions(code: bytes, address: int = 0, *, wave: int = 32, gfx: int = 12) -> Iterator[Instruction]:
    """Decode all instructions of a program, in order. Raises `UnknownInstruction`."""
    at = 0
    while at < len(code):
        found = decode(code, address, at=at, wave=wave, gfx=gfx)
        yield found
        at += found.size
