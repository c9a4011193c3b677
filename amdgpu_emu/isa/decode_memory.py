"""Decoding of the memory formats: DS, VFLAT, VGLOBAL, VSCRATCH, VBUFFER."""

from __future__ import annotations

from amdgpu_emu.isa.decode_scalar import finish, opcode, signed
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind
from amdgpu_emu.isa.opcodes import Opcode, OperandType
from amdgpu_emu.isa.operands import NULL, InstructionWords, scalar, vgpr

_NONE = Operand(OperandKind.NULL)
_B32, _B64 = OperandType("b", 32), OperandType("b", 64)


def ds(code: InstructionWords) -> Instruction:
    """Decode DS, local memory: two words."""
    word = code.words[0]
    op = opcode(code, Encoding.DS, word >> 18 & 0xFF)
    high = code.word()
    code.zero(word >> 16 & 3, "a bit between OP and OFFSET1")
    kind = op.flags[0]
    offset0, offset1 = word & 0xFF, word >> 8 & 0xFF
    modifiers = {"offset0": offset0, "offset1": offset1} if kind == "two" else {"offset": word & 0xFFFF}
    # Instructions without an address keep their data in the place of the first data field.
    fields = [high & 0xFF, high >> 8 & 0xFF, high >> 16 & 0xFF]
    if kind == "addtid":
        code.zero(fields.pop(0), "ADDR")
    if kind == "none":
        code.zero(word & 0xFFFF, "OFFSET")
    src = tuple(vgpr(code, f, t) for f, t in zip(fields, op.src, strict=False))
    for field in fields[len(op.src) :]:
        code.zero(field, "a register field that the instruction does not have")
    return finish(code, op, _data(code, op, high >> 24), src, modifiers)


def _data(code: InstructionWords, op: Opcode, number: int) -> tuple[Operand, ...]:
    if not op.dst:
        code.zero(number, "VDST")
    return tuple(vgpr(code, number, t) for t in op.dst)


def vmem(code: InstructionWords) -> Instruction:
    """Decode flat, global and scratch memory: three words."""
    word = code.words[0]
    form = {0xEC: Encoding.FLAT, 0xED: Encoding.SCRATCH, 0xEE: Encoding.GLOBAL}[word >> 24]
    op = opcode(code, form, word >> 14 & 0xFF)
    middle, last = code.word(), code.word()
    code.zero(word >> 7 & 0x7F | word >> 22 & 3 | middle >> 8 & 0x1FF | middle >> 31, "a reserved field")
    base, number, vector = word & 0x7F, last & 0xFF, bool(middle >> 17 & 1)
    modifiers = {"offset": signed(last >> 8, 24), "scope": middle >> 18 & 3, "th": middle >> 20 & 7}
    returns = not op.has("atomic") or modifiers["th"] & 1
    if code.wave == 64 and "_tr_" in op.name:
        op = Opcode(op.name, (OperandType("b", op.dst[0].bits // 2),), op.src, op.flags)
    dst = _data(code, op, middle & 0xFF) if returns else ()
    if not returns:
        code.zero(middle & 0xFF, "VDST of an atomic that returns nothing")
    data = middle >> 23 & 0xFF
    if not op.src:
        code.zero(data, "VDATA")
    values = tuple(vgpr(code, data, t) for t in op.src)
    if form is not Encoding.SCRATCH:
        code.zero(int(vector), "SVE")
    if form is Encoding.FLAT or op.has("cache"):
        if base != NULL:
            code.refuse(f"SADDR is {base}, and must be NULL")
        if op.has("cache"):
            code.zero(last, "address or offset")
            return finish(code, op, (), (), modifiers)
        return finish(code, op, dst, (vgpr(code, number, _B64), *values), modifiers)
    wide = form is Encoding.GLOBAL
    saddr = _NONE if base == NULL else scalar(code, base, 64 if wide else 32)
    if op.has("addtid"):
        code.zero(number, "VADDR")
        return finish(code, op, dst, (*values, saddr), modifiers)
    if wide:
        vaddr = vgpr(code, number, _B64 if base == NULL else _B32)
    elif vector:
        vaddr = vgpr(code, number, _B32)
    else:
        code.zero(number, "VADDR without SVE")
        vaddr = _NONE
    return finish(code, op, dst, (vaddr, *values, saddr), modifiers)


def vbuffer(code: InstructionWords) -> Instruction:
    """Decode untyped buffers: three words."""
    word = code.words[0]
    op = opcode(code, Encoding.BUFFER, word >> 14 & 0xFF)
    middle, last = code.word(), code.word()
    code.zero(word >> 7 & 0x7F | word >> 22 & 3 | middle >> 8 & 1 | last >> 31, "a reserved field, TFE or the sign")
    if middle >> 23 & 0x7F != 1:
        code.refuse(f"FORMAT is {middle >> 23 & 0x7F}, and must be 1")
    offen, idxen = middle >> 30 & 1, middle >> 31
    modifiers = {"offset": last >> 8, "scope": middle >> 18 & 3, "th": middle >> 20 & 7, "offen": offen, "idxen": idxen}
    number = last & 0xFF
    if offen or idxen:
        vaddr = vgpr(code, number, _B64 if offen and idxen else _B32)
    else:
        code.zero(number, "VADDR without OFFEN and IDXEN")
        vaddr = _NONE
    resource = middle >> 9 & 0x1FF
    if resource >= NULL:
        code.refuse(f"resource {resource} is no scalar register")
    data = middle & 0xFF
    returns = op.has("load") or (op.has("atomic") and modifiers["th"] & 1)
    dst = tuple(vgpr(code, data, t) for t in op.dst) if returns else ()
    src = (*(vgpr(code, data, t) for t in op.src), vaddr, scalar(code, resource, 128), _offset(code, word & 0x7F))
    return finish(code, op, dst, src, modifiers)


def _offset(code: InstructionWords, number: int) -> Operand:
    return _NONE if number == NULL else scalar(code, number, 32)
