"""The choice of the positions that attention sees."""

from __future__ import annotations

from zinc_rt.backends.fusion import Single
from zinc_rt.backends.gpu.lowering import ELSEWHERE, GPU, GpuLowering
from zinc_rt.backends.gpu.operations import ArgumentBlock
from zinc_rt.errors import BackendError
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.gpu import indexer
from zinc_rt.kernels.gpu.catalogue import entry


@GPU.lowers(Op.INDEX_SCORES)
def index_scores(low: GpuLowering, single: Single) -> None:
    """Scores of candidates."""
    node, attrs = single.node, attributes(single.node)
    q, cache, positions, slots, pages, *weights = node.inputs
    heads, dim, block = (int(attrs[name]) for name in ("n_heads", "head_dim", "block"))
    if dim % 8:
        raise BackendError(f"node {node.name}: keys of {dim} elements; the GPU kernels do multiples of 8; {ELSEWHERE}")
    arguments = ArgumentBlock(indexer.GpuIndexScoresArgs, {
        "q": low.at(q), "k_cache": low.at(cache), "weights": low.at(weights[0]) if weights else 0,
        "y": low.at(node.outputs[0]), "positions": low.at(positions), "slots": low.at(slots),
        "page_table": low.at(pages), "max_pages": low.sizes.max_pages, "scale": float(attrs["scale"]),
    })  # fmt: skip
    kernel = entry(indexer.index_scores, "a", "splits, rows", HEADS=heads, DIM=dim, BLOCK=block, WEIGHTED=bool(weights))
    low.emit(
        node, kernel, lambda s: (-(-s.splits // block), s.n_rows), (arguments,), "n_rows", (q, cache, *weights),
        node.outputs, lambda s: s.n_rows * s.splits * 256 * heads * dim,
    )  # fmt: skip


@GPU.lowers(Op.INDEX_CHOICE)
def index_choice(low: GpuLowering, single: Single) -> None:
    """The best of them."""
    node, attrs = single.node, attributes(single.node)
    (scores, positions), chosen = node.inputs, node.outputs[0]
    kernel = entry(indexer.index_choice, "scores positions y max_pages top_k", "rows", BLOCK=int(attrs["block"]))
    arguments = (low.at(scores), low.at(positions), low.at(chosen), low.sizes.max_pages, int(attrs["top_k"]))
    low.emit(node, kernel, lambda s: (s.n_rows,), arguments, "n_rows", (scores,), (chosen,))
