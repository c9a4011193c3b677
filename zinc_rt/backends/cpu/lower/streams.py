"""Several residual streams in place of one, and hashes of tokens."""

from __future__ import annotations

import math
from typing import Any

from zinc_rt.backends.cpu.lowering import CPU, CpuLowering
from zinc_rt.backends.cpu.program import UnitsPer
from zinc_rt.backends.fusion import Single
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.ir.ops.streams import LEAST_AGREEMENT
from zinc_rt.kernels.cpu import streams
from zinc_rt.lang.kernel import Function


def _emit(
    low: CpuLowering, single: Single, kernel: Function, arguments: dict[str, Any], reads: tuple[int, ...],
    by_stream: bool = False, **constants: Any,
) -> None:  # fmt: skip
    """by_stream: a unit is a row's stream rather than a row."""
    node, n_streams = single.node, int(single.node.attrs["n_streams"])
    compiled = kernel, {"STREAMS": n_streams, "W": low.choice.lanes, **constants}
    arguments["out"] = low.at(node.outputs[0])
    units = n_streams if by_stream else 1
    low.emit(node, "streams", compiled, streams.StreamArgs, arguments, units, UnitsPer.ROWS, reads, node.outputs)


@CPU.lowers(Op.STREAM_NORM)
def stream_norm(low: CpuLowering, single: Single) -> None:
    """The norm of each stream, by weights of its own."""
    x, weight = single.node.inputs
    n = low.width(x) // int(single.node.attrs["n_streams"])
    arguments = {"x": low.at(x), "weight": low.at(weight), "n": n, "eps": float(single.node.attrs["eps"])}
    _emit(low, single, streams.stream_norm, arguments, (x,), by_stream=True)


@CPU.lowers(Op.STREAM_SUM)
def stream_sum(low: CpuLowering, single: Single) -> None:
    """The mean of the streams, or their weighted sum."""
    reads, y = single.node.inputs, single.node.outputs[0]
    gates = reads[1] if len(reads) > 1 else None
    arguments = {"x": low.at(reads[0]), "gates": low.optional(gates), "n": low.width(y)}
    _emit(low, single, streams.stream_sum, arguments, reads, WEIGHTED=gates is not None)


@CPU.lowers(Op.STREAM_ADD)
def stream_add(low: CpuLowering, single: Single) -> None:
    """A row to every stream: copied, or added with a factor for each."""
    reads, attrs = single.node.inputs, attributes(single.node)
    arguments = {name: low.at(b) for name, b in zip(("y", "x", "gates", "mix"), reads, strict=False)}
    arguments |= {"n": low.width(reads[0]), "scale": float(attrs.get("scale", 1.0))}
    if len(reads) == 1:
        _emit(low, single, streams.stream_copy, arguments, reads)
    else:
        _emit(low, single, streams.stream_add, arguments, reads, OPENED="scale" in attrs, MIXED=len(reads) > 3)


@CPU.lowers(Op.STREAM_MIX)
def stream_mix(low: CpuLowering, single: Single) -> None:
    """How streams are read, written and mixed."""
    node, attrs = single.node, attributes(single.node)
    logits, base, scale = node.inputs
    arguments = {"x": low.at(logits), "key": low.at(base), "weight": low.at(scale), "eps": float(attrs["eps"])}
    arguments |= {name: low.at(b) for name, b in zip(("gates", "mix"), node.outputs[1:], strict=False)}
    _emit(low, single, streams.stream_mix, arguments, (logits,), ITERATIONS=int(attrs.get("iterations", 0)))


@CPU.lowers(Op.STREAM_GATE)
def stream_gate(low: CpuLowering, single: Single) -> None:
    """A row to every stream, as far as a key and a query of the stream agree."""
    key, query, value = single.node.inputs
    n = low.width(value)
    arguments = {"key": low.at(key), "x": low.at(query), "y": low.at(value), "n": n, "scale": 1.0 / math.sqrt(n)}
    _emit(low, single, streams.stream_gate, arguments, single.node.inputs, by_stream=True, LEAST=LEAST_AGREEMENT)


@CPU.lowers(Op.NGRAM_IDS)
def ngram_ids(low: CpuLowering, single: Single) -> None:
    """Rows of a table by hashes of the last tokens."""
    node, attrs = single.node, attributes(single.node)
    ids, numbers, state, positions, slots = node.inputs
    arguments = {
        "numbers": low.at(numbers),
        "state": low.at(state),
        "y": low.at(node.outputs[0]),
        "n_heads": int(attrs["n_heads"]),
        "eos": int(attrs["eos"]),
    }
    kernel = streams.ngram_ids, {"NGRAM": int(attrs["ngram"])}
    low.emit(
        node, "n-grams", kernel, streams.NgramArgs, arguments, 1, UnitsPer.ONCE, (ids, state, positions, slots),
        node.outputs,
    )  # fmt: skip
