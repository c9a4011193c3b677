"""Keys of blocks of positions, and attention over them beside a window."""

from __future__ import annotations

from zinc_rt.backends.fusion import Single
from zinc_rt.backends.gpu.lower.recurrent import rows_of, sequences
from zinc_rt.backends.gpu.lowering import ELSEWHERE, GPU, GpuLowering
from zinc_rt.backends.gpu.operations import ArgumentBlock
from zinc_rt.errors import BackendError
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.gpu import blocks
from zinc_rt.kernels.gpu.catalogue import entry
from zinc_rt.kernels.gpu.recurrent import CHANNELS

_MOST = 512
"""Elements of a key: each lane has two of its values."""


@GPU.lowers(Op.POOL_BLOCKS)
def pool_blocks(low: GpuLowering, single: Single) -> None:
    """The key of the block so far, and what is kept of it."""
    node, y = single.node, single.node.outputs[0]
    values, scores, offsets, state, positions, slots = node.inputs
    n = low.width(y)
    block = ArgumentBlock(blocks.GpuPoolArgs, {
        "values": low.at(values), "scores": low.at(scores), "offsets": low.at(offsets), "state": low.at(state),
        "y": low.at(y), "n": n, **rows_of(low, positions, slots),
    })  # fmt: skip
    form = {"BLOCK": int(node.attrs["block"]), "OVERLAP": low.width(values) > n}
    low.emit(
        node, entry(blocks.pool_blocks, "a", "ceil(n / 256), sequences", **form),
        lambda s: (-(-n // CHANNELS), sequences(low, s)), (block,), "n_rows", (values, scores, state), node.outputs,
    )  # fmt: skip


@GPU.lowers(Op.BLOCK_ATTN)
def block_attention(low: GpuLowering, single: Single) -> None:
    """Attention over a window of positions and over keys of blocks."""
    node, attrs = single.node, attributes(single.node)
    q, cache, positions, slots, pages, sinks, *rest = node.inputs
    block_cache, chosen = (*rest, None, None)[:2]
    heads, dim, y = int(attrs["n_heads"]), int(attrs["head_dim"]), node.outputs[0]
    if dim % 8 or dim > _MOST:
        raise BackendError(
            f"node {node.name}: keys of {dim} elements; the GPU kernels do multiples of 8 up to {_MOST}; {ELSEWHERE}"
        )
    arguments = ArgumentBlock(blocks.GpuBlockAttentionArgs, {
        "q": low.at(q), "keys": low.at(cache), "block_keys": low.optional(block_cache),
        "chosen": low.optional(chosen), "sinks": low.at(sinks), "y": low.at(y),
        "positions": low.at(positions), "slots": low.at(slots), "page_table": low.at(pages),
        "max_pages": low.sizes.max_pages, "window": int(attrs["window"]), "scale": float(attrs["scale"]),
    })  # fmt: skip
    together = max(g for g in (1, 2, 4) if heads % g == 0)
    form = {
        "HEADS": heads,
        "G": together,
        "DIM": dim,
        "BLOCK": int(attrs.get("block", 0)),
        "CHOSEN": chosen is not None,
    }
    low.emit(
        node, entry(blocks.block_attention, "a", "heads, rows", **form), lambda s: (heads // together, s.n_rows),
        (arguments,), "n_rows", (q, cache, *rest), (y,),
    )  # fmt: skip
