"""Gated feed-forwards up to their activation: gate, up, and act(gate) * up, as int8 where products read it.

A workgroup makes 32 elements of the result, one group of int8 activations, so that two matrices, the activation and
its quantisation are one kernel. Experts find their rows of weights through the chosen ids in memory.
"""

from __future__ import annotations

from zinc_rt.formats import table
from zinc_rt.formats.decode import format_of
from zinc_rt.kernels.gpu.dequant_dot_wide import takes_whole_groups
from zinc_rt.kernels.gpu.matvec import add_all_chains, add_all_groups, clamped, place_of, sharing, wave_sums
from zinc_rt.kernels.gpu.quantize import quantize_four
from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.kernels.gpu.shared_rows import SHARED_FROM, add_shared_chains, room_for_rows
from zinc_rt.kernels.maths import gated
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
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
from zinc_rt.numerics import GROUP, GROUP_SHIFT

FLOATS = tuple(f.name for f in table.floats())
WAVES = 16
"""Of a workgroup."""
FEWER_WAVES = 8
"""Of one where registers are few, and in a resident program, whose workgroups are smaller."""
TURNS = GROUP // WAVES
"""Elements of the group that a wave does at once."""
HELD = 4
"""Rows of activations of which a lane holds a group at once: with more, fewer of these large workgroups run at once."""


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
def lots_of(FMTS: tuple, M: int):
    """Which rows of weights are worked on together, static: all of them where registers hold what that needs; of floats
    where a load of activations is worth it.
    """
    floats = all(f in FLOATS for f in FMTS)
    fits = M <= 4 or all(format_of(f).block_bytes == 2 for f in FMTS)
    plain = not any(f in FLOATS or takes_whole_groups(f) for f in FMTS)
    if (floats and M > 1 and fits) or (plain and M <= 2):
        return (tuple(range(len(FMTS))),)
    if any(f != FMTS[0] for f in FMTS):
        return tuple((r,) for r in range(len(FMTS)))
    return tuple(tuple(range(t, len(FMTS), TURNS)) for t in range(TURNS))


@inline
def shares_rows(FMT: str, M: int):
    """Whether the waves of a workgroup share what they load of the activations, static."""
    return FMT in FLOATS and M >= SHARED_FROM


@inline
def add_products(a, lines, row: u32, xs, sums, FMTS: tuple, M: int, N_WAVES: int):
    """sums[r * M + m] = this lane's share of the product of lines[r] and row + m of the activations.
    xs: of `room_for_rows`, where waves share them.
    """
    n = a.n_in
    for mine in unroll(lots_of(FMTS, M)):
        own = regs(f32, len(mine) * M)
        kinds = tuple(FMTS[r] for r in mine)
        chosen = tuple(lines[r] for r in mine)
        if shares_rows(FMTS[0], M):
            add_shared_chains(chosen, a.x + u64(row) * u64(n), xs, own, n, n, kinds, M, N_WAVES)
        elif FMTS[0] in FLOATS:
            add_all_chains(chosen, a.x + u64(row) * u64(n), own, n, n, kinds, M)
        else:
            n_groups = n >> GROUP_SHIFT
            first = u64(row) * u64(n_groups)
            x = (a.q + first * GROUP, a.d + first, a.s + first)
            STEPS = 2 if M * len(mine) <= 2 else 1
            add_all_groups(chosen, x, own, n_groups, n_groups, STEPS, kinds, M, HELD)
        for i in unroll(len(mine)):
            for m in unroll(M):
                sums[mine[i] * M + m] = own[i * M + m]


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
def bias_of(a, place: u64, second, BIAS: bool):
    """What is added to a product of the gate, or of the second matrix."""
    extra: f32 = 0.0
    if BIAS:
        if second:
            extra = a.up_bias[place]
        else:
            extra = a.gate_bias[place]
    return extra


@inline
def some_of_group(
    a, parts, xs, expert: u64, row: u32, start: u32, first: u32, waves: int, GATE: str, UP: str, BIAS: bool, M: int
):
    """To LDS: both products of TURNS elements of the group at `start`: `first`, the one `waves` behind it, …"""
    n_ff = a.n_ff
    places = tuple(expert * u64(n_ff) + u64(clamped(start + first + t * waves, n_ff)) for t in range(TURNS))
    gates = tuple(a.gate + place * u64(line_bytes(a.n_in, GATE)) for place in places)
    ups = () if UP == "" else tuple(a.up + place * u64(line_bytes(a.n_in, UP)) for place in places)
    FMTS = (GATE,) * TURNS if UP == "" else (GATE,) * TURNS + (UP,) * TURNS
    # Of the sums, a lane has that of one element of one matrix and row.
    line, m = place_of(len(FMTS), M)
    element = first + line % TURNS * waves
    second = line >= TURNS
    at = start + element
    extra = bias_of(a, expert * u64(n_ff) + u64(clamped(at, n_ff)), second, BIAS)
    sums = regs(f32, len(FMTS) * M)
    add_products(a, gates + ups, row, xs, sums, FMTS, M, waves)
    total = wave_sums(sums, len(FMTS) * M)
    if lane_id() % sharing(len(FMTS) * M) == 0 and line < len(FMTS):
        mine = parts + (m * (2 * GROUP) + element)
        mine[select(second, u32(GROUP), 0)] = select(at < n_ff, total + extra if BIAS else total, 0.0)
        if UP == "":
            given: f32 = 0.0
            if at < n_ff:
                given = a.given[u64(row + m) * u64(a.width) + u64(a.start + at)]
                if BIAS:
                    given = given + a.up_bias[expert * u64(n_ff) + u64(at)]
            mine[GROUP] = given


@inline
def group_of_rows(
    a, expert: u64, row: u32, out: u32, block: u32, GATE: str, UP: str, PACKED: bool, BIAS: bool, ACT: str, M: int
):
    """32 elements of M rows of the result; a wave does TURNS of them at once, of both matrices."""
    parts = shared(f32, 2 * GROUP * M)
    xs = room_for_rows(M) if shares_rows(GATE, M) else parts
    n_ff = a.n_ff
    wave = first_lane(workitem_id() >> 5)
    waves = FEWER_WAVES if target_has("small_groups") else WAVES
    for first in unroll(0, GROUP, TURNS * waves):
        some_of_group(a, parts, xs, expert, row, block * GROUP, first + wave, waves, GATE, UP, BIAS, M)
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
        place = u64(unchanged(a.ids)[pair]) * u64(a.n_out) + u64(at)
        line = a.w + place * u64(line_bytes(n, FMT))
        sums = regs(f32, 1)
        if FMT in FLOATS:
            add_all_chains((line,), a.x + u64(row) * u64(n), sums, n, n, (FMT,), 1)
        else:
            n_groups = n >> GROUP_SHIFT
            first = u64(row) * u64(n_groups)
            x = (a.q + first * GROUP, a.d + first, a.s + first)
            add_all_groups((line,), x, sums, n_groups, n_groups, 2, (FMT,), 1)
        total = wave_reduce_add(sums[0])
        if lane_id() == 0:
            a.y[u64(pair) * u64(a.n_out) + u64(at)] = total + a.bias[place] if BIAS else total


@kernel(workgroup=512, occupancy=8, small=256)
def gated_experts(a: ptr[GpuGatedArgs, Space.CONSTANT], GATE: str, UP: str, PACKED: bool, BIAS: bool, ACT: str):
    """Of each row's chosen experts; workgroups: rows in x, k in y, ceil(n_ff / 32) in z."""
    row, j = workgroup_id(0), workgroup_id(1)
    pair = row * a.k + j
    expert = unchanged(a.ids)[pair]
    group_of_rows(a, u64(expert), row, pair, workgroup_id(2), GATE, UP, PACKED, BIAS, ACT, 1)


@kernel(workgroup=512, occupancy=8, small=256)
def gated_rows(a: ptr[GpuGatedArgs, Space.CONSTANT], GATE: str, UP: str, PACKED: bool, BIAS: bool, M: int, ACT: str):
    """Of one pair of matrices, or of one matrix, and blocks of M rows of activations: blocks in x, 1 in y, ceil(n_ff /
    32) in z.
    """
    row = workgroup_id(0) * M
    group_of_rows(a, u64(0), row, row, workgroup_id(2), GATE, UP, PACKED, BIAS, ACT, M)
