"""Causal attention over cached keys and values, in splits of 256 positions.

A query row at position p sees positions 0 .. p. Scores are fma chains over the head dimension; within a split the
output is an fma chain over positions; splits are merged in position order. Which rows share a call changes nothing:
each row's operations depend on its own position alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.definition import (
    COUNT,
    HEADS,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    activation,
    heads,
)
from zinc_rt.ir.graph import DType
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.kv_cache import CACHES, F16, I32, WHERE
from zinc_rt.ir.unify import Bindings
from zinc_rt.kernels.reference.arith import F32, fma_chain, lane_tree_sum
from zinc_rt.kernels.reference.mathfn import exp
from zinc_rt.mem.kv_pages import pages_for
from zinc_rt.numerics import PAGE_TOKENS, SPLIT, TREE_LANES

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView

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


def flash_attn_paged(
    q: F32, k_cache: F16, v_cache: F16, positions: I32, slots: I32, page_table: I32, scale: float
) -> F32:
    """Attention of mixed rows f32[n, heads, head_dim]: each row against positions 0 .. its own of its slot."""
    out = np.empty_like(q)
    for slot in np.unique(slots):
        rows = np.flatnonzero(slots == slot)
        rows = rows[np.argsort(positions[rows], kind="stable")]
        length = int(positions[rows[-1]]) + 1
        pages = page_table[slot, : -(-length // PAGE_TOKENS)]
        shape = (-1, *k_cache.shape[2:])
        k, v = k_cache[pages].reshape(shape)[:length], v_cache[pages].reshape(shape)[:length]
        out[rows] = attend_rows(q[rows], k, v, positions[rows], scale)
    return out


def _flash_attn(at: Operands) -> None:
    q, k_cache, v_cache, positions, slots, pages = at.inputs
    scale = float(at.attrs["scale"])
    out = flash_attn_paged(heads(at, q), k_cache, v_cache, positions, slots, pages, scale)
    heads(at, at.outputs[0])[...] = out


def _heads_share_evenly(bound: Bindings) -> str | None:
    n_heads, kv_heads = bound.value("n_heads"), bound.value("n_kv_heads")
    if n_heads and kv_heads and n_heads % kv_heads:
        return f"n_heads {n_heads} is no multiple of n_kv_heads {kv_heads}"
    return None


def _touched(cost: CostView) -> tuple[int, int]:
    rows, context = cost.dim(3, 0), cost.sizes.context
    keys_and_values = context * cost.attr("n_kv_heads") * (cost.row_bytes(1) + cost.row_bytes(2))
    pages = DType.I32.row_bytes(pages_for(context))
    return cost.bytes_in(0, 3, 4) + rows * (keys_and_values + pages), cost.bytes_out()


def _operations(cost: CostView) -> int:
    """Per head and position: dot product, scale, maximum, difference, exponential, sum, weighted value.

    At the end comes one division for each element of the output.
    """
    n = cost.dim(3, 0) * cost.attr("n_heads")
    return n * (cost.sizes.context * (4 * cost.attr("head_dim") + 5) + cost.attr("head_dim"))


OPS = (
    OpDefinition(
        Op.FLASH_ATTN,
        OpSignature(
            (activation("q", "R", "n_heads", "head_dim"), *CACHES, *WHERE),
            (activation("y", "R", "n_heads", "head_dim"),),
            {"scale": AttrSpec(float), "n_kv_heads": COUNT, **HEADS},
            (_heads_share_evenly,),
        ),
        reference=_flash_attn,
        operations=_operations,
        touched=_touched,
    ),
)
