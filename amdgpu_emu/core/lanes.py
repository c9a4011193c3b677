"""Data exchange between the lanes of a wave: DPP, DPP8, v_permlane*, v_readlane, v_writelane."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.operands import reader, scalar_index
from amdgpu_emu.core.state import Array, Group, Step
from amdgpu_emu.isa.instruction import Instruction, OperandKind


def dpp_source(ctrl: int, lanes: int) -> tuple[Array, Array]:
    """The lane that each lane reads under a DPP control, and whether there is one (ISA, "DPP16")."""
    lane = np.arange(lanes)
    row, at = lane & ~15, lane & 15
    kind, n = ctrl >> 4, ctrl & 15
    if ctrl < 0x100:
        return (lane & ~3) + (ctrl >> 2 * (lane & 3) & 3), np.ones(lanes, np.bool_)
    if kind == 0x10 and n:
        source = at + n
    elif kind == 0x11 and n:
        source = at - n
    elif kind == 0x12 and n:
        source = (at - n) & 15
    elif ctrl == 0x140:
        source = 15 - at
    elif ctrl == 0x141:
        source = (at & 8) + 7 - (at & 7)
    elif kind == 0x15:
        source = np.full(lanes, n)
    elif kind == 0x16:
        source = at ^ n
    else:
        raise Unsupported(f"dpp_ctrl {ctrl:#x}")
    valid = (source >= 0) & (source < 16)
    return row + np.where(valid, source, 0), valid


def check_lanes(g: Group, register: int, wanted: Array, index: Array) -> None:
    """Raise `ShaderError` if a lane reads a lane of a register that was never written. wanted, index: [n, lanes]."""
    if not g.undef_v >> register & 1:
        return
    bad = wanted & ~np.take_along_axis(g.v_defined[register], np.broadcast_to(index, wanted.shape), axis=1)
    if bad.any():
        wave, lane = (int(k) for k in np.argwhere(bad)[0])
        source = int(np.broadcast_to(index, wanted.shape)[wave, lane])
        raise ShaderError(f"v{register} of lane {source} is read and was never written", wave=wave, lane=lane)


def with_dpp(ins: Instruction, lanes: int, inner: Step) -> Step:
    """Wrap an instruction in DPP: `inner` reads its first source from `Group.dpp`, u32[n, lanes]."""
    m = ins.modifiers
    register = ins.src[0].index
    if ins.src[0].kind is not OperandKind.VGPR:
        raise Unsupported("DPP of a source that is no vector register")
    fi = bool(m.get("fi", 0))
    if "dpp8" in m:
        lane = np.arange(lanes)
        index, valid = (lane & ~7) + (m["dpp8"] >> 3 * (lane & 7) & 7), np.ones(lanes, np.bool_)
        rows, zero = np.ones(lanes, np.bool_), True
    else:
        index, valid = dpp_source(m["dpp_ctrl"], lanes)
        lane = np.arange(lanes)
        row_mask, bank_mask = m.get("row_mask", 0), m.get("bank_mask", 0)
        rows = ((row_mask >> (lane >> 4)) & (bank_mask >> (lane >> 2 & 3)) & 1).astype(np.bool_)
        zero = bool(m.get("bound_ctrl", 0))
    all_valid, all_rows = bool(valid.all()), bool(rows.all())
    bit = 1 << register

    def run(g: Group) -> Any:
        outer = g.mask
        if outer is None or fi:
            good = None if all_valid else np.broadcast_to(valid, (g.n, lanes))
        else:
            good = outer.take(index, axis=1) & valid
        value = g.v[register].take(index, axis=1)
        if g.undef_v & bit:
            on = g.active() & rows
            check_lanes(g, register, on if good is None else on & good, index[None, :])
        if good is not None:
            if zero:
                value = np.where(good, value, np.uint32(0))
            else:
                g.mask = good if outer is None else outer & good
        if not all_rows:
            g.mask = np.broadcast_to(rows, (g.n, lanes)) if g.mask is None else g.mask & rows
        g.dpp = value
        mask = g.mask
        try:
            return inner(g)
        finally:
            if g.mask is mask:  # else EXEC was written
                g.mask = outer

    return run


def permlane16(ins: Instruction, lanes: int) -> Step:
    """v_permlane16_b32, v_permlanex16_b32 and their forms with a selection per lane."""
    source, dst = ins.src[0].index, ins.dst[0].index
    op_sel = ins.modifiers.get("op_sel", 0)
    fi, zero = bool(op_sel & 1), bool(op_sel & 2)
    var, other = "_var" in ins.name, "x16" in ins.name
    selects = [reader(op, "u", scalar=not var) for op in ins.src[1:]]
    lane = np.arange(lanes)
    base = (lane & ~15) ^ (16 if other else 0)
    shift = (4 * (lane & 7)).astype(np.uint32)

    def run(g: Group) -> None:
        if var:
            picked = np.broadcast_to(selects[0](g), (g.n, lanes)) & np.uint32(15)
        else:
            low, high = (np.atleast_1d(select(g))[:, None] for select in selects)
            if (low == low[0]).all() and (high == high[0]).all():  # all waves alike, as a rule
                low, high = low[:1], high[:1]
            picked = (np.where(lane & 8, high, low) >> shift) & np.uint32(15)
        index = base + picked.astype(np.int64)
        value = _from_lanes(g.v[source], index)
        good = None if fi or g.mask is None else _from_lanes(g.mask, index)
        on = g.active() if good is None else g.active() & good
        check_lanes(g, source, on, index)
        if good is not None:
            value = np.where(good, value, np.uint32(0) if zero else g.v[dst])
        g.put(dst, value)

    return run


def _from_lanes(values: Array, index: Array) -> Array:
    """Take values from other lanes, [n, lanes], by lane numbers [n, lanes], or [1, lanes] for all waves."""
    found: Array = values.take(index[0], axis=1) if len(index) == 1 else np.take_along_axis(values, index, axis=1)
    return found


def permlane64(ins: Instruction, lanes: int) -> Step:
    """v_permlane64_b32: swap the halves of a wave64; a plain move with 32 lanes."""
    source, dst = ins.src[0].index, ins.dst[0].index
    if lanes == 32:
        return lambda g: None
    index = np.arange(lanes) ^ 32

    def run(g: Group) -> None:
        check_lanes(g, source, g.active(), index[None, :])
        g.put(dst, g.v[source][:, index])

    return run


def readfirstlane(ins: Instruction, lanes: int) -> Step:
    """v_readfirstlane_b32: read the first active lane; lane 0 where none is active."""
    source, dst = ins.src[0], scalar_index(ins.dst[0])
    assert dst is not None
    if source.kind is not OperandKind.VGPR:
        read = reader(source, "u", scalar=True)
        return lambda g: g.put_s(dst, read(g))
    register = source.index

    def run(g: Group) -> None:
        first = np.zeros(g.n, np.int64) if g.mask is None else g.mask.argmax(axis=1)
        if g.undef_v >> register & 1:
            check_lanes(g, register, np.ones((g.n, 1), np.bool_), first[:, None])
        g.put_s(dst, g.v[register][np.arange(g.n), first])

    return run


def readlane(ins: Instruction, lanes: int) -> Step:
    """v_readlane_b32: read a lane by number, active or not. One that was never written makes the result the same."""
    source, dst = ins.src[0], scalar_index(ins.dst[0])
    assert dst is not None
    if source.kind is not OperandKind.VGPR:
        raise Unsupported("v_readlane_b32 of a scalar register")
    register, lane = source.index, reader(ins.src[1], "u", scalar=True)

    def run(g: Group) -> None:
        index = np.broadcast_to(lane(g) & np.uint32(lanes - 1), (g.n,)).astype(np.int64)[:, None]
        g.put_s(dst, np.take_along_axis(g.v[register], index, axis=1)[:, 0])
        if g.undef_v >> register & 1:
            g.forget_s(dst, ~np.take_along_axis(g.v_defined[register], index, axis=1)[:, 0])

    return run


def writelane(ins: Instruction, lanes: int) -> Step:
    """v_writelane_b32: write one lane, active or not. A value that was never written makes the lane the same: compilers
    keep scalar registers in lanes, also those that have no value on some ways through the code.
    """
    dst, source = ins.dst[0].index, scalar_index(ins.src[0])
    value, lane = (reader(op, "u", scalar=True) for op in ins.src[:2])

    def run(g: Group) -> None:
        index = np.broadcast_to(lane(g) & np.uint32(lanes - 1), (g.n,)).astype(np.int64)
        waves = np.arange(g.n)
        g.v[dst][waves, index] = value(g)
        if g.undef_v >> dst & 1:
            written = np.zeros((g.n, g.lanes), np.bool_)
            written[waves, index] = True
            g.define(dst, written)
        if source is not None and g.undef_s >> source & 1:
            missing = ~g.s_defined[source]
            g.v_defined[dst][waves[missing], index[missing]] = False
            g.undef_v |= int(missing.any()) << dst

    return run


LANES: Final = {
    "v_permlane16_b32": permlane16,
    "v_permlanex16_b32": permlane16,
    "v_permlane16_var_b32": permlane16,
    "v_permlanex16_var_b32": permlane16,
    "v_permlane64_b32": permlane64,
    "v_readfirstlane_b32": readfirstlane,
    "v_readlane_b32": readlane,
    "v_writelane_b32": writelane,
}
