"""What a step costs on paper: bytes read and written, and arithmetic operations, per node.

Bytes count each element of a buffer that an operation must touch, once: a projection reads its whole weight,
an embedding only the rows it looks up, attention the cached positions it attends to. Processor caches are not
modelled.

An arithmetic operation is one addition, multiplication, division, square root, exponential or comparison; a
fused multiply-add counts as two. Work that the format of a weight adds (scales, offsets, quantising the
activations) is not counted, so the numbers compare across formats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from zinc_rt.errors import UsageError
from zinc_rt.ir.graph import Buffer, BufferKind, Dim, DType, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.mem.kv_pages import pages_for


@dataclass(frozen=True)
class CostSizes:
    """The sizes that a graph leaves open. Raises UsageError for a size below its least value.

    n_rows: rows of the step. n_logits: rows whose logits are wanted. context: cached positions that each row
    attends to, its own included. The rest is the engine's: None takes the least that `context` needs.
    """

    n_rows: int = 1
    n_logits: int = 1
    context: int = 512
    n_ctx: int | None = None
    n_slots: int = 1
    n_pages: int | None = None
    max_pages: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("n_rows", 1), ("n_logits", 0), ("context", 1), ("n_slots", 1)):
            if getattr(self, name) < least:
                raise UsageError(f"{name} is {getattr(self, name)}, expected at least {least}")
        for name in ("n_ctx", "max_pages", "n_pages"):
            if self.symbols[name] < 1:
                raise UsageError(f"{name} is {self.symbols[name]}, expected at least 1")

    @cached_property
    def symbols(self) -> Mapping[str, int]:
        """A value for every symbol of a shape."""
        n_ctx = self.context if self.n_ctx is None else self.n_ctx
        max_pages = pages_for(n_ctx) if self.max_pages is None else self.max_pages
        n_pages = self.n_slots * max_pages if self.n_pages is None else self.n_pages
        return {
            "n_rows": self.n_rows,
            "n_logits": self.n_logits,
            "n_slots": self.n_slots,
            "n_pages": n_pages,
            "max_pages": max_pages,
            "n_ctx": n_ctx,
        }

    def dim(self, dim: Dim) -> int:
        """A dimension as a number."""
        return self.symbols[dim] if isinstance(dim, str) else dim

    def elements(self, buffer: Buffer) -> int:
        """Elements of the whole buffer."""
        return math.prod(self.dim(dim) for dim in buffer.shape)

    def nbytes(self, buffer: Buffer) -> int:
        """Bytes of the whole buffer."""
        *outer, row = (self.dim(dim) for dim in buffer.shape)
        return math.prod(outer) * buffer.dtype.row_bytes(row)


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes and arithmetic operations. `operations` is None for an operation that has no formula yet."""

    bytes_read: int
    bytes_written: int
    operations: int | None

    @property
    def bytes_moved(self) -> int:
        """Bytes read and written."""
        return self.bytes_read + self.bytes_written


@dataclass(frozen=True)
class GraphCost:
    """The cost of one step. `nodes` is in node order; `bytes_by_kind` are whole buffers, as allocated.

    `uncounted` names the nodes whose operations have no formula; the total leaves them out.
    """

    sizes: CostSizes
    nodes: tuple[Cost, ...]
    total: Cost
    bytes_by_kind: Mapping[BufferKind, int]
    uncounted: tuple[str, ...] = field(default=())

    @property
    def weight_bytes(self) -> int:
        """Bytes of all weights."""
        return self.bytes_by_kind[BufferKind.WEIGHT]


def graph_cost(graph: Graph, sizes: CostSizes | None = None) -> GraphCost:
    """The cost of a verified graph for these sizes (one row, one logit row, context 512)."""
    sizes = sizes or CostSizes()
    nodes = tuple(node_cost(graph, node, sizes) for node in graph.nodes)
    total = Cost(
        sum(cost.bytes_read for cost in nodes),
        sum(cost.bytes_written for cost in nodes),
        sum(cost.operations or 0 for cost in nodes),
    )
    by_kind = dict.fromkeys(BufferKind, 0)
    for buffer in graph.buffers:
        by_kind[buffer.kind] += sizes.nbytes(buffer)
    uncounted = tuple(node.name for node, cost in zip(graph.nodes, nodes, strict=True) if cost.operations is None)
    return GraphCost(sizes, nodes, total, by_kind, uncounted)


def node_cost(graph: Graph, node: Node, sizes: CostSizes | None = None) -> Cost:
    """The cost of one node of a verified graph. Operations without a rule of their own use whole buffers."""
    sizes = sizes or CostSizes()
    inputs = [graph.buffer(i) for i in node.inputs]
    outputs = [graph.buffer(i) for i in node.outputs]
    view = _View(node, inputs, outputs, sizes)
    formula = _FORMULAS.get(node.op)
    reads, writes = _TOUCHED.get(node.op, _whole)(view)
    return Cost(reads, writes, None if formula is None else formula(view))


@dataclass(frozen=True, slots=True)
class _View:
    """A node with its buffers and the sizes, as the formulas below want them."""

    node: Node
    inputs: list[Buffer]
    outputs: list[Buffer]
    sizes: CostSizes

    def attr(self, name: str) -> int:
        return int(self.node.attrs[name])

    def dim(self, port: int, axis: int) -> int:
        return self.sizes.dim(self.inputs[port].shape[axis])

    def bytes_in(self, *ports: int) -> int:
        return sum(self.sizes.nbytes(self.inputs[port]) for port in ports)

    def bytes_out(self) -> int:
        return sum(self.sizes.nbytes(buffer) for buffer in self.outputs)

    def elements(self, port: int) -> int:
        return self.sizes.elements(self.inputs[port])

    def row_bytes(self, port: int) -> int:
        buffer = self.inputs[port]
        return buffer.dtype.row_bytes(self.sizes.dim(buffer.shape[-1]))


Touched = Callable[[_View], tuple[int, int]]


def _whole(v: _View) -> tuple[int, int]:
    return v.bytes_in(*range(len(v.inputs))), v.bytes_out()


def _embed(v: _View) -> tuple[int, int]:
    return v.bytes_in(0) + v.dim(0, 0) * v.row_bytes(1), v.bytes_out()


def _rope(v: _View) -> tuple[int, int]:
    table_row = v.dim(2, 1) * v.row_bytes(2)
    return v.bytes_in(0, 1) + v.dim(1, 0) * table_row, v.bytes_out()


def _kv_write(v: _View) -> tuple[int, int]:
    rows, head_rows = v.dim(2, 0), v.dim(2, 0) * v.attr("n_kv_heads")
    one_page_entry = DType.I32.row_bytes(1)
    cached = sum(head_rows * out.dtype.row_bytes(v.attr("head_dim")) for out in v.outputs)
    return v.bytes_in(0, 1, 2, 3) + rows * one_page_entry, cached


def _flash_attn(v: _View) -> tuple[int, int]:
    rows, context = v.dim(3, 0), v.sizes.context
    keys_and_values = context * v.attr("n_kv_heads") * (v.row_bytes(1) + v.row_bytes(2))
    pages = DType.I32.row_bytes(pages_for(context))
    return v.bytes_in(0, 3, 4) + rows * (keys_and_values + pages), v.bytes_out()


def _lm_head(v: _View) -> tuple[int, int]:
    if v.dim(2, 0) == 0:
        return 0, 0
    wanted_rows = v.dim(2, 0) * v.dim(1, 1) * v.inputs[0].dtype.row_bytes(1)
    return wanted_rows + v.bytes_in(1, 2), v.bytes_out()


_TOUCHED: Mapping[Op, Touched] = {
    Op.EMBED: _embed,
    Op.ROPE: _rope,
    Op.KV_WRITE: _kv_write,
    Op.FLASH_ATTN: _flash_attn,
    Op.LM_HEAD: _lm_head,
}


def _norm_operations(elements: int, rows: int) -> int:
    """Square, add, times scale, times weight; per row a division, an addition, a root and a reciprocal."""
    return 4 * elements + 4 * rows


def _attention_operations(v: _View) -> int:
    """Per head and position: dot product, scale, maximum, difference, exponential, sum, weighted value.

    At the end comes one division for each element of the output.
    """
    heads = v.dim(3, 0) * v.attr("n_heads")
    return heads * (v.sizes.context * (4 * v.attr("head_dim") + 5) + v.attr("head_dim"))


_FORMULAS: Mapping[Op, Callable[[_View], int]] = {
    Op.BARRIER: lambda _: 0,
    Op.EMBED: lambda _: 0,
    Op.KV_WRITE: lambda _: 0,
    Op.RMS_NORM: lambda v: _norm_operations(v.elements(0), v.elements(0) // v.elements(1)),
    Op.RESIDUAL_RMS_NORM: lambda v: v.elements(0) + _norm_operations(v.elements(0), v.dim(0, 0)),
    # Two multiplications and one addition for each rotated element.
    Op.ROPE: lambda v: 3 * v.dim(1, 0) * v.attr("n_heads") * 2 * v.dim(2, 1),
    Op.FLASH_ATTN: _attention_operations,
    Op.MATMUL: lambda v: 2 * v.dim(0, 0) * v.elements(1),
    Op.LM_HEAD: lambda v: 2 * v.dim(2, 0) * v.elements(1),
    Op.BIAS_ADD: lambda v: v.elements(0),
    Op.RESIDUAL_ADD: lambda v: v.elements(0),
    # gate / (1 + exp(-gate)) * up; turning a sign is no operation.
    Op.SWIGLU: lambda v: 4 * v.elements(0),
    Op.ARGMAX: lambda v: v.elements(0),
}
