"""Joins nodes of a graph that follow each other on the same data, so that one kernel does their work.

Every compiled backend lowers the result of `fuse`, so all of them join by the same rules. Joining changes no rounding:
`docs/how/numerics.md` fixes every operation and its order, whatever kernel does it. docs/how/native.md has a drawing.
"""

from zinc_rt.backends.fusion.graph import FusedGraph, fuse
from zinc_rt.backends.fusion.heads import Heads, Readers
from zinc_rt.backends.fusion.nodes import (
    STANDS_FOR,
    Attend,
    ExpertDown,
    ExpertGate,
    FusedNode,
    Gate,
    HeadsWrite,
    NormRows,
    Product,
    Single,
)

__all__ = [
    "STANDS_FOR",
    "Attend",
    "ExpertDown",
    "ExpertGate",
    "FusedGraph",
    "FusedNode",
    "Gate",
    "Heads",
    "HeadsWrite",
    "NormRows",
    "Product",
    "Readers",
    "Single",
    "fuse",
]
