"""Decoding of the scalar formats: SOP1, SOP2, SOPC, SOPK, SOPP, SMEM."""

from __future__ import annotations

from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind
from amdgpu_emu.isa.opcodes import Opcode, OperandType, opcodes
from amdgpu_emu.isa.operands import NULL, InstructionWords, scalar, source


def signed(value: int, bits: int) -> int:
    """The number that the low `bits` bits hold in two's complement."""
    return value - (1 << bits) if value >> (bits - 1) & 1 else value


def opcode(code: InstructionWords, form: Encoding, number: int) -> Opcode:
    """Find an opcode by number. Raises `UnknownInstruction` where there is none."""
    code.form = form
    found = opcodes(form, code.gfx).get(number)
    if found is None:
        code.refuse(f"there is no opcode {number}")
    return found


def finish(
    code: InstructionWords,
    op: Opcode,
    dst: tuple[Operand, ...],
    src: tuple[Operand, ...],
    modifiers: dict[str, int] | None = None,
    *,
    name: str = "",
    second: Instruction | None = None,
) -> Instruction:
    """Make the instruction from its decoded parts."""
    assert code.form is not None
    words = tuple(code.words)
    kept = modifiers or {}
    return Instruction(code.address, 4 * len(words), code.form, name or op.name, dst, src, kept, second, words)


def sop(code: InstructionWords) -> Instruction:
    """Decode a scalar instruction, whose first word has 10 in its two highest bits."""
    word = code.words[0]
    high = word >> 23
    if high == 0x17D:
        return _sop1(code, word)
    if high == 0x17E:
        op = opcode(code, Encoding.SOPC, word >> 16 & 0x7F)
        return finish(code, op, (), _sources(code, op, word))
    if high == 0x17F:
        return _sopp(code, word)
    if word >> 28 == 0xB:
        return _sopk(code, word)
    op = opcode(code, Encoding.SOP2, word >> 23 & 0x7F)
    return finish(code, op, (_dst(code, op, word),), _sources(code, op, word))


def _dst(code: InstructionWords, op: Opcode, word: int) -> Operand:
    return scalar(code, word >> 16 & 0x7F, op.dst[0].bits, dst=True)


def _sources(code: InstructionWords, op: Opcode, word: int) -> tuple[Operand, ...]:
    fields = iter((word & 0xFF, word >> 8 & 0xFF))
    return tuple(_constant(code, t) if t.place == "k" else source(code, next(fields), t) for t in op.src)


def _constant(code: InstructionWords, kind: OperandType) -> Operand:
    return Operand(OperandKind.LITERAL, 0, 1, code.literal() & (1 << kind.bits) - 1, bits=kind.bits)


def _sop1(code: InstructionWords, word: int) -> Instruction:
    op = opcode(code, Encoding.SOP1, word >> 8 & 0xFF)
    if op.dst:
        dst: tuple[Operand, ...] = (_dst(code, op, word),)
    else:
        dst = ()
        code.zero(word >> 16 & 0x7F, "SDST")
    if not op.src:
        code.zero(word & 0xFF, "SSRC0")
        return finish(code, op, dst, ())
    if op.src[0].kind == "msg":
        return finish(code, op, dst, (Operand(OperandKind.INTEGER, value=word & 0xFF),))
    return finish(code, op, dst, (source(code, word & 0xFF, op.src[0]),))


def _sopp(code: InstructionWords, word: int) -> Instruction:
    op = opcode(code, Encoding.SOPP, word >> 16 & 0x7F)
    value = word & 0xFFFF
    if op.src[0].kind == "none":
        code.zero(value, "SIMM16")
    if op.src[0].kind == "waitcnt":
        code.zero(value & 8, "bit 3")
    if op.src[0].kind == "msg":
        code.zero(value >> 8, "what stands above the message")
    if op.src[0].kind == "delay" and (value >> 11 or max(value & 15, value >> 7) > 11 or value >> 4 & 7 > 5):
        code.refuse(f"delay {value:#x} has no meaning")
    return finish(code, op, (), (), {"simm16": signed(value, 16) if op.src[0].kind == "rel" else value})


def _sopk(code: InstructionWords, word: int) -> Instruction:
    op = opcode(code, Encoding.SOPK, word >> 23 & 0x1F)
    number, value = word >> 16 & 0x7F, word & 0xFFFF
    register = Operand(OperandKind.HWREG, value & 0x3F, value=value)
    if op.dst and op.dst[0].kind == "hwreg":
        if op.flags:
            code.zero(number, "SDST")
            return finish(code, op, (register,), (_constant(code, op.src[0]),), {"simm16": value})
        return finish(code, op, (register,), (scalar(code, number, 32),), {"simm16": value})
    if op.src[0].kind == "b":
        return finish(code, op, (), (scalar(code, number, 32),), {"simm16": value})
    if not op.dst:
        code.zero(number, "SDST")
    dst = tuple(scalar(code, number, t.bits, dst=True) for t in op.dst)
    if op.src[0].kind == "hwreg":
        return finish(code, op, dst, (register,), {"simm16": value})
    return finish(code, op, dst, (), {"simm16": signed(value, 16) if op.dst else value})


def smem(code: InstructionWords) -> Instruction:
    """Decode scalar loads and prefetches: two words."""
    word = code.words[0]
    op = opcode(code, Encoding.SMEM, word >> 13 & 0x3F)
    low = code.word()
    code.zero(word >> 25 & 1 | word >> 18 & 2, "bit 25 or 19")
    code.zero(word >> 20 & 1, "bit 20")
    code.zero(low >> 24 & 1, "bit 56")
    if op.has("none"):
        code.zero(word & 0x1FFF | word >> 21 & 0xF | low, "a field")
        return finish(code, op, (), ())
    modifiers = {"offset": signed(low & 0xFFFFFF, 24)}
    data = word >> 6 & 0x7F
    if op.has("load"):
        dst: tuple[Operand, ...] = (scalar(code, data, op.dst[0].bits, dst=True),)
        if dst[0].kind in {OperandKind.M0, OperandKind.EXEC}:
            code.refuse(f"memory is loaded into {dst[0].kind.value}")
        modifiers |= {"scope": word >> 21 & 3, "th": word >> 23 & 3}
    else:
        dst = ()
        code.zero(data >> 5, "SDATA beyond a length of five bits")
        code.zero(word >> 21 & 0xF, "SCOPE or TH")
        modifiers["length"] = data
    if op.src[0].kind == "pc":
        code.zero(word & 0x3F, "SBASE")
        src: tuple[Operand, ...] = ()
    else:
        src = (scalar(code, (word & 0x3F) << 1, op.src[0].bits),)
    if "buffer" in op.name and modifiers["offset"] < 0:
        code.refuse("the offset of a buffer is negative")
    offset = low >> 25
    return finish(
        code, op, dst, (*src, scalar(code, offset, 32) if offset != NULL else Operand(OperandKind.NULL)), modifiers
    )
