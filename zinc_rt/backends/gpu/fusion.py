"""Joins further nodes into one dispatch on a GPU, beyond the rules of all backends: a barrier between two dispatches
costs more than most of a decode step's small operations.

- gate and up of a feed-forward, routed or not, and the product of both; gate alone where up is given;
- the chosen experts' sum, and the shared expert's product and its gate;
- the gated delta rule and the norm of its heads;
- attention and the gate on its output;
- a router's logits, a factor of them and the choice of experts;
- a product, and the norm, rotation and place of the heads that it makes, or the convolution of its channels;
- a product, or the chosen experts' sum, and the norms and sums behind it (`epilogues`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from zinc_rt.backends.fusion import (
    Attend,
    ExpertDown,
    ExpertGate,
    FusedGraph,
    FusedNode,
    HeadsWrite,
    Product,
    Single,
)
from zinc_rt.backends.fusion.nodes import Gate
from zinc_rt.backends.gpu.epilogues import Epilogue, Epilogues
from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.gpu.epilogue import WAVES


class Gated(NamedTuple):
    """y = activation(x gate^T + gate_bias) * (x up^T + up_bias); ids: the chosen experts of each row, None for one
    matrix. given: a buffer whose elements from `start` on stand for the second product, where up is None. alpha, limit:
    of the activation "clamped".
    """

    node: Node
    x: int
    ids: int | None
    gate: int
    up: int | None
    gate_bias: int | None
    up_bias: int | None
    y: int
    activation: str = "silu"
    alpha: float = 0.0
    limit: float = 0.0
    given: int | None = None
    start: int = 0


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


class RouterProduct(NamedTuple):
    """The choice of experts by the logits that a product of float weights makes, times a factor; None for none."""

    node: Node
    product: Product
    factor: float | None


class ProductHeads(NamedTuple):
    """A product that makes heads, and where these heads go: to one or two places."""

    node: Node
    product: Product
    heads: tuple[HeadsWrite, ...]


class ProductConv(NamedTuple):
    """A product that makes the channels of a causal convolution."""

    node: Node
    product: Product


class Normed(NamedTuple):
    """A product, or the chosen experts' sum, and the norms and sums behind it."""

    node: Node
    source: Product | ExpertsDown
    chain: Epilogue


Joined = FusedNode | Gated | ExpertsDown | DeltaNet | GatedAttend | RouterProduct | ProductHeads | ProductConv | Normed


class GpuFusion:
    """The nodes of a fused graph with some of them joined, in an order in which they may run.

    products: whether products of one matrix, and sums of experts, are joined to other nodes. In steps of many rows they
    are not, because matrix instructions compute them.
    """

    def __init__(self, graph: Graph, fused: FusedGraph, *, products: bool = True) -> None:
        self._graph, self._fused, self._products = graph, fused, products
        self._made: dict[int, FusedNode] = {}  # by what they write
        self._gone: set[int] = set()
        self._written: dict[int, list[HeadsWrite]] = {}  # by the buffer that the heads lie in
        for node in fused.nodes:
            if isinstance(node, HeadsWrite):
                self._written.setdefault(node.heads.source, []).append(node)
            if isinstance(node, Product | Gate | Attend | ExpertDown):
                self._made[node.y] = node
            elif isinstance(node, ExpertGate) and node.gated is not None:
                self._made[node.gated] = node
            elif isinstance(node, Single):
                self._made.update(dict.fromkeys(node.node.outputs, node))
        if not products:
            self._made = {y: node for y, node in self._made.items() if not isinstance(node, Product)}

    def nodes(self) -> Iterator[Joined]:
        """Each joined node stands where the last of its parts stood."""
        found: list[tuple[FusedNode, Joined]] = [(node, self._joined(node)) for node in self._fused.nodes]
        nodes = [node for part, node in found if id(part) not in self._gone]
        return self._with_norms(nodes) if self._products else iter(nodes)

    def _with_norms(self, nodes: list[Joined]) -> Iterator[Joined]:
        sources = {
            node.y: node
            for node in nodes
            if isinstance(node, ExpertsDown) or (isinstance(node, Product) and not node.by_logit)
        }
        chains = Epilogues(self._fused, nodes).of(list(sources))
        last = {id(chain.last): Normed(chain.node, sources[y], chain) for y, chain in chains.items()}
        gone = {id(part) for y, chain in chains.items() for part in (sources[y], *chain.before)}
        return (last.get(id(node), node) for node in nodes if id(node) not in gone)

    def _joined(self, node: FusedNode) -> Joined:
        made: Joined | None = None
        if isinstance(node, Gate):
            made = self._gated_apart(node) if node.node.op is Op.MOE_SWIGLU else self._gated_rows(node)
        elif isinstance(node, ExpertGate):
            made = None if node.y is None else self._gated_experts(node, node.y)
        elif isinstance(node, ExpertDown):
            made = self._down(node)
        elif isinstance(node, HeadsWrite):
            made = self._heads(node)
        elif isinstance(node, Single):
            match node.node.op:
                case Op.MOE_GATE_TOPK:
                    made = self._route(node.node)
                case Op.SHARED_EXPERT:
                    made = self._with_shared(node.node)
                case Op.SSM_DELTA_NET:
                    made = DeltaNet(node.node, None, node.node.outputs[0])
                case Op.SSM_CONV1D:
                    made = self._convolved(node.node)
                case Op.SSM_GATED_NORM:
                    made = self._normed(node.node)
                case Op.SIGMOID_MUL:
                    made = self._gated_attention(node.node)
        return node if made is None else made

    def _takes(self, buffer: int, op: Op) -> bool:
        """Whether a buffer is a temporary that one node alone reads, once, of this operation."""
        return self._fused.read_once(buffer) and self._fused.readers(buffer)[0].op is op

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
        gate, up = (self._product(b, Op.SWIGLU) for b in (node.gate, node.up))
        if gate is None:
            return None
        rest = node.activation, node.alpha, node.limit
        if up is None:
            if gate.bias is not None:
                return None
            self._gone.add(id(gate))
            return Gated(
                node.node, gate.x, None, gate.weight, None, None, None, node.y, *rest, given=node.up,
                start=node.up_start,
            )  # fmt: skip
        if gate.x != up.x or (gate.bias is None) != (up.bias is None) or not self._alike(gate.weight, up.weight):
            return None
        if node.up_start or self._graph.buffer(node.gate).shape != self._graph.buffer(node.up).shape:
            return None
        self._gone |= {id(gate), id(up)}
        return Gated(node.node, gate.x, None, gate.weight, up.weight, gate.bias, up.bias, node.y, *rest)

    def _gated_experts(self, n: ExpertGate, y: int) -> Gated | None:
        if not self._alike(n.gate, n.up) or (n.gate_bias is None) != (n.up_bias is None):
            return None
        return Gated(n.node, n.x, n.ids, n.gate, n.up, n.gate_bias, n.up_bias, y)

    def _gated_apart(self, n: Gate) -> Gated | None:
        """Of experts with another activation than the one that all backends fuse."""
        made = self._made.get(n.gate)
        if not isinstance(made, ExpertGate) or made.upped != n.up or n.gate == n.up:
            return None
        joined = self._gated_experts(made, n.y)
        if joined is None or not all(self._takes(b, Op.MOE_SWIGLU) for b in (n.gate, n.up)):
            return None
        self._gone.add(id(made))
        return joined._replace(node=n.node, activation=n.activation, alpha=n.alpha, limit=n.limit)

    @staticmethod
    def _down(n: ExpertDown) -> ExpertsDown:
        return ExpertsDown(n.node, n.act, n.ids, n.weights, n.down, n.bias, None, None, n.y)

    def _with_shared(self, node: Node) -> ExpertsDown | None:
        routed = self._made.get(node.inputs[0])
        shared = self._product(node.inputs[1], Op.SHARED_EXPERT)
        if not isinstance(routed, ExpertDown) or not self._takes(routed.y, Op.SHARED_EXPERT):
            return None
        if shared is None or shared.bias is not None:
            return None
        self._gone |= {id(routed), id(shared)}
        gate = node.inputs[2] if len(node.inputs) > 2 else None
        return self._down(routed)._replace(shared=shared, gate_logit=gate, y=node.outputs[0])

    def _route(self, node: Node) -> RouterProduct | None:
        logits, factor, reader = node.inputs[0], None, Op.MOE_GATE_TOPK
        scale = self._single(logits, Op.SCALE, reader)
        if scale is not None:
            logits, factor, reader = scale.node.inputs[0], float(scale.node.attrs["factor"]), Op.SCALE
        product = self._product(logits, reader)
        if product is None or self._graph.buffer(product.weight).dtype.ggml.quantized:
            return None
        self._gone |= {id(part) for part in (product, scale) if part is not None}
        return RouterProduct(node, product, factor)

    def _heads(self, n: HeadsWrite) -> ProductHeads | None:
        source = n.heads.source
        made, written = self._made.get(source), self._written[source]
        if not isinstance(made, Product) or made.by_logit or self._fused.kept(source):
            return None
        if len(written) > 2 or len({(id(w.node), w.heads.dim) for w in written}) > 1:
            return None
        n_out = self._graph.buffer(made.weight).shape[0]
        if n.heads.dim % WAVES or n.heads.n_heads * n.heads.dim != n_out or self._reads(source) != len(written):
            return None
        self._gone.add(id(made))
        if n is not written[-1]:  # which takes this one along
            self._gone.add(id(n))
            return None
        return ProductHeads(n.node, made, tuple(written))

    def _reads(self, buffer: int) -> int:
        """How often nodes read a buffer."""
        return sum(n.inputs.count(buffer) for n in self._fused.readers(buffer))

    def _normed(self, node: Node) -> DeltaNet | None:
        rule = self._single(node.inputs[0], Op.SSM_DELTA_NET, Op.SSM_GATED_NORM)
        sizes = tuple(node.attrs[a] for a in ("n_heads", "head_dim"))
        if rule is None or sizes != tuple(rule.node.attrs[a] for a in ("n_v_heads", "head_dim")):
            return None
        self._gone.add(id(rule))
        return DeltaNet(rule.node, node, node.outputs[0])

    def _convolved(self, node: Node) -> ProductConv | None:
        product = self._product(node.inputs[0], Op.SSM_CONV1D)
        if product is None or product.bias is not None:
            return None
        self._gone.add(id(product))
        return ProductConv(node, product)

    def _gated_attention(self, node: Node) -> GatedAttend | None:
        made = self._made.get(node.inputs[0])
        if "head_dim" in node.attrs or not isinstance(made, Attend) or not self._takes(made.y, Op.SIGMOID_MUL):
            return None
        self._gone.add(id(made))
        return GatedAttend(node, made, node.inputs[1], node.outputs[0])


STANDS_FOR: dict[Any, tuple[Op, ...]] = {
    Gated: (Op.MOE_GATE_UP, Op.MOE_SWIGLU),
    ExpertsDown: (Op.MOE_DOWN_ACC,),
    DeltaNet: (Op.SSM_DELTA_NET,),
    GatedAttend: (),
    RouterProduct: (Op.MOE_GATE_TOPK,),
    ProductHeads: (),
    ProductConv: (Op.SSM_CONV1D,),
    Normed: (),
}
"""The operations that a lowering of the kind runs."""
