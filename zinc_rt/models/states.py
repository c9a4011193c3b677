"""Collects the states of sequences while a graph is built."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.graph import BufferId, BufferKind, DType
from zinc_rt.ir.ops.kv_cache import entries_of_page
from zinc_rt.models.config import HeadSizes
from zinc_rt.models.definition import StateKind, StateSpec
from zinc_rt.models.errors import ModelError
from zinc_rt.numerics import PAGE_TOKENS


@dataclass(frozen=True)
class KVCache:
    """Keys and values of one layer: f16[n_pages, 16, n_kv_heads, head_dim] and [.., value_dim].

    values: the buffer of keys where values are their first elements; then value_dim is 0.
    """

    keys: BufferId
    values: BufferId
    n_kv_heads: int
    head_dim: int
    value_dim: int

    @property
    def position_bytes(self) -> int:
        """Bytes of a position, keys and values together."""
        return self.n_kv_heads * DType.F16.row_bytes(self.head_dim + self.value_dim)


@dataclass
class _Kept:
    """The states of the layers of one kind, so far."""

    kind: StateKind
    window: int | None
    layers: list[int] = field(default_factory=list)
    buffers: list[str] = field(default_factory=list)
    position_bytes: int = 0
    read_bytes: int = 0
    sequence_bytes: int = 0


class StateBooks:
    """Declares state buffers, and knows at the end which kinds of layer keep what."""

    def __init__(self, g: GraphBuilder) -> None:
        self._g = g
        self._kept: dict[str, _Kept] = {}
        self._caches: dict[int, tuple[KVCache, _Kept]] = {}

    def kv_cache(self, layer: int, sizes: HeadSizes, *, window: int | None = None) -> KVCache:
        """Declare the caches of a layer, in pages. window: positions that its rows see at the most.

        Layers of one window are one kind. Raises `ModelError` when the layer has caches already.
        """
        names = [f"blk.{layer}.{side}_cache" for side in "kv"]
        keys, values = self._buffers(layer, sizes.n_kv_heads, dict(zip(names, (sizes.head_dim, sizes.value_dim))))
        cache = KVCache(keys, values, sizes.n_kv_heads, sizes.head_dim, sizes.value_dim)
        return self._keep(layer, cache, names, window)

    def latent_cache(self, layer: int, head_dim: int) -> KVCache:
        """Declare the one cache of a layer with latent attention: a key of `head_dim` elements for all heads, of which
        the first ones are the value. Raises as `kv_cache`.
        """
        name = f"blk.{layer}.k_cache"
        (keys,) = self._buffers(layer, 1, {name: head_dim})
        return self._keep(layer, KVCache(keys, keys, 1, head_dim, 0), [name], None)

    def index_cache(self, layer: int, head_dim: int) -> BufferId:
        """Declare the cache of an indexer's keys of a layer, one of `head_dim` elements a position."""
        name = f"blk.{layer}.index_k_cache"
        kept = self._kept.setdefault("keys of indexers", _Kept(StateKind.PAGES, None))
        kept.layers.append(layer)
        kept.buffers.append(name)
        kept.position_bytes += DType.F16.row_bytes(head_dim)
        kept.read_bytes += DType.F16.row_bytes(head_dim)
        return self._g.buffer(name, BufferKind.STATE, DType.F16, ("n_pages", PAGE_TOKENS, 1, head_dim))

    def entry_cache(self, layer: int, head_dim: int, *, block: int = 1, window: int | None = None) -> BufferId:
        """Declare a cache of a layer whose keys are their own values, one of `head_dim` elements for each `block` of
        positions, in the page where the block ends. window: positions that rows see at the most.
        """
        name = f"blk.{layer}.v_cache" if block == 1 else f"blk.{layer}.block_cache"
        kind = f"kv of {window} positions" if block == 1 else f"keys of blocks of {block}"
        per_page = entries_of_page(block)
        kept = self._kept.setdefault(kind, _Kept(StateKind.PAGES, window))
        n_bytes = -(-DType.F16.row_bytes(head_dim) * per_page // PAGE_TOKENS)
        kept.layers.append(layer)
        kept.buffers.append(name)
        kept.position_bytes += n_bytes
        kept.read_bytes += n_bytes
        return self._g.buffer(name, BufferKind.STATE, DType.F16, ("n_pages", per_page, 1, head_dim))

    def _buffers(self, layer: int, n_kv_heads: int, widths: Mapping[str, int]) -> list[BufferId]:
        if layer in self._caches:
            raise ModelError(f"block {layer} has a KV cache already")
        return [
            self._g.buffer(name, BufferKind.STATE, DType.F16, ("n_pages", PAGE_TOKENS, n_kv_heads, width))
            for name, width in widths.items()
        ]

    def _keep(self, layer: int, cache: KVCache, names: list[str], window: int | None) -> KVCache:
        kind = "kv" if window is None else f"kv of {window} positions"
        kept = self._kept.setdefault(kind, _Kept(StateKind.PAGES, window))
        kept.layers.append(layer)
        kept.buffers += names
        kept.position_bytes += cache.position_bytes
        kept.read_bytes += cache.position_bytes
        self._caches[layer] = cache, kept
        return cache

    def shared_cache(self, layer: int, sizes: HeadSizes) -> KVCache:
        """The caches that an earlier layer wrote, for one more that reads them.

        Raises `ModelError` when that layer has none, or other heads.
        """
        if layer not in self._caches:
            have = ", ".join(map(str, self._caches)) or "none"
            raise ModelError(f"block {layer} has no KV cache to share; blocks that have one so far: {have}")
        cache, kept = self._caches[layer]
        if (cache.n_kv_heads, cache.head_dim, cache.value_dim) != (sizes.n_kv_heads, sizes.head_dim, sizes.value_dim):
            raise ModelError(
                f"block {layer} caches {cache.n_kv_heads} heads of {_widths(cache)}, they cannot be shared as"
                f" {sizes.n_kv_heads} of {_widths(sizes)}"
            )
        kept.read_bytes += cache.position_bytes
        return cache

    def of_sequence(self, kind: str, layer: int, name: str, shape: tuple[int, ...]) -> BufferId:
        """Declare `blk.LAYER.NAME`, f32[n_slots, *shape]: what a sequence keeps of a layer, whatever its length.

        kind: of layer, as messages name it; a layer may keep several things. Such state is that of one position: rows
        of a sequence have to follow each other, and one at position 0 starts from zero.
        """
        buffer = f"blk.{layer}.{name}"
        kept = self._kept.setdefault(kind, _Kept(StateKind.SEQUENCE, None))
        if layer not in kept.layers:
            kept.layers.append(layer)
        kept.buffers.append(buffer)
        kept.sequence_bytes += 4 * math.prod(shape)
        return self._g.buffer(buffer, BufferKind.STATE, DType.F32, ("n_slots", *shape))

    def specs(self) -> tuple[StateSpec, ...]:
        """A record for each kind."""
        return tuple(
            StateSpec(
                name,
                k.kind,
                tuple(k.layers),
                tuple(k.buffers),
                k.position_bytes,
                k.read_bytes,
                k.sequence_bytes,
                k.window,
            )
            for name, k in self._kept.items()
        )


def _widths(heads: KVCache | HeadSizes) -> str:
    """The elements of a head, as messages say it."""
    if heads.value_dim == heads.head_dim:
        return str(heads.head_dim)
    return f"{heads.head_dim} and {heads.value_dim}"
