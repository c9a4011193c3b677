"""How the CPU's kernels keep pages of a KV cache: see `kernels.cpu.structs.AttentionArgs` and `kernels.cpu.kv_quant`.

Keys of a head lie with the 16 positions side by side, values position after position. Of blocks the integers of a head
come first, then its scales; `flip` is added to the integers of keys (see `TargetTuning.flip`).
"""

from __future__ import annotations

from functools import partial

import numpy as np

from zinc_rt.backends.base import Bytes, CachePages
from zinc_rt.backends.cache_pages import PageLayout, flat, halves, joined, parted
from zinc_rt.numerics import GROUP, PAGE_TOKENS

_WORD = 4
"""Elements of a key that lie together."""


def cpu_layout(flip: int) -> PageLayout:
    """flip: what bytes of keys are xored with."""
    return PageLayout(partial(_declared, flip=flip), partial(_own, flip=flip))


def _declared(pages: Bytes, cache: CachePages, flip: int) -> Bytes:
    n, heads, width = len(pages), cache.n_heads, cache.width
    if not cache.quantized:
        if cache.values:
            return flat(halves(pages, heads, cache.entries, width).transpose(0, 2, 1, 3))
        return flat(halves(pages, heads, width, PAGE_TOKENS).transpose(0, 3, 1, 2))
    of_head = np.ascontiguousarray(pages).reshape(n, heads, -1)
    integers, scales = of_head[..., : PAGE_TOKENS * width], halves(of_head[..., PAGE_TOKENS * width :], -1)
    groups = width // GROUP
    if cache.values:
        return joined(
            integers.reshape(n, heads, PAGE_TOKENS, groups, GROUP).transpose(0, 2, 1, 3, 4),
            scales.reshape(n, heads, PAGE_TOKENS, groups).transpose(0, 2, 1, 3),
        )
    words = integers.reshape(n, heads, width // _WORD, PAGE_TOKENS, _WORD).transpose(0, 3, 1, 2, 4) ^ np.uint8(flip)
    return joined(
        words.reshape(n, PAGE_TOKENS, heads, groups, GROUP),
        scales.reshape(n, heads, groups, PAGE_TOKENS).transpose(0, 3, 1, 2),
    )


def _own(pages: Bytes, cache: CachePages, flip: int) -> Bytes:
    n, heads, width = len(pages), cache.n_heads, cache.width
    if not cache.quantized:
        order = (0, 2, 1, 3) if cache.values else (0, 2, 3, 1)
        return flat(halves(pages, cache.entries, heads, width).transpose(*order))
    integers, scales = parted(pages, cache)
    if cache.values:
        first, behind = integers.transpose(0, 2, 1, 3, 4), scales.transpose(0, 2, 1, 3)
    else:
        words = integers.reshape(n, PAGE_TOKENS, heads, width // _WORD, _WORD) ^ np.uint8(flip)
        first, behind = words.transpose(0, 2, 3, 1, 4), scales.transpose(0, 2, 3, 1)
    parts = (np.ascontiguousarray(part).reshape(n, heads, -1).view(np.uint8) for part in (first, behind))
    return flat(np.concatenate([*parts], axis=-1))
