"""Causal attention over cached keys and values, in splits of 256 positions.

A query row at position p sees positions 0 .. p, or the last `window` of them, or those of its `chunk` of positions.
Scores are fma chains over the head dimension, or sums of integer products of groups where the caches hold q8_0 blocks.
Within a split the output is an fma chain over positions; splits are merged in position order, and after them the sinks.

Values have a cache of their own, or are the first elements of the keys. That is latent attention: a node with
`latent_dim` and `rope_dim` has its queries in two parts, as `kv_write` gets the keys, and a single cache.

A node with `chosen` sees of those positions the ones that a last input names, as `index_choice` gives them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zinc_rt.ir.definition import (
    COUNT,
    FLOAT32,
    HEADS,
    READ_ONLY,
    VALUE_DIM,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    Port,
    activation,
    heads,
    index,
)
from zinc_rt.ir.graph import DType
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.indexer import CHOSEN, bits_of
from zinc_rt.ir.ops.kv_cache import CACHES, LATENT, LATENT_CACHE, WHERE, cached_width, parts_make_heads
from zinc_rt.ir.unify import Bindings
from zinc_rt.kernels.reference.attention import Scores, flash_attn_paged
from zinc_rt.numerics import SPLIT, pages_for

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView

LONGEST_CHUNK = 1 << 30
"""Kernels count positions in 32 bits."""


def _flash_attn(at: Operands) -> None:
    how = Scores(float(at.attrs["scale"]), at.attrs.get("softcap"), at.attrs.get("window"))
    if "latent_dim" in at.attrs:
        q, q_rope, cache, positions, slots, pages, *sinks = at.inputs
        q = np.concatenate([heads(at, q, size="latent_dim"), heads(at, q_rope, size="rope_dim")], axis=2)
        k_cache, v_cache = cache, cache[..., : cached_width(cache, int(at.attrs["latent_dim"]))]
    else:
        q, k_cache, v_cache, positions, slots, pages, *sinks = at.inputs
        q = heads(at, q)
    if at.attrs.get("chosen"):
        (words,), sinks = sinks, []
        how = how._replace(chosen=bits_of(words))
    if "reach" in at.attrs:
        (own, *slopes), sinks = sinks, []
        reach = int(at.attrs["reach"])
        positions = np.minimum(positions, own + reach)
        how = how._replace(lowest=np.maximum(own - reach, 0))
        if slopes:
            how = how._replace(slopes=slopes[0], own=own)
    if "chunk" in at.attrs:
        how = how._replace(lowest=positions - positions % int(at.attrs["chunk"]))
    if sinks:
        how = how._replace(sinks=sinks[0])
    out = flash_attn_paged(q, k_cache, v_cache, positions, slots, pages, how)
    at.outputs[0][...] = out.reshape(at.outputs[0].shape)


def _heads_share_evenly(bound: Bindings) -> str | None:
    n_heads, kv_heads = bound.value("n_heads"), bound.value("n_kv_heads")
    if n_heads and kv_heads and n_heads % kv_heads:
        return f"n_heads {n_heads} is no multiple of n_kv_heads {kv_heads}"
    return None


def _chunks_are_splits(bound: Bindings) -> str | None:
    chunk, window = bound.value("chunk"), bound.value("window")
    if chunk is not None and (chunk % SPLIT or chunk > LONGEST_CHUNK or window is not None):
        return f"chunk {chunk} is no multiple of {SPLIT} up to {LONGEST_CHUNK}, or there is a window, too"
    return None


def _seen(cost: CostView) -> int:
    """Positions that a row sees at the most."""
    window = cost.attrs.get("chunk", cost.attrs.get("window"))
    if "reach" in cost.attrs:
        window = 2 * cost.attr("reach") + 1
    return cost.sizes.context if window is None else min(cost.sizes.context, int(window))


def _touched(cost: CostView) -> tuple[int, int]:
    latent = "latent_dim" in cost.attrs
    at = 3  # of positions; slots and pages follow
    cached = cost.row_bytes(2) if latent else cost.row_bytes(1) + cost.row_bytes(2)
    seen, rows = _seen(cost), cost.dim(at, 0)
    others = cost.bytes_in(0, *((1,) if latent else ()), at, at + 1, *range(at + len(WHERE), len(cost.inputs)))
    pages = DType.I32.row_bytes(pages_for(seen))
    return others + rows * (seen * cost.attr("n_kv_heads") * cached + pages), cost.bytes_out()


def _operations(cost: CostView) -> int:
    """Per head and position: dot product, scale, maximum, difference, exponential, sum, weighted value.

    A soft cap adds three. At the end comes one division for each element of the output. A sink is a maximum, two
    differences with their exponentials, a product and a sum, and a product for each element.
    """
    if "latent_dim" in cost.attrs:
        value_dim = cost.attr("latent_dim")
        dim, sinks = value_dim + cost.attr("rope_dim"), len(cost.inputs) > len(_LATENT_INPUTS) - 1
    else:
        dim, value_dim, sinks = cost.attr("head_dim"), cost.attr("value_dim"), len(cost.inputs) > len(_INPUTS) - 1
    sinks = sinks and "chosen" not in cost.attrs
    a_position = 2 * (dim + value_dim) + (8 if "softcap" in cost.attrs else 5)
    a_sink = 7 + value_dim if sinks else 0
    return cost.dim(3, 0) * cost.attr("n_heads") * (_seen(cost) * a_position + value_dim + a_sink)


_SINKS = Port("sinks", FLOAT32, ("n_heads",), READ_ONLY, optional=True)
_INPUTS = (activation("q", "R", "n_heads", "head_dim"), *CACHES, *WHERE, _SINKS)
_LATENT_INPUTS = (
    activation("q", "R", "n_heads", "latent_dim"),
    activation("q_rope", "R", "n_heads", "rope_dim"),
    LATENT_CACHE,
    *WHERE,
    _SINKS,
)
_ATTRS = {
    "scale": AttrSpec(float),
    "n_kv_heads": COUNT,
    "window": AttrSpec(int, at_least=1, optional=True),
    "softcap": AttrSpec(float, above=0.0, optional=True),
}

_CHOSEN_ATTRS = {"scale": _ATTRS["scale"], "n_kv_heads": COUNT, "chosen": AttrSpec(bool)}
_WHOLE_INPUTS = (*_INPUTS[:3], index("last_positions", "R"), *_INPUTS[4:-1])
_WHOLE_ATTRS = {
    **{name: spec for name, spec in _ATTRS.items() if name != "window"},
    **HEADS,
    "value_dim": VALUE_DIM,
}

OPS = (
    OpDefinition(
        Op.FLASH_ATTN,
        OpSignature(
            _INPUTS,
            (activation("y", "R", "n_heads", "value_dim"),),
            {**_ATTRS, **HEADS, "value_dim": VALUE_DIM, "chunk": AttrSpec(int, at_least=SPLIT, optional=True)},
            (_heads_share_evenly, _chunks_are_splits),
        ),
        reference=_flash_attn,
        operations=_operations,
        touched=_touched,
        variants=(
            OpSignature(
                _LATENT_INPUTS,
                (activation("y", "R", "n_heads", "latent_dim"),),
                {**_ATTRS, "n_heads": COUNT, **LATENT},
                (_heads_share_evenly, parts_make_heads),
            ),
            # Rows that see chosen positions.
            OpSignature(
                (*_INPUTS[:-1], CHOSEN),
                (activation("y", "R", "n_heads", "value_dim"),),
                {**_CHOSEN_ATTRS, **HEADS, "value_dim": VALUE_DIM},
                (_heads_share_evenly,),
            ),
            OpSignature(
                (*_LATENT_INPUTS[:-1], CHOSEN),
                (activation("y", "R", "n_heads", "latent_dim"),),
                {**_CHOSEN_ATTRS, "n_heads": COUNT, **LATENT},
                (_heads_share_evenly, parts_make_heads),
            ),
            # Encoders: each row sees its whole sequence, up to the sequence's last position.
            OpSignature(
                _WHOLE_INPUTS,
                (activation("y", "R", "n_heads", "value_dim"),),
                {**_WHOLE_ATTRS, "whole": AttrSpec(bool)},
                (_heads_share_evenly,),
            ),
            # The same, but no farther behind them, or before them, than a number of positions. With slopes, one a head,
            # scores fall by the slope for each position between (ALiBi, Press 2021).
            OpSignature(
                (*_WHOLE_INPUTS, WHERE[0], Port("slopes", FLOAT32, ("n_heads",), READ_ONLY, optional=True)),
                (activation("y", "R", "n_heads", "value_dim"),),
                {**_WHOLE_ATTRS, "reach": AttrSpec(int, at_least=1)},
                (_heads_share_evenly,),
            ),
        ),
    ),
)
