"""The choice of the positions that a row's attention sees: scores of an indexer, and the best of them.

A candidate is a block of `block` positions, whose key lies in the cache at the block's last one; blocks of one position
are positions. A row at position p has the (p + 1) // block whole blocks up to it as candidates. Its positions after the
last whole block are always chosen.

A choice is i32[rows, pages]: bit i of a word is position i of the page. Words past a row's own page mean nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.definition import (
    ACTIVATION,
    COUNT,
    FLOAT32,
    HEADS,
    INT32,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    Port,
    activation,
    flat,
    heads,
    index,
)
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.kv_cache import KEY_CACHE, WHERE
from zinc_rt.ir.unify import Bindings
from zinc_rt.kernels.reference.arith import F32, fma, fma_chain
from zinc_rt.numerics import PAGE_TOKENS

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView

I32 = npt.NDArray[np.int32]
Bits = npt.NDArray[np.bool_]


def index_scores(q: F32, keys: npt.NDArray[np.float16], weights: F32 | None, scale: float) -> F32:
    """Scores of candidates: f32[rows, candidates].

    q: f32[rows, heads, dim]. keys: f16[candidates, dim], one for all heads. weights: f32[rows, heads], None for a plain
    sum. A product is a chain of fma over the elements; what is below 0 counts as 0; heads are added in order, as
    fma with their weights; the sum is scaled.
    """
    by_element = np.ascontiguousarray(q.transpose(2, 0, 1), np.float64)[..., None]
    with np.errstate(all="ignore"):
        products = fma_chain(by_element, keys.T.astype(np.float64)[:, None, None, :])  # [rows, heads, candidates]
        passed = np.where(products < 0, np.float32(0.0), products)
        total = np.zeros((len(q), len(keys)), np.float32)
        for head in range(q.shape[1]):
            part = passed[:, head]
            total = total + part if weights is None else fma(part, weights[:, head : head + 1], total)
        return np.asarray(total * np.float32(scale), np.float32)


def best_candidates(scores: F32, count: int) -> Bits:
    """Which of a row's candidates are the `count` best: equal ones by their place, NaN after every number."""
    order = np.argsort(np.where(np.isnan(scores), -np.inf, scores) * np.float32(-1.0), kind="stable")
    order = np.concatenate([order[~np.isnan(scores[order])], order[np.isnan(scores[order])]])
    chosen = np.zeros(len(scores), bool)
    chosen[order[:count]] = True
    return chosen


def candidates_kept(position: int, top_k: int, block: int) -> int:
    """How many whole blocks a row keeps at the most, so that no more than top_k + block - 1 positions are seen."""
    return (top_k + block - 1 - (position + 1) % block) // block


def bits_of(words: I32) -> Bits:
    """A choice as bool[rows, positions]."""
    return (
        ((words[:, :, None] >> np.arange(PAGE_TOKENS, dtype=np.int32)) & 1)
        .astype(bool)
        .reshape(len(words), words.shape[1] * PAGE_TOKENS)
    )


def _index_scores(at: Operands) -> None:
    q, cache, positions, slots, pages, *weights = at.inputs
    block, scale = int(at.attrs["block"]), float(at.attrs["scale"])
    q, out = heads(at, q), flat(at.outputs[0])
    for slot in np.unique(slots):
        rows = np.flatnonzero(slots == slot)
        length = int(positions[rows].max()) + 1
        keys = cache[pages[slot, : -(-length // PAGE_TOKENS)]].reshape(-1, cache.shape[3])
        keys = keys[block - 1 : length : block]
        if len(keys):
            out[rows, : len(keys)] = index_scores(q[rows], keys, weights[0][rows] if weights else None, scale)


def _index_choice(at: Operands) -> None:
    scores, positions = at.inputs
    words = at.outputs[0]
    top_k, block = int(at.attrs["top_k"]), int(at.attrs["block"])
    words[...] = 0
    for row, position in enumerate(positions.tolist()):
        n = (position + 1) // block
        chosen = np.zeros(words.shape[1] * PAGE_TOKENS, bool)
        best = best_candidates(scores[row].reshape(-1)[:n], candidates_kept(position, top_k, block))
        chosen[: n * block] = np.repeat(best, block)
        chosen[n * block : position + 1] = True
        words[row] = chosen.reshape(-1, PAGE_TOKENS) @ (1 << np.arange(PAGE_TOKENS))


def _no_less_than_a_block(bound: Bindings) -> str | None:
    top_k, block = bound.value("top_k"), bound.value("block")
    if top_k and block and top_k < block:
        return f"top_k is {top_k}, less than a block of {block}"
    return None


def _candidates(cost: CostView) -> int:
    return cost.sizes.n_rows * (cost.sizes.context // cost.attr("block"))


CHOSEN = Port("chosen", INT32, ("R", "M"), ACTIVATION)
_SCORES = Port("scores", FLOAT32, ("R", "M", PAGE_TOKENS), ACTIVATION)
_BLOCK = AttrSpec(int, at_least=1, default=1)
_KEYS = Port("k_cache", KEY_CACHE.dtypes, ("P", PAGE_TOKENS, 1, "head_dim"), KEY_CACHE.kinds, role=KEY_CACHE.role)

OPS = (
    OpDefinition(
        Op.INDEX_SCORES,
        OpSignature(
            (
                activation("q", "R", "n_heads", "head_dim"),
                _KEYS,
                *WHERE,
                Port("weights", FLOAT32, ("R", "n_heads"), ACTIVATION, view=True, optional=True),
            ),
            (_SCORES,),
            {**HEADS, "scale": AttrSpec(float, default=1.0), "block": _BLOCK},
        ),
        reference=_index_scores,
        operations=lambda cost: _candidates(cost) * (cost.attr("n_heads") * (2 * cost.attr("head_dim") + 3) + 1),
        touched=lambda cost: (
            cost.bytes_in(0, 2, 3, *range(5, len(cost.inputs))) + _candidates(cost) * cost.row_bytes(1),
            4 * _candidates(cost),
        ),
    ),
    OpDefinition(
        Op.INDEX_CHOICE,
        OpSignature(
            (_SCORES, index("positions", "R")),
            (CHOSEN,),
            {"top_k": COUNT, "block": _BLOCK},
            (_no_less_than_a_block,),
        ),
        reference=_index_choice,
        # A comparison for each bit of a score's key and of a place.
        operations=lambda cost: 56 * _candidates(cost),
        touched=lambda cost: (4 * _candidates(cost), cost.sizes.n_rows * cost.sizes.context // 4),
    ),
)
