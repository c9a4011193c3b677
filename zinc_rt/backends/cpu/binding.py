"""Binding a lowered graph to memory: where temporaries lie, and the program whose operations know their arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arg_structs import address_of, record
from zinc_rt.backends.base import Bytes
from zinc_rt.backends.cpu.lowering import CpuLowered, External, QuantisedActs, RouteRef, TempRef
from zinc_rt.backends.cpu.program import CpuProgram
from zinc_rt.backends.host_memory import huge_bytes
from zinc_rt.backends.stages import into_phases
from zinc_rt.ir.graph import Graph
from zinc_rt.kernels.cpu import layout, structs
from zinc_rt.lang.library import Library
from zinc_rt.mem.arena import Lifetime, align_up, place


@dataclass(frozen=True)
class CpuLayout:
    """A lowered graph with its temporaries placed: offsets by key in an arena of `arena_bytes`."""

    key: Hashable
    graph: Graph  # keeps the identity that the key names
    lowered: CpuLowered
    places: dict[Hashable, int]
    arena_bytes: int


class BoundArrays:
    """The arrays that `External` arguments name."""

    def __init__(self, arrays: Mapping[int, Any], raw: Mapping[str, Bytes], tiles: Mapping[str, Bytes]) -> None:
        self._known: dict[External, Any] = {
            **{External("buffer", key): array for key, array in arrays.items()},
            **{External("rows", key): array for key, array in raw.items()},
            **{External("tiles", key): array for key, array in tiles.items()},
        }

    def find(self, given: External) -> Any:
        """The array, or where it begins for one that is read from within."""
        if given.offset:
            return address_of(self.find(replace(given, offset=0))) + given.offset
        if given not in self._known and given.what == "rotation":
            table = self._known[External("buffer", given.key)]
            # Cosines and sines apart: a kernel loads each as a vector.
            self._known[given] = np.ascontiguousarray(table.transpose(0, 2, 1))
        elif given not in self._known and given.what == "taps":
            self._known[given] = np.ascontiguousarray(self._known[External("buffer", given.key)].T)
        return self._known[given]


def bind_program(
    layout_: CpuLayout, step: npt.NDArray[np.void], memory: BoundArrays, library: Library, threads: int
) -> CpuProgram:
    """Give all operations their arguments and chain them. step: the `StepRecord` that kernels read indices from."""
    lowered, places = layout_.lowered, layout_.places
    arena = huge_bytes(layout_.arena_bytes)
    base = address_of(arena)
    packs: dict[Hashable, npt.NDArray[np.void]] = {}
    visits: dict[int, npt.NDArray[np.int32]] = {}
    for key, p in lowered.packs.items():
        groups = layout.n_groups(p.n)
        if groups not in visits:
            visits[groups] = layout.visiting_order(groups)
        at = base + places[key]
        packs[key] = record(
            structs.Pack,
            {
                "q": 0 if p.q is None else at + p.q, "f": 0 if p.f is None else at + p.f,
                "d": at + p.d, "s": at + p.s, "s_stride": p.rows * groups, "visit": visits[groups], "n": p.n,
                "n_groups": groups, "sums": sum(1 << number for number in p.sums),
            },
        )  # fmt: skip
    routes = {
        route.key: record(structs.Route, {name: base + places[route.key] + at for name, at in route.parts.items()})
        for route in lowered.routes.values()
    }
    for op in lowered.operations:
        for field_name, value in op.arguments.items():
            if isinstance(value, External):
                op.arguments[field_name] = memory.find(value)
            elif isinstance(value, TempRef):
                op.arguments[field_name] = base + places[value.key] + value.offset
            elif isinstance(value, QuantisedActs):
                op.arguments[field_name] = packs[value.key]
            elif isinstance(value, RouteRef):
                op.arguments[field_name] = routes[value.key]
    program = CpuProgram.build(lowered.operations, step, library, threads)
    program.keep += [arena, packs, routes, visits, memory]
    return program


def placed_temporaries(lowered: CpuLowered) -> tuple[dict[Hashable, int], int]:
    """Offsets of temporaries by key, and the arena's size; gives operations their phases."""
    into_phases(lowered.operations)
    keys = list(lowered.sizes)
    numbers = {key: i for i, key in enumerate(keys)}
    spans: dict[int, tuple[int, int]] = {}
    for op in lowered.operations:
        for key in (*op.reads, *op.writes):
            if key in numbers:
                i = numbers[key]
                spans[i] = (spans.get(i, (op.phase, 0))[0], op.phase)
    offsets, size = place([Lifetime(i, align_up(lowered.sizes[keys[i]] + 64), *span) for i, span in spans.items()])
    return {keys[i]: at for i, at in offsets.items()}, size
