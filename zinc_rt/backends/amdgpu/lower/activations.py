"""Rows of activations: embeddings, norms, sums, SwiGLU; as int8 where only products read them."""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.backends.amdgpu.lowering import GPU, GpuLowering, pack_keys, wanted_key
from zinc_rt.backends.amdgpu.operations import TempSpec
from zinc_rt.backends.fusion import Gate, NormRows, Single
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.rdna.catalogue import DECODE, FLOATS


@GPU.lowers(Op.EMBED)
def embed(low: GpuLowering, single: Single) -> None:
    """Rows of the file's table."""
    (ids, table), y = single.node.inputs, single.node.outputs[0]
    width = int(low.graph.buffer(table).shape[1])
    kind = low.format_of(single.node, table)
    span = 256 if kind in FLOATS else 2048
    low.emit(
        single.node, DECODE[f"embed_{kind.lower()}"], lambda s: (-(-width // span), s.n_rows),
        (low.at(table), low.at(ids), low.at(y), width), "n_rows", (ids,), (y,),
    )  # fmt: skip


@GPU.lowers(NormRows)
def norm(low: GpuLowering, n: NormRows) -> None:
    """A norm of rows or of the sum of two; of the wanted rows where no others matter, which are gathered first."""
    width, wanted = low.width(n.y), n.logit_rows
    prefix = "" if n.residual is None else "residual_"
    quantized = low.only_packed(n.y, by_logit=wanted is not None)
    both = wanted is None and not quantized and low.also_packed(n.y)
    kernel = "norm_both" if both else "norm_quantized" if quantized else "rms_norm"
    if wanted is None:
        sources = [low.at(x) for x in n.sources]
        total = () if n.total is None else (low.at(n.total),)
        results: tuple[TempSpec, ...] = () if quantized else (low.at(n.y),)
        if quantized or both:
            results += low.packed(n.y, width)
    else:
        key = wanted_key(n.y)
        low.there.add(key)
        sources = [TempSpec(low.wanted(n.node, x, wanted)) for x in n.sources]
        total = () if n.total is None else (low.room(wanted_key(n.total), "n_logits", width * 4),)
        results = low.packed(key, width, "n_logits") if quantized else (low.room(key, "n_logits", width * 4),)
    arguments = (*sources, low.at(n.weight), *total, *results, width, n.eps)
    low.rows(
        n.node, prefix + kernel, "n_rows" if wanted is None else "n_logits",
        arguments, tuple(s.key for s in sources), tuple(t.key for t in (*total, *results)),
    )  # fmt: skip


@GPU.lowers(Op.BIAS_ADD)
def bias_add(low: GpuLowering, single: Single) -> None:
    """A vector added to every row."""
    (a, b), y = single.node.inputs, single.node.outputs[0]
    width, counted = low.width(y), low.counted(y)
    low.emit(
        single.node, DECODE["add_row"], lambda s: (-(-width // 256), getattr(s, counted)),
        (low.at(a), low.at(b), low.at(y), width), counted, (a, b), (y,),
    )  # fmt: skip


@GPU.lowers(Op.RESIDUAL_ADD)
def residual_add(low: GpuLowering, single: Single) -> None:
    """A sum of rows."""
    (a, b), y = single.node.inputs, single.node.outputs[0]
    arguments = low.at(a), low.at(b), low.at(y)
    low.elements(single.node, "add", low.counted(y), low.width(y), arguments, (a, b), (y,))


@GPU.lowers(Gate)
def gate(low: GpuLowering, n: Gate) -> None:
    """silu(gate) * up."""
    _gated(low, n.node, "swiglu", (n.gate, n.up), n.y)


@GPU.lowers(Op.SIGMOID_MUL)
def sigmoid_mul(low: GpuLowering, single: Single) -> None:
    """x * sigmoid(gate)."""
    _gated(low, single.node, "sigmoid_mul", single.node.inputs, single.node.outputs[0])


@GPU.lowers(Op.MUL)
def mul(low: GpuLowering, single: Single) -> None:
    """A product of rows."""
    (a, b), y = single.node.inputs, single.node.outputs[0]
    arguments = low.at(a), low.at(b), low.at(y)
    low.elements(single.node, "mul", low.counted(y), low.width(y), arguments, (a, b), (y,))


def _gated(low: GpuLowering, node: Node, kernel: str, pair: Sequence[int], y: int) -> None:
    """A kernel of two rows that has a form whose result is int8."""
    width, operands = low.width(y), tuple(map(low.at, pair))
    if low.counted(y) == "n_rows" and low.only_packed(y):
        arguments = (*operands, *low.packed(y, width))
        low.elements(node, f"{kernel}_quantized", "n_rows", width, arguments, tuple(pair), pack_keys(y))
    else:
        low.elements(node, kernel, low.counted(y), width, (*operands, low.at(y)), tuple(pair), (y,))
