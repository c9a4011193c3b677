"""Pages of a KV cache as the graph declares them, whatever their layout in a backend's memory.

A page as declared is float16[16, heads, width], or rows of Q8_0 blocks: u8[16, heads, width / 32, 34], of each block
its float16 scale, then 32 integers. The reference kernels keep pages so; other backends have a `PageLayout` to and from
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import BLOCK_BYTES, Bytes, CachePages
from zinc_rt.ir.dtype import BLOCKS
from zinc_rt.ir.graph import Buffer, BufferKind, Graph
from zinc_rt.ir.op import Op
from zinc_rt.numerics import GROUP, PAGE_TOKENS

Halves = npt.NDArray[np.uint16]


@dataclass(frozen=True)
class PageLayout:
    """From pages in a backend's memory, u8[n, page_bytes], to pages as declared, and back."""

    declared: Callable[[Bytes, CachePages], Bytes]
    own: Callable[[Bytes, CachePages], Bytes]


AS_DECLARED: Final = PageLayout(lambda pages, _: pages, lambda pages, _: pages)


def cache_pages(graph: Graph) -> tuple[CachePages, ...]:
    """The caches of a graph, in the order of its buffers."""
    values = {
        n.inputs[2] for n in graph.nodes if n.op is Op.FLASH_ATTN and "latent_dim" not in n.attrs
    }  # of latent attention the one cache is the keys', whose beginnings are the values
    values |= {b for n in graph.nodes if n.op is Op.KV_WRITE and "entry_dim" in n.attrs for b in n.outputs}
    return tuple(_pages(b, b.id in values) for b in graph.of_kind(BufferKind.STATE) if b.shape[0] == "n_pages")


def _pages(b: Buffer, values: bool) -> CachePages:
    _, entries, n_heads, width = b.shape
    return CachePages(b.name, b.id, values, b.dtype is BLOCKS, int(n_heads), int(width), int(entries))


def page_arrays(caches: Iterable[CachePages], arrays: Mapping[int, npt.NDArray[Any]]) -> dict[str, Bytes]:
    """The memory of caches by name, a page a row. arrays: by buffer id."""
    return {
        cache.name: arrays[cache.buffer].reshape(-1).view(np.uint8).reshape(-1, cache.page_bytes) for cache in caches
    }


def halves(pages: Bytes, *shape: int) -> Halves:
    """Pages of float16 as u16[n, *shape], to be moved as they are."""
    return np.ascontiguousarray(pages).view(np.uint16).reshape(len(pages), *shape)


def flat(array: npt.NDArray[Any]) -> Bytes:
    """Pages again: u8[n, page_bytes]."""
    return np.ascontiguousarray(array).reshape(len(array), -1).view(np.uint8)


def parted(pages: Bytes, cache: CachePages) -> tuple[npt.NDArray[np.uint8], Halves]:
    """Declared pages of blocks as integers, u8[n, 16, heads, groups, 32], and scales, u16[n, 16, heads, groups]."""
    blocks = np.ascontiguousarray(pages).reshape(
        len(pages), PAGE_TOKENS, cache.n_heads, cache.width // GROUP, BLOCK_BYTES
    )
    return blocks[..., 2:], np.ascontiguousarray(blocks[..., :2]).view(np.uint16)[..., 0]


def joined(integers: npt.NDArray[np.uint8], scales: Halves) -> Bytes:
    """Of the parts that `parted` gives, declared pages."""
    as_bytes = np.ascontiguousarray(scales)[..., None].view(np.uint8)
    return flat(np.concatenate([as_bytes, integers], axis=-1))
