"""Lowering a graph node to a call of its reference kernel on the step's live rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.errors import UnsupportedOp
from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.op import Op, name
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.kernels.reference.activations import QuantActivations, quantize_activations
from zinc_rt.kernels.reference.argmax import argmax_rows
from zinc_rt.kernels.reference.elementwise import add_rows, swiglu_rows
from zinc_rt.kernels.reference.kv_cache import flash_attn_paged, kv_write_rows
from zinc_rt.kernels.reference.matmul import Weight, matmul
from zinc_rt.kernels.reference.rms_norm import rms_norm_rows
from zinc_rt.kernels.reference.rope import rope_rows

Array = npt.NDArray[Any]
Run = Callable[[], None]


@dataclass(frozen=True)
class NodeContext:
    """What nodes are bound to.

    counts: i32[2], the step's n_rows and n_logits, read when a node runs. quantized: by buffer, the activations as
    int8: the first product that reads a buffer makes them, the later ones of the same step share them.
    """

    graph: Graph
    arrays: dict[int, Array]
    matrices: dict[int, Weight]
    counts: npt.NDArray[np.int32]
    quantized: dict[int, QuantActivations | None] = field(default_factory=dict)

    def __call__(self, buffer_id: int) -> Array:
        """The buffer's array, cut to the step's rows where its first dimension is n_rows or n_logits."""
        array, first = self.arrays[buffer_id], self.graph.buffer(buffer_id).shape[0]
        if first == "n_rows":
            return array[: self.counts[0]]
        return array[: self.counts[1]] if first == "n_logits" else array


def _embed(at: NodeContext, n: Node) -> Run:
    table, n_vocab = at.matrices[n.inputs[1]], at.matrices[n.inputs[1]].n_rows

    def run() -> None:
        ids = at(n.inputs[0])
        if ids.size and not (ids.min() >= 0 and ids.max() < n_vocab):
            bad = next(int(i) for i in ids if not 0 <= i < n_vocab)
            raise TokenOutOfRange(f"{n.name}: token id {bad} is outside the vocabulary of {n_vocab}")
        at(n.outputs[0])[...] = table.rows(ids)

    return run


def _heads(n: Node, array: Array, count: str) -> Array:
    """A view with the heads apart, f32[n_rows, heads, head_dim]."""
    return array.reshape(array.shape[0], int(n.attrs[count]), int(n.attrs["head_dim"]))


def _rms_norm(at: NodeContext, n: Node) -> Run:
    weight, eps, per_head = at(n.inputs[1]), float(n.attrs["eps"]), "head_dim" in n.attrs

    def run() -> None:
        x, y = at(n.inputs[0]), at(n.outputs[0])
        if per_head:
            x, y = _heads(n, x, "n_heads"), _heads(n, y, "n_heads")
        y[...] = rms_norm_rows(x, weight, eps)

    return run


def _residual_rms_norm(at: NodeContext, n: Node) -> Run:
    weight, eps = at(n.inputs[2]), float(n.attrs["eps"])

    def run() -> None:
        total = at(n.outputs[0])
        total[...] = add_rows(at(n.inputs[0]), at(n.inputs[1]))
        at(n.outputs[1])[...] = rms_norm_rows(total, weight, eps)

    return run


def _matmul(at: NodeContext, n: Node) -> Run:
    weight, source = at.matrices[n.inputs[1]], n.inputs[0]
    if not weight.quantized:

        def run_float() -> None:
            at(n.outputs[0])[...] = matmul(at(source), weight)

        return run_float
    first = source not in at.quantized
    at.quantized[source] = None

    def run() -> None:
        x = at(source)
        if first:
            at.quantized[source] = quantize_activations(x)
        at(n.outputs[0])[...] = matmul(x, weight, at.quantized[source])

    return run


def _add(at: NodeContext, n: Node) -> Run:
    def run() -> None:
        at(n.outputs[0])[...] = add_rows(at(n.inputs[0]), at(n.inputs[1]))

    return run


def _swiglu(at: NodeContext, n: Node) -> Run:
    def run() -> None:
        at(n.outputs[0])[...] = swiglu_rows(at(n.inputs[0]), at(n.inputs[1]))

    return run


def _rope(at: NodeContext, n: Node) -> Run:
    table, interleaved = at(n.inputs[2]), bool(n.attrs["interleaved"])

    def run() -> None:
        x, y = _heads(n, at(n.inputs[0]), "n_heads"), _heads(n, at(n.outputs[0]), "n_heads")
        y[...] = rope_rows(x, table[at(n.inputs[1])], interleaved=interleaved)

    return run


def _kv_write(at: NodeContext, n: Node) -> Run:
    def run() -> None:
        k, v, positions, slots, pages = (at(i) for i in n.inputs)
        k, v = _heads(n, k, "n_kv_heads"), _heads(n, v, "n_kv_heads")
        kv_write_rows(k, v, positions, slots, pages, at(n.outputs[0]), at(n.outputs[1]))

    return run


def _flash_attn(at: NodeContext, n: Node) -> Run:
    scale = float(n.attrs["scale"])

    def run() -> None:
        q, k_cache, v_cache, positions, slots, pages = (at(i) for i in n.inputs)
        out = flash_attn_paged(_heads(n, q, "n_heads"), k_cache, v_cache, positions, slots, pages, scale)
        _heads(n, at(n.outputs[0]), "n_heads")[...] = out

    return run


def _lm_head(at: NodeContext, n: Node) -> Run:
    weight = at.matrices[n.inputs[1]]

    def run() -> None:
        wanted = at(n.inputs[2])
        if wanted.size:
            at(n.outputs[0])[...] = matmul(at(n.inputs[0])[wanted], weight)

    return run


def _argmax(at: NodeContext, n: Node) -> Run:
    def run() -> None:
        at(n.outputs[0])[...] = argmax_rows(at(n.inputs[0]))

    return run


def _barrier(at: NodeContext, n: Node) -> Run:
    return lambda: None


_LOWER: dict[Op, Callable[[NodeContext, Node], Run]] = {
    Op.EMBED: _embed,
    Op.RMS_NORM: _rms_norm,
    Op.RESIDUAL_RMS_NORM: _residual_rms_norm,
    Op.MATMUL: _matmul,
    Op.BIAS_ADD: _add,
    Op.RESIDUAL_ADD: _add,
    Op.SWIGLU: _swiglu,
    Op.ROPE: _rope,
    Op.KV_WRITE: _kv_write,
    Op.FLASH_ATTN: _flash_attn,
    Op.LM_HEAD: _lm_head,
    Op.ARGMAX: _argmax,
    Op.BARRIER: _barrier,
}


def lower_node(context: NodeContext, node: Node) -> Run:
    """The node as a call without arguments. Raises `UnsupportedOp`."""
    if node.op not in _LOWER:
        supported = ", ".join(name(op) for op in _LOWER)
        raise UnsupportedOp(f"node {node.name}: the CPU backend has no kernel for {name(node.op)}; it has {supported}")
    return _LOWER[node.op](context, node)
