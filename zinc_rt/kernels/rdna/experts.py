"""Gated feed-forwards up to their activation: gate, up, and act(gate) * up, as int8 where products read it.

A workgroup makes 32 elements of the result, one group of int8 activations, so that two matrices, the activation and
its quantisation are one kernel. Experts find their rows of weights through the chosen ids in memory.
"""

from __future__ import annotations

from zinc_rt.formats import table
from zinc_rt.formats.decode import format_of
from zinc_rt.kernels.maths import gated
from zinc_rt.kernels.rdna.groups import group_value, group_weights
from zinc_rt.kernels.rdna.matvec import add_all_groups, add_chains
from zinc_rt.kernels.rdna.quantize import quantize_four
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    cast,
    concat,
    first_lane,
    lane_id,
    regs,
    select,
    shared,
    splat,
    target_has,
    unroll,
    wave_reduce_add,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import Space, f32, i8, i32, ptr, struct, u8, u32, u64
from zinc_rt.numerics import GROUP, GROUP_SHIFT, TREE_LANES

FLOATS = tuple(f.name for f in table.floats())
WAVES = 16
"""Of a workgroup: each does two elements of the group."""
FEWER_WAVES = 8
"""Of one in a resident program, whose workgroups are smaller."""


@struct
class GpuGatedArgs:
    """q, d, s: rows of activations as `quantize` has them, or x for float weights. gate, up: [experts, n_ff] rows;
    biases [experts, n_ff], with BIAS. ids: i32[rows, k], of chosen experts. y: f32[rows, k, n_ff], or out_q, out_d,
    out_s. given: f32[rows, width], whose elements from `start` on stand for the second product where UP is "".
    """

    q: ptr[i8]
    d: ptr[f32]
    s: ptr[u32]
    x: ptr[f32]
    gate: ptr[u8]
    up: ptr[u8]
    gate_bias: ptr[f32]
    up_bias: ptr[f32]
    ids: ptr[i32]
    y: ptr[f32]
    out_q: ptr[u32]
    out_d: ptr[f32]
    out_s: ptr[u32]
    n_in: u32
    n_ff: u32
    k: u32
    alpha: f32
    limit: f32
    given: ptr[f32]
    width: u32
    start: u32


@inline
def line_bytes(n: u32, FMT: str):
    """Bytes of a row of n elements."""
    F = format_of(FMT)
    if FMT in FLOATS:
        return n * F.block_bytes
    return ((n >> GROUP_SHIFT) >> F.group_shift) * F.block_bytes


@inline
def add_both(gate, up, x, gates, ups, base: u32, n_groups: u32, STEPS: int, GATE: str, UP: str, M: int):
    """gates[m] and ups[m] += v_g of this lane's groups base + lane, 32 further, … STEPS times."""
    q, d, s = x
    at = tuple(base + i * TREE_LANES + lane_id() for i in range(STEPS))
    groups = tuple(select(g < n_groups, g, n_groups - 1) for g in at)
    # What comes from memory is asked for before the first of it is needed.
    first = tuple(group_weights(gate, g, GATE) for g in groups)
    second = tuple(group_weights(up, g, UP) for g in groups)
    for i in unroll(STEPS):
        for m in unroll(M):
            row = (q + m * n_groups * GROUP, d + m * n_groups, s + m * n_groups)
            gates[m] = gates[m] + select(at[i] < n_groups, group_value(first[i], row, groups[i], GATE), 0.0)
            ups[m] = ups[m] + select(at[i] < n_groups, group_value(second[i], row, groups[i], UP), 0.0)


@inline
def both_products(a, gate, up, row: u32, gates, ups, GATE: str, UP: str, M: int):
    """gates[m] and ups[m]: this lane's share of the products of two rows of weights and M rows of activations; where UP
    is "", of the first alone.
    """
    n = a.n_in
    if UP == "":
        if GATE in FLOATS:
            for group in range(lane_id(), (n + (GROUP - 1)) >> GROUP_SHIFT, TREE_LANES):
                add_chains(gate, a.x + u64(row) * u64(n), gates, group, n, GATE, M)
        else:
            n_groups = n >> GROUP_SHIFT
            first = u64(row) * u64(n_groups)
            add_all_groups(gate, a.q + first * GROUP, a.d + first, a.s + first, gates, n_groups, 2, GATE, M)
    elif GATE in FLOATS:
        x: ptr[f32] = a.x + u64(row) * u64(n)
        for group in range(lane_id(), (n + (GROUP - 1)) >> GROUP_SHIFT, TREE_LANES):
            add_chains(gate, x, gates, group, n, GATE, M)
            add_chains(up, x, ups, group, n, UP, M)
    else:
        n_groups = n >> GROUP_SHIFT
        first = u64(row) * u64(n_groups)
        x = (a.q + first * GROUP, a.d + first, a.s + first)
        many: u32 = 0
        while many + 2 * TREE_LANES <= n_groups:
            add_both(gate, up, x, gates, ups, many, n_groups, 2, GATE, UP, M)
            many += 2 * TREE_LANES
        for base in range(many, n_groups, TREE_LANES):
            add_both(gate, up, x, gates, ups, base, n_groups, 1, GATE, UP, M)


@inline
def stored(a, parts, out: u32, block: u32, n_ff: u32, PACKED: bool, ACT: str, M: int):
    """By the first M waves: act(gate) * up of 32 elements, from LDS to memory. out: the first row of the result."""
    wave = first_lane(workitem_id() >> 5)
    if wave < M:
        mine = parts + wave * (2 * GROUP)
        if PACKED:
            at = (lane_id() & 7) * 4
            gates = concat(concat(mine[at], mine[at + 1]), concat(mine[at + 2], mine[at + 3]))
            p = mine + GROUP
            ups = concat(concat(p[at], p[at + 1]), concat(p[at + 2], p[at + 3]))
            v = gated(gates, ups, splat(a.alpha, 4), splat(a.limit, 4), ACT)
            four = u64(out + wave) * u64(n_ff >> 2) + u64(block * (GROUP // 4))
            group = u64(out + wave) * u64(n_ff >> GROUP_SHIFT) + u64(block)
            q, d, s = a.out_q + four, a.out_d + group, a.out_s + group
            quantize_four(v, q, d, s, lane_id() & 7, lane_id() < 8)
        else:
            y = gated(mine[lane_id()], mine[lane_id() + GROUP], a.alpha, a.limit, ACT)
            at = block * GROUP + lane_id()
            if at < n_ff:
                a.y[u64(out + wave) * u64(n_ff) + u64(at)] = y


@inline
def second_of(a, product, row: u32, element: u32, UP: str):
    """What the gate's activation is multiplied by: the product, or where UP is "" what is given."""
    if UP == "":
        return a.given[u64(row) * u64(a.width) + u64(a.start + element)]
    return product


@inline
def group_of_rows(
    a, expert: u64, row: u32, out: u32, block: u32, GATE: str, UP: str, PACKED: bool, BIAS: bool, ACT: str, M: int
):  # fmt: skip
    """32 elements of M rows of the result."""
    parts = shared(f32, 2 * GROUP * M)
    n_ff = a.n_ff
    wave = first_lane(workitem_id() >> 5)
    gate_bytes = line_bytes(a.n_in, GATE)
    up_bytes = gate_bytes if UP == "" else line_bytes(a.n_in, UP)
    waves = FEWER_WAVES if target_has("resident") else WAVES
    for turn in unroll(GROUP // waves):
        element = wave + turn * waves
        at = block * GROUP + element
        if at < n_ff:
            line = expert * u64(n_ff) + u64(at)
            gates, ups = regs(f32, M), regs(f32, M)
            gate_extra = a.gate_bias[line] if BIAS else 0.0
            up_extra = a.up_bias[line] if BIAS else 0.0
            gate, up = a.gate + line * u64(gate_bytes), a.up + line * u64(up_bytes)
            both_products(a, gate, up, row, gates, ups, GATE, UP, M)
            for m in unroll(M):
                g = wave_reduce_add(gates[m])
                u = second_of(a, wave_reduce_add(ups[m]), row + m, at, UP)
                if lane_id() == 0:
                    parts[m * 2 * GROUP + element] = g + gate_extra if BIAS else g
                    parts[m * 2 * GROUP + GROUP + element] = u + up_extra if BIAS else u
        else:
            for m in unroll(M):
                if lane_id() == 0:
                    parts[m * 2 * GROUP + element] = 0.0
                    parts[m * 2 * GROUP + GROUP + element] = 0.0
    barrier()
    stored(a, parts, out, block, n_ff, PACKED, ACT, M)


@struct
class GpuExpertRowsArgs:
    """q, d, s, or x: rows of activations; w: [experts, n_out] rows, bias: [experts, n_out], with BIAS; ids: i32[rows,
    k]; y: f32[rows, k, n_out].
    """

    q: ptr[i8]
    d: ptr[f32]
    s: ptr[u32]
    x: ptr[f32]
    w: ptr[u8]
    bias: ptr[f32]
    ids: ptr[i32]
    y: ptr[f32]
    n_in: u32
    n_out: u32
    k: u32


@kernel(workgroup=128)
def expert_rows(a: ptr[GpuExpertRowsArgs, Space.CONSTANT], FMT: str, BIAS: bool):
    """The products of each row with its chosen experts; workgroups: rows in x, k in y, ceil(n_out / 4) in z."""
    row, j = workgroup_id(0), workgroup_id(1)
    pair = row * a.k + j
    at = workgroup_id(2) * 4 + first_lane(workitem_id() >> 5)
    if at < a.n_out:
        n = a.n_in
        place = u64(cast(a.ids, ptr[u32, Space.CONSTANT])[pair]) * u64(a.n_out) + u64(at)
        line = a.w + place * u64(line_bytes(n, FMT))
        sums = regs(f32, 1)
        if FMT in FLOATS:
            for group in range(lane_id(), (n + (GROUP - 1)) >> GROUP_SHIFT, TREE_LANES):
                add_chains(line, a.x + u64(row) * u64(n), sums, group, n, FMT, 1)
        else:
            first = u64(row) * u64(n >> GROUP_SHIFT)
            add_all_groups(line, a.q + first * GROUP, a.d + first, a.s + first, sums, n >> GROUP_SHIFT, 2, FMT, 1)
        total = wave_reduce_add(sums[0])
        if lane_id() == 0:
            a.y[u64(pair) * u64(a.n_out) + u64(at)] = total + a.bias[place] if BIAS else total


@kernel(workgroup=512, resident=256)
def gated_experts(
    a: ptr[GpuGatedArgs, Space.CONSTANT], GATE: str, UP: str, PACKED: bool, BIAS: bool, ACT: str
):  # fmt: skip
    """Of each row's chosen experts; workgroups: rows in x, k in y, ceil(n_ff / 32) in z."""
    row, j = workgroup_id(0), workgroup_id(1)
    pair = row * a.k + j
    expert = cast(a.ids, ptr[u32, Space.CONSTANT])[pair]
    group_of_rows(a, u64(expert), row, pair, workgroup_id(2), GATE, UP, PACKED, BIAS, ACT, 1)


@kernel(workgroup=512, resident=256)
def gated_rows(
    a: ptr[GpuGatedArgs, Space.CONSTANT], GATE: str, UP: str, PACKED: bool, BIAS: bool, M: int, ACT: str
):  # fmt: skip
    """Of one pair of matrices, or of one matrix, and blocks of M rows of activations: blocks in x, 1 in y, ceil(n_ff /
    32) in z.
    """
    row = workgroup_id(0) * M
    group_of_rows(a, u64(0), row, row, workgroup_id(2), GATE, UP, PACKED, BIAS, ACT, M)
