"""The choice of the positions that attention sees."""

from __future__ import annotations

from zinc_rt.backends.cpu.lowering import CPU, CpuLowering
from zinc_rt.backends.cpu.program import UnitsPer
from zinc_rt.backends.fusion import Single
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.cpu import indexer


@CPU.lowers(Op.INDEX_SCORES)
def index_scores(low: CpuLowering, single: Single) -> None:
    """Scores of candidates."""
    node, attrs = single.node, attributes(single.node)
    q, cache, _, _, _, *weights = node.inputs
    arguments = {
        "q": low.at(q),
        "k_cache": low.at(cache),
        "weights": low.optional(weights[0] if weights else None),
        "y": low.at(node.outputs[0]),
        "scale": float(attrs["scale"]),
    }
    kernel = (
        indexer.index_scores,
        {
            "HEADS": attrs["n_heads"],
            "DIM": attrs["head_dim"],
            "BLOCK": attrs["block"],
            "WEIGHTED": bool(weights),
            "W": low.choice.lanes,
        },
    )
    low.emit(
        node, "index scores", kernel, indexer.IndexScoresArgs, arguments, indexer.PARTS, UnitsPer.ROWS,
        (q, cache, *weights), node.outputs,
    )  # fmt: skip


@CPU.lowers(Op.INDEX_CHOICE)
def index_choice(low: CpuLowering, single: Single) -> None:
    """The best of them."""
    node, attrs = single.node, attributes(single.node)
    scores, chosen = node.inputs[0], node.outputs[0]
    arguments = {"scores": low.at(scores), "y": low.at(chosen), "top_k": attrs["top_k"]}
    kernel = indexer.index_choice, {"BLOCK": attrs["block"], "W": low.choice.lanes}
    low.emit(node, "index choice", kernel, indexer.IndexChoiceArgs, arguments, 1, UnitsPer.ROWS, (scores,), (chosen,))
