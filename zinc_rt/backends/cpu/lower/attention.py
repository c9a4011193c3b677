"""Heads, and attention over what they wrote to the cache."""

from __future__ import annotations

from typing import Any

from zinc_rt.backends.caches import quantized_caches
from zinc_rt.backends.cpu.lowering import CPU, CpuLowering, External, TempRef
from zinc_rt.backends.cpu.program import UnitsPer
from zinc_rt.backends.fusion import Attend, HeadsWrite
from zinc_rt.kernels.cpu import structs
from zinc_rt.kernels.cpu.attention_split import STATE


@CPU.lowers(HeadsWrite)
def heads(low: CpuLowering, n: HeadsWrite) -> None:
    """Norm, rotation and placing of heads."""
    h = n.heads
    to: dict[str, Any] = {n.cache or "y": low.at(n.target)}
    arguments = {
        "x": low.at(h.source),
        "weight": low.optional(h.weight),
        "table": 0 if h.table is None else External("rotation", h.table),
        "n_heads": h.n_heads,
        "eps": h.eps,
        "normed": int(h.normed),
        "width": n.row,
        "start": n.start,
        **to,
    }
    quantized = bool(n.cache) and quantized_caches(low.graph, n.node, n.target)
    kernel = low.choice.heads(h.dim, h.pairs, h.interleaved, quantized=quantized, begin=h.begin, block=n.block)
    reads = (h.source,) if h.positions is None else (h.source, h.positions)
    low.emit(n.node, "heads", kernel, structs.HeadsArgs, arguments, h.n_heads, UnitsPer.ROWS, reads, (n.target,))


@CPU.lowers(Attend)
def attention(low: CpuLowering, n: Attend) -> None:
    """Attention, in splits where threads outnumber heads, which are then merged."""
    out, partial = low.out, ("partial", n.node.id)
    quantized = quantized_caches(low.graph, n.node, n.k_cache, n.v_cache)
    out.sizes[partial] = out.split_rows * out.max_splits * n.n_heads * (n.value_dim + STATE) * 4
    arguments = {
        "q": low.at(n.q), "q_rope": low.optional(n.q_rope), "k_cache": low.at(n.k_cache), "v_cache": low.at(n.v_cache),
        "sinks": low.optional(n.sinks), "y": low.at(n.y), "partial": TempRef(partial), "n_kv": n.n_kv_heads,
        "max_splits": out.max_splits, "window": n.window or n.reach or n.chunk or 0, "scale": n.scale,
        "softcap": n.softcap or 0.0, "chosen": low.optional(n.chosen), "slopes": low.optional(n.slopes),
    }  # fmt: skip
    kernel = low.choice.attention(n, out.attention_rows, quantized=quantized)
    low.emit(
        n.node, "attention", kernel, structs.AttentionArgs, arguments, n.n_kv_heads, UnitsPer.ATTENTION,
        (*n.queries, n.k_cache, n.v_cache, *(() if n.chosen is None else (n.chosen,))), (n.y, partial),
    )  # fmt: skip
    if out.split_rows:
        low.emit(
            n.node, "merge", low.choice.merge(n), structs.AttentionArgs, arguments, n.n_heads, UnitsPer.MERGE,
            (partial,), (n.y, partial),
        )  # fmt: skip
