"""Layer norm, activations without a gate, learned positions."""

from __future__ import annotations

from zinc_rt.kernels.cpu.packs import load_some, one_over, padded, store_some
from zinc_rt.kernels.cpu.structs import StepRecord
from zinc_rt.kernels.maths import activated
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import array, fma, iota, load, reduce_add, regs, select, splat, sqrt, unroll
from zinc_rt.lang.types import f32, i32, i64, ptr, struct, u32, vec
from zinc_rt.numerics import NORM_LANES


@struct
class LayerNormArgs:
    x: ptr[f32]
    weight: ptr[f32]
    bias: ptr[f32]
    y: ptr[f32]
    n: i32
    n_heads: i32
    eps: f32


@struct
class ActivationArgs:
    """alpha_p and what follows: of "xielu"."""

    x: ptr[f32]
    y: ptr[f32]
    n: i32
    alpha_p: f32
    alpha_n: f32
    beta: f32
    eps: f32


@struct
class RowsArgs:
    """table: f32[n_ctx, n]."""

    x: ptr[f32]
    table: ptr[f32]
    y: ptr[f32]
    n: i32


@inline
def tree(lane, W: int):
    """The sum of `NORM_LANES` lanes, pairwise at distance 128 ... 1."""
    for half in unroll(tuple(h // W for h in (NORM_LANES >> k for k in range(1, 7)) if h >= W)):
        for i in unroll(half):
            lane[i] = lane[i] + lane[i + half]
    return reduce_add(lane[0])


@inline
def mean_of(x: ptr[f32], n: i32, W: int):
    """The mean of a row."""
    lane = regs(vec[f32, W], NORM_LANES // W)
    buffer = array(f32, NORM_LANES, zero=False)
    for at in range(0, n, NORM_LANES):
        p = padded(x, at, n, buffer, NORM_LANES, W)
        for i in unroll(NORM_LANES // W):
            lane[i] = lane[i] + load(p, i * W, lanes=W)
    return tree(lane, W) / f32(n)


@inline
def squares_of(x: ptr[f32], mean: f32, n: i32, W: int):
    """The sum of (x - mean)^2 of a row."""
    lane = regs(vec[f32, W], NORM_LANES // W)
    buffer = array(f32, NORM_LANES, zero=False)
    middle = splat(mean, W)
    for at in range(0, n, NORM_LANES):
        p = padded(x, at, n, buffer, NORM_LANES, W)
        for i in unroll(NORM_LANES // W):
            d = load(p, i * W, lanes=W) - middle
            # What is missing at the end of a row adds nothing.
            lane[i] = select(iota(i32, W) + splat(at + i * W, W) < splat(n, W), fma(d, d, lane[i]), lane[i])
    return tree(lane, W)


@kernel
def layer_norm(a: ptr[LayerNormArgs], step: ptr[StepRecord], first: i32, last: i32, W: int):
    """Units: rows, or heads of rows, each of which has its own weights."""
    n = a.n
    for row in range(first, last):
        own = i64(u32(row) % u32(a.n_heads)) * i64(n)
        x = a.x + i64(row) * i64(n)
        y = a.y + i64(row) * i64(n)
        mean = mean_of(x, n, W)
        scale = splat(one_over(sqrt(squares_of(x, mean, n, W) / f32(n) + a.eps)), W)
        middle = splat(mean, W)
        for at in range(0, n, W):
            d = load_some(x, at, n, W) - middle
            weighted = (d * scale) * load_some(a.weight + own, at, n, W)
            store_some(y, weighted + load_some(a.bias + own, at, n, W), at, n, W)


@kernel
def activate(a: ptr[ActivationArgs], step: ptr[StepRecord], first: i32, last: i32, W: int, ACT: str):
    """Units: rows."""
    numbers = (splat(a.alpha_p, W), splat(a.alpha_n, W), splat(a.beta, W), splat(a.eps, W))
    for row in range(first, last):
        offset = i64(row) * i64(a.n)
        for at in range(0, a.n, W):
            x = load_some(a.x + offset, at, a.n, W)
            store_some(a.y + offset, activated(x, numbers, ACT), at, a.n, W)


@kernel
def add_position(a: ptr[RowsArgs], step: ptr[StepRecord], first: i32, last: i32, W: int):
    """Units: rows. y = x + the row of its position."""
    for row in range(first, last):
        offset = i64(row) * i64(a.n)
        own = a.table + i64(step.positions[row]) * i64(a.n)
        for at in range(0, a.n, W):
            total = load_some(a.x + offset, at, a.n, W) + load_some(own, at, a.n, W)
            store_some(a.y + offset, total, at, a.n, W)
