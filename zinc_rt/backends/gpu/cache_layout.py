"""How a GPU's kernels keep pages of a KV cache: float16 as declared, of blocks all integers of a page, then all scales.

See `kernels.gpu.kv_quant`.
"""

from __future__ import annotations

import numpy as np

from zinc_rt.backends.base import Bytes, CachePages
from zinc_rt.backends.cache_pages import PageLayout, flat, halves, joined, parted
from zinc_rt.numerics import GROUP, PAGE_TOKENS


def _declared(pages: Bytes, cache: CachePages) -> Bytes:
    if not cache.quantized:
        return pages
    n, elements = len(pages), PAGE_TOKENS * cache.n_heads * cache.width
    groups = (n, PAGE_TOKENS, cache.n_heads, cache.width // GROUP)
    return joined(
        np.ascontiguousarray(pages[:, :elements]).reshape(*groups, GROUP), halves(pages[:, elements:], *groups[1:])
    )


def _own(pages: Bytes, cache: CachePages) -> Bytes:
    if not cache.quantized:
        return pages
    return np.concatenate([flat(part) for part in parted(pages, cache)], axis=-1)


GPU_LAYOUT = PageLayout(_declared, _own)
