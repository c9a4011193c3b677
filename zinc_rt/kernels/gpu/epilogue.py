"""Work behind a kernel's own that needs all of its workgroups' results: the last workgroup to arrive does it.

That saves the barrier and the dispatch between the two. Workgroups count themselves in memory that is 0 before and
behind every dispatch.
"""

from __future__ import annotations

from zinc_rt.formats.decode import format_of
from zinc_rt.kernels.gpu.arrival import is_last
from zinc_rt.kernels.gpu.down import GpuDownArgs, element_of_experts
from zinc_rt.kernels.gpu.matvec import add_all_chains, rows_of_groups
from zinc_rt.kernels.gpu.norm import norm_row, norm_row_quantized, scale_of, sum_row
from zinc_rt.kernels.gpu.router import GpuRouterArgs, choose
from zinc_rt.kernels.gpu.shared_rows import float_rows
from zinc_rt.kernels.gpu.whole_norm import norm_whole_row
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    first_lane,
    lane_id,
    regs,
    shared,
    unroll,
    wave_reduce_add,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import Space, f32, i8, ptr, struct, u8, u32, u64
from zinc_rt.numerics import GROUP_SHIFT, NORM_LANES

WAVES = 8
"""Of a workgroup whose last one norms: the norm's tree has 256 lanes."""


@struct
class GpuNormTail:
    """What the last workgroup does with the kernel's result r, f32[rows, n]; TAIL, which is (NORMS, SUM, FACTORS, NORM,
    PACKED, PLAIN, N), says what of it; N: elements of a row, or 0 for any number.

    With NORMS > 0: r = norm(r) * first. With NORMS > 1 then: r = norm(r + beside) * second. With SUM: r = r + residual,
    or with FACTORS r = (r * own_scale + residual) * total_scale; r goes to total. With NORM: r = norm(r) * weight. With
    PACKED r goes to q, d, s as `quantize` has it, with PLAIN to y. counters: u32, one for each block of rows.
    """

    counters: ptr[u32]
    first: ptr[f32]
    beside: ptr[f32]
    second: ptr[f32]
    residual: ptr[f32]
    weight: ptr[f32]
    total: ptr[f32]
    y: ptr[f32]
    q: ptr[u32]
    d: ptr[f32]
    s: ptr[u32]
    n_rows: u32
    eps: f32
    own_scale: f32
    total_scale: f32


@inline
def norms_before(t, part, x: ptr[f32], at: u64, n: u32, NORMS: int):
    """The norms of a row before the sum with the residual stream, as `element` wants them."""
    if NORMS == 0:
        return ()
    first = ((), scale_of(part, (x, (), (), ()), x, n, t.eps, False), t.first)
    if NORMS == 1:
        return (first,)
    beside = (t.beside + at,)
    second = scale_of(part, (x, (first,), beside, ()), x, n, t.eps, False)
    return (first, (beside, second, t.second))


@inline
def factors_of(t, FACTORS: bool):
    """Factors of the result, of the residual stream and of their sum."""
    if FACTORS:
        return (t.own_scale, f32(1.0), t.total_scale)
    return ()


@inline
def norm_rows(t, x: ptr[f32], n: u32, first: u32, M: int, TAIL: tuple):
    """The work of the last workgroup for rows first … first + M - 1 of x, those that the step has."""
    NORMS, SUM, FACTORS, NORM, PACKED, PLAIN, N = TAIL
    part = shared(f32, NORM_LANES + 1)
    for m in range(u32(0), u32(M)):
        number = first + m
        if number < t.n_rows:
            at = u64(number) * u64(n)
            group = at >> GROUP_SHIFT
            added = (t.residual + at,) if SUM else ()
            row = (x + at, norms_before(t, part, x + at, at, n, NORMS), added, factors_of(t, FACTORS))
            if N > 0:
                norm_whole_row(
                    part, row, t.weight, t.total + at, t.q + (at >> 2), t.d + group, t.s + group, t.eps, t.y + at, N,
                    SUM, PLAIN,
                )  # fmt: skip
            elif not NORM:
                sum_row(row, t.total + at, t.q + (at >> 2), t.d + group, t.s + group, n, PACKED)
            elif PACKED:
                norm_row_quantized(
                    part, row, t.weight, t.total + at, t.q + (at >> 2), t.d + group, t.s + group, n, t.eps, t.y + at,
                    SUM, True, PLAIN,
                )  # fmt: skip
            else:
                norm_row(part, row, t.weight, t.total + at, t.y + at, n, t.eps, SUM, True)


@inline
def blocks_before_norm(
    w, q, d, s, y, bias, n_groups, n_rows, t, FMT: str, M: int, EACH: int, STEPS: int, BIAS: bool, TAIL: tuple
):
    """The work of `matvec_norm` and `matvec_bias_norm`."""
    row = (workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)) * EACH
    rows_of_groups(w, q, d, s, y, bias, n_groups, n_rows, row, FMT, M, STEPS, BIAS, EACH)
    block = workgroup_id(1)
    if is_last(t.counters, block, (n_rows + (WAVES * EACH - 1)) // (WAVES * EACH)):
        norm_rows(t, y, n_rows, block * M, M, TAIL)


@inline
def floats_before_norm(w, x, y, bias, n, n_rows, t, FMT: str, M: int, EACH: int, BIAS: bool, TAIL: tuple):
    """The work of `matvec_float_norm` and `matvec_float_bias_norm`."""
    row = (workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)) * EACH
    float_rows(w, x, y, bias, n, n_rows, row, FMT, M, BIAS, EACH)
    block = workgroup_id(1)
    if is_last(t.counters, block, (n_rows + (WAVES * EACH - 1)) // (WAVES * EACH)):
        norm_rows(t, y, n_rows, block * M, M, TAIL)


@kernel(workgroup=256)
def matvec_norm(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], y: ptr[f32], n_groups: u32, n_rows: u32,
    t: ptr[GpuNormTail, Space.CONSTANT], FMT: str, M: int, EACH: int, STEPS: int, TAIL: tuple,
):  # fmt: skip
    """As `matvec`, eight waves a workgroup, each with EACH rows of W, and then a tail."""
    blocks_before_norm(w, q, d, s, y, y, n_groups, n_rows, t, FMT, M, EACH, STEPS, False, TAIL)


@kernel(workgroup=256)
def matvec_bias_norm(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], bias: ptr[f32], y: ptr[f32], n_groups: u32, n_rows: u32,
    t: ptr[GpuNormTail, Space.CONSTANT], FMT: str, M: int, EACH: int, STEPS: int, TAIL: tuple,
):  # fmt: skip
    """As `matvec_norm`, plus bias[row]."""
    blocks_before_norm(w, q, d, s, y, bias, n_groups, n_rows, t, FMT, M, EACH, STEPS, True, TAIL)


@kernel(workgroup=256)
def matvec_float_norm(
    w: ptr[u8], x: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, t: ptr[GpuNormTail, Space.CONSTANT], FMT: str, M: int,
    EACH: int, TAIL: tuple,
):  # fmt: skip
    """As `matvec_norm` for float weights."""
    floats_before_norm(w, x, y, y, n, n_rows, t, FMT, M, EACH, False, TAIL)


@kernel(workgroup=256)
def matvec_float_bias_norm(
    w: ptr[u8], x: ptr[f32], bias: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, t: ptr[GpuNormTail, Space.CONSTANT],
    FMT: str, M: int, EACH: int, TAIL: tuple,
):  # fmt: skip
    """As `matvec_float_norm`, plus bias[row]."""
    floats_before_norm(w, x, y, bias, n, n_rows, t, FMT, M, EACH, True, TAIL)


@kernel(workgroup=256)
def experts_down_norm(
    a: ptr[GpuDownArgs, Space.CONSTANT], t: ptr[GpuNormTail, Space.CONSTANT], FMT: str, K: int, N_IN: int, BIAS: bool,
    TAIL: tuple, SHARED: str = "", N_SHARED: int = 0, GATED: bool = False,
):  # fmt: skip
    """As `experts_down`, eight elements a workgroup, and then a tail."""
    element = workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)
    row = workgroup_id(1)
    n_out = a.n_out
    if element < n_out:
        element_of_experts(a, row, element, FMT, K, N_IN, BIAS, SHARED, N_SHARED, GATED)
    if is_last(t.counters, row, (n_out + (WAVES - 1)) // WAVES):
        norm_rows(t, a.y, n_out, row, 1, TAIL)


@struct
class GpuRouteArgs:
    """x: f32[rows, n], w: [experts, n] of floats, router_bias: f32[experts], with ROUTER_BIAS; factor: of the logits,
    with FACTOR. counters: u32, one for each block of rows.
    """

    x: ptr[f32]
    w: ptr[u8]
    router_bias: ptr[f32]
    counters: ptr[u32]
    n: u32
    n_rows: u32
    factor: f32


@kernel(workgroup=32)
def route(
    p: ptr[GpuRouteArgs, Space.CONSTANT], a: ptr[GpuRouterArgs, Space.CONSTANT], FMT: str, M: int, ROUTER_BIAS: bool,
    FACTOR: bool, E: int, K: int, GATING: str, NORMALISE: bool, BIAS: bool, SCALED: bool, GROUPS: int = 1,
    USED: int = 1, BY_TOKEN: bool = False,
):  # fmt: skip
    """The logits of M rows, an expert a workgroup in x, blocks of rows in y; and then the choice of experts."""
    expert, block = workgroup_id(0), workgroup_id(1)
    n = p.n
    line = p.w + u64(expert) * u64(n * format_of(FMT).block_bytes)
    sums = regs(f32, M)
    add_all_chains((line,), p.x + u64(block * M) * u64(n), sums, n, n, (FMT,), M)
    extra = p.router_bias[expert] if ROUTER_BIAS else 0.0
    for m in unroll(M):
        total = wave_reduce_add(sums[m])
        if lane_id() == 0:
            logit = total + extra if ROUTER_BIAS else total
            a.logits[u64(block * M + m) * E + u64(expert)] = logit * p.factor if FACTOR else logit
    if is_last(p.counters, block, u32(E)):
        for m in range(u32(0), u32(M)):
            row = block * M + m
            if row < p.n_rows:
                choose(a, u64(row), E, K, GATING, NORMALISE, BIAS, SCALED, GROUPS, USED, BY_TOKEN)
                barrier()
