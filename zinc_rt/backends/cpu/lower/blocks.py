"""Keys of blocks of positions, and attention over them beside a window."""

from __future__ import annotations

from zinc_rt.backends.cpu.choice import CONV_CHUNK
from zinc_rt.backends.cpu.lowering import CPU, CpuLowering
from zinc_rt.backends.cpu.program import UnitsPer
from zinc_rt.backends.fusion import Single
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.cpu import blocks


@CPU.lowers(Op.POOL_BLOCKS)
def pool_blocks(low: CpuLowering, single: Single) -> None:
    """The key of the block so far, and what is kept of it."""
    node, y = single.node, single.node.outputs[0]
    values, scores, offsets, state, positions, slots = node.inputs
    n = low.width(y)
    arguments = {
        "values": low.at(values),
        "scores": low.at(scores),
        "offsets": low.at(offsets),
        "state": low.at(state),
        "y": low.at(y),
        "n": n,
    }
    form = {"BLOCK": int(node.attrs["block"]), "OVERLAP": low.width(values) > n}
    kernel = blocks.pool_blocks, {**form, "CHUNK": CONV_CHUNK, "W": low.choice.lanes}
    low.emit(
        node, "pool blocks", kernel, blocks.PoolArgs, arguments, -(-n // CONV_CHUNK), UnitsPer.ONCE,
        (values, scores, state, positions, slots), node.outputs,
    )  # fmt: skip


@CPU.lowers(Op.BLOCK_ATTN)
def block_attention(low: CpuLowering, single: Single) -> None:
    """Attention over a window of positions and over keys of blocks."""
    node, attrs = single.node, attributes(single.node)
    q, cache, _, _, _, sinks, *rest = node.inputs
    block_cache, chosen = (*rest, None, None)[:2]
    heads, y = int(attrs["n_heads"]), node.outputs[0]
    arguments = {
        "q": low.at(q), "keys": low.at(cache), "block_keys": low.optional(block_cache), "chosen": low.optional(chosen),
        "sinks": low.at(sinks), "y": low.at(y), "window": attrs["window"], "scale": attrs["scale"], "softcap": 0.0,
    }  # fmt: skip
    together = max(g for g in (1, 2, 4, 8) if heads % g == 0)
    form = {"HEADS": heads, "G": together, "DIM": int(attrs["head_dim"]), "BLOCK": int(attrs.get("block", 0))}
    kernel = blocks.block_attention, {**form, "CHOSEN": chosen is not None, "W": low.choice.lanes}
    low.emit(
        node, "attention", kernel, blocks.BlockAttentionArgs, arguments, heads // together, UnitsPer.ROWS,
        (q, cache, *rest), (y,),
    )  # fmt: skip
