"""What compiled kernels ask of a graph beyond what its verifier does."""

from __future__ import annotations

from collections.abc import Mapping

from zinc_rt.backends.base import Ints, TokenLookup
from zinc_rt.backends.errors import UnsupportedOp
from zinc_rt.ir.graph import BufferKind, Graph, Node
from zinc_rt.ir.op import Op

_WHERE = {"positions": 0, "slots": 1, "page_table": 2}
_ROLES: dict[Op, dict[str, int]] = {
    Op.EMBED: {"token_ids": 0},
    Op.ROPE: {"positions": 1},
    Op.KV_WRITE: {role: 2 + i for role, i in _WHERE.items()},
    Op.FLASH_ATTN: {role: 3 + i for role, i in _WHERE.items()},
    Op.LM_HEAD: {"logit_rows": 2},
}
_EITHER = frozenset({Op.RESIDUAL_ADD, Op.BIAS_ADD, Op.ARGMAX})
"""Operations on rows of the step or on wanted ones."""
_ACTIVATIONS = frozenset({BufferKind.INPUT, BufferKind.TEMP, BufferKind.OUTPUT})


def step_inputs(graph: Graph) -> dict[str, int]:
    """What the step's indices are for, and the input that holds them: buffer ids by role.

    Raises `UnsupportedOp` where a role has two inputs, and where an operation's rows are not counted by the step.
    """
    found: dict[str, int] = {}
    for node in graph.nodes:
        _check_rows(graph, node)
        for role, place in _ROLES.get(node.op, {}).items():
            buffer = graph.buffer(node.inputs[place])
            if buffer.kind is not BufferKind.INPUT or found.setdefault(role, buffer.id) != buffer.id:
                first = graph.buffer(found.get(role, buffer.id)).name
                raise UnsupportedOp(
                    f"node {node.name}: compiled kernels take {role} from one input of the step, {first},"
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


def _check_rows(graph: Graph, node: Node) -> None:
    """Activations have a row for each of the step's rows, or for each of the wanted ones."""
    indices = {node.inputs[place] for place in _ROLES.get(node.op, {}).values()}
    for b in map(graph.buffer, (*node.inputs, *node.outputs)):
        if b.kind not in _ACTIVATIONS or b.id in indices:
            continue
        fitting = ("n_rows", "n_logits") if node.op in _EITHER else ("n_rows",)
        if node.op is Op.LM_HEAD and b.id == node.outputs[0]:
            fitting = ("n_logits",)
        if b.shape[0] not in fitting:
            raise UnsupportedOp(
                f"node {node.name}: compiled kernels work on {' or '.join(fitting)} rows, buffer {b.name} has"
                f" {b.shape[0]}"
            )
