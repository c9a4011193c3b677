"""One pass over a graph that makes one kernel's work of nodes which follow each other on the same data.

Every compiled backend lowers what `fuse` returns, so that their rules are the same. Fusing changes no rounding:
`docs/how/numerics.md` fixes every operation and its order, whatever kernel does it.
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
