"""What products share: the order of lanes, the upper levels of the tree over them, and writing a tile's sums."""

from __future__ import annotations

from typing import NamedTuple

from zinc_rt.kernels.cpu.structs import StepRecord
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import array, bitcast, cast, load, prefetch, splat, store, unroll
from zinc_rt.lang.types import f32, i8, i32, i64, ptr, u64, vec
from zinc_rt.numerics import GROUP


class Ahead(NamedTuple):
    """Bytes between a load of weights and the prefetch of others. 0: the processor reads the stream ahead by itself."""

    one: int
    """For products of one row."""
    several: int
    near: int = 0
    """For products of one row, of a second prefetch: the first is dropped where too many are under way. 0: none."""
    second: bool = False
    """Whether products of several rows, and attention, prefetch into the second-level cache, which has more misses."""


@inline
def ask_for(w, distance, BYTES: int, AHEAD: Ahead, M: int):
    """Prefetch so many bytes of weights at a distance, for M rows."""
    for i in unroll(0, BYTES, 64):
        if M == 1 and AHEAD.near > 0:
            prefetch(w, AHEAD.near + i)
        prefetch(w + distance, i, locality=2 if AHEAD.second and M > 1 else 3)


@inline
def live_rows(step: ptr[StepRecord], by_logit: i32):
    """Rows that an operation works on in this step."""
    if by_logit != 0:
        return step.n_logits
    return step.n_rows


@inline
def lane_of(q: i32):
    """The q-th lane in visiting order: five bits reversed."""
    return ((q & 1) << 4) | ((q & 2) << 2) | (q & 4) | ((q >> 2) & 2) | ((q >> 4) & 1)


@inline
def four_columns(x: ptr[i8], m: int, i: int, W: int):
    """Row m's activations of line i, for every lane."""
    return bitcast(splat(load(cast(x + (m * GROUP + i * 4), ptr[i32])), W), vec[i8, 4 * W])


@inline
def put_aside(q: i32, sums, aside: ptr[f32], N: int, W: int):
    """Keep the sums of four lanes, the q-th four in visiting order."""
    for i in unroll(N):
        store(aside, sums[i], (q * N + i) * W, align=W * 4)


@inline
def merge_lanes(sums, aside: ptr[f32], N: int, W: int):
    """The rest of the tree, from the eight sums put aside: pairwise in visiting order."""
    for i in unroll(N):
        part = tuple(load(aside, (q * N + i) * W, lanes=W, align=W * 4) for q in range(8))
        sums[i] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]))


@inline
def put_tile(a, sums, tile: i32, row: i32, M: int, W: int):
    """Write M rows of a tile's sums, with the bias."""
    H = 16 // W
    n_out = a.n_out
    first = tile * 16
    whole = first + 16 <= n_out
    has_bias = cast(a.bias, u64) != 0
    if whole:
        if has_bias:
            for h in unroll(H):
                b = load(a.bias, first + h * W, lanes=W)
                for m in unroll(M):
                    sums[m * H + h] = sums[m * H + h] + b
        for m in unroll(M):
            y = a.y + (i64(row + m) * i64(n_out) + i64(first))
            for h in unroll(H):
                store(y, sums[m * H + h], h * W)
    else:
        buffer = array(f32, 16, zero=False)
        for m in unroll(M):
            for h in unroll(H):
                store(buffer, sums[m * H + h], h * W)
            y = a.y + (i64(row + m) * i64(n_out) + i64(first))
            for j in range(n_out - first):
                v: f32 = buffer[j]
                if has_bias:
                    v = v + a.bias[first + j]
                y[j] = v
