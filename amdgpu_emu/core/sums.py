"""Vector instructions whose sum is wider than a register, or that make several: carries, v_mad_co_*, v_qsad_*."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from amdgpu_emu.core.integers import quad_distances
from amdgpu_emu.core.operands import Reader, is_constant, mask_reader, mask_writer, writer
from amdgpu_emu.core.state import Group
from amdgpu_emu.isa.instruction import Instruction, Operand

Source = Callable[[Operand, str], Reader]
Halves = tuple[Reader, Callable[[Group, Any], None]]


def _carry(ins: Instruction, source: Source) -> Halves:
    """v_add_co_u32 and its kin: a sum or difference of 32 bits, with a mask of carries out and perhaps in."""
    swap, minus, takes = "subrev" in ins.name, "sub" in ins.name, "_ci_" in ins.name
    a, b = (source(op, "u") for op in ins.src[:2])
    carry = mask_reader(ins.src[2]) if takes else None
    put, put_mask = writer(ins.dst[0], "u"), mask_writer(ins.dst[1])
    clamp, end = ins.modifiers.get("clamp", 0), np.uint32(0 if minus else 0xFFFFFFFF)

    def compute(g: Group) -> tuple[Any, Any]:
        x, y = a(g), b(g)
        if swap:
            x, y = y, x
        if minus:
            r = x - y
            out = x < y
            if carry is not None:
                c = carry(g)
                out = out | ((x == y) & c)
                r = r - c.astype(np.uint32)
        else:
            r = x + y
            out = r < y
            if carry is not None:
                c = carry(g)
                r = r + c.astype(np.uint32)
                out = out | ((r == 0) & c)
        return (np.where(out, end, r) if clamp else r), out

    def store(g: Group, both: tuple[Any, Any]) -> None:
        put(g, both[0])
        put_mask(g, both[1])

    return compute, store


def _mad64(ins: Instruction, source: Source) -> Halves:
    signed = ins.name.endswith("i64_i32")
    a, b = (source(op, "i" if signed else "u") for op in ins.src[:2])
    c = source(ins.src[2], "J" if signed else "U")
    put, put_mask = writer(ins.dst[0], "U"), mask_writer(ins.dst[1])
    clamp, low, high = ins.modifiers.get("clamp", 0), np.int64(-(1 << 63)), np.int64((1 << 63) - 1)

    def compute(g: Group) -> tuple[Any, Any]:
        p = np.multiply(a(g), b(g), dtype=np.int64 if signed else np.uint64)
        z = c(g)
        r = p + z
        # Bit 64 of the 65-bit sum: a carry, and of signed numbers the sign of the exact sum.
        if not signed:
            return (np.where(r < p, np.uint64(0xFFFFFFFFFFFFFFFF), r) if clamp else r), r < p
        over = ((p ^ r) & (z ^ r)) < 0
        negative = (r < 0) ^ over
        return (np.where(over, np.where(negative, low, high), r) if clamp else r), negative

    def store(g: Group, both: tuple[Any, Any]) -> None:
        put(g, both[0])
        put_mask(g, both[1])

    return compute, store


def _quad_sad(ins: Instruction, source: Source) -> Halves:
    """v_qsad_pk_u16_u8, v_mqsad_pk_u16_u8, v_mqsad_u32_u8: four sums of distances added to four numbers."""
    masked, wide = "mqsad" in ins.name, ins.name.endswith("u32_u8")
    a, b = source(ins.src[0], "U"), source(ins.src[1], "u")
    clamp, bits = ins.modifiers.get("clamp", 0), 32 if wide else 16
    top, words = (1 << bits) - 1, [source(_dword(ins.src[2], k), "u") for k in range(4 if wide else 2)]
    d = ins.dst[0].index

    def compute(g: Group) -> Any:
        old = [np.asarray(word(g)).astype(np.int64) for word in words]
        if not wide:
            old = [x >> 16 * k & 0xFFFF for x in old for k in (0, 1)]
        sums = [x + y for x, y in zip(quad_distances(a(g), b(g), masked), old, strict=True)]
        sums = [np.minimum(x, top) if clamp else x & top for x in sums]
        if not wide:
            sums = [sums[0] | sums[1] << 16, sums[2] | sums[3] << 16]
        return [x.astype(np.uint32) for x in sums]

    def store(g: Group, found: Any) -> None:
        for k, x in enumerate(found):
            g.put(d + k, x)

    return compute, store


def _dword(op: Operand, k: int) -> Operand:
    """One of the registers of a wide operand."""
    if is_constant(op):
        return replace(op, dwords=1, bits=32, value=op.value >> 32 * k & 0xFFFFFFFF)
    return replace(op, index=op.index + k, dwords=1, bits=32)


SUMS: Final[dict[str, Callable[[Instruction, Source], Halves]]] = {
    "v_mad_co_u64_u32": _mad64,
    "v_mad_co_i64_i32": _mad64,
    "v_qsad_pk_u16_u8": _quad_sad,
    "v_mqsad_pk_u16_u8": _quad_sad,
    "v_mqsad_u32_u8": _quad_sad,
    **{f"v_{op}{ci}_u32": _carry for op in ("add_co", "sub_co", "subrev_co") for ci in ("", "_ci")},
}
