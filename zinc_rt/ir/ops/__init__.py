"""The operations: what each takes, gives, costs and computes, one file an operation or a family of them.

A module here names its definitions in `OPS`. They are collected from every module of this folder, so that there is no
list of operations to forget one in.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Mapping

from zinc_rt.ir.definition import OpDefinition, OpSignature
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
    return {
        buffer
        for node in graph.nodes
        if (signature := signature_of(node)) is not None
        for buffer, port in zip(node.inputs, signature.inputs, strict=False)
        if port.product
    }
