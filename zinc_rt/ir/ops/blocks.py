"""Keys of blocks of positions, and attention over them beside a window of single positions (DeepSeek-V4 2026).

A row at position p may see the (p + 1) // block whole blocks up to it. The key of a block lies in a cache of its own,
in the page of the block's last position. One head of keys serves all heads of queries, and keys are the values.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.definition import (
    COUNT,
    FLOAT32,
    HEADS,
    READ_ONLY,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    Port,
    activation,
    flat,
    heads,
    weight,
)
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.indexer import CHOSEN, bits_of
from zinc_rt.ir.ops.kv_cache import ENTRY_CACHE, WHERE, blocks_lie_in_pages
from zinc_rt.ir.ops.recurrent import state_port, touched_beside
from zinc_rt.ir.unify import Bindings
from zinc_rt.kernels.reference.arith import F32, fma
from zinc_rt.kernels.reference.attention import attend_apart
from zinc_rt.kernels.reference.mathfn import exp
from zinc_rt.numerics import LEAST_TOP, PAGE_TOKENS, pages_for

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView

I32 = npt.NDArray[np.int32]


def pool_rows(
    values: F32, scores: F32, offsets: F32, state: F32, positions: I32, slots: I32, block: int, overlap: bool
) -> F32:
    """The mean of values over the positions of a block so far, weighted for each channel: f32[rows, n].

    values, scores: f32[rows, n]; with overlap f32[rows, 2 n], of which the first half counts for the next block and the
    second one for a row's own. offsets: f32[block, like values], what scores of each place in the block gain. state:
    f32[n_slots, 3, n], or 6, written: the maximum, the sum of exponentials, the weighted sum; with overlap first those
    of a row's own block, then those of the next one.

    A step with value v and score s: m' = max(m, s), k = e^(m - m'), e = e^(s - m'), sum = fma(sum, k, e), weighted =
    fma(v, e, weighted * k). A block begins with the lowest maximum and zeros; with overlap and after the first block
    with what the block before has left.
    """
    n = state.shape[2]
    out = np.empty((len(values), n), np.float32)
    for row, (position, slot) in enumerate(zip(positions.tolist(), slots.tolist(), strict=True)):
        kept = state[slot].reshape(-1, 3, n)
        place = position % block
        if place == 0:
            kept[0] = kept[1] if overlap and position else _EMPTY
            kept[1:] = _EMPTY
        # A row's own block, then the next one.
        parts = (slice(n, 2 * n), slice(0, n)) if overlap else (slice(0, n),)
        for own, part in zip(kept, parts, strict=True):
            v, s = values[row, part], scores[row, part] + offsets[place, part]
            top = np.where(s > own[0], s, own[0])
            keep, more = exp(own[0] - top), exp(s - top)
            own[1] = fma(own[1], keep, more)
            own[2] = fma(v, more, own[2] * keep)
            own[0] = top
        state[slot] = kept.reshape(-1, n)
        out[row] = kept[0, 2] / kept[0, 1]
    return out


_EMPTY = np.array([[LEAST_TOP], [0.0], [0.0]], np.float32)


def _pool(at: Operands) -> None:
    values, scores, offsets, _, positions, slots = at.inputs
    y, state = at.outputs
    with np.errstate(all="ignore"):
        rows = pool_rows(
            flat(values), flat(scores), offsets, state, positions, slots, int(at.attrs["block"]), state.shape[1] == 6
        )
    y[...] = rows.reshape(y.shape)


def _attend(at: Operands) -> None:
    q, cache, positions, slots, pages, sinks, *rest = at.inputs
    q, out = heads(at, q), heads(at, at.outputs[0])
    block = int(at.attrs.get("block", 0))
    bits = bits_of(rest[1]) if len(rest) > 1 else None
    window, scale = int(at.attrs["window"]), float(at.attrs["scale"])
    for row, (position, slot) in enumerate(zip(positions.tolist(), slots.tolist(), strict=True)):
        near = np.arange(max(0, position + 1 - window), position + 1)
        parts = [(cache[pages[slot, near // PAGE_TOKENS], near % PAGE_TOKENS, 0], np.ones(len(near), bool))]
        if block:
            last = np.arange(block - 1, position + 1, block)
            per_page = rest[0].shape[1]
            found = rest[0][pages[slot, last // PAGE_TOKENS], last % PAGE_TOKENS * per_page // PAGE_TOKENS, 0]
            parts.append((found, np.ones(len(last), bool) if bits is None else bits[row, last]))
        out[row] = attend_apart(q[row], parts, scale, sinks)


def _offsets_fit(bound: Bindings) -> str | None:
    n, kept, width = (bound.value(name) for name in ("n", "kept", "width"))
    if n is None or kept is None or width is None or (kept in (3, 6) and kept // 3 * n == width):
        return None
    return f"a state of {kept} rows of {n} elements does not go with values of {width}"


def _seen(cost: CostView) -> tuple[int, int]:
    """Single positions, and blocks, that a row sees at the most."""
    block = int(cost.attrs.get("block", 0))
    return min(cost.sizes.context, cost.attr("window")), cost.sizes.context // block if block else 0


def _attention_touched(cost: CostView) -> tuple[int, int]:
    near, far = _seen(cost)
    rows = cost.dim(2, 0)
    cached = near * cost.row_bytes(1) + (far * cost.row_bytes(6) if far else 0)
    read = cost.bytes_in(0, 2, 3, 5, *range(7, len(cost.inputs))) + rows * (cached + 4 * pages_for(cost.sizes.context))
    return read, cost.bytes_out()


_STATE = state_port("pool_state", "kept", "n")
_WINDOWED = (activation("q", "R", "n_heads", "head_dim"), ENTRY_CACHE, *WHERE)
_SINKS = Port("sinks", FLOAT32, ("n_heads",), READ_ONLY)
_BLOCK_CACHE = replace(ENTRY_CACHE, name="block_cache", shape=("P", "per_page", 1, "head_dim"))
_ATTENTION = {"window": COUNT, "scale": AttrSpec(float), **HEADS}

OPS = (
    OpDefinition(
        Op.POOL_BLOCKS,
        OpSignature(
            (
                activation("values", "R", "width"),
                activation("scores", "R", "width"),
                weight("offsets", "block", "width", dtypes=FLOAT32),
                _STATE,
                *WHERE[:2],
            ),
            (activation("y", "R", "n"), _STATE),
            {"block": COUNT},
            (_offsets_fit,),
        ),
        reference=_pool,
        # Two exponentials, and six more for each element.
        operations=lambda cost: 12 * cost.elements(0),
        touched=touched_beside(3),
    ),
    OpDefinition(
        Op.BLOCK_ATTN,
        OpSignature((*_WINDOWED, _SINKS), (activation("y", "R", "n_heads", "head_dim"),), _ATTENTION),
        reference=_attend,
        operations=lambda cost: (
            cost.dim(2, 0) * cost.attr("n_heads") * (sum(_seen(cost)) * (4 * cost.attr("head_dim") + 5))
        ),
        touched=_attention_touched,
        variants=(
            OpSignature(
                (
                    *_WINDOWED,
                    _SINKS,
                    _BLOCK_CACHE,
                    replace(CHOSEN, optional=True),
                ),
                (activation("y", "R", "n_heads", "head_dim"),),
                {**_ATTENTION, "block": COUNT},
                (blocks_lie_in_pages,),
            ),
        ),
    ),
)
