"""Whether one node fits the signature of its operation: bindings, attributes, types, kinds, shapes."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from zinc_rt.ir.definition import READ_ONLY, AttrSpec, OpSignature, Port
from zinc_rt.ir.errors import Finding, Reason
from zinc_rt.ir.graph import Attr, Buffer, BufferKind, Graph, Node
from zinc_rt.ir.ops import signature_of
from zinc_rt.ir.unify import Bindings, Size

Bound = tuple[str, Port, Buffer]
"""A side ("input" or "output"), one of its ports, and the buffer bound there."""


def node_findings(g: Graph, node: Node, unusable: Collection[int]) -> Iterator[Finding]:
    """What is wrong with `node` by itself.

    `unusable` holds ids of buffers whose own declaration is impossible: nothing is said about them here
    again.
    """
    sig = signature_of(node)
    if sig is None:
        return
    yield from _binding_counts(node, sig)
    yield from _attributes(node, sig.attrs)
    bindings, values = Bindings(), sig.with_defaults(node.attrs)
    for key, spec in sig.attrs.items():
        value = values.get(key)
        if spec.type is int and type(value) is int:
            bindings.bind(key, Size(value), f"attribute {key!r}")
    shapes_fit = True
    for side, port, buffer in bound_ports(g, node, sig):
        if buffer.id in unusable:
            shapes_fit = False
            continue
        yield from _element_type_and_kind(node, side, port, buffer)
        source = f"{side} {port.name} {buffer.name!r}"
        if not bindings.match(buffer.shape, port.shape, source, view=port.view):
            shapes_fit = False
            why = bindings.reasons(port.shape, source)
            yield about(
                Reason.SHAPE_CONFLICT,
                node,
                f"{side} {port.name}",
                buffer,
                f"{bindings.expected(port.shape)}{f' ({why})' if why else ''}",
            )
    if shapes_fit:
        for rule in sig.rules:
            broken = rule(bindings)
            if broken is not None:
                yield Finding(Reason.SHAPE_CONFLICT, f"{describe(node)}: {broken}", node.name)


def bound_ports(g: Graph, node: Node, sig: OpSignature) -> Iterator[Bound]:
    """The ports of `node` that have a buffer of the graph, inputs first."""
    for side, ids, ports in (("input", node.inputs, sig.inputs), ("output", node.outputs, sig.outputs)):
        for buffer_id, port in zip(ids, ports, strict=False):
            buffer = _buffer(g, buffer_id)
            if buffer is not None:
                yield side, port, buffer


def describe(node: Node) -> str:
    """A node as messages name it."""
    return f"node {node.name!r} ({node.op.name.lower()})"


def about(reason: Reason, node: Node, place: str, buffer: Buffer, expected: str) -> Finding:
    """A finding about one binding: node, place, buffer with the type and shape seen, and what is expected."""
    message = f"{describe(node)}: {place} is buffer {buffer.name!r} {buffer.type_text}, expected {expected}"
    return Finding(reason, message, node.name, buffer.name)


def _buffer(g: Graph, buffer_id: int) -> Buffer | None:
    return g.buffers[buffer_id] if 0 <= buffer_id < len(g.buffers) else None


def _binding_counts(node: Node, sig: OpSignature) -> Iterator[Finding]:
    for side, ids, ports in (("inputs", node.inputs, sig.inputs), ("outputs", node.outputs, sig.outputs)):
        needed = sum(not port.optional for port in ports)
        # A node without any output has its own finding, whatever its operation.
        if not needed <= len(ids) <= len(ports) and (ids or side == "inputs"):
            names = ", ".join(port.name for port in ports)
            wanted = str(needed) if needed == len(ports) else f"{needed} to {len(ports)}"
            message = f"{describe(node)} has {len(ids)} {side}, expected {wanted}: {names}"
            yield Finding(Reason.WRONG_BINDING_COUNT, message, node.name)


def _attributes(node: Node, specs: Mapping[str, AttrSpec]) -> Iterator[Finding]:
    known = ", ".join(sorted(specs)) or "none"
    for key in [key for key, spec in specs.items() if key not in node.attrs and spec.required]:
        message = f"{describe(node)}: attribute {key!r} is missing, expected {specs[key].type.__name__}"
        yield Finding(Reason.MISSING_ATTRIBUTE, message, node.name)
    for key, value in node.attrs.items():
        if key not in specs:
            message = f"{describe(node)}: attribute {key!r} is unknown, the operation has {known}"
            yield Finding(Reason.UNKNOWN_ATTRIBUTE, message, node.name)
        else:
            expected = _attribute_misfit(specs[key], value)
            if expected is not None:
                message = f"{describe(node)}: attribute {key!r} is {value!r}, expected {expected}"
                yield Finding(Reason.BAD_ATTRIBUTE, message, node.name)


def _attribute_misfit(spec: AttrSpec, value: Attr) -> str | None:
    """What was expected instead of `value`; None when it fits."""
    least = "" if spec.at_least is None else f" of at least {spec.at_least:g}"
    if spec.above is not None:
        least = f" above {spec.above:g}"
    fits = type(value) is spec.type
    if fits and spec.one_of and value not in spec.one_of:
        return " or ".join(map(repr, spec.one_of))
    if fits and isinstance(value, (int, float)):
        fits = (spec.at_least is None or value >= spec.at_least) and (spec.above is None or value > spec.above)
    return None if fits else spec.type.__name__ + least


def _element_type_and_kind(node: Node, side: str, port: Port, buffer: Buffer) -> Iterator[Finding]:
    place = f"{side} {port.name}"
    if buffer.dtype not in port.dtypes:
        yield about(Reason.DTYPE_MISMATCH, node, place, buffer, " or ".join(sorted(port.dtypes)))
    # Writing a weight, a constant or a step input has its own finding, whatever the operation.
    writes_fixed = side == "output" and buffer.kind in READ_ONLY | {BufferKind.INPUT}
    if buffer.kind not in port.kinds and not writes_fixed:
        message = f"{describe(node)}: {place} is buffer {buffer.name!r} of kind {buffer.kind}, expected "
        yield Finding(Reason.KIND_MISMATCH, message + " or ".join(sorted(port.kinds)), node.name, buffer.name)
