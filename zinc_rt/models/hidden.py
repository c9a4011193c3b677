"""A decoder whose step ends before the logits: the last norm's rows, from which embeddings of texts are made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from zinc_rt.ir.builder import rewritten
from zinc_rt.ir.graph import BufferKind, DType, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.errors import ModelError

HIDDEN = "hidden"
"""The output: f32[n_rows, n_embd]."""
LAST_POSITIONS = "last_positions"
"""A step input: i32[n_rows], the last position that a row sees: of its whole text in encoders, of its picture where the
rows of one see each other both ways.
"""
IS_GIVEN = "is_given"
"""A step input of models that read pictures: i32[n_rows], 1 for a row that the caller brings, else 0."""


def reads_whole(graph: Graph) -> bool:
    """Whether each row sees its whole text, as in encoders. A step then has to have all rows of a sequence."""
    inputs = {b.name for b in graph.of_kind(BufferKind.INPUT)}
    return LAST_POSITIONS in inputs and IS_GIVEN not in inputs


def ends_hidden(graph: Graph) -> bool:
    """Whether the graph's output is `hidden` and no logits."""
    return {b.name for b in graph.of_kind(BufferKind.OUTPUT)} == {HIDDEN}


def hidden_states(definition: ModelDefinition) -> ModelDefinition:
    """The definition with the rows that the logits are computed from as its only output, called `hidden`.

    What only the logits need goes: the head's matrix, the wanted rows, what is done to the logits. A definition that
    ends this way already is returned as it is.

    Raises:
        ModelError: the graph computes no logits either.
    """
    graph = definition.graph
    if ends_hidden(graph):
        return definition
    made = _without(graph, _head(definition))
    names = {b.name for b in made.buffers}
    kept = {name: rows for name, rows in definition.weights.items() if name in names}
    return replace(definition, graph=made, weights=kept)


def hidden_beside(definition: ModelDefinition) -> ModelDefinition:
    """The definition with the rows that the logits are computed from as one more output, called `hidden`.

    Nothing else changes, so the logits have the same bits. A definition that has the output is returned as it is.

    Raises:
        ModelError: the graph computes no logits.
    """
    graph = definition.graph
    if any(b.name == HIDDEN for b in graph.of_kind(BufferKind.OUTPUT)):
        return definition
    return replace(definition, graph=_named_hidden(graph, graph.nodes, _head(definition).inputs[0]))


def _head(definition: ModelDefinition) -> Node:
    """The node that makes logits of hidden states."""
    heads = [node for node in definition.graph.nodes if node.op is Op.LM_HEAD]
    if len(heads) != 1:
        raise ModelError(
            f"architecture {definition.info.architecture!r} has {len(heads)} heads; a model with one is needed for"
            " its hidden states"
        )
    return heads[0]


def _without(graph: Graph, head: Node) -> Graph:
    """The graph without a node and all that follows from it; the rows that it read are the output."""
    gone, nodes = set(head.outputs), []
    for node in graph.nodes:
        if node is head or gone & {*node.inputs}:
            gone |= {*node.outputs}
        else:
            nodes.append(node)
    return _named_hidden(graph, nodes, head.inputs[0])


def _named_hidden(graph: Graph, nodes: Iterable[Node], rows: int) -> Graph:
    """The graph of some of the nodes, with a buffer of rows as the output `hidden`."""
    return rewritten(
        graph, nodes, lambda b: replace(b, name=HIDDEN, kind=BufferKind.OUTPUT, dtype=DType.F32) if b.id == rows else b
    )
