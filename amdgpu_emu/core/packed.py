"""VOP3P: two halves at a time, mixed precision, dot products.

Bit 0 of an operand's op_sel picks the half for the low result, bit 1 the half for the high result; neg negates for the
low result, abs for the high one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from amdgpu_emu.core import rounding
from amdgpu_emu.core.convert import BF8, FP8
from amdgpu_emu.core.errors import Unsupported
from amdgpu_emu.core.floats import FLOATS, flush, limited
from amdgpu_emu.core.integers import INTEGERS
from amdgpu_emu.core.operands import DTYPE, Reader, is_constant, writer
from amdgpu_emu.core.shapes import alike
from amdgpu_emu.core.state import NORMAL_MODE, Group
from amdgpu_emu.isa.instruction import Instruction, Operand, OperandKind

Source = Callable[[Operand, str], Reader]
_PAIRS: Final = {
    "v_pk_add_u16": "v_add_nc_u16", "v_pk_sub_u16": "v_sub_nc_u16", "v_pk_add_i16": "v_add_nc_i16",
    "v_pk_sub_i16": "v_sub_nc_i16", "v_pk_mul_lo_u16": "v_mul_lo_u16", "v_pk_mad_u16": "v_mad_u16",
    "v_pk_mad_i16": "v_mad_i16", "v_pk_min_u16": "v_min_u16", "v_pk_max_u16": "v_max_u16", "v_pk_min_i16": "v_min_i16",
    "v_pk_max_i16": "v_max_i16", "v_pk_lshlrev_b16": "v_lshlrev_b16", "v_pk_lshrrev_b16": "v_lshrrev_b16",
    "v_pk_ashrrev_i16": "v_ashrrev_i16", "v_pk_add_f16": "v_add_f16", "v_pk_mul_f16": "v_mul_f16",
    "v_pk_fma_f16": "v_fma_f16", "v_pk_min_num_f16": "v_min_num_f16", "v_pk_max_num_f16": "v_max_num_f16",
    "v_pk_minimum_f16": "v_minimum_f16", "v_pk_maximum_f16": "v_maximum_f16", "v_pk_fmac_f16": "v_fma_f16",
}  # fmt: skip


def _half(op: Operand, t: str, high: bool, source: Source) -> Reader:
    """The half for the low or the high result, with its sign."""
    pick = op.op_sel >> 1 & 1 if high else op.op_sel & 1
    negative = t == "h" and (op.abs if high else op.neg)
    if is_constant(op):
        word = np.uint16(op.value >> 16 * pick & 0xFFFF)  # an inline constant has a value in its low half alone
        value = -word.view(DTYPE[t]) if negative else word.view(DTYPE[t])
        return lambda g: value
    bits = source(replace(op, op_sel=0, neg=False, abs=False), "u")
    shift = np.uint32(16 * pick)

    def read(g: Group) -> Any:
        found = (bits(g) >> shift).astype(np.uint16).view(DTYPE[t])
        return -found if negative else found

    return read


def _both(op: Operand) -> Operand:
    if op.kind in (OperandKind.INTEGER, OperandKind.FLOAT):
        return replace(op, op_sel=0)
    return replace(op, op_sel=2)


def compile_packed(ins: Instruction, source: Source) -> Any:
    """Compile a VOP3P instruction: one function computes, one stores. Raises `Unsupported`."""
    name = ins.name
    if name in _PAIRS:
        return _pair(ins, source)
    if name.startswith("v_fma_mix"):
        return _mix(ins, source)
    if name.startswith(("v_dot4_", "v_dot8_")):
        return (_dot4_float(ins, source) if "f32" in name else _dot_integer(ins, source)), writer(ins.dst[0], "u")
    if name in ("v_dot2_f32_f16", "v_dot2_f32_bf16", "v_dot2acc_f32_f16", "v_dot2acc_f32_bf16"):
        return _dot2(ins, source), writer(ins.dst[0], "f")
    if name in ("v_dot2_f16_f16", "v_dot2_bf16_bf16"):
        return _dot2_short(ins, source), writer(ins.dst[0], "h" if name == "v_dot2_f16_f16" else "b")
    raise Unsupported(f"{name} is not executed by this shader core")


def _pair(ins: Instruction, source: Source) -> Any:
    scalar = _PAIRS[ins.name]
    how = INTEGERS.get(scalar) or FLOATS[scalar]
    ops = list(ins.src)
    if "fmac" in ins.name:  # VOP2: no selection; an inline constant counts for both halves
        ops = [_both(op) for op in ops] + [replace(ins.dst[0], op_sel=2)]
    sides = [[_half(op, t, high, source) for op, t in zip(ops, how.sources, strict=True)] for high in (False, True)]
    kind = DTYPE[how.result]
    clamp = ins.modifiers.get("clamp", 0) and (how.result == "h" or how[3] is not None)  # others ignore it

    def one(g: Group, reads: list[Reader]) -> Any:
        values = [read(g) for read in reads]
        if how.result != "h":
            if clamp:
                assert how[3] is not None
                info = np.iinfo(kind)
                return np.clip(how[3](*values), info.min, info.max).astype(kind)
            return how.call(*values)
        denorm, mode = g.mode >> 6 & 3, g.mode >> 2 & 3
        if not denorm & 1:
            values = [flush(np.asarray(v)) for v in values]
        modal = how[3]
        r = how.call(*values) if mode == 0 or modal is None else modal(*values, np.float16, mode)
        if not denorm & 2:
            r = flush(np.asarray(r))
        return limited(r) if clamp else r

    def compute(g: Group) -> Any:
        low, high = (np.asarray(one(g, side)).view(np.uint16) for side in sides)
        return low.astype(np.uint32) | (high.astype(np.uint32) << np.uint32(16))

    return compute, writer(replace(ins.dst[0], op_sel=0), "u")


def _mix(ins: Instruction, source: Source) -> Any:
    """v_fma_mix_f32, v_fma_mixlo_f16, v_fma_mixhi_f16: op_sel_hi says that a source is a half, op_sel which one; the
    decoder gives such a source 16 bits.
    """
    reads = []
    for op in ins.src:
        is_half = op.bits == 16
        bare = replace(op, op_sel=op.op_sel & 1 if is_half else 0)
        reads.append(source(bare, "h" if is_half else "f"))
    clamp = ins.modifiers.get("clamp", 0)
    short = ins.name != "v_fma_mix_f32"

    def compute(g: Group) -> Any:
        values = [np.asarray(read(g)) for read in reads]
        if g.mode == NORMAL_MODE and not short:
            r = rounding.fma32(*(x.astype(np.float32, copy=False) for x in values))
            return limited(np.asarray(r)) if clamp else r
        denorm = {2: g.mode >> 6 & 3, 4: g.mode >> 4 & 3}  # by the bytes of a number
        a, b, c = (np.asarray(x if denorm[x.itemsize] & 1 else flush(x)).astype(np.float32) for x in values)
        mode = g.mode & 3
        if short:
            r = rounding.fma(a, b, c, np.float16, g.mode >> 2 & 3)
        else:
            r = rounding.fma32(a, b, c) if mode == 0 else rounding.fma(a, b, c, np.float32, mode)
        r = np.asarray(r if denorm[r.itemsize] & 2 else flush(r))
        return limited(r) if clamp else r

    half = {"v_fma_mixlo_f16": 0, "v_fma_mixhi_f16": 1}.get(ins.name, 0)
    return compute, writer(replace(ins.dst[0], op_sel=half), "h" if short else "f")


def _dot8(a: Any, b: Any, a_signed: bool, b_signed: bool) -> Any:
    """The sum of the products of four bytes, i32 or u32: a product fits into 16 bits."""
    a, b = (np.ascontiguousarray(x) for x in alike(a, b))
    kind, wide = (np.int16, np.int32) if a_signed or b_signed else (np.uint16, np.uint32)
    even, odd = (x * y for x, y in zip(_halves(a, a_signed, kind), _halves(b, b_signed, kind), strict=True))
    total = _sum(even.view(wide))
    total += _sum(odd.view(wide))
    return total


def _halves(words: Any, signed: bool, kind: Any) -> tuple[Any, Any]:
    """The even and the odd bytes of words as 16-bit numbers."""
    pairs = words.view(np.int16 if signed else np.uint16)
    even = pairs << 8
    even >>= 8
    return even.view(kind), (pairs >> 8).view(kind)


def _sum(pairs: Any) -> Any:
    """The sum of the two 16-bit numbers in each word."""
    total = pairs << 16
    total >>= 16
    total += pairs >> 16
    return total


def split(x: Any, bits: int, signed: bool) -> list[Any]:
    """Split words into fields, as int32, the lowest first."""
    x = np.asarray(x, np.uint32)
    if bits == 8:
        raw = np.ascontiguousarray(x).view(np.int8 if signed else np.uint8).reshape(*x.shape, 4)
        return [raw[..., k].astype(np.int32) for k in range(4)]
    fields = []
    for k in range(32 // bits):
        field = ((x >> np.uint32(bits * k)) & np.uint32((1 << bits) - 1)).astype(np.int32)
        fields.append(field - ((field >> (bits - 1)) << bits) if signed else field)
    return fields


def _dot_integer(ins: Instruction, source: Source) -> Reader:
    """v_dot4_i32_iu8, v_dot4_u32_u8, v_dot8_i32_iu4, v_dot8_u32_u4; of the signed ones neg says "signed"."""
    bits = 8 if ins.name.startswith("v_dot4") else 4
    unsigned = "_u32_" in ins.name
    a_signed, b_signed = (False if unsigned else op.neg for op in ins.src[:2])
    a, b, c = (source(replace(op, op_sel=0, neg=False, abs=False), "u") for op in ins.src)
    clamp = ins.modifiers.get("clamp", 0)

    def compute(g: Group) -> Any:
        if bits == 8:
            total = _dot8(a(g), b(g), a_signed, b_signed)
        else:
            x, y = split(a(g), bits, a_signed), split(b(g), bits, b_signed)
            total = x[0] * y[0]
            for p, q in zip(x[1:], y[1:], strict=True):
                total = total + p * q
        z = c(g)
        if not clamp:
            return total.view(np.uint32) + z
        if unsigned:
            return np.clip(total.astype(np.int64) + z, 0, 0xFFFFFFFF).astype(np.uint32)
        wide = total.astype(np.int64) + np.asarray(z).view(np.int32)
        return np.clip(wide, -(1 << 31), (1 << 31) - 1).astype(np.int32).view(np.uint32)

    return compute


def _dot4_float(ins: Instruction, source: Source) -> Reader:
    kinds = [FP8 if kind == "fp8" else BF8 for kind in ins.name.split("_")[-2:]]
    a, b = (source(replace(op, op_sel=0, neg=False, abs=False), "u") for op in ins.src[:2])
    c = source(replace(ins.src[2], op_sel=0), "f")

    def compute(g: Group) -> Any:
        """Add one product after another: the products are exact, each sum is rounded."""
        x, y = split(a(g), 8, False), split(b(g), 8, False)
        total = np.asarray(c(g))
        for p, q in zip(x, y, strict=True):
            total = total + kinds[0][p] * kinds[1][q]
        return total.view(np.uint32)

    return compute


def _dot2(ins: Instruction, source: Source) -> Reader:
    """Two products added to an accumulator, each step an fma: hardware does not document the order of the roundings."""
    brain = ins.name.endswith("bf16")
    ops = list(ins.src)
    if len(ops) == 2:
        ops = [*(replace(op, op_sel=2) for op in ops), replace(ins.dst[0], kind=OperandKind.VGPR, op_sel=0)]
    words = [source(replace(op, op_sel=0, neg=False, abs=False), "u") for op in ops[:2]]
    c = source(replace(ops[2], op_sel=0), "f")
    clamp = ins.modifiers.get("clamp", 0)

    def value(g: Group, k: int, high: bool) -> Any:
        op = ops[k]
        pick = op.op_sel >> 1 & 1 if high else op.op_sel & 1
        bits = (words[k](g) >> np.uint32(16 * pick)) & np.uint32(0xFFFF)
        if brain:
            found = (bits << np.uint32(16)).view(np.float32)
        else:
            found = bits.astype(np.uint16).view(np.float16).astype(np.float32)
        return -found if (op.abs if high else op.neg) else found

    def compute(g: Group) -> Any:
        r = rounding.fma32(value(g, 0, False), value(g, 1, False), np.asarray(c(g)))
        r = rounding.fma32(value(g, 0, True), value(g, 1, True), r)
        return limited(r) if clamp else r

    return compute


def _dot2_short(ins: Instruction, source: Source) -> Reader:
    """v_dot2_f16_f16, v_dot2_bf16_bf16: summed as float32, in this order, and rounded at the end. bfloat16 flushes
    subnormals before and after. neg and abs are those of VOP3, for both halves.
    """
    brain = ins.name.endswith("bf16")
    words = [source(replace(op, op_sel=0, neg=False, abs=False), "u") for op in ins.src[:2]]
    addend = ins.src[2]
    c = source(replace(addend, neg=False, abs=False), "b" if brain else "h")

    def signed(found: Any, op: Operand) -> Any:
        if brain:
            found = flush(found)
        found = np.abs(found) if op.abs else found
        return -found if op.neg else found

    def value(g: Group, k: int, half: int) -> Any:
        bits = (np.asarray(words[k](g)) >> np.uint32(16 * half)) & np.uint32(0xFFFF)
        if brain:
            return signed((bits << np.uint32(16)).view(np.float32), ins.src[k])
        return signed(bits.astype(np.uint16).view(np.float16).astype(np.float32), ins.src[k])

    def compute(g: Group) -> Any:
        r = signed(np.asarray(c(g)).astype(np.float32), addend)
        for half in (0, 1):
            r = rounding.fma32(value(g, 0, half), value(g, 1, half), r)
        return flush(r) if brain else r.astype(np.float16)

    return compute


PACKED_NAMES: Final = frozenset(
    {
        *_PAIRS, "v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16", "v_dot4_i32_iu8", "v_dot4_u32_u8",
        "v_dot8_i32_iu4", "v_dot8_u32_u4", "v_dot2_f32_f16", "v_dot2_f32_bf16", "v_dot2acc_f32_f16",
        "v_dot2acc_f32_bf16", "v_dot2_f16_f16", "v_dot2_bf16_bf16", "v_dot4_f32_fp8_fp8", "v_dot4_f32_fp8_bf8",
        "v_dot4_f32_bf8_fp8", "v_dot4_f32_bf8_bf8",
    }
)  # fmt: skip
"""Names of VOP3P instructions, and of the related ones in other formats."""
