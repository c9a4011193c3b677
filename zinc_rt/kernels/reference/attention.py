"""Causal attention in splits of 256 positions, over contiguous and over paged keys and values.

Which rows share a call changes nothing: each row's operations depend on its own position alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.reference.arith import F32, I64, fma_chain, lane_tree_sum
from zinc_rt.kernels.reference.kv_quant import BLOCK_BYTES, U8, Q8Rows, elements_of, quantized_products, unpack_heads
from zinc_rt.kernels.reference.mathfn import exp, tanh
from zinc_rt.numerics import GROUP, LEAST_TOP, PAGE_TOKENS, SPLIT, TREE_LANES

_TILE = 1 << 15  # elements of an accumulator: scores of some rows, or their outputs

F16 = npt.NDArray[np.float16]
I32 = npt.NDArray[np.int32]
Cached = F16 | F32


class Scores(NamedTuple):
    """What happens to the products of a query and the keys before the softmax.

    scale: their factor. softcap: the bound that `cap * tanh(score / cap)` keeps them in, None for none. window: a row
    sees that many positions, its own the last; None for all. sinks: f32[heads], logits that only add to the softmax's
    sum, NaN for none; None where no head has one. lowest: i64[rows], the first position that each row sees, rising with
    the last one; None for what the window says. chosen: bool[rows, positions], the positions that each row sees of
    those; None for all. slopes: f32[heads], by which scores fall for each position between a row's own, i64[rows] in
    own, and the key's; None for none.
    """

    scale: float
    softcap: float | None = None
    window: int | None = None
    sinks: F32 | None = None
    lowest: npt.NDArray[np.integer] | None = None
    chosen: npt.NDArray[np.bool_] | None = None
    slopes: F32 | None = None
    own: npt.NDArray[np.integer] | None = None

    def of_rows(self, rows: slice | I64) -> Scores:
        """The same for some of the rows."""
        lowest, own = (x if x is None else x[rows] for x in (self.lowest, self.own))
        return self._replace(lowest=lowest, own=own, chosen=None if self.chosen is None else self.chosen[rows])


def attend_rows(q: F32, k: Cached | Q8Rows, v: Cached, positions: npt.NDArray[np.integer], scoring: Scores) -> F32:
    """Attention of rows of one sequence: f32[n, heads, value_dim].

    q: f32[n, heads, head_dim], rows in ascending position; k: [>= max(positions) + 1, n_kv, head_dim], or as many
    quantised ones; v: the same with value_dim elements. Head h reads key-value head h // (heads / n_kv).
    """
    n, heads, dim = q.shape
    n_kv, value_dim = v.shape[1:]
    grouped = q.reshape(n, n_kv, heads // n_kv, dim)
    out = np.empty((*grouped.shape[:3], value_dim), np.float32)
    step = max(1, _TILE // (heads * max(dim, min(SPLIT, v.shape[0]))))
    with np.errstate(all="ignore"):
        for r in range(0, n, step):
            rows = slice(r, r + step)
            out[rows] = _attend(grouped[rows], k, v, np.asarray(positions[rows], np.int64), scoring.of_rows(rows))
    return out.reshape(n, heads, value_dim)


def _products(q: F32, queries: npt.NDArray[np.float64], k: Cached | Q8Rows, at: slice, count: int) -> F32:
    """Unscaled products of queries and the keys `at`, cut into splits: f32[n, splits, n_kv, rep, positions].

    q: f32[n, n_kv, rep, dim]; queries: the same as f64[dim, n, n_kv, rep].
    """
    if isinstance(k, Q8Rows):
        whole = quantized_products(q, Q8Rows(k.d[at], k.q[at]))
        return np.moveaxis(whole.reshape(*whole.shape[:3], count, -1), 3, 1)
    keys = k[at].reshape(count, -1, *k.shape[1:])
    by_element = np.ascontiguousarray(keys.transpose(3, 0, 2, 1), np.float64)  # f64[dim, splits, n_kv, length]
    return fma_chain(queries[:, :, None, :, :, None], by_element[:, None, :, :, None, :])


def _attend(q: F32, k: Cached | Q8Rows, v: Cached, positions: I64, scoring: Scores) -> F32:
    n, n_kv, rep, _ = q.shape
    top = np.empty((n, n_kv, rep), np.float32)
    total = np.empty((n, n_kv, rep), np.float32)
    out = np.empty((n, n_kv, rep, v.shape[2]), np.float32)
    queries = np.ascontiguousarray(q.transpose(3, 0, 1, 2), np.float64)  # f64[dim, n, n_kv, rep]
    lowest = np.zeros_like(positions) if scoring.window is None else np.maximum(positions - (scoring.window - 1), 0)
    if scoring.lowest is not None:
        lowest = np.asarray(scoring.lowest, np.int64)
    for first, count in _spans(positions, lowest):
        start, stop = first * SPLIT, min((first + count) * SPLIT, int(positions[-1]) + 1)
        live, done = int(np.searchsorted(positions, start)), int(np.searchsorted(lowest, stop))
        parts = _splits(
            _products(q[live:done], queries[:, live:done], k, slice(start, stop), count),
            v[start:stop].reshape(count, -1, n_kv, v.shape[2]),
            (lowest[live:done] - start, positions[live:done] - start),
            scoring if scoring.own is None else scoring._replace(own=scoring.own[live:done] - start),
            None if scoring.chosen is None else scoring.chosen[live:done, start:stop],
        )
        for i in range(count):
            m, s, o = (part[:, i] for part in parts)
            fresh = max(live, int(np.searchsorted(lowest, start + i * SPLIT)))  # from here it is the rows' first split
            old, new = slice(live, fresh), slice(fresh - live, None)
            top[fresh:done], total[fresh:done], out[fresh:done] = m[new], s[new], o[new]
            _merge(top[old], total[old], out[old], m[: fresh - live], s[: fresh - live], o[: fresh - live])
    if scoring.sinks is not None:
        _add_sinks(top, total, out, scoring.sinks.reshape(n_kv, rep))
    return out / total[..., None]


def _spans(positions: I64, lowest: I64) -> list[tuple[int, int]]:
    """(first split, splits) to work on together, in order; several only where every row sees all of them in full.

    positions, lowest: of rows, rising: the last and the first position that each sees. Splits that no row sees are
    left out.
    """
    whole = (int(positions[0]) + 1) // SPLIT if int(lowest[-1]) == 0 else 0
    spans = [(0, whole)] if whole else []
    for i in range(whole, -(-(int(positions[-1]) + 1) // SPLIT)):
        if np.searchsorted(positions, i * SPLIT) < np.searchsorted(lowest, (i + 1) * SPLIT):
            spans.append((i, 1))
    return spans


def _splits(
    products: F32, v: Cached, seen: tuple[I64, I64], scoring: Scores, chosen: npt.NDArray[np.bool_] | None
) -> tuple[F32, F32, F32]:
    """Each split's max f32[n, splits, n_kv, rep], sum of exponentials, weighted values f32[n, splits, n_kv, rep, dim].

    products: f32[n, splits, n_kv, rep, <= 256] of queries and keys; v: [splits, <= 256, n_kv, dim]. seen: the first and
    the last position that each row sees, from the split's start on: all of them where there are several splits.
    chosen: bool[n, positions of all splits], those that count; None for all.
    """
    length, (first, last) = v.shape[1], seen
    scores = products * np.float32(scoring.scale)
    if scoring.softcap is not None:
        cap = np.float32(scoring.softcap)
        scores = cap * tanh(scores / cap)
    if scoring.slopes is not None and scoring.own is not None:
        places = np.arange(v.shape[0] * length).reshape(1, v.shape[0], 1, 1, length)
        between = np.abs(places - scoring.own[:, None, None, None, None]).astype(np.float32)
        scores = scores - scoring.slopes.reshape(1, 1, *scores.shape[2:4], 1) * between
    at = np.arange(length)[None, :]
    hidden = (at > last[:, None]) | (at < first[:, None])  # bool[n, length]
    masked = v.shape[0] == 1 and bool(hidden.any())
    where = np.broadcast_to(hidden[:, None, None, None, :], scores.shape) if masked else None
    if where is not None:
        scores[where] = -np.inf
    m = scores.max(axis=-1)
    if chosen is not None:
        scores[np.broadcast_to(~chosen.reshape(len(chosen), v.shape[0], 1, 1, length), scores.shape)] = -np.inf
        m = np.maximum(scores.max(axis=-1), np.float32(LEAST_TOP))
    p = exp(scores - m[..., None])
    if where is not None:
        p[where] = 0.0
    by_position = np.ascontiguousarray(np.moveaxis(p, -1, 0))  # f32[length, n, splits, n_kv, rep]
    total = lane_tree_sum(by_position, TREE_LANES)
    values = v.transpose(1, 0, 2, 3).astype(np.float64)[:, None, :, :, None, :]
    rows = (np.searchsorted(last, at[0]), np.searchsorted(first, at[0], side="right")) if masked else (None, None)
    return m, total, fma_chain(by_position[..., None], values, *rows)


def _merge(top: F32, total: F32, out: F32, m: F32, s: F32, o: F32) -> None:
    """Fold a split into the state of the splits before it, in place."""
    merged = np.maximum(top, m)
    old, new = exp(top - merged), exp(m - merged)
    total[...] = total * old + s * new
    out[...] = out * old[..., None] + o * new[..., None]
    top[...] = merged


def _add_sinks(top: F32, total: F32, out: F32, sinks: F32) -> None:
    """Merge each head's sink like a split whose only exponential is 1 and whose value is zero."""
    on = np.broadcast_to(~np.isnan(sinks), top.shape)
    merged = np.where(on, np.maximum(top, sinks), top)
    old = exp(top - merged)
    total[...] = np.where(on, total * old + exp(sinks - merged), total)
    out[...] = np.where(on[..., None], out * old[..., None], out)


def attend_apart(q: F32, parts: Sequence[tuple[F16, npt.NDArray[np.bool_]]], scale: float, sinks: F32) -> F32:
    """Attention of a row over several lists of keys that are their own values, by one softmax: f32[heads, dim].

    q: f32[heads, dim]. parts: keys f16[n, dim] with what the row sees of them. Each list is cut into splits of 256
    keys, of which those without a seen key are left out; splits are merged in order, and the sinks after them.
    """
    n_heads, dim = q.shape
    state: tuple[F32, F32, F32] | None = None
    with np.errstate(all="ignore"):
        for keys, seen in parts:
            for start in range(0, len(keys), SPLIT):
                own, live = keys[start : start + SPLIT].astype(np.float64), seen[start : start + SPLIT]
                if not live.any():
                    continue
                scores = fma_chain(q.T[:, :, None], own.T[:, None, :]) * np.float32(scale)
                scores = np.where(live, scores, -np.inf).astype(np.float32)
                m = np.maximum(scores.max(axis=1), np.float32(LEAST_TOP))
                e = np.where(live, exp(np.where(live, scores - m[:, None], np.float32(0.0))), np.float32(0.0))
                total = lane_tree_sum(np.ascontiguousarray(e.T), TREE_LANES)
                out = fma_chain(e[:, live].T[:, :, None], own[live][:, None, :])
                if state is None:
                    state = m, total, out
                else:
                    _merge(*state, m, total, out)
        assert state is not None  # a row sees itself
        _add_sinks(*state, sinks)
        return np.asarray(state[2] / state[1][:, None], np.float32).reshape(n_heads, dim)


def flash_attn_paged(
    q: F32, k_cache: F16 | U8, v_cache: F16 | U8, positions: I32, slots: I32, page_table: I32, scoring: Scores
) -> F32:
    """Attention of mixed rows f32[n, heads, value_dim]: each row against the positions of its slot up to its own.

    Caches of bytes hold Q8_0 blocks.
    """
    width = v_cache.shape[3]
    if v_cache.dtype == np.uint8:
        width = width // BLOCK_BYTES * GROUP
    out = np.empty((*q.shape[:2], width), np.float32)
    for slot in np.unique(slots):
        rows = np.flatnonzero(slots == slot)
        order = positions[rows] if scoring.lowest is None else scoring.lowest[rows] + positions[rows]
        rows = rows[np.argsort(order, kind="stable")]
        here = scoring.of_rows(rows)
        length = int(positions[rows[-1]]) + 1
        pages = page_table[slot, : -(-length // PAGE_TOKENS)]
        k, v = (_heads(cache[pages].reshape(-1, *cache.shape[2:])[:length]) for cache in (k_cache, v_cache))
        values = elements_of(v) if isinstance(v, Q8Rows) else v
        out[rows] = attend_rows(q[rows], k, values, positions[rows], here)
    return out


def _heads(cached: F16 | U8) -> F16 | Q8Rows:
    """Cached heads of some positions, float16 ones as they are."""
    if cached.dtype == np.uint8:
        return unpack_heads(cached.view(np.uint8))
    return cached.view(np.float16)
