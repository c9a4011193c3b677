"""Errors of the IR: one class for each thing that can be wrong with a graph.

A graph that fails verification raises the class of its first finding; `findings` on the exception holds all
of them, and every class derives from `VerifyError`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zinc_rt.errors import ZincError


class GraphError(ZincError):
    """Root of every error about graphs."""


class TooManyBindings(GraphError):
    """A node names more inputs, or more outputs, than `MAX_BINDINGS`."""


class UnknownBuffer(GraphError):
    """A graph was asked for a buffer that it does not have."""


class VerifyError(GraphError):
    """A graph failed verification.

    `findings` lists everything that is wrong, in graph order. Raise it through `failure`.
    """

    def __init__(self, message: str, findings: Sequence[Finding] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


MAX_FINDINGS = 1000
"""The verifier stops here: a hostile graph could otherwise have millions."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing wrong with a graph. `node` and `buffer` are names, None where it is about neither."""

    kind: type[VerifyError]
    message: str
    node: str | None = None
    buffer: str | None = None


def failure(graph_name: str, findings: Sequence[Finding]) -> VerifyError:
    """The exception for `findings` (at least one): the first one's class and message, and how many follow."""
    first = findings[0]
    least = "at least " if len(findings) >= MAX_FINDINGS else ""
    more = f" (and {least}{len(findings) - 1} more)" if len(findings) > 1 else ""
    return first.kind(f"graph {graph_name!r}: {first.message}{more}", findings)


class EmptyGraph(VerifyError):
    """There is no node."""


class UnknownInputBuffer(VerifyError):
    """A node reads a buffer id that the graph does not have."""


class UnknownOutputBuffer(VerifyError):
    """A node writes a buffer id that the graph does not have."""


class NodeWithoutOutput(VerifyError):
    """A node writes nothing; only barrier and stream_out may."""


class BadGraph(VerifyError):
    """A name, an id or an entry of `meta` that no graph may have."""


class DuplicateName(VerifyError):
    """Two buffers, or two nodes, share a name."""


class BadBuffer(VerifyError):
    """A buffer whose own declaration is impossible: a dimension below 1, a row of a part of a block, ..."""


class WrongBindingCount(VerifyError):
    """A node has another number of inputs or outputs than its operation."""


class ShapeConflict(VerifyError):
    """A buffer's shape does not fit the operation or the node's other buffers."""


class DTypeMismatch(VerifyError):
    """A buffer's element type is not one that the operation takes there."""


class KindMismatch(VerifyError):
    """A buffer of a kind that cannot stand there: a temporary as a weight, an input as a cache."""


class RoleConflict(VerifyError):
    """One step input or cache is used as two things: as positions here, as slots there."""


class MissingAttribute(VerifyError):
    """A node lacks an attribute that its operation requires."""


class UnknownAttribute(VerifyError):
    """A node has an attribute that its operation does not know."""


class BadAttribute(VerifyError):
    """An attribute of the wrong type, or of a value that the operation cannot take."""


class WriteToReadOnly(VerifyError):
    """A node writes a weight, a constant or a step input."""


class DoublyWritten(VerifyError):
    """Two nodes, or two outputs of one node, write the same buffer."""


class ReadBeforeWrite(VerifyError):
    """A node reads a temporary or an output that no other node ever writes."""


class NonTopologicalOrder(VerifyError):
    """A node reads what a later node writes."""


class StateReadBeforeWrite(VerifyError):
    """A node reads a state buffer that a later node writes: it would see the step before."""


class OutputNeverWritten(VerifyError):
    """No node writes an output of the graph."""


class DanglingBuffer(VerifyError):
    """A buffer that no node uses."""


class UnreadTemporary(DanglingBuffer):
    """A temporary that is written and never read."""
