"""The second half of routed feed-forwards: products of the chosen experts, weighted and added by increasing id.

A wave makes one element of a row. Where the rows of weights have few groups, it works on several experts at once, a
part of its lanes on each.
"""

from __future__ import annotations

from zinc_rt.formats.decode import looks_up
from zinc_rt.kernels.gpu.dequant_dot import (
    group_activations,
    group_loads,
    group_lookups,
    group_values,
    group_weights,
)
from zinc_rt.kernels.gpu.experts import FLOATS, line_bytes
from zinc_rt.kernels.gpu.matvec import add_all_chains, add_all_groups, add_chains, wave_row
from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.kernels.maths import sigmoid
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    fma,
    lane_id,
    regs,
    schedule_barrier,
    select,
    unroll,
    wave_reduce_add,
    wave_shuffle_xor,
    workgroup_id,
)
from zinc_rt.lang.types import Space, f32, i8, i32, ptr, struct, u8, u32, u64
from zinc_rt.numerics import GROUP, TREE_LANES

AHEAD = 4
"""Products of a lane whose weights are loaded together."""


@struct
class GpuDownArgs:
    """q, d, s, or x: f32[rows, k, n_in], the activations of the experts; w: [experts, n_out] rows; bias: [experts,
    n_out], with BIAS; ids, weights: [rows, k]. The shared expert, with SHARED: shared_* the same of one matrix,
    gate_logit: f32[rows], with GATED. y: f32[rows, n_out].
    """

    q: ptr[i8]
    d: ptr[f32]
    s: ptr[u32]
    x: ptr[f32]
    w: ptr[u8]
    bias: ptr[f32]
    ids: ptr[i32]
    weights: ptr[f32]
    shared_q: ptr[i8]
    shared_d: ptr[f32]
    shared_s: ptr[u32]
    shared_x: ptr[f32]
    shared_w: ptr[u8]
    gate_logit: ptr[f32]
    y: ptr[f32]
    n_out: u32


@inline
def lanes_of(n: int):
    """Lanes that a product of rows of n elements takes: 8, 16 or 32, static."""
    return min((lanes for lanes in (8, 16) if (n + GROUP - 1) // GROUP <= lanes), default=TREE_LANES)


@inline
def sum_of(v, LANES: int):
    """The tree over the first lanes of a part of the wave; those that the part lacks would add +0.0."""
    total: f32 = v
    for distance in unroll(tuple(x for x in (16, 8, 4, 2, 1) if x < LANES)):
        total = total + wave_shuffle_xor(total, distance)
    return total


@inline
def of_part(v, part: int, LANES: int):
    """In lane 0: what the lanes of another part hold."""
    found: f32 = v
    for distance in unroll(tuple(x for x in (8, 16) if part * LANES & x)):
        found = wave_shuffle_xor(found, distance)
    return found


@inline
def finished(a, v, expert, row: u32, BIAS: bool):
    """The product with what an expert adds to it."""
    value: f32 = v
    if BIAS:
        value = value + a.bias[u64(expert) * u64(a.n_out) + u64(row)]
    return value


@inline
def short_products(a, at: u32, row: u32, FMT: str, K: int, N_IN: int, BIAS: bool):
    """The weighted sum in lane 0, for rows of up to 32 groups: a group of each product a lane. at: the row of
    activations.
    """
    LANES = lanes_of(N_IN)
    PARTS = TREE_LANES // LANES
    GROUPS = (N_IN + GROUP - 1) // GROUP
    TURNS = (K + PARTS - 1) // PARTS
    ids = a.ids + u64(at) * K
    weights = unchanged(a.weights, f32) + u64(at) * K
    size = line_bytes(u32(N_IN), FMT)
    lane = lane_id() & (LANES - 1)
    live = lane < GROUPS
    group = select(live, lane, lane - lane + (GROUPS - 1))
    acc: f32 = 0.0
    for start in unroll(0, TURNS, AHEAD):
        turns = tuple(range(start, min(start + AHEAD, TURNS)))
        places = tuple(chosen_place(t, K, PARTS, LANES) for t in turns)
        experts = tuple(chosen(ids, p, PARTS) for p in places)
        lines = tuple(a.w + (u64(e) * u64(a.n_out) + u64(row)) * u64(size) for e in experts)
        values = regs(f32, len(turns))
        if FMT in FLOATS:
            for i in unroll(len(turns)):
                x: ptr[f32] = a.x + (u64(at) * K + u64(places[i])) * N_IN
                sums = regs(f32, 1)
                if live:
                    add_chains((lines[i],), x, sums, group, u32(N_IN), u32(N_IN), (FMT,), 1)
                values[i] = sums[0]
        else:
            none: u32 = 0
            loaded = tuple(group_loads(line, none, group, FMT) for line in lines)
            rows = tuple(group_activations(row_at(a, u64(at) * K + u64(p), GROUPS), none, group, FMT) for p in places)
            # All of these are asked for before the first of them is needed.
            schedule_barrier()
            loaded = tuple(group_lookups(x, FMT) for x in loaded)
            if looks_up(FMT):
                schedule_barrier()
            for i in unroll(len(turns)):
                zero: f32 = 0.0
                (value,) = group_values(group_weights(loaded[i], group, FMT), (rows[i],), FMT)
                values[i] = zero + select(live, value, 0.0)
        for i in unroll(len(turns)):
            v = finished(a, sum_of(values[i], LANES), experts[i], row, BIAS)
            for part in unroll(PARTS):
                if turns[i] * PARTS + part < K:
                    acc = fma(weights[turns[i] * PARTS + part], of_part(v, part, LANES), acc)
    return acc


@inline
def row_at(a, at: u64, GROUPS: int):
    """A row of GROUPS groups of activations."""
    first = at * GROUPS
    return a.q + first * GROUP, a.d + first, a.s + first


@inline
def chosen_place(turn: int, K: int, PARTS: int, LANES: int):
    """Which of the K chosen experts a lane works on; the last one where a part has none of its own."""
    if PARTS == 1:
        return lane_id() * 0 + turn
    j = turn * PARTS + lane_id() // LANES
    if turn * PARTS + PARTS <= K:
        return j
    return select(j < K, j, j - j + (K - 1))


@inline
def chosen(ids: ptr[i32], place: u32, PARTS: int):
    """The expert at a place, known to be the same in all lanes where it is."""
    if PARTS == 1:
        return unchanged(ids)[place]
    return u32(ids[place])


@inline
def long_products(a, at: u32, row: u32, FMT: str, K: int, N_IN: int, BIAS: bool):
    """As `short_products` for rows of more groups: one expert after the other."""
    ids = unchanged(a.ids) + u64(at) * K
    weights = unchanged(a.weights, f32) + u64(at) * K
    size = line_bytes(u32(N_IN), FMT)
    acc: f32 = 0.0
    for j in range(u32(0), u32(K)):
        expert = ids[j]
        line = a.w + (u64(expert) * u64(a.n_out) + u64(row)) * u64(size)
        pair = u64(at) * K + u64(j)
        total = row_total(a.q, a.d, a.s, a.x, line, pair, N_IN, FMT)
        acc = fma(weights[j], finished(a, total, expert, row, BIAS), acc)
    return acc


@inline
def row_total(q, d, s, x, line, at: u64, N: int, FMT: str):
    """The product of a row of weights and row `at` of activations, in every lane."""
    GROUPS = (N + GROUP - 1) // GROUP
    sums = regs(f32, 1)
    if FMT in FLOATS:
        add_all_chains((line,), x + at * N, sums, u32(N), u32(N), (FMT,), 1)
    else:
        first = at * GROUPS
        row = (q + first * GROUP, d + first, s + first)
        add_all_groups((line,), row, sums, u32(GROUPS), u32(GROUPS), 2, (FMT,), 1)
    return wave_reduce_add(sums[0])


@inline
def element_of_experts(
    a, at: u32, row: u32, FMT: str, K: int, N_IN: int, BIAS: bool, SHARED: str, N_SHARED: int, GATED: bool
):
    """y[at, row], by a wave."""
    total: f32 = 0.0
    if (N_IN + GROUP - 1) // GROUP <= TREE_LANES:
        total = short_products(a, at, row, FMT, K, N_IN, BIAS)
    else:
        total = long_products(a, at, row, FMT, K, N_IN, BIAS)
    if SHARED != "":
        line = a.shared_w + u64(row) * u64(line_bytes(u32(N_SHARED), SHARED))
        own = row_total(a.shared_q, a.shared_d, a.shared_s, a.shared_x, line, u64(at), N_SHARED, SHARED)
        if GATED:
            own = sigmoid(unchanged(a.gate_logit, f32)[at]) * own
        total = total + own
    if lane_id() == 0:
        a.y[u64(at) * u64(a.n_out) + u64(row)] = total


@kernel(workgroup=128)
def experts_down(
    a: ptr[GpuDownArgs, Space.CONSTANT],
    FMT: str,
    K: int,
    N_IN: int,
    BIAS: bool,
    SHARED: str = "",
    N_SHARED: int = 0,
    GATED: bool = False,
):
    """y = sum of weight * (product + bias) over the chosen experts, plus the shared expert's (times
    sigmoid(gate_logit)); four elements a workgroup in x, rows in y. SHARED: the format of the shared matrix.
    """
    row = wave_row()
    if row < a.n_out:
        element_of_experts(a, workgroup_id(1), row, FMT, K, N_IN, BIAS, SHARED, N_SHARED, GATED)
