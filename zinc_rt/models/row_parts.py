"""Nodes over rows of float32, whatever the rows stand for: tokens of a text, or patches of a picture."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import Attr, BufferId, BufferKind, DType
from zinc_rt.ir.op import Op
from zinc_rt.models.definition import F32, MakeConstant, ModelInfo
from zinc_rt.models.errors import ModelError
from zinc_rt.models.graph_tensors import GraphTensors


class RowParts(GraphTensors):
    """A graph under construction whose activations are rows, f32[n_rows, width].

    Args:
        file: the model's file.
        info: its figures; the graph gets the architecture's name.
        eps: what norms add to the mean square.
    """

    def __init__(self, file: GGUFFile, info: ModelInfo, eps: float) -> None:
        super().__init__(file, info)
        self.eps = eps
        self._widths: dict[BufferId, int] = {}
        self._zero: dict[int, BufferId] = {}

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

    def norm(self, x: BufferId, name: str, *, tensor: str | None = None, y: BufferId | None = None) -> BufferId:
        """RMS norm of whole rows by the tensor `name`.weight, or by `tensor`. y: where to, if not a new one."""
        y = self.temp(name, self.width(x)) if y is None else y
        weight = self.weight(tensor or f"{name}.weight", self.width(x))
        self.g.node(Op.RMS_NORM, [x, weight], [y], f"{name}.rms_norm", eps=self.eps)
        return y

    def add_norm(self, x: BufferId, branch: BufferId, name: str, sum_name: str) -> tuple[BufferId, BufferId]:
        """x + branch, and the RMS norm of that by `name`.weight."""
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
        self, gate: BufferId, up: BufferId, name: str, *, activation: str = "silu", up_start: int | None = None
    ) -> BufferId:
        """activation(gate) * up. up_start: where the elements of up begin, in rows that hold more."""
        y = self.temp(name, self.width(gate))
        attrs: dict[str, Attr] = {} if activation == "silu" else {"activation": activation}
        if up_start is not None:
            attrs["up_start"] = up_start
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

    def layer_norm(self, x: BufferId, name: str, y: BufferId | None = None, *, bias: bool = True) -> BufferId:
        """The layer norm by the tensors `name`.weight and `name`.bias. y: where to; None for a fresh activation. bias:
        False for a norm without, whose bias is 0.
        """
        n = self.width(x)
        made = self.temp(name, n) if y is None else y
        shift = self.weight(f"{name}.bias", n) if bias else self._zeros(n)
        operands = [x, self.weight(f"{name}.weight", n), shift]
        self.g.node(Op.LAYER_NORM, operands, [made], f"{name}.layer_norm", eps=self.eps)
        return made

    def _zeros(self, n: int) -> BufferId:
        """A vector of zeros, one for all that need it."""
        if n not in self._zero:
            self._zero[n] = self.constant(f"zeros_{n}", (n,), _always(np.zeros(n, np.float32)))
        return self._zero[n]

    def gelu(self, x: BufferId, name: str, *, quick: bool = False) -> BufferId:
        """GELU of every element, in its form with tanh or the quick one."""
        y = self.temp(name, self.width(x))
        attrs: dict[str, Attr] = {"quick": True} if quick else {}
        self.g.node(Op.GELU, [x], [y], name, **attrs)
        return y


def _always(values: F32) -> MakeConstant:
    """A constant that does not depend on n_ctx."""
    return lambda n_ctx: values
