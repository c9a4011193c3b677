"""Decoding of the vector formats: VOP1, VOP2, VOPC, VOP3, VOP3SD, VOP3P, with DPP. VOPD is in `decode_dual`."""

from __future__ import annotations

from amdgpu_emu.isa.decode_scalar import finish, opcode
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind
from amdgpu_emu.isa.opcodes import Opcode, OperandType, opcodes
from amdgpu_emu.isa.operands import (
    DPP8,
    DPP8_FI,
    DPP16,
    EXEC,
    VGPR,
    InstructionWords,
    bits_of,
    check_scalars,
    half,
    scalar,
    source,
    vgpr,
)

_NARROW = {"v_lshlrev_b64", "v_lshrrev_b64", "v_ashrrev_i64"}  # one scalar value at most
_DPP = (DPP16, DPP8, DPP8_FI)
# dpp_ctrl of RDNA: quad_perm, row_shl, row_shr, row_ror by 1 to 15, mirrors, row_share, row_xmask.
_CONTROLS = (
    range(0x100),
    range(0x101, 0x110),
    range(0x111, 0x120),
    range(0x121, 0x130),
    range(0x140, 0x142),
    range(0x150, 0x170),
)


def short(code: InstructionWords) -> Instruction:
    """Decode VOP1, VOP2 and VOPC, whose first word has 0 in its highest bit."""
    word = code.words[0]
    if word >> 25 == 0x3F:
        op, number = opcode(code, Encoding.VOP1, word >> 9 & 0xFF), word >> 17 & 0xFF
    elif word >> 25 == 0x3E:
        op, number = opcode(code, Encoding.VOPC, word >> 17 & 0xFF), 0
    else:
        op, number = opcode(code, Encoding.VOP2, word >> 25 & 0x3F), word >> 17 & 0xFF
    first = word & 0x1FF
    modifiers: dict[str, int] = {}
    if first in _DPP:
        first, signs = _dpp(code, op, first, modifiers, signs=True)
        if not op.src:
            code.refuse("DPP without operands")
    else:
        signs = 0
    if not op.src:
        code.zero(number | first, "a field")
    code.zero(signs >> 2 * len(op.src), "a sign of an operand that does not exist")
    dst = _short_dst(code, op, number)
    fields = iter((first, word >> 9 & 0xFF))
    src = []
    for i, kind in enumerate(op.src):
        neg, mag = bool(signs >> 2 * i & 1), bool(signs >> 2 * i & 2)
        if kind.place == "k":
            src.append(Operand(OperandKind.LITERAL, 0, 1, code.literal() & (1 << kind.bits) - 1, bits=kind.bits))
        elif kind.kind == "m":
            src.append(_vcc(code))
        elif i:
            found = half(code, next(fields), kind)
            src.append(Operand(found.kind, found.index, found.dwords, 0, neg, mag, found.op_sel, found.bits))
        else:
            src.append(_first(code, next(fields), kind, neg, mag))
        if (neg or mag) and not kind.is_float:
            code.refuse("the sign of an integer is changed")
    check_scalars(code, src)
    return finish(code, op, dst, tuple(src), modifiers)


def _first(code: InstructionWords, number: int, kind: OperandType, neg: bool, mag: bool) -> Operand:
    """src0 of a short format: for 16 bits the vector registers are 0 to 127, in two halves."""
    if number >= VGPR and kind.bits == 16:
        return vgpr(code, number & 0x7F, kind, op_sel=number >> 7 & 1, neg=neg, mag=mag)
    return source(code, number, kind, neg=neg, mag=mag)


def _short_dst(code: InstructionWords, op: Opcode, number: int) -> tuple[Operand, ...]:
    if code.form is Encoding.VOPC:
        if not op.dst:
            return (Operand(OperandKind.EXEC, 0, code.wave // 32, bits=code.wave),)
        return (_vcc(code),)
    if not op.dst:
        return ()
    if op.dst[0].place == "s":
        return (scalar(code, number, op.dst[0].bits, dst=True),)
    return (half(code, number, op.dst[0]), *(_vcc(code) for _ in op.dst[1:]))


def _vcc(code: InstructionWords) -> Operand:
    return Operand(OperandKind.VCC, 0, code.wave // 32, bits=code.wave)


def _dpp(code: InstructionWords, op: Opcode, number: int, modifiers: dict[str, int], *, signs: bool) -> tuple[int, int]:
    """The word behind a DPP instruction: the real src0, and neg0 abs0 neg1 abs1 of the short formats."""
    if not op.has("d"):
        code.refuse("it takes no DPP")
    word = code.word()
    code.moved = True
    if number != DPP16:
        modifiers["dpp8"] = word >> 8
        modifiers["fi"] = int(number == DPP8_FI)
        return VGPR + (word & 0xFF), 0
    control = word >> 8 & 0x1FF
    if not any(control in r for r in _CONTROLS):
        code.refuse(f"dpp_ctrl {control:#x} has no meaning")
    code.zero(word >> 17 & 1, "bit 17 of the DPP word")
    modifiers |= {
        "dpp_ctrl": control,
        "fi": word >> 18 & 1,
        "bound_ctrl": word >> 19 & 1,
        "bank_mask": word >> 24 & 0xF,
        "row_mask": word >> 28,
    }
    if not signs:
        code.zero(word >> 20 & 0xF, "the signs in the DPP word, which VOP3 has itself,")
    return VGPR + (word & 0xFF), word >> 20 & 0xF


def vop3(code: InstructionWords) -> Instruction:
    """Decode VOP3 and VOP3SD: two words, and one of DPP or a literal."""
    word, high = code.words[0], 0
    number = word >> 16 & 0x3FF
    second = number in opcodes(Encoding.VOP3SD, code.gfx)
    op = opcode(code, Encoding.VOP3SD if second else Encoding.VOP3, number)
    high = code.word()
    clamp, omod, neg = word >> 15 & 1, high >> 27 & 3, high >> 29
    mag = 0 if second else word >> 8 & 7
    op_sel = 0 if second else word >> 11 & 0xF
    modifiers = {}
    if clamp and not op.has("c"):
        code.refuse("clamp is set")
    if omod and not op.has("o"):
        code.refuse("omod is set")
    if clamp:
        modifiers["clamp"] = 1
    if omod:
        modifiers["omod"] = omod
    if op_sel:
        modifiers["op_sel"] = op_sel
        _check_op_sel(code, op, op_sel)
    fields = [high & 0x1FF, high >> 9 & 0x1FF, high >> 18 & 0x1FF]
    if fields[0] in _DPP:
        fields[0], _ = _dpp(code, op, fields[0], modifiers, signs=False)
    for i in range(len(op.src), 3):
        code.zero(fields[i] | neg >> i & 1 | mag >> i & 1, f"src{i}")
    src = []
    for i, kind in enumerate(op.src):
        if (neg | mag) >> i & 1 and not kind.is_float:
            code.refuse("the sign of an integer is changed")
        picked = op_sel >> i & 1 if kind.bits == 16 else 0
        src.append(source(code, fields[i], kind, neg=bool(neg >> i & 1), mag=bool(mag >> i & 1), op_sel=picked))
    implied = [_vcc(code)] if op.name.startswith("v_div_fmas") else []
    check_scalars(code, src + implied, 1 if op.name in _NARROW else 2)
    return finish(code, op, _long_dst(code, op, word, op_sel), tuple(src), modifiers)


def _check_op_sel(code: InstructionWords, op: Opcode, op_sel: int) -> None:
    allowed = op.op_sel | sum(1 << i for i, t in enumerate(op.src) if t.bits == 16)
    if op.dst and op.dst[0].bits == 16:
        allowed |= 8
    if op_sel & ~allowed:
        code.refuse(f"op_sel {op_sel:#x} selects what is not there")


def _long_dst(code: InstructionWords, op: Opcode, word: int, op_sel: int) -> tuple[Operand, ...]:
    number = word & 0xFF
    if not op.dst and op.name.startswith("v_cmpx"):
        if number != EXEC:
            code.refuse(f"the destination is {number}, and must be EXEC")
        return (Operand(OperandKind.EXEC, 0, code.wave // 32, bits=code.wave),)
    if not op.dst:
        code.zero(number, "VDST")
        return ()
    kind = op.dst[0]
    if kind.kind == "m" or kind.place == "s":
        found = scalar(code, number, bits_of(kind, code.wave), dst=True)
        if found.kind is OperandKind.EXEC and op.name.startswith("v_s_"):
            code.refuse("the destination is EXEC")
        return (found,)
    out = vgpr(code, number, kind, op_sel=op_sel >> 3 if kind.bits == 16 else 0)
    if len(op.dst) == 1:
        return (out,)
    return (out, scalar(code, word >> 8 & 0x7F, code.wave, dst=True))


def _spread(op: Opcode) -> Opcode:
    """A matrix operation of 64 lanes: each holds half as much, and the index of a sparse one has a bit more to say."""
    src, dst = ([OperandType(t.kind, max(t.bits // 2, 32), t.place) for t in types] for types in (op.src, op.dst))
    flags = list(op.flags)
    if op.name.startswith("v_swmmac") and op.src[0].bits > 32:
        flags[3] = f"{int(flags[3], 16) << 1 | 1:x}"
    return Opcode(op.name, tuple(dst), tuple(src), tuple(flags))


def vop3p(code: InstructionWords) -> Instruction:
    """Decode VOP3P (packed and mixed arithmetic, dot products, matrices): two words, and one of DPP or a literal."""
    word = code.words[0]
    op = opcode(code, Encoding.VOP3P, word >> 16 & 0x7F)
    if code.wave == 64 and code.gfx == 12 and op.dst[0].bits > 32:
        op = _spread(op)
    code.zero(word >> 23 & 1, "bit 23")
    high = code.word()
    clamp = word >> 15 & 1
    if clamp and not op.has("c"):
        code.refuse("clamp is set")
    masks = [int(f, 16) for f in op.flags[1:]]
    packed = {
        "neg_lo": high >> 29,
        "neg_hi": word >> 8 & 7,
        "op_sel": word >> 11 & 7,
        "op_sel_hi": high >> 27 & 3 | word >> 12 & 4,
    }
    there = (1 << len(op.src)) - 1
    # Where op_sel_hi has no meaning, assemblers write ones.
    if (packed["op_sel_hi"] | masks[3]) & there != there:
        code.refuse(f"op_sel_hi is {packed['op_sel_hi']}")
    for (name, value), mask in zip(list(packed.items())[:3], masks, strict=False):
        if value & ~mask:
            code.refuse(f"{name} is {value}")
    packed["op_sel_hi"] &= there
    modifiers = packed | ({"clamp": 1} if clamp else {})
    fields = [high & 0x1FF, high >> 9 & 0x1FF, high >> 18 & 0x1FF]
    if fields[0] in _DPP:
        fields[0], _ = _dpp(code, op, fields[0], modifiers, signs=False)
    for i in range(len(op.src), 3):
        code.zero(fields[i], f"src{i}")
    src = []
    for i, kind in enumerate(op.src):
        low, upper = packed["op_sel"] >> i & 1, packed["op_sel_hi"] >> i & 1
        neg, mag = bool(packed["neg_lo"] >> i & 1), bool(packed["neg_hi"] >> i & 1)
        if kind.kind == "x":
            kind = OperandType("f", 16 if upper else 32)
            src.append(source(code, fields[i], kind, neg=neg, mag=mag, op_sel=low & upper))
        else:
            pick = low | upper << 1 if masks[3] else 0
            src.append(source(code, fields[i], kind, neg=neg, mag=mag, op_sel=pick))
    check_scalars(code, src)
    return finish(code, op, (vgpr(code, word & 0xFF, op.dst[0]),), tuple(src), modifiers)
