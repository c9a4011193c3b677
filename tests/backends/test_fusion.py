"""Which nodes become the work of one kernel, and which buffers are written for it."""

from __future__ import annotations

from tests.backends.cpu.both import Net
from zinc_rt.backends.fusion import Attend, FusedGraph, Gate, HeadsWrite, NormRows, Product, Readers, Single, fuse
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import DType, Graph
from zinc_rt.ir.op import Op
from zinc_rt.llm.load import built_in_model
from zinc_rt.models import define


def shipped() -> Graph:
    with GGUFFile.open(built_in_model()) as file:
        return define(file).graph


def test_three_kernels_of_heads_a_layer() -> None:
    """Queries after their rotation, keys and values at the cache; keys with norm and rotation, values as they are."""
    graph = shipped()
    norms = any(n.op is Op.RMS_NORM and "head_dim" in n.attrs for n in graph.nodes)
    found = [n for n in fuse(graph).nodes if isinstance(n, HeadsWrite)]
    layers = sum(n.op is Op.KV_WRITE for n in graph.nodes)
    assert len(found) == 3 * layers
    queries, keys, values = found[:3]
    assert (queries.node.op, keys.node.op, values.node.op) == (Op.ROPE, Op.KV_WRITE, Op.KV_WRITE)
    for n in (queries, keys):
        assert n.heads.table is not None
        assert n.heads.positions is not None
        assert (n.heads.weight is not None) == norms
        assert 2 * n.heads.pairs <= n.heads.dim
    assert (values.heads.weight, values.heads.table, values.heads.pairs) == (None, None, 0)
    assert (keys.target, values.target) == keys.node.outputs
    assert [(n.cache, len(n.where)) for n in found[:3]] == [("", 0), ("k_cache", 3), ("v_cache", 3)]
    # What a kernel reads is no output of a node that was left to it.
    passed_over = {n.outputs[0] for n in graph.nodes if n.op is Op.ROPE} - {n.target for n in found}
    assert passed_over
    assert not passed_over & {n.heads.source for n in found}


def test_a_decoder_is_norms_products_heads_attention_and_gates() -> None:
    graph = shipped()
    kinds = [type(n) for n in fuse(graph).nodes]
    layers = sum(n.op is Op.KV_WRITE for n in graph.nodes)
    assert kinds.count(Attend) == kinds.count(Gate) == layers
    assert kinds.count(Product) == 7 * layers + 1
    assert kinds.count(NormRows) == 2 * layers + 1
    assert [n.node.op for n in fuse(graph).nodes if isinstance(n, Single)] == [Op.EMBED, Op.ARGMAX]
    norms = [n for n in fuse(graph).nodes if isinstance(n, NormRows)]
    assert [n.residual is None for n in norms] == [True] + [False] * (2 * layers)
    # Only the last norm may do without the rows that nobody wants the logits of.
    assert [n.logit_rows is not None for n in norms] == [False] * (2 * layers) + [True]


class Small(Net):
    """Rows of 32 elements."""

    def __init__(self) -> None:
        super().__init__(3)
        self.x, self.residual = self.rows("x", 32), self.rows("residual", 32)

    def constant(self, *shape: int) -> int:
        return self.b.buffer(self._name("w"), "weight", DType.F32, shape)

    def fused(self) -> FusedGraph:
        """Of the graph as it stands: not every buffer of these is used."""
        return fuse(Graph("small", tuple(self.b._buffers), tuple(self.b._nodes)))


def test_a_sum_rides_in_the_norm_that_alone_reads_it() -> None:
    for read_again in (False, True):
        net = Small()
        total, y = net.temp(32), net.out("y", 32)
        net.node(Op.RESIDUAL_ADD, [net.x, net.residual], [total])
        net.node(Op.RMS_NORM, [total, net.constant(32)], [y], eps=1e-5)
        if read_again:
            net.node(Op.RESIDUAL_ADD, [total, net.x], [net.out("again", 32)])
        first, *rest = net.fused().nodes
        if read_again:
            assert [type(n) for n in (first, *rest)] == [Single, NormRows, Single]
            continue
        assert rest == []
        assert isinstance(first, NormRows)
        assert (first.sources, first.total, first.y) == ((net.x, net.residual), total, y)
        assert (first.total_read, first.logit_rows) == (False, None)


def test_factors_of_a_residual_and_of_a_sum_ride_in_the_norm() -> None:
    """Of the residual where it is added, of the sum where nothing else sees it without the factor."""
    for unscaled_read in (False, True):
        net = Small()
        part, total, scaled, y = net.temp(32), net.temp(32), net.temp(32), net.out("y", 32)
        net.node(Op.SCALE, [net.residual], [part], factor=0.5)
        net.node(Op.RESIDUAL_ADD, [net.x, part], [total])
        net.node(Op.SCALE, [total], [scaled], factor=3.0)
        net.node(Op.RMS_NORM, [scaled, net.constant(32)], [y], eps=1e-5)
        net.node(Op.RESIDUAL_ADD, [scaled, total if unscaled_read else y], [net.out("again", 32)])
        first, *rest = net.fused().nodes
        if unscaled_read:
            assert [type(n) for n in (first, *rest)] == [Single, Single, Single, NormRows, Single]
            continue
        assert [type(n) for n in rest] == [Single]
        assert isinstance(first, NormRows)
        assert (first.sources, first.total, first.y) == ((net.x, net.residual), scaled, y)
        assert (first.residual_scale, first.total_scale, first.total_read) == (0.5, 3.0, True)


def test_a_factor_of_the_first_operand_stands_alone() -> None:
    net = Small()
    part, total = net.temp(32), net.temp(32)
    net.node(Op.SCALE, [net.x], [part], factor=0.5)
    net.node(Op.RESIDUAL_RMS_NORM, [part, net.residual, net.constant(32)], [total, net.out("y", 32)], eps=1e-5)
    first, second = net.fused().nodes
    assert isinstance(first, Single)
    assert isinstance(second, NormRows)
    assert (second.x, second.residual_scale) == (part, None)


def test_a_norm_without_a_weight() -> None:
    net = Small()
    net.node(Op.RMS_NORM, [net.x], [net.out("y", 32)], eps=1e-5)
    net.node(Op.RMS_NORM, [net.x], [net.out("heads", 32)], eps=1e-5, n_heads=2, head_dim=16)
    rows, heads = net.fused().nodes
    assert isinstance(rows, NormRows)
    assert rows.weight is None
    assert isinstance(heads, HeadsWrite)
    assert (heads.heads.normed, heads.heads.weight) == (True, None)


def test_a_sum_of_heads_norms_stands_alone() -> None:
    net = Small()
    total = net.temp(32)
    net.node(Op.RESIDUAL_ADD, [net.x, net.residual], [total])
    net.node(Op.RMS_NORM, [total, net.constant(16)], [net.out("y", 32)], eps=1e-5, n_heads=2, head_dim=16)
    assert [type(n) for n in net.fused().nodes] == [Single, HeadsWrite]


def test_a_bias_rides_in_the_product_before_it() -> None:
    for kept in (False, True):
        net = Small()
        plain = net.out("plain", 8) if kept else net.temp(8)
        bias, y = net.constant(8), net.out("y", 8)
        net.node(Op.MATMUL, [net.x, net.constant(8, 32)], [plain])
        net.node(Op.BIAS_ADD, [plain, bias], [y])
        first, *rest = net.fused().nodes
        assert isinstance(first, Product)
        if kept:
            assert (first.bias, first.y, [type(n) for n in rest]) == (None, plain, [Single])
        else:
            assert (first.bias, first.y, rest) == (bias, y, [])


def test_wanted_rows_only_where_nobody_reads_others() -> None:
    for reader in ("nothing", "caller of the sum", "product", "caller of the norm"):
        net = Small()
        wanted = net.indices("wanted", "n_logits")
        total = net.out("total", 32) if reader == "caller of the sum" else net.temp(32)
        y = net.out("y", 32) if reader == "caller of the norm" else net.temp(32)
        net.node(Op.RESIDUAL_RMS_NORM, [net.x, net.residual, net.constant(32)], [total, y], eps=1e-5)
        if reader == "product":
            net.node(Op.MATMUL, [y, net.constant(8, 32)], [net.out("z", 8)])
        net.node(Op.LM_HEAD, [y, net.constant(8, 32), wanted], [net.out("logits", 8, "n_logits")])
        fused = net.fused()
        norm = next(n for n in fused.nodes if isinstance(n, NormRows))
        assert norm.logit_rows == (wanted if reader == "nothing" else None)
        assert fused.plain_needed(y) == (reader == "caller of the norm")
        assert [p.by_logit for p in fused.products(y)] == ([False, True] if reader == "product" else [True])


def test_barriers_are_dropped_and_unknown_operations_stand_alone() -> None:
    net = Small()
    net.node(Op.BARRIER, [], [])
    net.node(Op.LOAD_REQUEST_STATE, [net.x, net.residual], [net.out("y", 32)])
    (only,) = net.fused().nodes
    assert type(only) is Single
    assert only.node.op is Op.LOAD_REQUEST_STATE


def test_readers() -> None:
    graph = shipped()
    readers = Readers(graph)
    for n in graph.nodes:
        assert all(n in readers.of(b) for b in n.inputs)
    rotated = next(n for n in graph.nodes if n.op is Op.ROPE)
    assert readers.sole(rotated.outputs[0], Op.FLASH_ATTN, Op.KV_WRITE) is not None
    assert readers.sole(rotated.outputs[0], Op.MATMUL) is None
    assert readers.sole(rotated.inputs[1], Op.ROPE) is None  # no temporary
