"""The writer of each buffer, and the order of its readers.

A buffer has one writer. Nodes run in order, so a temporary or an output is read after its writer. A state
buffer that no node writes holds what an earlier step or the engine put there; one that a node does write is
read after it, or by the writing node itself (a recurrence updates its state in place).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from zinc_rt.ir.conform import bound_ports, describe
from zinc_rt.ir.errors import Finding, Reason
from zinc_rt.ir.graph import Buffer, BufferKind, Graph, Node
from zinc_rt.ir.ops import signature_of

READ_ONLY = frozenset({BufferKind.WEIGHT, BufferKind.CONSTANT, BufferKind.INPUT})


Placed = tuple[int, Node]
"""A node and its position. Ids are not trusted here: they are findings of their own when they differ."""


def dataflow_findings(g: Graph) -> Iterator[Finding]:
    """Writes and reads in the wrong place or number, buffers nobody uses, step inputs used as two things."""
    writers: dict[int, list[Placed]] = defaultdict(list)
    readers: dict[int, list[Placed]] = defaultdict(list)
    for placed in enumerate(g.nodes):
        for buffer_id in placed[1].outputs:
            writers[buffer_id].append(placed)
        for buffer_id in dict.fromkeys(placed[1].inputs):
            readers[buffer_id].append(placed)
    for position, buffer in enumerate(g.buffers):
        yield from _writes(buffer, writers[position])
        yield from _reads(buffer, writers[position], readers[position])
        yield from _use(buffer, writers[position], readers[position])
    yield from _roles(g)


def _writes(buffer: Buffer, writers: list[Placed]) -> Iterator[Finding]:
    if buffer.kind in READ_ONLY:
        for _, node in dict(writers).items():
            message = f"{describe(node)} writes {buffer.kind} buffer {buffer.name!r}, which is read only"
            yield Finding(Reason.WRITE_TO_READ_ONLY, message, node.name, buffer.name)
        return
    for at, node in writers[1:]:
        first = "itself" if at == writers[0][0] else f"node {writers[0][1].name!r}"
        message = f"{describe(node)} writes buffer {buffer.name!r}, already written by {first}; expected one writer"
        yield Finding(Reason.DOUBLY_WRITTEN, message, node.name, buffer.name)


def _reads(buffer: Buffer, writers: list[Placed], readers: list[Placed]) -> Iterator[Finding]:
    if buffer.kind in READ_ONLY:
        return
    is_state = buffer.kind is BufferKind.STATE
    written_at = {at for at, _ in writers}
    for at, node in readers:
        if (writers and writers[0][0] < at) or (is_state and (not writers or at in written_at)):
            continue
        reads = f"{describe(node)} reads {buffer.kind} buffer {buffer.name!r}"
        later = writers[-1][1].name if writers else ""
        if not writers or writers[-1][0] == at:
            message = f"{reads}, which no other node writes"
            yield Finding(Reason.READ_BEFORE_WRITE, message, node.name, buffer.name)
        elif is_state:
            message = f"{reads} before node {later!r} writes it, and would see the step before"
            yield Finding(Reason.STATE_READ_BEFORE_WRITE, message, node.name, buffer.name)
        else:
            message = f"{reads}, which the later node {later!r} writes"
            yield Finding(Reason.NON_TOPOLOGICAL_ORDER, message, node.name, buffer.name)


def _use(buffer: Buffer, writers: list[Placed], readers: list[Placed]) -> Iterator[Finding]:
    if readers and (writers or buffer.kind is not BufferKind.OUTPUT):
        return
    named = f"{buffer.kind} buffer {buffer.name!r} {buffer.type_text}"
    if buffer.kind is BufferKind.OUTPUT and not writers:
        yield Finding(Reason.OUTPUT_NEVER_WRITTEN, f"{named} is written by no node", None, buffer.name)
    elif not writers and not readers:
        yield Finding(Reason.DANGLING_BUFFER, f"{named} is used by no node", None, buffer.name)
    elif buffer.kind is BufferKind.TEMP and not readers:
        writer = writers[0][1].name
        message = f"{named} is written by node {writer!r} and read by none"
        yield Finding(Reason.UNREAD_TEMPORARY, message, writer, buffer.name)


def _roles(g: Graph) -> Iterator[Finding]:
    """Step inputs and caches that stand for one thing in one node and for another in the next.

    Positions and slots have the same type and shape, and so have the two caches: only this finds them
    swapped.
    """
    first: dict[int, tuple[str, Node]] = {}
    for node in g.nodes:
        sig = signature_of(node)
        if sig is None:
            continue
        for side, port, buffer in bound_ports(g, node, sig):
            if not port.role or buffer.kind not in (BufferKind.INPUT, BufferKind.STATE):
                continue
            role, where = first.setdefault(buffer.id, (port.role, node))
            if role != port.role:
                message = (
                    f"{describe(node)}: {side} {port.name} is buffer {buffer.name!r}, "
                    f"which is {role} of node {where.name!r}; expected one meaning throughout the graph"
                )
                yield Finding(Reason.ROLE_CONFLICT, message, node.name, buffer.name)
