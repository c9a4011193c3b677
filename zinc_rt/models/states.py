"""The books of what sequences keep, filled while a graph is built."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.graph import BufferId, BufferKind, DType
from zinc_rt.models.definition import StateKind, StateSpec
from zinc_rt.models.errors import BadDefinition
from zinc_rt.numerics import PAGE_TOKENS


@dataclass(frozen=True)
class KVCache:
    """Keys and values of one layer: f16[n_pages, 16, n_kv_heads, head_dim] each."""

    keys: BufferId
    values: BufferId
    n_kv_heads: int
    head_dim: int

    @property
    def position_bytes(self) -> int:
        """Bytes of a position, keys and values together."""
        return 2 * self.n_kv_heads * DType.F16.row_bytes(self.head_dim)


@dataclass
class _Kept:
    """What the layers of one kind keep, so far."""

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

    def kv_cache(self, layer: int, n_kv_heads: int, head_dim: int, *, window: int | None = None) -> KVCache:
        """Declare the caches of a layer, in pages. window: positions that its rows see at the most.

        Layers of one window are one kind. Raises `BadDefinition` when the layer has caches already.
        """
        if layer in self._caches:
            raise BadDefinition(f"block {layer} has a KV cache already")
        shape = ("n_pages", PAGE_TOKENS, n_kv_heads, head_dim)
        names = [f"blk.{layer}.{side}_cache" for side in "kv"]
        keys, values = (self._g.buffer(name, BufferKind.STATE, DType.F16, shape) for name in names)
        kind = "kv" if window is None else f"kv of {window} positions"
        kept = self._kept.setdefault(kind, _Kept(StateKind.PAGES, window))
        kept.layers.append(layer)
        kept.buffers += names
        cache = KVCache(keys, values, n_kv_heads, head_dim)
        kept.position_bytes += cache.position_bytes
        kept.read_bytes += cache.position_bytes
        self._caches[layer] = cache, kept
        return cache

    def shared_cache(self, layer: int, n_kv_heads: int, head_dim: int) -> KVCache:
        """The caches that an earlier layer wrote, for one more that reads them.

        Raises `BadDefinition` when that layer has none, or other heads.
        """
        if layer not in self._caches:
            have = ", ".join(map(str, self._caches)) or "none"
            raise BadDefinition(f"block {layer} has no KV cache to share; blocks that have one so far: {have}")
        cache, kept = self._caches[layer]
        if (cache.n_kv_heads, cache.head_dim) != (n_kv_heads, head_dim):
            raise BadDefinition(
                f"block {layer} caches {cache.n_kv_heads} heads of {cache.head_dim}, they cannot be shared as"
                f" {n_kv_heads} of {head_dim}"
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
