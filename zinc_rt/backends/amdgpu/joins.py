"""What becomes one dispatch on a GPU beyond what all backends fuse: a barrier between two dispatches costs more than
most of a decode step's small operations.

- gate and up of a feed-forward, routed or of a shared expert, and the product of both;
- the chosen experts' sum, and the shared expert's product and its gate;
- the gated delta rule and the norm of its heads;
- attention and the gate on its output.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from zinc_rt.backends.fusion import Attend, FusedGraph, FusedNode, Product, Single
from zinc_rt.backends.fusion.nodes import Gate
from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.op import Op


class Gated(NamedTuple):
    """y = act(x gate^T + gate_bias) * (x up^T + up_bias); ids: the chosen experts of each row, None for one matrix.

    node: what has the activation's attributes.
    """

    node: Node
    x: int
    ids: int | None
    gate: int
    up: int
    gate_bias: int | None
    up_bias: int | None
    y: int


class ExpertsDown(NamedTuple):
    """The weighted sum of chosen experts, and where there is one the shared expert's product with its gate's logit."""

    node: Node
    act: int
    ids: int
    weights: int
    weight: int
    bias: int | None
    shared: Product | None
    gate_logit: int | None
    y: int


class DeltaNet(NamedTuple):
    """The gated delta rule. norm: the node of the norm behind it, which makes y."""

    node: Node
    norm: Node | None
    y: int


class GatedAttend(NamedTuple):
    """Attention, times the sigmoid of a gate."""

    node: Node
    attend: Attend
    gate: int
    y: int


Joined = FusedNode | Gated | ExpertsDown | DeltaNet | GatedAttend


class Joins:
    """The nodes of a fused graph with some of them joined, in an order in which they may run."""

    def __init__(self, graph: Graph, fused: FusedGraph) -> None:
        self._graph, self._fused = graph, fused
        self._made: dict[int, FusedNode] = {}  # by what they write
        self._gone: set[int] = set()
        for node in fused.nodes:
            if isinstance(node, Product | Gate | Attend):
                self._made[node.y] = node
            elif isinstance(node, Single):
                self._made.update(dict.fromkeys(node.node.outputs, node))
        self._shared = {
            n.inputs[1] for n in graph.nodes if n.op is Op.SHARED_EXPERT and self._takes(n.inputs[1], Op.SHARED_EXPERT)
        }

    def nodes(self) -> Iterator[Joined]:
        """Each joined node stands where the last of its parts stood."""
        found: list[tuple[FusedNode, Joined]] = [(node, self._joined(node)) for node in self._fused.nodes]
        return (node for part, node in found if id(part) not in self._gone)

    def _joined(self, node: FusedNode) -> Joined:
        made: Joined | None = None
        if isinstance(node, Gate):
            made = self._gated_rows(node)
        elif isinstance(node, Single):
            match node.node.op:
                case Op.MOE_SWIGLU:
                    made = self._gated_experts(node.node)
                case Op.MOE_DOWN_ACC:
                    made = self._down(node.node)
                case Op.SHARED_EXPERT:
                    made = self._with_shared(node.node)
                case Op.SSM_DELTA_NET:
                    made = DeltaNet(node.node, None, node.node.outputs[0])
                case Op.SSM_GATED_NORM:
                    made = self._normed(node.node)
                case Op.SIGMOID_MUL:
                    made = self._gated_attention(node.node)
        return node if made is None else made

    def _takes(self, buffer: int, op: Op) -> bool:
        """Whether a buffer is a temporary that one node alone reads, once, of this operation."""
        readers = self._fused.readers(buffer)
        return (
            not self._fused.kept(buffer)
            and len(readers) == 1
            and readers[0].op is op
            and readers[0].inputs.count(buffer) == 1
        )

    def _product(self, buffer: int, op: Op) -> Product | None:
        """The product of all rows that makes a buffer for one node alone."""
        made = self._made.get(buffer)
        return made if isinstance(made, Product) and not made.by_logit and self._takes(buffer, op) else None

    def _single(self, buffer: int, op: Op, reader: Op) -> Single | None:
        made = self._made.get(buffer)
        fits = isinstance(made, Single) and made.node.op is op and self._takes(buffer, reader)
        return made if fits and isinstance(made, Single) else None

    def _alike(self, a: int, b: int) -> bool:
        """Whether both matrices are of blocks, or both of floats."""
        return bool(self._graph.buffer(a).dtype.ggml.quantized == self._graph.buffer(b).dtype.ggml.quantized)

    def _gated_rows(self, node: Gate) -> Gated | None:
        down = self._fused.products(node.y)
        gate, up = (self._product(b, Op.SWIGLU) for b in (node.gate, node.up))
        if gate is None or up is None or gate.x != up.x or (gate.bias is None) != (up.bias is None):
            return None
        if len(down) != 1 or down[0].y not in self._shared or not self._alike(gate.weight, up.weight):
            return None
        self._gone |= {id(gate), id(up)}
        return Gated(node.node, gate.x, None, gate.weight, up.weight, gate.bias, up.bias, node.y)

    def _gated_experts(self, node: Node) -> Gated | None:
        parts = [self._single(b, Op.MOE_GATE_UP, Op.MOE_SWIGLU) for b in node.inputs]
        if parts[0] is None or parts[0] is not parts[1] or tuple(node.inputs) != tuple(parts[0].node.outputs):
            return None
        x, ids, gate, up, *biases = parts[0].node.inputs
        if not self._alike(gate, up) or len(biases) == 1:
            return None
        self._gone.add(id(parts[0]))
        gate_bias, up_bias = biases or (None, None)
        return Gated(node, x, ids, gate, up, gate_bias, up_bias, node.outputs[0])

    @staticmethod
    def _down(node: Node) -> ExpertsDown:
        act, ids, weights, weight, *bias = node.inputs
        return ExpertsDown(node, act, ids, weights, weight, bias[0] if bias else None, None, None, node.outputs[0])

    def _with_shared(self, node: Node) -> ExpertsDown | None:
        routed = self._single(node.inputs[0], Op.MOE_DOWN_ACC, Op.SHARED_EXPERT)
        shared = self._product(node.inputs[1], Op.SHARED_EXPERT)
        if routed is None or shared is None or shared.bias is not None:
            return None
        self._gone |= {id(routed), id(shared)}
        gate = node.inputs[2] if len(node.inputs) > 2 else None
        return self._down(routed.node)._replace(shared=shared, gate_logit=gate, y=node.outputs[0])

    def _normed(self, node: Node) -> DeltaNet | None:
        rule = self._single(node.inputs[0], Op.SSM_DELTA_NET, Op.SSM_GATED_NORM)
        same = ("n_v_heads", "head_dim")
        if rule is None or any(rule.node.attrs[a] != node.attrs[b] for a, b in zip(same, ("n_heads", "head_dim"))):
            return None
        self._gone.add(id(rule))
        return DeltaNet(rule.node, node, node.outputs[0])

    def _gated_attention(self, node: Node) -> GatedAttend | None:
        made = self._made.get(node.inputs[0])
        if not isinstance(made, Attend) or not self._takes(made.y, Op.SIGMOID_MUL):
            return None
        self._gone.add(id(made))
        return GatedAttend(node, made, node.inputs[1], node.outputs[0])


STANDS_FOR: dict[Any, tuple[Op, ...]] = {
    Gated: (Op.MOE_GATE_UP, Op.MOE_SWIGLU),
    ExpertsDown: (Op.MOE_DOWN_ACC,),
    DeltaNet: (Op.SSM_DELTA_NET,),
    GatedAttend: (),
}
"""The operations that a lowering of the kind runs."""
