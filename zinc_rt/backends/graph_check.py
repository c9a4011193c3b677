"""Conditions of compiled kernels on a graph, beyond those of its verifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zinc_rt.backends.base import Ints, TokenLookup
from zinc_rt.errors import BackendError
from zinc_rt.ir.definition import ACTIVATION, Port
from zinc_rt.ir.graph import Buffer, BufferKind, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import DEFINITIONS, signature_of


def step_inputs(graph: Graph) -> dict[str, int]:
    """What the step's indices are for, and the input that holds them: buffer ids by role.

    Raises `BackendError` where a role has two inputs, and where an operation's rows are not counted by the step.
    """
    found: dict[str, int] = {}
    for node in graph.nodes:
        for port, buffer in _bound(graph, node):
            if port is None or not port.is_index:
                _check_rows(node, port, buffer)
            elif buffer.kind is not BufferKind.INPUT or found.setdefault(port.role, buffer.id) != buffer.id:
                first = graph.buffer(found.get(port.role, buffer.id)).name
                raise BackendError(
                    f"node {node.name}: compiled kernels take {port.role} from one input of the step, {first},"
                    f" not from {buffer.kind.value} {buffer.name}"
                )
    return found


def lookups(graph: Graph, inputs: Mapping[str, Ints]) -> tuple[TokenLookup, ...]:
    """Token ids that the graph's embeddings take from inputs of the step, by the arrays that hold them."""
    found = []
    for node in graph.nodes:
        if node.op is Op.EMBED and graph.buffer(node.inputs[0]).kind is BufferKind.INPUT:
            ids, table = (graph.buffer(b) for b in node.inputs[:2])
            found.append(TokenLookup(node.name, inputs[ids.name], int(table.shape[0])))
    return tuple(found)


def logits_of(graph: Graph) -> list[int]:
    """The buffers of a graph that hold logits: products of wanted rows, after adapters, factors and soft caps."""
    found = [n.outputs[0] for n in graph.nodes if n.op is Op.LM_HEAD]
    after = {n.inputs[0]: n.outputs[0] for n in graph.nodes if n.op in (Op.LORA_B, Op.SCALE, Op.SOFTCAP)}
    for i, buffer in enumerate(found):
        while buffer in after:
            buffer = found[i] = after[buffer]
    return found


def _bound(graph: Graph, node: Node) -> Iterator[tuple[Port | None, Buffer]]:
    """A node's buffers with their ports; no port where nothing is known of the operation."""
    signature = signature_of(node)
    if signature is None:
        yield from ((None, graph.buffer(b)) for b in (*node.inputs, *node.outputs))
        return
    for ids, ports in ((node.inputs, signature.inputs), (node.outputs, signature.outputs)):
        yield from ((port, graph.buffer(b)) for b, port in zip(ids, ports, strict=False))


def _check_rows(node: Node, port: Port | None, buffer: Buffer) -> None:
    """Activations have a row for each of the step's rows, or for each of the wanted ones."""
    if buffer.kind not in ACTIVATION:
        return
    definition = DEFINITIONS.get(node.op)
    fitting: tuple[str, ...] = ("n_rows",)
    if definition is not None and definition.either_rows:
        fitting = ("n_rows", "n_logits")
    elif port is not None and port.shape[0] == "L":
        fitting = ("n_logits",)
    if buffer.shape[0] not in fitting:
        raise BackendError(
            f"node {node.name}: compiled kernels work on {' or '.join(fitting)} rows, buffer {buffer.name} has"
            f" {buffer.shape[0]}"
        )
