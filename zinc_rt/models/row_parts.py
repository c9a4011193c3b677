"""Nodes over rows of float32, whatever the rows stand for: tokens of a text, or patches of a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import Attr, BufferId, BufferKind, DType
from zinc_rt.ir.op import Op
from zinc_rt.models.config import NormKind
from zinc_rt.models.definition import F32, MakeConstant, ModelInfo
from zinc_rt.models.errors import ModelError
from zinc_rt.models.graph_tensors import GraphTensors


class RowParts(GraphTensors):
    """A graph under construction whose activations are rows, f32[n_rows, width].

    Args:
        file: the model's file.
        info: its figures; the graph gets the architecture's name.
        eps: what norms add to the mean square, or to the variance.
        norms: of which kind the norms of rows are.
    """

    def __init__(self, file: GGUFFile, info: ModelInfo, eps: float, norms: NormKind = NormKind.RMS) -> None:
        super().__init__(file, info)
        self.eps, self.norms = eps, norms
        self._widths: dict[BufferId, int] = {}
        self._no_bias: dict[tuple[int, ...], BufferId] = {}

    def temp(self, name: str, width: int) -> BufferId:
        """A fresh activation f32[n_rows, width]."""
        made = self.g.buffer(name, BufferKind.TEMP, DType.F32, ("n_rows", width))
        self._widths[made] = width
        return made

    def given(self, name: str, width: int) -> BufferId:
        """Rows that the caller brings with a step, f32[n_rows, width]."""
        made = self.g.buffer(name, BufferKind.INPUT, DType.F32, ("n_rows", width))
        self._widths[made] = width
        return made

    def width(self, x: BufferId) -> int:
        """Elements of a row of an activation that `temp` made."""
        return self._widths[x]

    def norm(
        self, x: BufferId, name: str, *, tensor: str | None = None, y: BufferId | None = None, weight: bool = True,
        eps: float | None = None,
    ) -> BufferId:  # fmt: skip
        """The norm of whole rows by the tensor `name`.weight, or by `tensor`. y: where to, if not a new one. weight:
        False for an RMS norm without. eps: of an RMS norm, None for the model's.
        """
        if self.norms is not NormKind.RMS:
            return self.layer_norm(x, tensor.removesuffix(".weight") if tensor else name, y)
        y = self.temp(name, self.width(x)) if y is None else y
        inputs = [x, self.weight(tensor or f"{name}.weight", self.width(x))] if weight else [x]
        self.g.node(Op.RMS_NORM, inputs, [y], f"{name}.rms_norm", eps=self.eps if eps is None else eps)
        return y

    def add_norm(self, x: BufferId, branch: BufferId, name: str, sum_name: str) -> tuple[BufferId, BufferId]:
        """x + branch, and the norm of that by `name`.weight."""
        if self.norms is not NormKind.RMS:
            total = self.add(x, branch, sum_name)
            return total, self.layer_norm(total, name)
        total, y = self.temp(sum_name, self.width(x)), self.temp(name, self.width(x))
        weight = self.weight(f"{name}.weight", self.width(x))
        self.g.node(Op.RESIDUAL_RMS_NORM, [x, branch, weight], [total, y], f"{name}.residual_rms_norm", eps=self.eps)
        return total, y

    def add(self, a: BufferId, b: BufferId, name: str, y: BufferId | None = None) -> BufferId:
        """a + b, where no norm follows that could do it. y: where to; None for a fresh activation."""
        y = self.temp(name, self.width(a)) if y is None else y
        self.g.node(Op.RESIDUAL_ADD, [a, b], [y], f"{name}.residual_add")
        return y

    def project(
        self, x: BufferId, name: str, n_out: int, *, bias: bool | None = False, y: BufferId | None = None
    ) -> BufferId:
        """W x with the tensor `name`.weight. bias: True needs `name`.bias, False has none, None takes what is there.
        y: where to; None for a fresh activation.
        """
        weight = self.weight(f"{name}.weight", n_out, self.width(x))
        if not self._biased(name, bias):
            return self.product(x, weight, name, y)
        product = self.product(x, weight, name)
        return self._add_bias(product, name, self.weight(f"{name}.bias", n_out), y)

    def product(self, x: BufferId, weight: BufferId, name: str, y: BufferId | None = None) -> BufferId:
        """W x with a matrix that `weight_rows` gave. y: where to; None for a fresh activation."""
        y = self.temp(name, int(self.g.shape(weight)[0])) if y is None else y
        self.g.node(Op.MATMUL, [x, weight], [y], f"{name}.matmul")
        return y

    def times_sigmoid(self, x: BufferId, gate: BufferId, name: str, *, node: str = "", **heads: int) -> BufferId:
        """x * sigmoid(gate). node: what the node is called after, `name` if not said. heads: n_heads and head_dim where
        the gate has one element for each head.
        """
        y = self.temp(name, self.width(x))
        self.g.node(Op.SIGMOID_MUL, [x, gate], [y], f"{node or name}.sigmoid_mul", **heads)
        return y

    def biased(self, y: BufferId, name: str, bias: bool | None = True) -> BufferId:
        """y + `name`.bias. bias: True needs it, False has none, None takes what is there."""
        if not self._biased(name, bias):
            return y
        return self._add_bias(y, name, self.weight(f"{name}.bias", self.width(y)))

    def _biased(self, name: str, bias: bool | None) -> bool:
        return bias or (bias is None and self.has(f"{name}.bias"))

    def _add_bias(self, x: BufferId, name: str, bias: BufferId, y: BufferId | None = None) -> BufferId:
        y = self.temp(f"{name}.biased", self.width(x)) if y is None else y
        self.g.node(Op.BIAS_ADD, [x, bias], [y], f"{name}.bias_add")
        return y

    def split_project(
        self, x: BufferId, name: str, sizes: Sequence[int], *, bias: bool | None = False, heads: int = 1
    ) -> list[BufferId]:
        """W x with the tensor `name`.weight, whose rows are those of several projections, one activation for each.

        bias: as of `project`; `name`.bias holds the biases of all. heads: the rows of all projections come again for
        each of so many heads (without biases); an activation then has its part of all heads.
        """
        n_in, total, out, start = self.width(x), sum(sizes), [], 0
        biases = self.vector(f"{name}.bias", total) if bias is not False else None
        if bias and biases is None:
            raise ModelError(f"tensor {name}.bias is missing, which architecture {self.info.architecture!r} needs")
        for i, size in enumerate(sizes):
            y = self.temp(f"{name}.{i}", heads * size)
            weight = self.weight_rows(f"{name}.weight", (heads * total, n_in), start, start + size, period=total)
            self.g.node(Op.MATMUL, [x, weight], [y], f"{name}.{i}.matmul")
            if biases is not None:
                part = self.constant(f"{name}.{i}.bias", (size,), _always(biases[start : start + size]))
                y = self._add_bias(y, f"{name}.{i}", part)
            out.append(y)
            start += size
        return out

    def head_norm(self, x: BufferId, name: str, n_heads: int, head_dim: int, *, weight: bool = True) -> BufferId:
        """RMS norm of each head by `name`.weight, f32[head_dim]; weight: False for a norm without."""
        y = self.temp(name, n_heads * head_dim)
        inputs = [x, self.weight(f"{name}.weight", head_dim)] if weight else [x]
        self.g.node(Op.RMS_NORM, inputs, [y], f"{name}.rms_norm", eps=self.eps, n_heads=n_heads, head_dim=head_dim)
        return y

    def gate(
        self, gate: BufferId, up: BufferId, name: str, *, activation: str = "silu", up_start: int | None = None,
        limit: float | None = None,
    ) -> BufferId:  # fmt: skip
        """activation(gate) * up. up_start: where the elements of up begin, in rows that hold more. limit: of a clamped
        activation.
        """
        y = self.temp(name, self.width(gate))
        attrs: dict[str, Attr] = {} if activation == "silu" else {"activation": activation}
        if up_start is not None:
            attrs["up_start"] = up_start
        if limit is not None:
            attrs["limit"] = limit
        self.g.node(Op.SWIGLU, [gate, up], [y], f"{name}.swiglu", **attrs)
        return y

    def scale(self, x: BufferId, factor: float, name: str, y: BufferId | None = None) -> BufferId:
        """x * factor, rounded to float32. y: where to; None for a fresh activation."""
        y = self.temp(name, self.width(x)) if y is None else y
        self.g.node(Op.SCALE, [x], [y], f"{name}.scale", factor=factor)
        return y

    def output(self, name: str, width: int) -> BufferId:
        """A result of the graph, f32[n_rows, width]."""
        made = self.g.buffer(name, BufferKind.OUTPUT, DType.F32, ("n_rows", width))
        self._widths[made] = width
        return made

    def layer_norm(
        self, x: BufferId, name: str, y: BufferId | None = None, *, eps: float | None = None, bias: bool = True
    ) -> BufferId:
        """The layer norm by the tensors `name`.weight and `name`.bias, if norms have any. y: where to; None for a fresh
        activation. eps: another one than the model's. bias: False for one without.
        """
        n = self.width(x)
        made = self.temp(name, n) if y is None else y
        has_bias = bias and self.norms is not NormKind.LAYER_WITHOUT_BIAS
        added = self.weight(f"{name}.bias", n) if has_bias else self._zeros(n)
        operands = [x, self.weight(f"{name}.weight", n), added]
        self.g.node(Op.LAYER_NORM, operands, [made], f"{name}.layer_norm", eps=self.eps if eps is None else eps)
        return made

    def head_layer_norm(self, x: BufferId, name: str, n_heads: int, head_dim: int) -> BufferId:
        """Layer norm of each head by its own row of `name`.weight, f32[n_heads, head_dim], without biases."""
        y = self.temp(name, n_heads * head_dim)
        operands = [x, self.weight(f"{name}.weight", n_heads, head_dim, plain=True), self._zeros(n_heads, head_dim)]
        attrs = {"n_heads": n_heads, "head_dim": head_dim}
        self.g.node(Op.LAYER_NORM, operands, [y], f"{name}.layer_norm", eps=self.eps, **attrs)
        return y

    def _zeros(self, *shape: int) -> BufferId:
        """A constant in place of biases."""
        if shape not in self._no_bias:
            name = f"no_bias.{'x'.join(map(str, shape))}"
            self._no_bias[shape] = self.constant(name, shape, lambda n_ctx: np.zeros(shape, np.float32))
        return self._no_bias[shape]

    def activate(self, x: BufferId, name: str, activation: str, **numbers: float) -> BufferId:
        """The activation of every element, one of `numerics.UNGATED`. numbers: those that it takes."""
        y = self.temp(name, self.width(x))
        self.g.node(Op.ACTIVATE, [x], [y], name, activation=activation, **numbers)
        return y


def _always(values: F32) -> MakeConstant:
    """A constant that does not depend on n_ctx."""
    return lambda n_ctx: values
