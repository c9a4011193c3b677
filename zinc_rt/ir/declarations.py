"""Whether names, ids, metadata and buffer declarations are possible at all, before any node is looked at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zinc_rt.ir.errors import Finding, Reason
from zinc_rt.ir.graph import SYMBOLS, Buffer, Graph, Node

MAX_NAME = 256
"""Characters of a name; tensor names of a GGUF file are far below."""

MAX_RANK = 8
MAX_ELEMENTS = 1 << 48
"""Largest product of a buffer's known dimensions: far above any memory, far below overflow."""


def graph_findings(g: Graph) -> Iterator[Finding]:
    """Bad names, ids out of step, duplicate names."""
    if not _is_name(g.name):
        yield Finding(Reason.BAD_GRAPH, f"the graph's name {g.name!r} is not 1 to {MAX_NAME} printable characters")
    for key in g.meta:
        if not _is_name(key):
            yield Finding(Reason.BAD_GRAPH, f"meta key {key!r} is not 1 to {MAX_NAME} printable characters")
    yield from _sequence("buffer", g.buffers)
    yield from _sequence("node", g.nodes)
    for node in g.nodes:
        for key in node.attrs:
            if not _is_name(key):
                message = f"node {node.name!r}: attribute {key!r} is not 1 to {MAX_NAME} printable characters"
                yield Finding(Reason.BAD_ATTRIBUTE, message, node.name)


def buffer_findings(buffer: Buffer) -> Iterator[Finding]:
    """Impossible declarations of one buffer."""

    def bad(what: str) -> Finding:
        return Finding(Reason.BAD_BUFFER, f"buffer {buffer.name!r} {buffer.type_text}: {what}", None, buffer.name)

    if not 1 <= len(buffer.shape) <= MAX_RANK:
        yield bad(f"{len(buffer.shape)} dimensions, expected 1 to {MAX_RANK}")
        return
    elements = 1
    for dim in buffer.shape:
        if isinstance(dim, str):
            if dim not in SYMBOLS:
                yield bad(f"unknown size {dim!r}, known are {', '.join(sorted(SYMBOLS))}")
        elif type(dim) is not int or dim < 1:
            yield bad(f"dimension {dim!r}, expected a whole number of at least 1")
        else:
            elements *= dim
    if elements > MAX_ELEMENTS:
        yield bad(f"more than {MAX_ELEMENTS} elements")
    row = buffer.shape[-1]
    block = buffer.dtype.block_size
    if block > 1 and (isinstance(row, str) or row % block):
        yield bad(f"row of {row} elements, {buffer.dtype} needs a multiple of {block}")


def _sequence(what: str, items: Sequence[Buffer | Node]) -> Iterator[Finding]:
    first: dict[str, int] = {}
    for position, item in enumerate(items):
        named = {"node": item.name} if isinstance(item, Node) else {"buffer": item.name}
        if not _is_name(item.name):
            yield Finding(
                Reason.BAD_GRAPH,
                f"{what} {position} is called {item.name!r}, expected 1 to {MAX_NAME} printable characters",
            )
        elif item.name in first:
            message = f"{what}s {first[item.name]} and {position} are both called {item.name!r}, names are unique"
            yield Finding(Reason.DUPLICATE_NAME, message, **named)
        if item.id != position:
            yield Finding(Reason.BAD_GRAPH, f"{what} {item.name!r} has id {item.id} at position {position}", **named)
        first.setdefault(item.name, position)


def _is_name(name: object) -> bool:
    return isinstance(name, str) and 0 < len(name) <= MAX_NAME and name.isprintable()
