"""Renames the weights of a definition, so that graphs of two files can be on one device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from zinc_rt.ir.builder import rewritten
from zinc_rt.ir.graph import BufferKind
from zinc_rt.models.definition import ModelDefinition

OWN: Final = "own."
"""What names of weights of a second file begin with."""


def renamed(definition: ModelDefinition, name: Callable[[str], str]) -> ModelDefinition:
    """The definition with other names of weight buffers. name: the new one of each."""
    graph = definition.graph
    made = rewritten(graph, graph.nodes, lambda b: replace(b, name=name(b.name)) if b.kind is BufferKind.WEIGHT else b)
    return replace(definition, graph=made, weights={name(b): rows for b, rows in definition.weights.items()})


def as_own(definition: ModelDefinition) -> ModelDefinition:
    """The definition with `OWN` before the names of all weights: it shares none with another file's."""
    return renamed(definition, lambda name: f"{OWN}{name}")
