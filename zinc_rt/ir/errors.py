"""Faults of a graph: a reason for each fault that the verifier finds, and the error that lists them."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass

from zinc_rt.errors import ZincError


class Reason(enum.StrEnum):
    """The kind of a finding."""

    EMPTY_GRAPH = enum.auto()
    """There is no node."""
    UNKNOWN_INPUT_BUFFER = enum.auto()
    """A node reads a buffer id that the graph does not have."""
    UNKNOWN_OUTPUT_BUFFER = enum.auto()
    """A node writes a buffer id that the graph does not have."""
    NODE_WITHOUT_OUTPUT = enum.auto()
    """A node writes nothing; only barrier and stream_out may."""
    BAD_GRAPH = enum.auto()
    """A name, an id or an entry of `meta` that no graph may have."""
    DUPLICATE_NAME = enum.auto()
    """Two buffers, or two nodes, share a name."""
    BAD_BUFFER = enum.auto()
    """A buffer whose own declaration is impossible: a dimension below 1, a row of a part of a block, ..."""
    WRONG_BINDING_COUNT = enum.auto()
    """A node has another number of inputs or outputs than its operation."""
    SHAPE_CONFLICT = enum.auto()
    """A buffer's shape does not fit the operation or the node's other buffers."""
    DTYPE_MISMATCH = enum.auto()
    """A buffer's element type is not one that the operation takes there."""
    KIND_MISMATCH = enum.auto()
    """A buffer of a kind that cannot stand there: a temporary as a weight, an input as a cache."""
    ROLE_CONFLICT = enum.auto()
    """One step input or cache is used as two things: as positions here, as slots there."""
    MISSING_ATTRIBUTE = enum.auto()
    """A node lacks an attribute that its operation requires."""
    UNKNOWN_ATTRIBUTE = enum.auto()
    """A node has an attribute that its operation does not know."""
    BAD_ATTRIBUTE = enum.auto()
    """An attribute of the wrong type, or of a value that the operation cannot take."""
    WRITE_TO_READ_ONLY = enum.auto()
    """A node writes a weight, a constant or a step input."""
    DOUBLY_WRITTEN = enum.auto()
    """Two nodes, or two outputs of one node, write the same buffer."""
    READ_BEFORE_WRITE = enum.auto()
    """A node reads a temporary or an output that no other node ever writes."""
    NON_TOPOLOGICAL_ORDER = enum.auto()
    """A node reads what a later node writes."""
    STATE_READ_BEFORE_WRITE = enum.auto()
    """A node reads a state buffer that a later node writes: it would see the step before."""
    OUTPUT_NEVER_WRITTEN = enum.auto()
    """No node writes an output of the graph."""
    DANGLING_BUFFER = enum.auto()
    """A buffer that no node uses."""
    UNREAD_TEMPORARY = enum.auto()
    """A temporary that is written and never read."""


MAX_FINDINGS = 1000
"""The verifier stops here: a hostile graph could otherwise have millions."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with a graph. `node` and `buffer` are names, None where it is about neither."""

    reason: Reason
    message: str
    node: str | None = None
    buffer: str | None = None


class GraphError(ZincError):
    """A graph is impossible, or lacks the buffer or node that was asked for.

    findings: everything that the verifier found, in graph order; empty where it was not the verifier.
    """

    def __init__(self, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)

    @property
    def reason(self) -> Reason | None:
        """The first finding's reason; None without findings."""
        return self.findings[0].reason if self.findings else None


class TooManyBindings(GraphError):
    """A node names more inputs, or more outputs, than `MAX_BINDINGS`."""


def failure(graph_name: str, findings: Sequence[Finding]) -> GraphError:
    """The exception for `findings` (at least one): the first one's message, and how many follow."""
    least = "at least " if len(findings) >= MAX_FINDINGS else ""
    more = f" (and {least}{len(findings) - 1} more)" if len(findings) > 1 else ""
    return GraphError(f"graph {graph_name!r}: {findings[0].message}{more}", findings)
