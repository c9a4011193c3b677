"""A whole program as text, one line for each instruction."""

from __future__ import annotations

from amdgpu_emu.isa.decoder import instructions
from amdgpu_emu.isa.instruction import Encoding, Instruction
from amdgpu_emu.isa.printer import text

_COLUMN = 64


def listing(code: bytes, address: int = 0, *, wave: int = 32, gfx: int = 12) -> list[str]:
    """List a program: assembly, address and words of each instruction, targets of branches.

    Raises `UnknownInstruction`.
    """
    return [_line(i, gfx) for i in instructions(code, address, wave=wave, gfx=gfx)]


def target(instruction: Instruction) -> int | None:
    """The target address of a branch or call; None for other instructions and for targets in a register."""
    if instruction.format not in {Encoding.SOPP, Encoding.SOPK}:
        return None
    if not instruction.name.startswith(("s_branch", "s_cbranch", "s_call")):
        return None
    return instruction.address + instruction.size + 4 * instruction.modifiers["simm16"]


def _line(i: Instruction, gfx: int) -> str:
    words = " ".join(f"{w:08X}" for w in i.words)
    to = target(i)
    return f"{text(i, gfx):{_COLUMN}} // {i.address:012X}: {words}{'' if to is None else f' -> {to:#x}'}"
