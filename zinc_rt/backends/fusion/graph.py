"""The pass: from a graph's nodes to the kinds of `nodes`, in an order that keeps every dependency.

- an RMS norm takes the addition before it along, and only the wanted rows where no others matter;
- a bias rides in the product before it;
- gate and up of experts and their activation are one;
- the norm, the rotation and the cache write of heads are one (`heads`);
- every other node stands alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from zinc_rt.backends.fusion.heads import HeadChains, Heads, Readers
from zinc_rt.backends.fusion.nodes import (
    Attend,
    ExpertDown,
    ExpertGate,
    FusedNode,
    Gate,
    HeadsWrite,
    NormRows,
    Product,
    Single,
)
from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes


class FusedGraph:
    """A graph as kernels run it. `nodes` are in an order in which they may run."""

    def __init__(self, graph: Graph, nodes: tuple[FusedNode, ...], readers: Readers) -> None:
        self.graph, self.nodes, self._readers = graph, nodes, readers
        self._products: dict[int, list[Product | ExpertGate]] = {}
        for node in nodes:
            if isinstance(node, Product | ExpertGate):
                self._products.setdefault(node.x, []).append(node)

    def products(self, buffer: int) -> list[Product | ExpertGate]:
        """The products that read a buffer as their activations."""
        return self._products.get(buffer, [])

    def readers(self, buffer: int) -> list[Node]:
        """The graph's nodes that read a buffer, in order."""
        return self._readers.of(buffer)

    def kept(self, buffer: int) -> bool:
        """Whether a buffer outlives the step, or is the caller's."""
        return self._readers.kept(buffer)

    def plain_needed(self, buffer: int) -> bool:
        """Whether anything but products reads a buffer."""
        return self._readers.kept(buffer) or len(self.products(buffer)) < len(self._readers.of(buffer))


def fuse(graph: Graph) -> FusedGraph:
    """The fused form of a verified graph. It refers to the graph's buffers by their ids."""
    readers = Readers(graph)
    return FusedGraph(graph, tuple(_Fusing(graph, readers).nodes()), readers)


class _Fusing:
    """The pass over one graph."""

    def __init__(self, graph: Graph, readers: Readers) -> None:
        self._graph, self._readers = graph, readers
        self._chains = HeadChains(graph, readers)
        self._done: set[int] = set()  # nodes that an earlier one took along

    def nodes(self) -> Iterator[FusedNode]:
        for node in self._graph.nodes:
            if node.id not in self._done and node.op is not Op.BARRIER:
                rule = _RULES.get(node.op)
                if rule is None:
                    yield Single(node)
                else:
                    yield from rule(self, node)

    def norm(self, n: Node) -> Iterator[FusedNode]:
        if "head_dim" in n.attrs:
            yield from self._heads(n, self._chains.norm(n))
            return
        x, weight = n.inputs
        yield self._norm(n, x, None, weight, None, n.outputs[0])

    def residual_norm(self, n: Node) -> Iterator[FusedNode]:
        (x, residual, weight), (total, y) = n.inputs, n.outputs
        read = bool(self._readers.of(total)) or self._readers.kept(total)
        yield self._norm(n, x, residual, weight, total, y, total_read=read)

    def add(self, n: Node) -> Iterator[FusedNode]:
        (a, b), total = n.inputs, n.outputs[0]
        norm = self._readers.sole(total, Op.RMS_NORM)
        if norm is None or "head_dim" in norm.attrs:
            yield Single(n)
            return
        self._done.add(norm.id)
        yield self._norm(norm, a, b, norm.inputs[1], total, norm.outputs[0])

    def _norm(
        self, n: Node, x: int, residual: int | None, weight: int, total: int | None, y: int, *, total_read: bool = False
    ) -> NormRows:
        readers = self._readers.of(y)
        wanted = None
        if readers and not total_read and not self._readers.kept(y) and all(r.op is Op.LM_HEAD for r in readers):
            wanted = readers[0].inputs[2]  # the same of all: a step has one input of this role
        eps = float(attributes(n)["eps"])
        return NormRows(n, x, residual, weight, total, y, eps, total_read, wanted)

    def product(self, n: Node) -> Iterator[FusedNode]:
        (x, weight), y = n.inputs, n.outputs[0]
        follower = self._readers.sole(y, Op.BIAS_ADD)
        if follower is None or follower.inputs[0] != y:
            yield Product(n, x, weight, None, y, None)
            return
        self._done.add(follower.id)
        yield Product(n, x, weight, follower.inputs[1], follower.outputs[0], None)

    def logits(self, n: Node) -> Iterator[FusedNode]:
        x, weight, wanted = n.inputs
        yield Product(n, x, weight, None, n.outputs[0], wanted)

    def gate(self, n: Node) -> Iterator[FusedNode]:
        yield Gate(n, n.inputs[0], n.inputs[1], n.outputs[0])

    def expert_gate(self, n: Node) -> Iterator[FusedNode]:
        x, ids, gate, up, *biases = n.inputs
        gated, upped = n.outputs
        biases = [*biases, *(None,) * (2 - len(biases))]
        reader = self._readers.sole(gated, Op.MOE_SWIGLU)
        alone = reader is None or self._readers.sole(upped, Op.MOE_SWIGLU) is not reader
        if reader is None or alone or reader.inputs != (gated, upped):
            yield ExpertGate(n, x, ids, gate, up, *biases, gated, upped, None)
            return
        self._done.add(reader.id)
        yield ExpertGate(n, x, ids, gate, up, *biases, None, None, reader.outputs[0])

    def expert_down(self, n: Node) -> Iterator[FusedNode]:
        act, ids, weights, down, *bias = n.inputs
        yield ExpertDown(n, act, ids, weights, down, bias[0] if bias else None, n.outputs[0])

    def rope(self, n: Node) -> Iterator[FusedNode]:
        yield from self._heads(n, self._chains.rope(n))

    def kv_write(self, n: Node) -> Iterator[FusedNode]:
        where = tuple(n.inputs[2:5])
        for (heads, cache), name in zip(self._chains.kv_write(n), ("k_cache", "v_cache"), strict=True):
            yield HeadsWrite(n, heads, cache, name, where)

    def _heads(self, n: Node, heads: Heads | None) -> Iterator[FusedNode]:
        if heads is not None:  # else a later node writes them
            yield HeadsWrite(n, heads, n.outputs[0])

    def attend(self, n: Node) -> Iterator[FusedNode]:
        q, k, v, positions, slots, pages = n.inputs
        attrs = attributes(n)
        n_heads, n_kv_heads, head_dim = (int(attrs[a]) for a in ("n_heads", "n_kv_heads", "head_dim"))
        yield Attend(
            n, q, k, v, positions, slots, pages, n.outputs[0], n_heads, n_kv_heads, head_dim, float(attrs["scale"])
        )


_RULES: Mapping[Op, Callable[[_Fusing, Node], Iterator[FusedNode]]] = {
    Op.RMS_NORM: _Fusing.norm,
    Op.RESIDUAL_RMS_NORM: _Fusing.residual_norm,
    Op.RESIDUAL_ADD: _Fusing.add,
    Op.MATMUL: _Fusing.product,
    Op.LM_HEAD: _Fusing.logits,
    Op.SWIGLU: _Fusing.gate,
    Op.MOE_SWIGLU: _Fusing.gate,
    Op.MOE_GATE_UP: _Fusing.expert_gate,
    Op.MOE_DOWN_ACC: _Fusing.expert_down,
    Op.ROPE: _Fusing.rope,
    Op.KV_WRITE: _Fusing.kv_write,
    Op.FLASH_ATTN: _Fusing.attend,
}
"""Operations that take part in fusing or whose attributes every backend reads alike; others stand alone."""
