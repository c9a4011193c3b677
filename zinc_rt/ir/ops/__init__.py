"""The operations: what each takes, gives, costs and computes, one file an operation or a family of them.

A module here names its definitions in `OPS`. They are collected from every module of this folder, so that there is no
list of operations to forget one in.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Iterator, Mapping

from zinc_rt.ir.definition import OpDefinition, OpSignature, Port
from zinc_rt.ir.graph import Attr, Graph, Node
from zinc_rt.ir.op import Op, name


def collect() -> dict[Op, OpDefinition]:
    """The definitions of all modules of this package. Raises ValueError where two define the same operation."""
    found: dict[Op, OpDefinition] = {}
    for module in pkgutil.iter_modules(__path__):
        for definition in importlib.import_module(f"{__name__}.{module.name}").OPS:
            if definition.op in found:
                raise ValueError(f"{name(definition.op)} is defined twice, the second time in {module.name}")
            found[definition.op] = definition
    return found


DEFINITIONS: dict[Op, OpDefinition] = collect()
"""By opcode. Opcodes without a definition are numbers that nothing runs."""


def signature_of(node: Node) -> OpSignature | None:
    """What a node must meet; None where nothing is known about its operation."""
    definition = DEFINITIONS.get(node.op)
    return None if definition is None else definition.signature_of(node.attrs)


def attributes(node: Node) -> Mapping[str, Attr]:
    """A node's attributes, with the defaults of those that it leaves out."""
    signature = signature_of(node)
    return node.attrs if signature is None else signature.with_defaults(node.attrs)


def product_weights(graph: Graph) -> set[int]:
    """The buffers of a verified graph that rows are multiplied by."""
    return {buffer for _, buffer, _ in _products(graph)}


def product_bytes(graph: Graph) -> int:
    """Bytes of the matrices that a step of one row reads: of experts, those that the row chooses."""
    read: dict[int, int] = {}
    for node, buffer, port in _products(graph):
        *outer, n_in = (int(d) for d in graph.buffer(buffer).shape)
        if port.chosen_by:
            outer[0] = min(outer[0], int(graph.buffer(_input(node, port.chosen_by)).shape[1]))
        read[buffer] = max(read.get(buffer, 0), math.prod(outer) * graph.buffer(buffer).dtype.row_bytes(n_in))
    return sum(read.values())


def _products(graph: Graph) -> Iterator[tuple[Node, int, Port]]:
    """Nodes with a matrix that they multiply by, and its port."""
    for node in graph.nodes:
        signature = signature_of(node)
        if signature is not None:
            for buffer, port in zip(node.inputs, signature.inputs, strict=False):
                if port.product:
                    yield node, buffer, port


def _input(node: Node, name: str) -> int:
    """The buffer of an input by the port's name."""
    signature = signature_of(node)
    assert signature is not None
    return node.inputs[[port.name for port in signature.inputs].index(name)]
