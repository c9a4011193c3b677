"""Several residual streams in place of one, and hashes of tokens."""

from __future__ import annotations

import math
from typing import Any

from zinc_rt.backends.fusion import Single
from zinc_rt.backends.gpu.lowering import GPU, GpuLowering
from zinc_rt.backends.gpu.operations import ArgumentBlock
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.ir.ops.streams import LEAST_AGREEMENT
from zinc_rt.kernels.gpu import streams
from zinc_rt.kernels.gpu.catalogue import entry


def _emit(
    low: GpuLowering, single: Single, kernel: Any, names: str, arguments: tuple[Any, ...], *, by_stream: bool = False,
    **constants: Any,
) -> None:  # fmt: skip
    """by_stream: a workgroup has a row's stream rather than 256 elements of a row."""
    node, n_streams = single.node, int(single.node.attrs["n_streams"])
    n = low.width(node.outputs[0]) if kernel is streams.stream_sum else low.width(node.outputs[0]) // n_streams
    across = n_streams if by_stream else -(-n // 256)
    made = entry(kernel, names, "streams, rows" if by_stream else "ceil(n / 256), rows", STREAMS=n_streams, **constants)
    reads = tuple(b for b in node.inputs if low.graph.buffer(b).shape[0] == "n_rows")
    low.emit(node, made, lambda s: (across, s.n_rows), arguments, "n_rows", reads, node.outputs)


@GPU.lowers(Op.STREAM_NORM)
def stream_norm(low: GpuLowering, single: Single) -> None:
    """The norm of each stream, by weights of its own."""
    x, weight = single.node.inputs
    n = low.width(x) // int(single.node.attrs["n_streams"])
    arguments = (low.at(x), low.at(weight), low.at(single.node.outputs[0]), n, float(single.node.attrs["eps"]))
    _emit(low, single, streams.stream_norm, "x w y n eps", arguments, by_stream=True)


@GPU.lowers(Op.STREAM_SUM)
def stream_sum(low: GpuLowering, single: Single) -> None:
    """The mean of the streams, or their weighted sum."""
    x, *gates = single.node.inputs
    y = single.node.outputs[0]
    arguments = (low.at(x), low.at(gates[0]) if gates else 0, low.at(y), low.width(y))
    _emit(low, single, streams.stream_sum, "x gates y n", arguments, WEIGHTED=bool(gates))


@GPU.lowers(Op.STREAM_ADD)
def stream_add(low: GpuLowering, single: Single) -> None:
    """A row to every stream: copied, or added with a factor for each."""
    (y, *rest), out = single.node.inputs, single.node.outputs[0]
    n, attrs = low.width(y), attributes(single.node)
    if not rest:
        _emit(low, single, streams.stream_copy, "y out n", (low.at(y), low.at(out), n))
        return
    given = [low.at(b) for b in rest] + [0] * (3 - len(rest))
    arguments = (low.at(y), *given, low.at(out), n, float(attrs.get("scale", 1.0)))
    constants = {"OPENED": "scale" in attrs, "MIXED": len(rest) == 3}
    _emit(low, single, streams.stream_add, "y x gates mix out n scale", arguments, **constants)


@GPU.lowers(Op.STREAM_MIX)
def stream_mix(low: GpuLowering, single: Single) -> None:
    """How streams are read, written and mixed."""
    node, attrs = single.node, attributes(single.node)
    made = [low.at(b) for b in node.outputs] + [0] * (3 - len(node.outputs))
    arguments = (*map(low.at, node.inputs), *made, lambda s: s.n_rows, float(attrs["eps"]))
    form = {"STREAMS": int(attrs["n_streams"]), "ITERATIONS": int(attrs.get("iterations", 0))}
    kernel = entry(streams.stream_mix, "logits base scale reads writes mix n_rows eps", "ceil(n_rows / 32)", **form)
    low.emit(node, kernel, lambda s: (-(-s.n_rows // 32),), arguments, "n_rows", node.inputs[:1], node.outputs)


@GPU.lowers(Op.STREAM_GATE)
def stream_gate(low: GpuLowering, single: Single) -> None:
    """A row to every stream, as far as a key and a query of the stream agree."""
    n = low.width(single.node.inputs[2])
    buffers = (*single.node.inputs, *single.node.outputs)
    arguments = (*(low.at(b) for b in buffers), n, 1.0 / math.sqrt(n))
    names = "key query value out n scale"
    _emit(low, single, streams.stream_gate, names, arguments, by_stream=True, LEAST=LEAST_AGREEMENT)


@GPU.lowers(Op.NGRAM_IDS)
def ngram_ids(low: GpuLowering, single: Single) -> None:
    """Rows of a table by hashes of the last tokens."""
    node, attrs = single.node, attributes(single.node)
    ids, numbers, state, positions, slots = node.inputs
    block = ArgumentBlock(streams.GpuNgramArgs, {
        "numbers": low.at(numbers), "state": low.at(state), "y": low.at(node.outputs[0]), "token_ids": low.at(ids),
        "positions": low.at(positions), "slots": low.at(slots), "n_rows": lambda s: s.n_rows,
        "by_row": lambda s: int(s.n_rows <= low.sizes.n_slots), "eos": int(attrs["eos"]),
    })  # fmt: skip
    kernel = entry(streams.ngram_ids, "a", "sequences", NGRAM=int(attrs["ngram"]), HEADS=int(attrs["n_heads"]))
    low.emit(node, kernel, lambda s: (min(s.n_rows, low.sizes.n_slots),), (block,), "n_rows", (state,), node.outputs)
