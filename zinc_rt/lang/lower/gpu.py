"""Work-items, waves and workgroups of GPUs, by the machine of the target."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from zinc_rt.lang import ops
from zinc_rt.lang.arith import binary
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.lower.registry import lowers, want_static, want_val
from zinc_rt.lang.lower.vectors import bitcast
from zinc_rt.lang.machines import GpuMachine
from zinc_rt.lang.types import Vec, boolean, i32, u32
from zinc_rt.lang.values import Val


def _machine(c: Any, word: str) -> GpuMachine:
    if c.f.machine is None:
        raise Reject(f"{word} belongs to GPU targets, not to {c.target.name}")
    machine: GpuMachine = c.f.machine
    return machine


def _wave32(c: Any, word: str) -> GpuMachine:
    machine = _machine(c, word)
    if "wave32" not in c.target.isa:
        raise Reject(f"{word} is for waves of 32 lanes; the kernel has wave=64")
    return machine


@lowers(ops.workgroup_id)
def _workgroup_id(c: Any, axis: Any) -> Val:
    machine = _machine(c, "workgroup_id")
    if want_static(axis, int, "the axis") not in (0, 1, 2):
        raise Reject(f"the axis must be 0, 1 or 2, got {axis}")
    return Val(u32, machine.workgroup_id(c, axis))


@lowers(ops.workitem_id)
def _workitem_id(c: Any) -> Val:
    return Val(u32, _machine(c, "workitem_id").workitem_id(c))


@lowers(ops.lane_id)
def _lane_id(c: Any) -> Val:
    return Val(u32, _machine(c, "lane_id").lane_id(c))


@lowers(ops.barrier)
def _barrier(c: Any) -> None:
    _machine(c, "barrier").barrier(c)


@lowers(ops.schedule_barrier)
def _schedule_barrier(c: Any) -> None:
    _machine(c, "schedule_barrier").schedule_barrier(c)


def _as_bits(c: Any, x: Any, word: str) -> Val:
    v = want_val(x, f"the argument of {word}")
    if v.type.size != 4 or isinstance(v.type, Vec) or v.type == boolean:
        raise Reject(f"{word} takes a 32-bit scalar, got {v.type}")
    return bitcast(c, v, u32)


@lowers(ops.wave_shuffle_xor)
def _wave_shuffle_xor(c: Any, x: Any, distance: Any) -> Val:
    machine = _wave32(c, "wave_shuffle_xor")
    bits, d = _as_bits(c, x, "wave_shuffle_xor"), want_static(distance, int, "the distance")
    if d not in (1, 2, 4, 8, 16):
        raise Reject(f"the distance must be 1, 2, 4, 8 or 16, got {d}")
    return bitcast(c, Val(u32, machine.shuffle_xor(c, bits.ref, d)), x.type)


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
    machine = _machine(c, "first_lane")
    return bitcast(c, Val(u32, machine.first_lane(c, _as_bits(c, x, "first_lane").ref)), x.type)


@lowers(ops.wmma_iu8)
def _wmma_iu8(c: Any, acc: Any, a: Any, b: Any, a_signed: Any, b_signed: Any) -> Val:
    machine = _wave32(c, "wmma_iu8")
    total, x, y = (want_val(v, "an argument of wmma_iu8") for v in (acc, a, b))
    if total.type != Vec(i32, 8) or x.type != Vec(i32, 2) or y.type != Vec(i32, 2):
        raise Reject(f"wmma_iu8 takes vec[i32, 8], vec[i32, 2], vec[i32, 2], got {total.type}, {x.type}, {y.type}")
    signs = ["true" if want_static(s, bool, "a sign") else "false" for s in (a_signed, b_signed)]
    types = c.f.type(total.type), c.f.type(x.type)
    return Val(total.type, machine.matrix_product(c, signs, types, (total.ref, x.ref, y.ref)))


@lowers(ops.mma_s8)
def _mma_s8(c: Any, acc: Any, a: Any, b: Any) -> Val:
    machine = _wave32(c, "mma_s8")
    total, x, y = (want_val(v, "an argument of mma_s8") for v in (acc, a, b))
    if total.type != Vec(i32, 4) or (x.type, y.type) not in ((Vec(i32, 4), Vec(i32, 2)), (Vec(i32, 2), i32)):
        raise Reject(
            "mma_s8 takes vec[i32, 4], vec[i32, 4], vec[i32, 2], or for 16 columns vec[i32, 4], vec[i32, 2], i32, got"
            f" {total.type}, {x.type}, {y.type}"
        )
    given = [_words(c, v) for v in (total, x, y)]
    return Val(total.type, _from_words(c, machine.mma_s8(c, *given)))


def _words(c: Any, v: Val) -> list[str]:
    if not isinstance(v.type, Vec):
        return [v.ref]
    kind = c.f.type(v.type)
    return [str(c.f.value(f"extractelement {kind} {v.ref}, i64 {i}")) for i in range(v.type.lanes)]


def _from_words(c: Any, words: Sequence[str]) -> str:
    made, kind = "poison", f"<{len(words)} x i32>"
    for i, word in enumerate(words):
        made = str(c.f.value(f"insertelement {kind} {made}, i32 {word}, i64 {i}"))
    return made
