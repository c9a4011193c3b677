"""Formats that differ between gfx11 and gfx12: scalar loads, flat, global and scratch memory, cache invalidation."""

from __future__ import annotations

from amdgpu_emu.isa.decode_scalar import finish, opcode, signed
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind
from amdgpu_emu.isa.opcodes import Opcode, OperandType
from amdgpu_emu.isa.operands import NULL, InstructionWords, scalar, vgpr

_NONE = Operand(OperandKind.NULL)
_B32, _B64 = OperandType("b", 32), OperandType("b", 64)
_INVALIDATE = {43: "buffer_gl0_inv", 44: "buffer_gl1_inv"}
# Atomics that came with gfx12, and one that has another name here.
_NEWER = {55, 80, 81, 82, 83, 84, 87, 88, 89, 90, 115, 40, 41, 43, 44, 79}


def smem(code: InstructionWords) -> Instruction:
    """Decode scalar loads of gfx11: two words."""
    word = code.words[0]
    op = opcode(code, Encoding.SMEM, word >> 18 & 0xFF)
    low = code.word()
    code.zero(word >> 15 & 7 | low >> 21 & 0xF, "a reserved field")
    if op.has("none"):
        code.zero(word & 0x7FFF | low, "a field")
        return finish(code, op, (), ())
    data = scalar(code, word >> 6 & 0x7F, op.dst[0].bits, dst=True)
    base, offset = scalar(code, (word & 0x3F) << 1, op.src[0].bits), low >> 25
    modifiers = {"offset": signed(low & 0x1FFFFF, 21), "dlc": word >> 13 & 1, "glc": word >> 14 & 1}
    return finish(code, op, (data,), (base, _NONE if offset == NULL else scalar(code, offset, 32)), modifiers)


def vmem(code: InstructionWords) -> Instruction:
    """Decode flat, scratch and global memory of gfx11: two words."""
    word = code.words[0]
    number = word >> 18 & 0x7F
    form = (Encoding.FLAT, Encoding.SCRATCH, Encoding.GLOBAL)[min(word >> 16 & 3, 2)]
    op = opcode(code, form, number)
    if number in _NEWER or word >> 16 & 3 == 3:
        code.refuse(f"there is no opcode {number}")
    high = code.word()
    bits = {name: word >> shift & 1 for name, shift in (("dlc", 13), ("glc", 14), ("slc", 15))}
    modifiers = {"offset": signed(word & 0x1FFF, 13)} | bits
    returns = not op.has("atomic") or bits["glc"]
    if not op.dst or not returns:
        code.zero(high >> 24, "VDST")
    dst = tuple(vgpr(code, high >> 24, t) for t in op.dst) if returns else ()
    if not op.src:
        code.zero(high >> 8 & 0xFF, "DATA")
    values = tuple(vgpr(code, high >> 8 & 0xFF, t) for t in op.src)
    base, vector = high >> 16 & 0x7F, high >> 23 & 1
    return finish(code, op, dst, _addressed(code, form, op, (high & 0xFF, base, vector), values), modifiers)


def _addressed(
    code: InstructionWords, form: Encoding, op: Opcode, fields: tuple[int, int, int], values: tuple[Operand, ...]
) -> tuple[Operand, ...]:
    number, base, vector = fields
    if form is not Encoding.SCRATCH:
        code.zero(vector, f"SVE of {op.name}")
    saddr = _NONE if base == NULL else scalar(code, base, 64 if form is Encoding.GLOBAL else 32)
    if form is Encoding.FLAT:
        code.zero(code.words[0] >> 12 & 1, "the sign of a flat offset")
        if base != NULL:
            code.refuse(f"SADDR is {base}, and must be NULL")
        return (vgpr(code, number, _B64), *values)
    if form is Encoding.GLOBAL:
        return (vgpr(code, number, _B64 if base == NULL else _B32), *values, saddr)
    if not vector:
        code.zero(number, "ADDR without SVE")
    return (vgpr(code, number, _B32) if vector else _NONE, *values, saddr)


def invalidate(code: InstructionWords) -> Instruction:
    """Decode the two MUBUF instructions that touch no buffer."""
    code.form = Encoding.BUFFER
    word = code.words[0]
    number = word >> 18 & 0xFF
    if number not in _INVALIDATE:
        code.refuse(f"there is no opcode {number}")
    op = Opcode(_INVALIDATE[number], (), (), ("cache",))
    code.zero(word & 0x3FFFF | code.word(), "a field")
    return finish(code, op, (), ())
