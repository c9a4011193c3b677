"""Attention over what heads wrote to the cache."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from zinc_rt.backends.caches import quantized_caches
from zinc_rt.backends.fusion import Attend
from zinc_rt.backends.gpu.fusion import GatedAttend
from zinc_rt.backends.gpu.lowering import ELSEWHERE, GPU, GpuLowering
from zinc_rt.backends.gpu.operations import ArgumentBlock, TempSpec
from zinc_rt.errors import BackendError
from zinc_rt.kernels.gpu.attention import GpuAttentionArgs
from zinc_rt.kernels.gpu.catalogue import attention_kernel
from zinc_rt.numerics import GROUP, SPLIT

MAX_KEY_DIM, _MAX_HEAD_DIM = 1024, 512
_MAX_GROUP = 32
"""Heads that share a key head."""


@GPU.lowers(Attend)
def attention(low: GpuLowering, n: Attend) -> None:
    """Attention in splits, which the last workgroup merges; as int8 where only products read it."""
    _attention(low, n, n.y, None)


@GPU.lowers(GatedAttend)
def gated_attention(low: GpuLowering, n: GatedAttend) -> None:
    """The same times a gate's sigmoid."""
    _attention(low, n.attend, n.y, n.gate)


def _attention(low: GpuLowering, n: Attend, y: int, gate: int | None) -> None:
    """y: the result; gate: what it is multiplied by the sigmoid of."""
    _check_attention(n)
    n_heads, dim, windowed = n.n_heads, n.value_dim, n.windowed
    # Splits that a row sees something of: a window of n positions touches no more than this.
    most = -(-low.sizes.n_ctx // SPLIT)
    if windowed:
        seen = n.window if n.window is not None else 2 * (n.reach or 0) + 1
        most = min(most, (seen + SPLIT - 2) // SPLIT + 1)
    elif n.chunk is not None:
        most = min(most, n.chunk // SPLIT)
    values, tops = ("values", n.node.id), ("tops", n.node.id)
    packed = dim % GROUP == 0 and low.only_packed(y)
    whole = dim % GROUP != 0 and low.width(y) % GROUP == 0 and low.only_packed(y)
    blocks = quantized_caches(low.graph, n.node, n.k_cache, n.v_cache)
    queries, reads = _queries(low, n, blocks)
    results = (() if packed else (low.at(y),)) + (low.packed(y, low.width(y)) if packed or whole else ())
    names = (() if packed else ("y",)) + (("quants", "scales", "sums") if packed or whole else ())
    block = ArgumentBlock(GpuAttentionArgs, {
        **queries, "k_cache": low.at(n.k_cache), "v_cache": low.at(n.v_cache),
        **dict(zip(names, results, strict=True)),
        "values": low.room(values, "n_rows", most * n_heads * dim * 4),
        "tops": low.room(tops, "n_rows", most * n_heads * 8), "counters": low.counters(n.node, n.n_kv_heads),
        "row_counters": low.counters(n.node, 1, "rows") if whole else 0,
        "positions": low.at(n.positions), "slots": low.at(n.slots), "page_table": low.at(n.page_table),
        "max_pages": low.sizes.max_pages, "max_splits": lambda s: min(s.splits, most), "n_kv": n.n_kv_heads,
        "scale": n.scale, "sinks": low.optional(n.sinks),
        "window": n.window or n.reach or n.chunk or 0,
        "own": low.optional(n.own), "softcap": n.softcap or 0.0,
        "gate": low.optional(gate), "chosen": low.optional(n.chosen),
        "slopes": low.optional(n.slopes),
    })  # fmt: skip
    entry = attention_kernel(
        n.head_dim, n.group, value_dim=dim, rope=n.head_dim - dim if n.latent else 0, window=windowed,
        cap=n.softcap is not None, sinks=n.sinks is not None, reach=n.reach is not None, quantized=blocks,
        packed=packed, gated=gate is not None, whole=whole, chunk=n.chunk is not None, chosen=n.chosen is not None,
        slopes=n.slopes is not None,
    )  # fmt: skip
    # The last workgroup loads what all have stored.
    reads = (
        *reads,
        *(() if n.chosen is None else (n.chosen,)),
        n.k_cache,
        n.v_cache,
        values,
        tops,
        *((y,) if whole else ()),
        *(() if gate is None else (gate,)),
    )
    low.emit(
        n.node,
        entry,
        lambda s: (min(s.splits, most), n.n_kv_heads, s.n_rows),
        (block,),
        "n_rows",
        reads,
        (values, tops, *(place.key for place in results)),
        lambda s: s.n_rows * min(s.splits, most) * SPLIT * n_heads * (n.head_dim + dim),
    )


def _queries(low: GpuLowering, n: Attend, quantized: bool) -> tuple[dict[str, Any], tuple[Hashable, ...]]:
    """The queries as arguments, and what is read for them. quantized: as int8 with scales."""
    given: dict[str, Any] = {"q_rope": 0, "q_scales": 0, "rope_scales": 0}
    reads: list[Hashable] = []
    for buffer, name, scales in zip(n.queries, ("q", "q_rope"), ("q_scales", "rope_scales"), strict=False):
        if quantized:
            words, factors, _ = low.pack(n.node, buffer, low.width(buffer), "n_rows")
            given[name], given[scales] = TempSpec(words), TempSpec(factors)
            reads += [words, factors]
        else:
            given[name] = low.at(buffer)
            reads.append(buffer)
    return given, tuple(reads)


def _check_attention(n: Attend) -> None:
    """Raise `BackendError` for heads that the kernels cannot do."""
    if n.value_dim > _MAX_HEAD_DIM or n.head_dim > MAX_KEY_DIM:
        raise BackendError(
            f"node {n.node.name}: heads of {n.head_dim} elements with values of {n.value_dim}; the GPU kernels do"
            f" keys up to {MAX_KEY_DIM}, values up to {_MAX_HEAD_DIM}; {ELSEWHERE}"
        )
    if n.head_dim % 8 or n.value_dim % 8 or n.group > _MAX_GROUP:
        raise BackendError(
            f"node {n.node.name}: {n.group} query heads to a key head, of {n.head_dim} elements with values of"
            f" {n.value_dim}; the GPU kernels do up to {_MAX_GROUP}, of multiples of 8; {ELSEWHERE}"
        )
