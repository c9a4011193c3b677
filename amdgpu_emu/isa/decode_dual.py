"""Decoding of VOPD, two operations in one instruction. Rules: RDNA 3 and 4 ISA, "Dual issue VALU"."""

from __future__ import annotations

from amdgpu_emu.isa.decode_scalar import opcode
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind
from amdgpu_emu.isa.opcodes import Opcode
from amdgpu_emu.isa.operands import InstructionWords, check_scalars, source, vgpr

_Operands = tuple[tuple[Operand, ...], tuple[Operand, ...], str]


def vopd(code: InstructionWords) -> Instruction:
    """Decode VOPD: two words, and a literal that both halves may use."""
    word = code.words[0]
    first = opcode(code, Encoding.VOPD, word >> 22 & 0xF)
    second = opcode(code, Encoding.VOPD, word >> 17 & 0x1F)
    if code.wave != 32:
        code.refuse("waves of 64 lanes have no such instructions")
    high = code.word()
    x_dst, y_dst = high >> 24, high >> 16 & 0xFE | ~(high >> 24) & 1
    x = _half(code, first, word & 0x1FF, word >> 9 & 0xFF, x_dst)
    y = _half(code, second, high & 0x1FF, high >> 9 & 0xFF, y_dst)
    if first.name != "v_dual_mov_b32" or second.name != "v_dual_mov_b32":
        _banks(code, (*x, first.name), (*y, second.name))
    check_scalars(code, (*x[1], *y[1]))
    words = tuple(code.words)
    size = 4 * len(words)
    other = Instruction(code.address, size, Encoding.VOPD, second.name, *y, {}, None, words)
    return Instruction(code.address, size, Encoding.VOPD, first.name, *x, {}, other, words)


def _half(
    code: InstructionWords, op: Opcode, first: int, other: int, dst: int
) -> tuple[tuple[Operand, ...], tuple[Operand, ...]]:
    src: list[Operand] = []
    vector = iter((other,))
    for i, kind in enumerate(op.src):
        if kind.place == "k":
            src.append(Operand(OperandKind.LITERAL, 0, 1, code.literal()))
        elif kind.kind == "m":
            src.append(Operand(OperandKind.VCC, 0, code.wave // 32, bits=code.wave))
        elif i == 0:
            src.append(source(code, first, kind))
        else:
            src.append(vgpr(code, next(vector), kind))
    if len(op.src) == 1:
        code.zero(other, "VSRC1 of a move")
    return (vgpr(code, dst, op.dst[0]),), tuple(src)


def _banks(code: InstructionWords, x: _Operands, y: _Operands) -> None:
    """Vector registers lie in four banks; both halves' first sources come from two of them, and so do the second ones.
    Of the third ones (the addend of fmac, which is its destination, and of fmamk) one is even and one odd.
    """
    places = zip(_vectors(x), _vectors(y), (4, 4, 2), strict=True)
    for i, (a, b, banks) in enumerate(places):
        if a is not None and b is not None and (a - b) % banks == 0:
            code.refuse(f"source {i} of both halves lies in one bank: v{a} and v{b}")


def _vectors(half: _Operands) -> list[int | None]:
    """Vector registers by the place of the source."""
    (dst,), src, name = half
    found = [o.index if o.kind is OperandKind.VGPR else None for o in src] + [None] * (3 - len(src))
    if name == "v_dual_fmac_f32":
        found[2] = dst.index
    return found
