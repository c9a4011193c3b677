"""Opcodes: name, types of the operands, modifiers. The tables are parsed at first use.

A table is a text. A line that begins in its first column is a signature, `destinations:sources flags...`; the
indented lines that follow it list the opcodes that have it, each as number and name. An operand's type is a kind and a
width in bits, perhaps after a letter that says what may stand there:

    r   a scalar register
    j   M0 or an inline integer: a barrier's number
    v   a vector register             b   bits or an integer; 64 bits of literal are zero-extended
    s   a scalar register or constant i   signed; a literal of 64 bits is sign-extended
    c   a vector register or an       f   IEEE float: inline constants have its width, VOP3 and DPP may negate it
        inline constant               y   bfloat16, or a pair of them (y32)
    k   the literal that follows      h, w  pairs of f16, of 16-bit integers (VOP3P)
    (none) anything                   x   f16 or f32, as op_sel_hi says (v_fma_mix*)
                                      m   lane mask: as many bits as the wave has lanes

Flags of the vector formats: `c` clamp, `o` omod, `d` DPP, `1` no VOP3 form; `s` and a hexadecimal digit: bits of
op_sel with a meaning of their own. VOP3P: which bits of neg_lo, neg_hi, op_sel and op_sel_hi there are. Operands that
are no registers, and the flags of other formats, are words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from amdgpu_emu.isa.instruction import Encoding
from amdgpu_emu.isa.tables import dual, gfx11, memory, scalar, vector, vop3


@dataclass(frozen=True, slots=True)
class OperandType:
    """The type of an operand in a signature; bits is 0 for a lane mask. Words stand in `kind`."""

    kind: str
    bits: int = 0
    place: str = ""

    @property
    def dwords(self) -> int:
        """Registers that an operand of this type takes."""
        return max(self.bits // 32, 1)

    @property
    def is_float(self) -> bool:
        """Whether the operand is a float, for inline constants and sign modifiers."""
        return self.kind in {"f", "h", "x", "y"}


@dataclass(frozen=True, slots=True)
class Opcode:
    """An opcode: its name and the signature of its line in the table."""

    name: str
    dst: tuple[OperandType, ...]
    src: tuple[OperandType, ...]
    flags: tuple[str, ...]

    def has(self, flag: str) -> bool:
        """Whether the opcode has a flag: a letter of the first group, or a word."""
        return bool(self.flags) and (flag in self.flags or (len(flag) == 1 and flag in self.flags[0]))

    @property
    def op_sel(self) -> int:
        """Bits of VOP3's op_sel with a meaning of their own, beyond choosing halves of 16-bit operands."""
        return next((int(f[1:], 16) for f in self.flags[1:] if f[0] == "s"), 0)


_TYPE = re.compile(r"([vsckrj]?)([bifyhwx])(\d+)$")
_TEXTS: Mapping[Encoding, str] = {
    Encoding.SOP1: scalar.SOP1,
    Encoding.SOP2: scalar.SOP2,
    Encoding.SOPC: scalar.SOPC,
    Encoding.SOPK: scalar.SOPK,
    Encoding.SOPP: scalar.SOPP,
    Encoding.SMEM: scalar.SMEM,
    Encoding.VOP1: vector.VOP1,
    Encoding.VOP2: vector.VOP2,
    Encoding.VOPC: vector.VOPC,
    Encoding.VOP3: vop3.VOP3,
    Encoding.VOP3SD: vop3.VOP3SD,
    Encoding.VOP3P: vop3.VOP3P,
    Encoding.VOPD: dual.VOPD,
    Encoding.DS: memory.DS,
    Encoding.BUFFER: memory.BUFFER,
}
_MEMORY = {Encoding.FLAT: "flat", Encoding.GLOBAL: "global", Encoding.SCRATCH: "scratch"}
_VOP3_FROM = ((Encoding.VOPC, 0), (Encoding.VOP2, 256), (Encoding.VOP1, 384))


@cache
def opcodes(form: Encoding, gfx: int = 12) -> Mapping[int, Opcode]:
    """All opcodes of a format by number. VOP3 has those of VOP1, VOP2 and VOPC, too. gfx: 12 or 11."""
    if form in _MEMORY:
        word = _MEMORY[form]
        found = _parsed(memory.VMEM).items()
        return {k: Opcode(f"{word}_{v.name}", v.dst, v.src, v.flags) for k, v in found if word[0] in v.flags[-1]}
    table = _parsed(_TEXTS[form]) if gfx == 12 else _older(form)
    if form is Encoding.VOPC:
        table |= {k | 0x80: Opcode(v.name.replace("v_cmp_", "v_cmpx_"), (), v.src, v.flags) for k, v in table.items()}
    if form is Encoding.VOP3SD:
        table |= {k + 256: v for k, v in opcodes(Encoding.VOP2, gfx).items() if len(v.dst) == 2}
    if form is Encoding.VOP3:
        carry = opcodes(Encoding.VOP3SD, gfx)
        for other, base in _VOP3_FROM:
            from_other = opcodes(other, gfx).items()
            table |= {k + base: v for k, v in from_other if not v.has("1") and k + base not in carry}
    return table


@cache
def names(form: Encoding, gfx: int = 12) -> Mapping[str, Opcode]:
    """All opcodes of a format by name."""
    return {op.name: op for op in opcodes(form, gfx).values()}


def _older(form: Encoding) -> dict[int, Opcode]:
    changed = _parsed(getattr(gfx11, form.value, ""))
    if form is Encoding.SMEM:
        return changed
    gone = gfx11.GONE.get(form.value, ())
    return {k: v for k, v in _parsed(_TEXTS[form]).items() if not any(k in r for r in gone)} | changed


def _parsed(text: str) -> dict[int, Opcode]:
    table = {}
    for line in text.strip().splitlines():
        words = line.split()
        if not line.startswith(" "):
            dst, src = (tuple(_type(t) for t in part.split(",") if t) for part in words[0].split(":"))
            flags = tuple(words[1:])
        else:
            for number, name in zip(words[::2], words[1::2], strict=True):
                table[int(number)] = Opcode(name, dst, src, flags)
    return table


def _type(word: str) -> OperandType:
    found = _TYPE.match(word)
    return OperandType(found[2], int(found[3]), found[1]) if found else OperandType(word)
