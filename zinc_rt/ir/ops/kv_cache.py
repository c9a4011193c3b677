"""The paged float16 KV cache: writing keys and values into it.

A page holds 16 positions of one layer: cache f16[n_pages, 16, n_kv, head_dim]. A sequence's page table lists its
pages in position order.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.definition import (
    CACHE,
    COUNT,
    FLOAT16,
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
    k, v, positions, slots, pages = at.inputs
    k, v = heads(at, k, "n_kv_heads"), heads(at, v, "n_kv_heads")
    kv_write_rows(k, v, positions, slots, pages, *at.outputs)


def _touched(cost: CostView) -> tuple[int, int]:
    rows, head_rows = cost.dim(2, 0), cost.dim(2, 0) * cost.attr("n_kv_heads")
    one_page_entry = DType.I32.row_bytes(1)
    cached = sum(head_rows * out.dtype.row_bytes(cost.attr("head_dim")) for out in cost.outputs)
    return cost.bytes_in(0, 1, 2, 3) + rows * one_page_entry, cached


def _cache(name: str) -> Port:
    return Port(name, FLOAT16, ("P", PAGE_TOKENS, "n_kv_heads", "head_dim"), CACHE, role=name)


CACHES = (_cache("k_cache"), _cache("v_cache"))
WHERE = (index("positions", "R"), index("slots", "R"), index("page_table", "S", "M"))

OPS = (
    OpDefinition(
        Op.KV_WRITE,
        OpSignature(
            (activation("k", "R", "n_kv_heads", "head_dim"), activation("v", "R", "n_kv_heads", "head_dim"), *WHERE),
            CACHES,
            {"n_kv_heads": COUNT, "head_dim": COUNT},
        ),
        reference=_kv_write,
        operations=lambda cost: 0,
        touched=_touched,
    ),
)
