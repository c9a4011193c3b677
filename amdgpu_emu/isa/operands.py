"""Decoding of operands from the numbers in an encoding: registers, inline constants, literals."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cache
from typing import Final, NoReturn

from amdgpu_emu.isa.instruction import Encoding, Operand, OperandKind, UnknownInstruction
from amdgpu_emu.isa.opcodes import OperandType

VGPR: Final = 256  # the first number of a vector register
LITERAL: Final = 255
DPP16: Final = 250
DPP8: Final = 233  # 234 with fetching from inactive lanes (fi)
DPP8_FI: Final = 234
NULL: Final = 124
EXEC: Final = 126
VCC: Final = 106
_TTMP: Final = 108
_M0: Final = 125
_ZERO: Final = 128
_MINUS_1: Final = 193
_FLOATS: Final = 240
_SPECIAL: Final = {251: OperandKind.VCCZ, 252: OperandKind.EXECZ, 253: OperandKind.SCC}

# Inline constants 240 to 248 by the width of the operand; the last is 1 / (2 pi).
FLOATS: Final[dict[str, tuple[int, ...]]] = {
    "f16": (0x3800, 0xB800, 0x3C00, 0xBC00, 0x4000, 0xC000, 0x4400, 0xC400, 0x3118),
    "bf16": (0x3F00, 0xBF00, 0x3F80, 0xBF80, 0x4000, 0xC000, 0x4080, 0xC080, 0x3E22),
    "f32": tuple(
        struct.unpack("<I", struct.pack("<f", x))[0] for x in (0.5, -0.5, 1, -1, 2, -2, 4, -4, 0.15915493667125702)
    ),
    "f64": tuple(
        struct.unpack("<Q", struct.pack("<d", x))[0] for x in (0.5, -0.5, 1, -1, 2, -2, 4, -4, 0.15915494309189532)
    ),
}


class InstructionWords:
    """The bytes of one instruction, read word by word. wave: lanes; gfx: 12 or 11."""

    def __init__(self, code: bytes, at: int, address: int, wave: int, gfx: int = 12) -> None:
        self.address, self.wave, self.gfx = address, wave, gfx
        self._code, self._at = code, at
        self.words: list[int] = []
        self.form: Encoding | None = None
        self.moved = False  # a word of DPP was read
        self._literal: int | None = None
        self.word()

    def word(self) -> int:
        """Read the next four bytes."""
        start = self._at + 4 * len(self.words)
        if start + 4 > len(self._code):
            self.words.append(int.from_bytes(self._code[start:], "little"))
            self.refuse("the code ends in it")
        self.words.append(int.from_bytes(self._code[start : start + 4], "little"))
        return self.words[-1]

    def literal(self) -> int:
        """The constant behind the instruction, which all its operands share."""
        if self.moved:
            self.refuse("DPP and a literal")
        if self._literal is None:
            self._literal = self.word()
        return self._literal

    def refuse(self, why: str) -> NoReturn:
        """Raise `UnknownInstruction` with words and address of the instruction."""
        what = self.form.value if self.form else "instruction"
        words = " ".join(f"{w:08X}" for w in self.words)
        raise UnknownInstruction(f"{what} {words} at {self.address:#x}: {why}", self.address)

    def zero(self, bits: int, what: str) -> None:
        """Raise `UnknownInstruction` unless a field is 0."""
        if bits:
            self.refuse(f"{what} is {bits:#x}, and must be 0")


def bits_of(kind: OperandType, wave: int) -> int:
    """The width of an operand in bits; a lane mask has one bit per lane."""
    return wave if kind.kind == "m" else kind.bits


def vgpr(
    code: InstructionWords, index: int, kind: OperandType, *, op_sel: int = 0, neg: bool = False, mag: bool = False
) -> Operand:
    """Decode a vector register, or several in a row."""
    if index + kind.dwords > 256:
        code.refuse(f"{kind.dwords} vector registers from v{index} on pass v255")
    return _register(OperandKind.VGPR, index, kind.dwords, neg, mag, op_sel, kind.bits)


@cache
def _register(kind: OperandKind, index: int, dwords: int, neg: bool, mag: bool, op_sel: int, bits: int) -> Operand:
    """A register, one object for all instructions that name it."""
    return Operand(kind, index, dwords, 0, neg, mag, op_sel, bits)


def half(code: InstructionWords, index: int, kind: OperandType) -> Operand:
    """Decode a register field of VOP1, VOP2, VOPC: seven bits and a half for 16-bit operands, eight bits for others."""
    return vgpr(code, index & 0x7F, kind, op_sel=index >> 7) if kind.bits == 16 else vgpr(code, index, kind)


def scalar(code: InstructionWords, number: int, bits: int, *, dst: bool = False) -> Operand:
    """Decode a scalar register. Raises `UnknownInstruction` for other numbers, or if wide registers are not aligned."""
    dwords = max(bits // 32, 1)
    base, kind, limit = next((r for r in _RANGES if r[0] <= number < r[0] + r[2]), (0, None, 0))
    if kind is None or (dst and number >= _ZERO):
        code.refuse(f"operand {number} is no {'destination' if dst else 'scalar register'}")
    index = number - base
    if kind is OperandKind.NULL:
        return Operand(kind, 0, dwords, 0, bits=bits)
    if index % (dwords if dwords < 3 else 4):
        code.refuse(f"{dwords} scalar registers from {kind.value}{index} on are not aligned")
    if index + dwords > limit:
        code.refuse(f"{dwords} scalar registers from {kind.value}{index} on: there are {limit} {kind.value}")
    return _register(kind, index, dwords, False, False, 0, bits)


_RANGES: Final = (
    (0, OperandKind.SGPR, VCC),
    (VCC, OperandKind.VCC, 2),
    (_TTMP, OperandKind.TTMP, 16),
    (NULL, OperandKind.NULL, 1),
    (_M0, OperandKind.M0, 1),
    (EXEC, OperandKind.EXEC, 2),
)


def source(
    code: InstructionWords, number: int, kind: OperandType, *, neg: bool = False, mag: bool = False, op_sel: int = 0
) -> Operand:
    """Decode a source field of eight bits (scalar formats) or nine."""
    bits = bits_of(kind, code.wave)
    if number >= VGPR:
        if kind.place == "s" or kind.kind == "m":
            code.refuse(f"v{number - VGPR} stands where a scalar is needed")
        return vgpr(code, number - VGPR, kind, op_sel=op_sel, neg=neg, mag=mag)
    if kind.place == "j" and number != _M0 and not _ZERO <= number <= 208:
        code.refuse(f"operand {number} is no barrier")
    if kind.place == "v":
        code.refuse(f"operand {number} is no vector register")
    if number < _ZERO:
        if kind.place == "c":
            code.refuse("matrices come from vector registers")
        found = scalar(code, number, bits)
    elif kind.kind == "m" or kind.place == "r":
        code.refuse("a constant stands where a register is needed")
    else:
        found = _constant(code, number, kind)
        bits = min(bits, 32) if kind.place == "c" else bits
    if not found.value:
        return _register(found.kind, found.index, found.dwords, neg, mag, op_sel, bits)
    return Operand(found.kind, found.index, found.dwords, found.value, neg, mag, op_sel, bits)


def _constant(code: InstructionWords, number: int, kind: OperandType) -> Operand:
    bits = min(kind.bits, 32) if kind.place == "c" else kind.bits
    ones = (1 << bits) - 1
    if number <= 208:
        value = number - _ZERO if number < _MINUS_1 else _MINUS_1 - 1 - number
        return Operand(OperandKind.INTEGER, 0, kind.dwords, value & ones)
    if number == LITERAL:
        if kind.place == "c":
            code.refuse("a literal stands for a matrix")
        return Operand(OperandKind.LITERAL, 0, kind.dwords, expanded(code.literal(), kind))
    if _FLOATS <= number < _FLOATS + 9:
        if kind.kind == "b" and kind.bits == 16:
            code.refuse("a float stands for a 16-bit integer")
        return Operand(OperandKind.FLOAT, number - _FLOATS, kind.dwords, inline_float(number - _FLOATS, kind))
    if 235 <= number <= 238:
        return Operand(OperandKind.APERTURE, number, kind.dwords)
    if number in _SPECIAL:
        return Operand(_SPECIAL[number], 0, kind.dwords)
    return code.refuse(f"operand {number} has no meaning")


def check_scalars(code: InstructionWords, src: Sequence[Operand], limit: int = 2) -> None:
    """Check that a vector instruction reads at most two different scalar values, with literals (RDNA ISA documents)."""
    read = {(o.kind, o.index, o.dwords, o.value) for o in src if o.kind in _ON_THE_BUS}
    if len(read) > limit:
        code.refuse(f"it reads {len(read)} scalar values, and may read {limit}")


_ON_THE_BUS: Final = {
    OperandKind.SGPR,
    OperandKind.TTMP,
    OperandKind.VCC,
    OperandKind.EXEC,
    OperandKind.M0,
    OperandKind.SCC,
    OperandKind.VCCZ,
    OperandKind.EXECZ,
    OperandKind.APERTURE,
    OperandKind.LITERAL,
}


def inline_float(index: int, kind: OperandType) -> int:
    """The bits of inline constant 240 + index as an operand of this type gets them."""
    if kind.kind == "h" or (kind.kind in "f" and kind.bits == 16):
        return FLOATS["f16"][index]
    if kind.kind == "y":
        return FLOATS["bf16"][index]
    if kind.bits == 64:
        return FLOATS["f64"][index]
    return FLOATS["f32"][index]


def expanded(literal: int, kind: OperandType) -> int:
    """Expand a literal of 32 bits to an operand's width."""
    if kind.bits == 16:
        return literal & 0xFFFF
    if kind.bits == 64 and kind.kind == "f":
        return literal << 32
    if kind.bits == 64 and kind.kind == "i" and literal >> 31:
        return literal | 0xFFFFFFFF << 32
    return literal
