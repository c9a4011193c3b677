"""Which nodes of heads become one kernel, and for which of them a buffer is written."""

from __future__ import annotations

from zinc_rt.backends.fusion import HeadChains, Heads, Readers
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.model import built_in_model
from zinc_rt.models import define


def written(graph: Graph) -> list[tuple[Node, Heads, int]]:
    """(node, heads, target) of each kernel."""
    chains, out = HeadChains(graph, Readers(graph)), []
    for n in graph.nodes:
        if n.op is Op.KV_WRITE:
            out += [(n, heads, cache) for heads, cache in chains.kv_write(n)]
        elif n.op is Op.ROPE or (n.op is Op.RMS_NORM and "head_dim" in n.attrs):
            heads = chains.rope(n) if n.op is Op.ROPE else chains.norm(n)
            out += [(n, heads, n.outputs[0])] if heads is not None else []
    return out


def test_three_kernels_a_layer() -> None:
    """Queries after their rotation, keys and values at the cache; keys with norm and rotation, values as they are."""
    with GGUFFile.open(built_in_model()) as file:
        graph = define(file).graph
    norms = any(n.op is Op.RMS_NORM and "head_dim" in n.attrs for n in graph.nodes)
    found = written(graph)
    layers = sum(n.op is Op.KV_WRITE for n in graph.nodes)
    assert len(found) == 3 * layers
    queries, keys, values = found[:3]
    assert (queries[0].op, keys[0].op, values[0].op) == (Op.ROPE, Op.KV_WRITE, Op.KV_WRITE)
    for _, heads, _ in (queries, keys):
        assert heads.table is not None
        assert heads.positions is not None
        assert (heads.weight is not None) == norms
        assert 2 * heads.pairs <= heads.dim
    assert (values[1].weight, values[1].table, values[1].pairs) == (None, None, 0)
    assert (keys[2], values[2]) == keys[0].outputs
    # What a kernel reads is no output of a node that was left to it.
    passed_over = {n.outputs[0] for n in graph.nodes if n.op is Op.ROPE} - {n.outputs[0] for n, *_ in found}
    assert passed_over
    assert not passed_over & {heads.source for _, heads, _ in found}


def test_readers() -> None:
    with GGUFFile.open(built_in_model()) as file:
        graph = define(file).graph
    readers = Readers(graph)
    for n in graph.nodes:
        assert all(n in readers.of(b) for b in n.inputs)
    rotated = next(n for n in graph.nodes if n.op is Op.ROPE)
    assert readers.sole(rotated.outputs[0], Op.FLASH_ATTN, Op.KV_WRITE) is not None
    assert readers.sole(rotated.outputs[0], Op.MATMUL) is None
    assert readers.sole(rotated.inputs[1], Op.ROPE) is None  # no temporary
