"""Nodes of a graph as calls of the reference kernels that stand with their operations, on the step's live rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.op import name
from zinc_rt.ir.ops import DEFINITIONS, attributes
from zinc_rt.kernels.reference.activations import QuantActivations, quantize_activations
from zinc_rt.kernels.reference.matmul import Weight

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class NodeContext:
    """The data that nodes are bound to.

    counts: i32[2], the step's n_rows and n_logits, read when a node runs. quantized: by buffer, the node that made its
    rows int8 and what it made: the later products of the same step share them.
    """

    graph: Graph
    arrays: dict[int, Array]
    matrices: dict[int, Weight | list[Weight]]
    counts: npt.NDArray[np.int32]
    quantized: dict[int, tuple[int, QuantActivations]] = field(default_factory=dict)

    def find(self, buffer_id: int) -> Array | Weight | list[Weight]:
        """A matrix, the matrices of a tensor of several, or the buffer's array, cut to the step's rows where its first
        dimension is n_rows or n_logits.
        """
        if buffer_id in self.matrices:
            return self.matrices[buffer_id]
        array, first = self.arrays[buffer_id], self.graph.buffer(buffer_id).shape[0]
        if first == "n_rows":
            return array[: self.counts[0]]
        return array[: self.counts[1]] if first == "n_logits" else array


class NodeOperands:
    """A node's operands; see `ir.definition.Operands`."""

    def __init__(self, context: NodeContext, node: Node) -> None:
        self._context, self._node = context, node
        self.name: str = node.name
        self.attrs: Mapping[str, Any] = attributes(node)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """An array for each input, or the `Weight` of a matrix."""
        return tuple(map(self._context.find, self._node.inputs))

    @property
    def outputs(self) -> tuple[Any, ...]:
        """An array for each output."""
        return tuple(map(self._context.find, self._node.outputs))

    def quantized(self, port: int) -> QuantActivations:
        """Rows of an input as int8. The first node of a step that asks makes them, the later ones share them."""
        context, buffer = self._context, self._node.inputs[port]
        maker, made = context.quantized.get(buffer, (self._node.id, None))
        if made is None or maker == self._node.id:
            rows = context.find(buffer)
            assert isinstance(rows, np.ndarray), "activations are no matrix"
            made = quantize_activations(rows)
            context.quantized[buffer] = self._node.id, made
        return made


def lower_node(context: NodeContext, node: Node) -> Callable[[], None]:
    """The node as a call without arguments. Raises `BackendError`."""
    definition = DEFINITIONS.get(node.op)
    if definition is None:
        supported = ", ".join(name(op) for op in sorted(DEFINITIONS))
        raise BackendError(f"node {node.name}: the CPU backend has no kernel for {name(node.op)}; it has {supported}")
    operands, kernel = NodeOperands(context, node), definition.reference
    return lambda: kernel(operands)
