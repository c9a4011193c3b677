"""Reading and writing the paged float16 KV cache.

A page holds 16 positions of one layer: cache f16[n_pages, 16, n_kv, head_dim]. A sequence's page table lists its
pages in position order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.flash_attn import attend_rows
from zinc_rt.numerics import PAGE_TOKENS

F16 = npt.NDArray[np.float16]
I32 = npt.NDArray[np.int32]


def kv_write_rows(k: F32, v: F32, positions: I32, slots: I32, page_table: I32, k_cache: F16, v_cache: F16) -> None:
    """Round k, v f32[n, n_kv, head_dim] to float16 (nearest even) and store them at each row's position."""
    pages = page_table[slots, positions // PAGE_TOKENS]
    offsets = positions % PAGE_TOKENS
    with np.errstate(over="ignore"):
        k_cache[pages, offsets] = k
        v_cache[pages, offsets] = v


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
