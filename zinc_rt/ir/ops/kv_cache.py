"""The paged float16 KV cache: writing keys and values into it.

A page holds 16 positions of one layer: cache f16[n_pages, 16, n_kv, head_dim], for values [.., value_dim]. A
sequence's page table lists its pages in position order.

A node with `latent_dim` and `rope_dim` writes keys alone, which come in two parts: values are their first part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.definition import (
    CACHE,
    COUNT,
    FLOAT16,
    VALUE_DIM,
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
from zinc_rt.ir.unify import Bindings
from zinc_rt.kernels.reference.arith import F32
from zinc_rt.numerics import PAGE_TOKENS

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView

F16 = npt.NDArray[np.float16]
I32 = npt.NDArray[np.int32]


def kv_write_rows(k: F32, v: F32, positions: I32, slots: I32, page_table: I32, k_cache: F16, v_cache: F16) -> None:
    """Round k, v f32[n, n_kv, head_dim] to float16 (nearest even) and store them at each row's position."""
    pages = page_table[slots, positions // PAGE_TOKENS]
    offsets = positions % PAGE_TOKENS
    with np.errstate(over="ignore"):
        k_cache[pages, offsets] = k
        v_cache[pages, offsets] = v


def _kv_write(at: Operands) -> None:
    first, second, positions, slots, pages = at.inputs
    if "latent_dim" in at.attrs:
        latent, rope = heads(at, first, "n_kv_heads", "latent_dim"), heads(at, second, "n_kv_heads", "rope_dim")
        (cache,), split = at.outputs, int(at.attrs["latent_dim"])
        kv_write_rows(latent, rope, positions, slots, pages, cache[..., :split], cache[..., split:])
        return
    k, v = heads(at, first, "n_kv_heads"), heads(at, second, "n_kv_heads", "value_dim")
    kv_write_rows(k, v, positions, slots, pages, *at.outputs)


def _touched(cost: CostView) -> tuple[int, int]:
    rows, head_rows = cost.dim(2, 0), cost.dim(2, 0) * cost.attr("n_kv_heads")
    one_page_entry = DType.I32.row_bytes(1)
    cached = sum(head_rows * out.dtype.row_bytes(cost.sizes.dim(out.shape[-1])) for out in cost.outputs)
    return cost.bytes_in(0, 1, 2, 3) + rows * one_page_entry, cached


def parts_make_heads(bound: Bindings) -> str | None:
    """The rule that a cache's heads are as wide as the two parts of a key."""
    whole, latent, rope = (bound.value(name) for name in ("head_dim", "latent_dim", "rope_dim"))
    if whole and latent and rope and whole != latent + rope:
        return f"the cache has {whole} elements to a head, latent_dim {latent} and rope_dim {rope} make {latent + rope}"
    return None


def _cache(name: str, size: str = "head_dim") -> Port:
    return Port(name, FLOAT16, ("P", PAGE_TOKENS, "n_kv_heads", size), CACHE, role=name)


CACHES = (_cache("k_cache"), _cache("v_cache", "value_dim"))
LATENT_CACHE = CACHES[0]
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
        ),
    ),
)
