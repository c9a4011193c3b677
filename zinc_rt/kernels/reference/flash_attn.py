"""Causal attention over cached keys and values, in splits of 256 positions.

A query row at position p sees positions 0 .. p. Scores are fma chains over the head dimension; within a split the
output is an fma chain over positions; splits are merged in position order. Which rows share a call changes nothing:
each row's operations depend on its own position alone.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.reference.arith import F32, fma_chain, lane_tree_sum
from zinc_rt.kernels.reference.mathfn import exp
from zinc_rt.numerics import SPLIT, TREE_LANES

_TILE = 1 << 15  # elements of an accumulator: scores of some rows, or their outputs

Cached = npt.NDArray[np.float16] | F32


def attend_rows(
    q: F32, k: Cached, v: Cached, positions: npt.NDArray[np.integer], scale: float, sinks: F32 | None = None
) -> F32:
    """Attention of rows of one sequence: f32[n, heads, head_dim].

    q: f32[n, heads, head_dim], rows in ascending position; k, v: [>= max(positions) + 1, n_kv, head_dim].
    Head h reads key-value head h // (heads / n_kv). sinks: f32[heads] logits that only add to the softmax sum,
    NaN for none.
    """
    n, heads, dim = q.shape
    n_kv = k.shape[1]
    grouped = q.reshape(n, n_kv, heads // n_kv, dim)
    out = np.empty_like(grouped)
    step = max(1, _TILE // (heads * max(dim, min(SPLIT, k.shape[0]))))
    with np.errstate(all="ignore"):
        for r in range(0, n, step):
            rows = slice(r, r + step)
            out[rows] = _attend(grouped[rows], k, v, np.asarray(positions[rows], np.int64), np.float32(scale), sinks)
    return out.reshape(n, heads, dim)


def _attend(
    q: F32, k: Cached, v: Cached, positions: npt.NDArray[np.int64], scale: np.float32, sinks: F32 | None
) -> F32:
    n, n_kv, rep, dim = q.shape
    top = np.empty((n, n_kv, rep), np.float32)
    total = np.empty((n, n_kv, rep), np.float32)
    out = np.empty((n, n_kv, rep, dim), np.float32)
    queries = np.ascontiguousarray(q.transpose(3, 0, 1, 2), np.float64)  # f64[dim, n, n_kv, rep]
    length = int(positions[-1]) + 1
    whole = (int(positions[0]) + 1) // SPLIT  # splits that every row sees in full: worked on together
    spans = [(0, whole)] if whole else []
    spans += [(i, 1) for i in range(whole, -(-length // SPLIT))]
    for first, count in spans:
        start, stop = first * SPLIT, min((first + count) * SPLIT, length)
        live = int(np.searchsorted(positions, start))  # rows live: reach this span
        shape = (count, -1, n_kv, dim)
        parts = _splits(
            queries[:, live:],
            k[start:stop].reshape(shape),
            v[start:stop].reshape(shape),
            positions[live:] - start,
            scale,
        )
        for i in range(count):
            m, s, o = (part[:, i] for part in parts)
            if first + i == 0:
                top[live:], total[live:], out[live:] = m, s, o
                continue
            merged = np.maximum(top[live:], m)
            old, new = exp(top[live:] - merged), exp(m - merged)
            total[live:] = total[live:] * old + s * new
            out[live:] = out[live:] * old[..., None] + o * new[..., None]
            top[live:] = merged
    if sinks is not None:
        _add_sinks(top, total, out, sinks.reshape(n_kv, rep))
    return out / total[..., None]


def _splits(
    q: npt.NDArray[np.float64], k: Cached, v: Cached, last: npt.NDArray[np.int64], scale: np.float32
) -> tuple[F32, F32, F32]:
    """Each split's max f32[n, splits, n_kv, rep], sum of exponentials, weighted values f32[n, splits, n_kv, rep, dim].

    q: f64[dim, n, n_kv, rep]; k, v: [splits, <= 256, n_kv, dim]. Row r sees positions 0 .. last[r]: all of them where
    there are several splits.
    """
    length = k.shape[1]
    keys = np.ascontiguousarray(k.transpose(3, 0, 2, 1), np.float64)  # f64[dim, splits, n_kv, length]
    scores = fma_chain(q[:, :, None, :, :, None], keys[:, None, :, :, None, :]) * scale
    hidden = np.arange(length)[None, :] > last[:, None]  # bool[n, length]
    masked = bool(hidden.any())
    where = np.broadcast_to(hidden[:, None, None, None, :], scores.shape) if masked else None
    if where is not None:
        scores[where] = -np.inf
    m = scores.max(axis=-1)
    p = exp(scores - m[..., None])
    if where is not None:
        p[where] = 0.0
    by_position = np.ascontiguousarray(np.moveaxis(p, -1, 0))  # f32[length, n, splits, n_kv, rep]
    total = lane_tree_sum(by_position, TREE_LANES)
    values = v.transpose(1, 0, 2, 3).astype(np.float64)[:, None, :, :, None, :]
    first_row = np.searchsorted(last, np.arange(length)) if masked else None
    return m, total, fma_chain(by_position[..., None], values, first_row)


def _add_sinks(top: F32, total: F32, out: F32, sinks: F32) -> None:
    """Merge each head's sink like a split whose only exponential is 1 and whose value is zero."""
    on = np.broadcast_to(~np.isnan(sinks), top.shape)
    merged = np.where(on, np.maximum(top, sinks), top)
    old = exp(top - merged)
    total[...] = np.where(on, total * old + exp(sinks - merged), total)
    out[...] = np.where(on[..., None], out * old[..., None], out)
