"""Work-items, waves and workgroups of AMD targets (calling convention amdgpu_cs)."""

from __future__ import annotations

import ast
from typing import Any

from zinc_rt.lang import ops
from zinc_rt.lang.arith import binary
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.lower.parts import part_barrier
from zinc_rt.lang.lower.registry import lowers, want_static, want_val
from zinc_rt.lang.lower.vectors import bitcast
from zinc_rt.lang.target import RESIDENT
from zinc_rt.lang.types import Vec, boolean, i32, u32
from zinc_rt.lang.values import Val

WORKITEM = "%workitem"
"""The packed work-item id that the hardware puts into v0: x in bits 0-9, y in 10-19, z in 20-29."""
WORKGROUP = ("%group_x", "%group_y", "%group_z")
"""The workgroup's ids, where `Target.ids_are_arguments`."""


def _gpu(c: Any, word: str) -> None:
    if not c.f.gpu:
        raise Reject(f"{word} belongs to GPU targets, not to {c.target.name}")


def _wave32(c: Any, word: str) -> None:
    _gpu(c, word)
    if "wave32" not in c.target.isa:
        raise Reject(f"{word} is for waves of 32 lanes; the kernel has wave=64")


def _axis(axis: Any) -> int:
    if want_static(axis, int, "the axis") not in (0, 1, 2):
        raise Reject(f"the axis must be 0, 1 or 2, got {axis}")
    return int(axis)


@lowers(ops.workgroup_id)
def _workgroup_id(c: Any, axis: Any) -> Val:
    _gpu(c, "workgroup_id")
    number = _axis(axis)
    if c.target.ids_are_arguments or RESIDENT in c.target.isa:
        return Val(u32, WORKGROUP[number])
    return Val(u32, c.f.call(f"llvm.amdgcn.workgroup.id.{'xyz'[number]}", u32, []))


@lowers(ops.workitem_id)
def _workitem_id(c: Any) -> Val:
    _gpu(c, "workitem_id")
    return Val(u32, c.f.value(f"and i32 {WORKITEM}, 1023"))


@lowers(ops.lane_id)
def _lane_id(c: Any) -> Val:
    _gpu(c, "lane_id")
    low = c.f.call("llvm.amdgcn.mbcnt.lo", u32, [("i32", "-1"), ("i32", "0")])
    if "wave32" in c.target.isa:
        return Val(u32, low)
    return Val(u32, c.f.call("llvm.amdgcn.mbcnt.hi", u32, [("i32", "-1"), ("i32", low)]))


@lowers(ops.barrier)
def _barrier(c: Any) -> None:
    _gpu(c, "barrier")
    if RESIDENT in c.target.isa:
        part_barrier(c)
        return
    c.f.emit('fence syncscope("workgroup") release')
    c.f.call("llvm.amdgcn.s.barrier", None, [])
    c.f.emit('fence syncscope("workgroup") acquire')


@lowers(ops.schedule_barrier)
def _schedule_barrier(c: Any) -> None:
    _gpu(c, "schedule_barrier")
    c.f.call("llvm.amdgcn.sched.barrier", None, [("i32", "0")])


def _as_bits(c: Any, x: Any, word: str) -> Val:
    v = want_val(x, f"the argument of {word}")
    if v.type.size != 4 or isinstance(v.type, Vec) or v.type == boolean:
        raise Reject(f"{word} takes a 32-bit scalar, got {v.type}")
    return bitcast(c, v, u32)


def _within_row(c: Any, bits: Val, distance: int) -> str:
    """Lane `l ^ distance` of the same row of 16: DPP control ROW_XMASK (0x160 + mask, gfx10 and later).

    Row and bank masks of all ones write every active lane, and with the bound control a lane that is switched off reads
    as 0; so the old value is never used and may be poison, which lets LLVM fold the move into the next instruction.
    """
    operands = ["poison", bits.ref, str(0x160 + distance), "15", "15"]
    return str(c.f.call("llvm.amdgcn.update.dpp.i32", u32, [*(("i32", o) for o in operands), ("i1", "true")]))


def _other_row(c: Any, bits: Val) -> str:
    """The same lane of the other row of 16: V_PERMLANEX16_B32 with the identity as its selection.

    Lane i of a row reads, from the other row, the lane in bits 4i … 4i+3 of the 64 bits {selection 2, selection 1}
    (RDNA 4 ISA, V_PERMLANEX16_B32): 0x76543210 for lanes 0-7, 0xFEDCBA98 for lanes 8-15. A wave of 32 has two rows, so
    that is lane ^ 16. The last operands are fetch-inactive and bound control; the old value is never used, as above.
    """
    low, high = 0x76543210, 0xFEDCBA98 - (1 << 32)
    operands = ["poison", bits.ref, str(low), str(high)]
    text = [*(("i32", o) for o in operands), ("i1", "true"), ("i1", "true")]
    return str(c.f.call("llvm.amdgcn.permlanex16.i32", u32, text))


@lowers(ops.wave_shuffle_xor)
def _wave_shuffle_xor(c: Any, x: Any, distance: Any) -> Val:
    _wave32(c, "wave_shuffle_xor")
    bits, d = _as_bits(c, x, "wave_shuffle_xor"), want_static(distance, int, "the distance")
    if d not in (1, 2, 4, 8, 16):
        raise Reject(f"the distance must be 1, 2, 4, 8 or 16, got {d}")
    moved = _other_row(c, bits) if d == 16 else _within_row(c, bits, d)
    return bitcast(c, Val(u32, moved), x.type)


@lowers(ops.wave_reduce_add)
def _wave_reduce_add(c: Any, x: Any) -> Val:
    _wave32(c, "wave_reduce_add")
    v = want_val(x, "the argument of wave_reduce_add")
    # Every lane adds the same pairs (addition commutes), so all lanes get lane 0's tree of docs/how/numerics.md.
    for distance in (16, 8, 4, 2, 1):
        v = binary(c.f, ast.Add(), v, _wave_shuffle_xor(c, v, distance))
    return v


@lowers(ops.first_lane)
def _first_lane(c: Any, x: Any) -> Val:
    _gpu(c, "first_lane")
    bits = _as_bits(c, x, "first_lane")
    return bitcast(c, Val(u32, c.f.call("llvm.amdgcn.readfirstlane.i32", u32, [("i32", bits.ref)])), x.type)


@lowers(ops.wmma_iu8)
def _wmma_iu8(c: Any, acc: Any, a: Any, b: Any, a_signed: Any, b_signed: Any) -> Val:
    _wave32(c, "wmma_iu8")
    if "wmma" not in c.target.isa:
        raise Reject(f"wmma_iu8 is for gfx12; {c.target.name} has another shape of it")
    total, x, y = (want_val(v, "an argument of wmma_iu8") for v in (acc, a, b))
    if total.type != Vec(i32, 8) or x.type != Vec(i32, 2) or y.type != Vec(i32, 2):
        raise Reject(f"wmma_iu8 takes vec[i32, 8], vec[i32, 2], vec[i32, 2], got {total.type}, {x.type}, {y.type}")
    signs = ["true" if want_static(s, bool, "a sign") else "false" for s in (a_signed, b_signed)]
    kind, half = c.f.type(total.type), c.f.type(x.type)
    operands = [("i1", signs[0]), (half, x.ref), ("i1", signs[1]), (half, y.ref), (kind, total.ref), ("i1", "false")]
    return Val(total.type, c.f.call("llvm.amdgcn.wmma.i32.16x16x16.iu8.v8i32.v2i32", total.type, operands))
