"""Decoded instructions: `isa.decoder.decode` returns them, `isa.printer.text` prints them, a shader core runs them.

    decode(code, address=0, *, at=0, wave=32) -> Instruction     in isa.decoder; it is at address + at
    text(instruction) -> str                                     in isa.printer

Raises `UnknownInstruction`. wave: lanes of a wave; it decides whether lane masks take one or two scalar registers.

Operands stand in the order of LLVM's assembly, with what the assembly leaves to the reader filled in: the VCC that
v_cndmask_b32 reads, the EXEC that v_cmpx_* writes. These follow from the name, and are not listed: SCC, M0, memory, the
VCC that v_div_fmas_* reads, and the destination that an instruction reads too (v_fmac_*, v_dual_fmac_*, v_pk_fmac_f16,
v_swmmac_*, v_writelane_b32, v_swap_b32, s_cmov*, s_addk_*, s_mulk_*, s_bitset*, loads of ..._d16*).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from zinc_rt.errors import ZincError


class UnknownInstruction(ZincError):
    """No instruction of the target has this encoding. The message names format, encoding and address."""

    def __init__(self, message: str, address: int) -> None:
        super().__init__(message)
        self.address = address


class Encoding(Enum):
    """The encodings of instructions.

    DPP is not among them: it shows as `dpp_ctrl` or `dpp8` in the modifiers of VOP1, VOP2, VOPC, VOP3, VOP3SD and
    VOP3P.
    """

    SOP1 = "SOP1"
    SOP2 = "SOP2"
    SOPK = "SOPK"
    SOPC = "SOPC"
    SOPP = "SOPP"
    SMEM = "SMEM"
    VOP1 = "VOP1"
    VOP2 = "VOP2"
    VOP3 = "VOP3"
    VOP3SD = "VOP3SD"
    VOP3P = "VOP3P"
    VOPC = "VOPC"
    VOPD = "VOPD"
    DS = "DS"
    FLAT = "VFLAT"
    GLOBAL = "VGLOBAL"
    SCRATCH = "VSCRATCH"
    BUFFER = "VBUFFER"

    __hash__ = object.__hash__  # the usual one hashes the name, in Python


class OperandKind(Enum):
    """The kinds of operands.

    VCC, EXEC and TTMP are registers of the scalar file; `index` counts within the kind: VCC and EXEC have 0 for the low
    and 1 for the high word.
    """

    VGPR = "v"
    SGPR = "s"
    TTMP = "ttmp"
    VCC = "vcc"
    EXEC = "exec"
    M0 = "m0"
    NULL = "null"  # as a source 0; as an address of memory instructions: off
    SCC = "src_scc"
    VCCZ = "src_vccz"
    EXECZ = "src_execz"
    APERTURE = "aperture"  # index 235 to 238: shared base and limit, private base and limit
    LITERAL = "literal"
    INTEGER = "integer"  # inline constant -16 to 64
    FLOAT = "float"  # inline constant 0.5, -0.5, 1, -1, 2, -2, 4, -4, 1/(2 pi)
    HWREG = "hwreg"  # index: id; value: the whole field: id | offset << 6 | size - 1 << 11

    __hash__ = object.__hash__  # the usual one hashes the name, in Python


@dataclass(frozen=True, slots=True)
class Operand:
    """An operand. dwords: registers it takes, at least 1; bits: width of the value, 16 in one register for 16-bit
    operands.

    value: a constant's bits at the operand's width, expanded as the hardware does: -1 of 64 bits is 2**64 - 1, a
    literal of an f64 operand is its high word, 1.0 of an f16 or packed f16 operand is 0x3C00.
    op_sel: 1 where the upper half of a register is read or written. In VOP3P bit 0 tells which half makes the low
    result and bit 1 which one makes the high result. neg, abs: of floats; in VOP3P neg is neg_lo and abs is neg_hi,
    but for v_fma_mix*, where abs is abs. For v_dot4_i32_iu8 and v_wmma_*_iu8, neg says "signed".
    """

    kind: OperandKind
    index: int = 0
    dwords: int = 1
    value: int = 0
    neg: bool = False
    abs: bool = False
    op_sel: int = 0
    bits: int = 32


@dataclass(frozen=True, slots=True)
class Instruction:
    """A decoded instruction.

    name: as LLVM writes it, without _e32, _e64, _dpp. dst, src: see the module's text. Memory instructions:
        s_load_*       dst data                src base, offset register or NULL
        ds_*           dst data, if returned   src address, data...
        global_*       dst data, if returned   src address (1 dword if there is a base, else 2), data, base or NULL
        flat_*         dst data, if returned   src address, data
        scratch_*      dst data, if returned   src address or NULL, data, base or NULL
        buffer_*       dst data, if returned   src data, address or NULL, resource, offset register or NULL
    modifiers: what is absent is 0, but for dpp_ctrl and dpp8, whose presence says that there is DPP at all.
        simm16         SOPK, SOPP: signed where the instruction takes it as signed
        offset         memory, signed; DS with two: offset0, offset1
        scope, th      memory: 0 CU, 1 SE, 2 DEV, 3 SYS; temporal hint (bit 0 of an atomic's: returns the old value)
        clamp, omod    VOP3
        op_sel         VOP3: bits 0 to 2 sources, bit 3 destination; op_sel_hi, neg_lo, neg_hi: VOP3P
        dpp_ctrl, row_mask, bank_mask, bound_ctrl, fi; dpp8: eight fields of three bits from bit 0 on; fi
    second: the Y half of a VOPD; both halves read before either writes.
    """

    address: int
    size: int
    format: Encoding
    name: str
    dst: tuple[Operand, ...] = ()
    src: tuple[Operand, ...] = ()
    modifiers: Mapping[str, int] = field(default_factory=dict)
    second: Instruction | None = None
    words: tuple[int, ...] = ()  # the encoding
