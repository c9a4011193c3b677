"""The lightning indexer of DeepSeek-V3.2 as a record: it chooses the positions that an attention sees."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from zinc_rt.ir.graph import BufferId, BufferKind, DType
from zinc_rt.ir.op import Op
from zinc_rt.models.errors import ModelError
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts, Rotation
from zinc_rt.numerics import PAGE_TOKENS

_NORM_EPS = 1e-6
"""Of the keys' layer norm; no file says it."""


@dataclass(frozen=True)
class IndexerSpec:
    """What chooses the positions that a row's attention sees.

    n_heads, head_dim: of the indexer's queries; its keys have one head. top_k: positions that a row keeps. rotation: of
    the first elements of queries and keys. sources: for each layer the one whose choice it takes, which may be itself.
    """

    n_heads: int
    head_dim: int
    top_k: int
    rotation: Rotation
    sources: tuple[int, ...]

    def emit(self, parts: GraphParts, h: BufferId, q_latent: BufferId, layer: int) -> BufferId:
        """The choice for rows h, i32[n_rows, max_pages]. q_latent: what queries are projected from."""
        source = self.sources[layer]
        if source == layer:
            p = f"blk.{layer}.indexer"
            q = parts.project(q_latent, f"{p}.attn_q_b", self.n_heads * self.head_dim)
            q = parts.rope(q, f"{p}.rope_q", self.rotation, self.n_heads, self.head_dim)
            k = parts.layer_norm(parts.project(h, f"{p}.attn_k", self.head_dim), f"{p}.k_norm", eps=_NORM_EPS)
            k = parts.rope(k, f"{p}.rope_k", self.rotation, 1, self.head_dim)
            weights = parts.project(h, f"{p}.proj", self.n_heads)
            scale = 1.0 / math.sqrt(self.n_heads * self.head_dim)
            parts.chosen[layer] = choose(parts, p, layer, (q, k, weights), self.head_dim, self.top_k, scale=scale)
        return parts.chosen[source]


def choose(
    parts: GraphParts, p: str, layer: int, operands: tuple[BufferId, ...], head_dim: int, top_k: int, *,
    scale: float = 1.0, block: int = 1,
) -> BufferId:  # fmt: skip
    """Write keys to the indexer's cache, score all of them, and choose: i32[n_rows, max_pages].

    operands: queries, a key, and the heads' weights where they have such. block: positions that are chosen together, by
    the key that the last of them has.
    """
    q, k, *weights = operands
    cache = parts.states.index_cache(layer, head_dim)
    parts.g.node(Op.KV_WRITE, [k, *parts.where()], [cache], f"{p}.kv_write", n_kv_heads=1, key_dim=head_dim)
    scores = parts.g.buffer(f"{p}.scores", BufferKind.TEMP, DType.F32, ("n_rows", "max_pages", PAGE_TOKENS))
    parts.g.node(
        Op.INDEX_SCORES,
        [q, cache, *parts.where(), *weights],
        [scores],
        f"{p}.index_scores",
        n_heads=parts.width(q) // head_dim,
        head_dim=head_dim,
        scale=scale,
        block=block,
    )
    chosen = parts.g.buffer(f"{p}.chosen", BufferKind.TEMP, DType.I32, ("n_rows", "max_pages"))
    parts.g.node(
        Op.INDEX_CHOICE, [scores, parts.step["positions"]], [chosen], f"{p}.index_choice", top_k=top_k, block=block
    )
    return chosen


def sources(keys: Keys, types: Sequence[bool]) -> tuple[int, ...]:
    """The layer whose choice each layer takes: itself, or the last before it that chooses.

    types: whether each layer chooses. Raises `ModelError` where the first one does not.
    """
    if not types[0]:
        raise ModelError(f"{keys.name('attention.indexer.types')} begins with a layer that takes another's choice")
    out: list[int] = []
    for layer, own in enumerate(types):
        out.append(layer if own else out[-1])
    return tuple(out)
