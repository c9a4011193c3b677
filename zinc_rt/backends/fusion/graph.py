"""The pass: from a graph's nodes to the kinds of `nodes`, in an order that keeps every dependency.

- An RMS norm includes the addition before it. It computes only the wanted rows if no operation reads the others.
- An addition includes a factor of one of its operands, or of the sum.
- A product includes the bias after it.
- Gate and up of experts and their activation become one.
- The norm, the rotation and the cache write of heads become one (`heads`).
- Every other node stands alone.
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

FARTHEST = 1 << 30
"""Positions that no context has: a window as wide or wider hides nothing."""


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

    def read_once(self, buffer: int) -> bool:
        """Whether a buffer is a temporary that one node alone reads, in one place."""
        readers = self.readers(buffer)
        return not self.kept(buffer) and len(readers) == 1 and readers[0].inputs.count(buffer) == 1

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
        self._factors: dict[int, Node] = {}  # by its output, the factor that a later addition takes along

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
        yield self._norm(n, n.inputs[0], None, _weight(n), None, n.outputs[0])

    def residual_norm(self, n: Node) -> Iterator[FusedNode]:
        (x, residual, weight), (total, y) = n.inputs, n.outputs
        read = bool(self._readers.of(total)) or self._readers.kept(total)
        yield self._norm(n, x, residual, weight, total, y, total_read=read)

    def add(self, n: Node) -> Iterator[FusedNode]:
        (a, b), total = n.inputs, n.outputs[0]
        scale, norm = self._follow_sum(n)
        if norm is None:
            yield Single(n)
            return
        self._done.add(norm.id)
        factor = None
        if scale is not None:
            self._done.add(scale.id)
            factor, total = float(scale.attrs["factor"]), scale.outputs[0]
        read = len(self._readers.of(total)) > 1 or self._readers.kept(total)
        yield self._norm(norm, a, b, _weight(norm), total, norm.outputs[0], total_read=read, total_scale=factor)

    def _follow_sum(self, n: Node) -> tuple[Node | None, Node | None]:
        """The factor of an addition's sum, and the norm of rows, that are done with it; no norm: neither is."""
        norm = self._readers.sole(n.outputs[0], Op.RMS_NORM)
        if norm is not None and "head_dim" not in norm.attrs:
            return None, norm
        scale = self._readers.sole(n.outputs[0], Op.SCALE)
        readers = [] if scale is None else self._readers.of(scale.outputs[0])
        norms = [r for r in readers if r.op is Op.RMS_NORM and "head_dim" not in r.attrs]
        return (scale, norms[0]) if norms else (None, None)

    def scale(self, n: Node) -> Iterator[FusedNode]:
        y = n.outputs[0]
        reader = self._readers.sole(y, Op.RESIDUAL_RMS_NORM, Op.RESIDUAL_ADD)
        added = reader is not None and reader.inputs[1] == y != reader.inputs[0]
        if added and reader is not None and reader.op is Op.RESIDUAL_ADD:
            added = self._follow_sum(reader)[1] is not None
        if added:
            self._factors[y] = n
        else:
            yield Single(n)

    def _norm(
        self, n: Node, x: int, residual: int | None, weight: int | None, total: int | None, y: int, *,
        total_read: bool = False, total_scale: float | None = None,
    ) -> NormRows:  # fmt: skip
        residual_scale = None
        if residual in self._factors:
            scale = self._factors[residual]
            residual, residual_scale = scale.inputs[0], float(scale.attrs["factor"])
        readers = self._readers.of(y)
        wanted = None
        if readers and not total_read and not self._readers.kept(y) and all(r.op is Op.LM_HEAD for r in readers):
            wanted = readers[0].inputs[2]  # the same of all: a step has one input of this role
        eps = float(attributes(n)["eps"])
        return NormRows(n, x, residual, weight, total, y, eps, total_read, wanted, residual_scale, total_scale)

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
        attrs = attributes(n)
        alpha, limit = float(attrs["alpha"]), float(attrs["limit"])
        yield Gate(
            n,
            n.inputs[0],
            n.inputs[1],
            n.outputs[0],
            str(attrs["activation"]),
            alpha,
            limit,
            int(attrs.get("up_start", 0)),
        )

    def expert_gate(self, n: Node) -> Iterator[FusedNode]:
        x, ids, gate, up, *biases = n.inputs
        gated, upped = n.outputs
        gate_bias, up_bias = (*biases, None, None)[:2]
        reader = self._readers.sole(gated, Op.MOE_SWIGLU)
        alone = reader is None or self._readers.sole(upped, Op.MOE_SWIGLU) is not reader
        # The fused node means silu; what other activations are joined with is the backend's affair.
        if reader is None or alone or reader.inputs != (gated, upped) or attributes(reader)["activation"] != "silu":
            yield ExpertGate(n, x, ids, gate, up, gate_bias, up_bias, gated, upped, None)
            return
        self._done.add(reader.id)
        yield ExpertGate(n, x, ids, gate, up, gate_bias, up_bias, None, None, reader.outputs[0])

    def expert_down(self, n: Node) -> Iterator[FusedNode]:
        act, ids, weights, down, *bias = n.inputs
        yield ExpertDown(n, act, ids, weights, down, bias[0] if bias else None, n.outputs[0])

    def rope(self, n: Node) -> Iterator[FusedNode]:
        yield from self._heads(n, self._chains.rope(n))

    def kv_write(self, n: Node) -> Iterator[FusedNode]:
        attrs, where, names = attributes(n), tuple(n.inputs[-3:]), ("k_cache", "v_cache")
        written = list(self._chains.kv_write(n))
        if len(n.outputs) == 1:
            row, start, block = sum(heads.dim for heads in written), 0, int(attrs.get("block", 1))
            for heads in written:
                yield HeadsWrite(n, heads, n.outputs[0], names["entry_dim" in attrs], where, row, start, block)
                start += heads.dim
            return
        for heads, cache, name in zip(written, n.outputs, names, strict=True):
            yield HeadsWrite(n, heads, cache, name, where, heads.dim)

    def _heads(self, n: Node, heads: Heads | None) -> Iterator[FusedNode]:
        if heads is not None:  # else a later node writes them
            yield HeadsWrite(n, heads, n.outputs[0])

    def attend(self, n: Node) -> Iterator[FusedNode]:
        attrs, inputs = attributes(n), list(n.inputs)
        q, q_rope = inputs.pop(0), None
        if "latent_dim" in attrs:
            q_rope, k, value_dim = inputs.pop(0), inputs.pop(0), int(attrs["latent_dim"])
            v, head_dim = k, value_dim + int(attrs["rope_dim"])
        else:
            k, v, head_dim, value_dim = inputs.pop(0), inputs.pop(0), int(attrs["head_dim"]), int(attrs["value_dim"])
        positions, slots, pages, *sinks = inputs
        window, softcap, reach = attrs.get("window"), attrs.get("softcap"), attrs.get("reach")
        chunk = attrs.get("chunk")
        own, slopes, sinks = (sinks[0], sinks[1:], []) if reach is not None else (None, [], sinks)
        chosen = sinks.pop() if "chosen" in attrs else None
        yield Attend(
            n, q, q_rope, k, v, positions, slots, pages, n.outputs[0], int(attrs["n_heads"]), int(attrs["n_kv_heads"]),
            head_dim, value_dim, float(attrs["scale"]), None if window is None else min(int(window), FARTHEST),
            None if softcap is None else float(softcap), sinks[0] if sinks else None,
            "whole" in attrs or reach is not None, None if reach is None else min(int(reach), FARTHEST), own,
            None if chunk is None else int(chunk), chosen, slopes[0] if slopes else None,
        )  # fmt: skip


def _weight(norm: Node) -> int | None:
    """The buffer of a norm's weight, None for a norm without."""
    return norm.inputs[1] if len(norm.inputs) > 1 else None


_RULES: Mapping[Op, Callable[[_Fusing, Node], Iterator[FusedNode]]] = {
    Op.RMS_NORM: _Fusing.norm,
    Op.RESIDUAL_RMS_NORM: _Fusing.residual_norm,
    Op.RESIDUAL_ADD: _Fusing.add,
    Op.SCALE: _Fusing.scale,
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
