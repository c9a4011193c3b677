"""The paged KV cache: writing keys and values into it.

A page holds 16 positions of one layer: cache f16[n_pages, 16, n_kv, head_dim], for values [.., value_dim]; or q8_0
blocks of as many elements. A sequence's page table lists its pages in position order.

A node with `latent_dim` and `rope_dim` writes keys alone, which come in two parts: values are their first part. A
node with `key_dim` writes keys that have no values: an indexer's, in float16 whatever the other caches hold. One with
`entry_dim` writes keys that are their own values, in float16, too: those of positions, or of blocks of positions. A row
writes the key of a block if it is the block's last; the cache has room for the blocks that end in a page.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.definition import (
    CACHE,
    CACHED,
    COUNT,
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
from zinc_rt.ir.dtype import BLOCKS
from zinc_rt.ir.graph import DType
from zinc_rt.ir.op import Op
from zinc_rt.ir.unify import Bindings
from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.kv_quant import U8, pack_heads
from zinc_rt.numerics import PAGE_TOKENS

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView

F16 = npt.NDArray[np.float16]
I32 = npt.NDArray[np.int32]


def kv_write_rows(
    k: F32, v: F32, positions: I32, slots: I32, page_table: I32, k_cache: F16 | U8, v_cache: F16 | U8
) -> None:
    """Store k, v f32[n, n_kv, head_dim] at each row's position: float16 (nearest even), or Q8_0 blocks in bytes."""
    pages = page_table[slots, positions // PAGE_TOKENS]
    offsets = positions % PAGE_TOKENS
    for heads_, cache in ((k, k_cache), (v, v_cache)):
        with np.errstate(over="ignore"):
            cache[pages, offsets] = pack_heads(heads_) if cache.dtype == np.uint8 else heads_


ALONE: Final = ("key_dim", "entry_dim")
"""The attributes of nodes that write keys alone and whole. Those caches are of float16, always."""


def entries_of_page(block: int) -> int:
    """Blocks that end in a page, at the most."""
    return max(1, PAGE_TOKENS // block)


def cached_width(cache: F16 | U8, elements: int) -> int:
    """What a head's first elements take of a row of a cache: entries of float16, or bytes of blocks."""
    return BLOCKS.row_bytes(elements) if cache.dtype == np.uint8 else elements


def _kv_write(at: Operands) -> None:
    alone = next((name for name in ALONE if name in at.attrs), None)
    if alone is not None:
        keys, positions, slots, pages = at.inputs
        (cache,), block = at.outputs, int(at.attrs.get("block", 1))
        last = (positions + 1) % block == 0
        keys, positions, slots = heads(at, keys, "n_kv_heads", alone)[last], positions[last], slots[last]
        place = positions % PAGE_TOKENS * cache.shape[1] // PAGE_TOKENS
        with np.errstate(over="ignore"):
            cache[pages[slots, positions // PAGE_TOKENS], place] = keys
        return
    first, second, positions, slots, pages = at.inputs
    if "latent_dim" in at.attrs:
        latent, rope = heads(at, first, "n_kv_heads", "latent_dim"), heads(at, second, "n_kv_heads", "rope_dim")
        (cache,) = at.outputs
        split = cached_width(cache, int(at.attrs["latent_dim"]))
        kv_write_rows(latent, rope, positions, slots, pages, cache[..., :split], cache[..., split:])
        return
    k, v = heads(at, first, "n_kv_heads"), heads(at, second, "n_kv_heads", "value_dim")
    kv_write_rows(k, v, positions, slots, pages, *at.outputs)


def _touched(cost: CostView) -> tuple[int, int]:
    where = len(cost.inputs) - len(WHERE)
    rows, head_rows = cost.dim(where, 0), cost.dim(where, 0) * cost.attr("n_kv_heads")
    one_page_entry = DType.I32.row_bytes(1)
    cached = sum(head_rows * out.dtype.row_bytes(cost.sizes.dim(out.shape[-1])) for out in cost.outputs)
    return cost.bytes_in(*range(where + 2)) + rows * one_page_entry, cached


def blocks_lie_in_pages(bound: Bindings) -> str | None:
    """The rule that blocks end where pages have room for them."""
    block, per_page = bound.value("block"), bound.value("per_page")
    if block is None or per_page is None:
        return None
    if PAGE_TOKENS % block and block % PAGE_TOKENS:
        return f"block is {block}, it must divide {PAGE_TOKENS} or be a multiple of it"
    wanted = entries_of_page(block)
    return (
        None if per_page == wanted else f"blocks of {block} have {wanted} entries to a page, the cache has {per_page}"
    )


def parts_make_heads(bound: Bindings) -> str | None:
    """The rule that a cache's heads are as wide as the two parts of a key."""
    whole, latent, rope = (bound.value(name) for name in ("head_dim", "latent_dim", "rope_dim"))
    if whole and latent and rope and whole != latent + rope:
        return f"the cache has {whole} elements to a head, latent_dim {latent} and rope_dim {rope} make {latent + rope}"
    return None


def _cache(name: str, size: str = "head_dim") -> Port:
    return Port(name, CACHED, ("P", PAGE_TOKENS, "n_kv_heads", size), CACHE, role=name)


CACHES = (_cache("k_cache"), _cache("v_cache", "value_dim"))
LATENT_CACHE = CACHES[0]
KEY_CACHE = Port("k_cache", frozenset({DType.F16}), ("P", PAGE_TOKENS, "n_kv_heads", "key_dim"), CACHE, role="k_cache")
ENTRY_CACHE = Port("v_cache", frozenset({DType.F16}), ("P", PAGE_TOKENS, 1, "head_dim"), CACHE, role="v_cache")
LATENT = {"latent_dim": COUNT, "rope_dim": COUNT}
WHERE = (index("positions", "R"), index("slots", "R"), index("page_table", "S", "M"))

OPS = (
    OpDefinition(
        Op.KV_WRITE,
        OpSignature(
            (activation("k", "R", "n_kv_heads", "head_dim"), activation("v", "R", "n_kv_heads", "value_dim"), *WHERE),
            CACHES,
            {"n_kv_heads": COUNT, "head_dim": COUNT, "value_dim": VALUE_DIM},
        ),
        reference=_kv_write,
        operations=lambda cost: 0,
        touched=_touched,
        variants=(
            OpSignature(
                (
                    activation("latent", "R", "n_kv_heads", "latent_dim"),
                    activation("k_rope", "R", "n_kv_heads", "rope_dim"),
                    *WHERE,
                ),
                (LATENT_CACHE,),
                {"n_kv_heads": COUNT, **LATENT},
                (parts_make_heads,),
            ),
            OpSignature(
                (activation("k", "R", "n_kv_heads", "key_dim"), *WHERE),
                (KEY_CACHE,),
                {"n_kv_heads": COUNT, "key_dim": COUNT},
            ),
            OpSignature(
                (activation("k", "R", "n_kv_heads", "entry_dim"), *WHERE),
                (replace(ENTRY_CACHE, shape=("P", "per_page", "n_kv_heads", "entry_dim")),),
                {"n_kv_heads": COUNT, "entry_dim": COUNT, "block": AttrSpec(int, at_least=1, default=1)},
                (blocks_lie_in_pages,),
            ),
        ),
    ),
)
