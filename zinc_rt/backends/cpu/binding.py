"""Binding a lowered graph to memory: where temporaries lie, and the program whose operations know their arrays."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arg_structs import address_of, record
from zinc_rt.backends.base import Bytes, Capacity
from zinc_rt.backends.cpu.few_rows import FewRows
from zinc_rt.backends.cpu.lowering import CpuLowered, External, QuantisedActs, RouteRef, TempRef
from zinc_rt.backends.cpu.program import CpuProgram
from zinc_rt.backends.host_memory import huge_bytes
from zinc_rt.backends.stages import into_phases
from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import Graph
from zinc_rt.kernels.cpu import layout, structs
from zinc_rt.lang.library import Library
from zinc_rt.mem.arena import REACH, Lifetime, align_up, place


@dataclass(frozen=True)
class CpuLayout:
    """A lowered graph with its temporaries placed: offsets by key in an arena of `arena_bytes`; few_rows: those of
    steps of few rows.
    """

    graph: Graph
    sizes: Capacity
    lowered: CpuLowered
    places: dict[Hashable, int]
    arena_bytes: int
    few_rows: FewRows | None

    @property
    def n_bytes(self) -> int:
        """Of all temporaries."""
        return self.arena_bytes + (self.few_rows.n_bytes if self.few_rows else 0)

    def check_room(self) -> None:
        """Raise `BackendError` unless every temporary has the bytes that its largest step touches to itself: in the
        arena of a step for as long as it is used, in the memory of few rows for ever.
        """
        lowered, few = self.lowered, self.few_rows
        lives = _lives(lowered)
        n_phases = max((last for _, last in lives.values()), default=-1) + 1
        alive = [[key for key, (first, last) in lives.items() if first <= phase <= last] for phase in range(n_phases)]
        needs = lowered.needs(self.graph, self.sizes, lowered.packs)
        for keys in alive:
            self._check_apart(keys, self.places, needs, self.arena_bytes)
        if few is not None:
            needs = lowered.needs(self.graph, few.sizes, few.packs)
            self._check_apart(list(few.places), few.places, needs, few.n_bytes)

    def _check_apart(
        self, keys: list[Hashable], places: Mapping[Hashable, int], needs: Mapping[Hashable, int], end: int
    ) -> None:
        for key in sorted(keys, key=places.__getitem__, reverse=True):
            if places[key] + needs[key] > end:
                op = next(op for op in self.lowered.operations if key in (*op.reads, *op.writes))
                name = self.graph.buffer(key).name if isinstance(key, int) else key
                raise BackendError(
                    f"{op.name} ({op.kind}): its buffer {name} needs {needs[key]} bytes in the largest step and has"
                    f" {end - places[key]}: an error of the lowering, please report it with the model's `zinc show`"
                )
            end = places[key]


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
        if given not in self._known and given.kind == "rotation":
            table = self._known[External("buffer", given.key)]
            # Cosines and sines apart: a kernel loads each as a vector.
            self._known[given] = np.ascontiguousarray(table.transpose(0, 2, 1))
        elif given not in self._known and given.kind == "taps":
            self._known[given] = np.ascontiguousarray(self._known[External("buffer", given.key)].T)
        return self._known[given]


def bind_program(
    layout_: CpuLayout, step: npt.NDArray[np.void], memory: BoundArrays, library: Library, threads: int
) -> CpuProgram:
    """Chain all operations, with their arguments. step: the `StepRecord` that kernels read indices from."""
    lowered, few = layout_.lowered, layout_.few_rows
    layout_.check_room()
    arena = huge_bytes(layout_.arena_bytes)
    places = {key: address_of(arena) + at for key, at in layout_.places.items()}
    visits: dict[int, npt.NDArray[np.int32]] = {}
    wide = _Temporaries(lowered, places, lowered.packs, visits)
    own = huge_bytes(few.n_bytes) if few else None
    narrow: list[dict[str, Any]] = []
    if few is not None and own is not None:
        places = places | {key: address_of(own) + at for key, at in few.places.items()}
        other = _Temporaries(lowered, places, lowered.packs | few.packs, visits)
        narrow = [_bound(op.arguments, other, memory) for op in lowered.operations]
    bound = [replace(op, arguments=_bound(op.arguments, wide, memory)) for op in lowered.operations]
    program = CpuProgram.build(bound, step, library, threads)
    if few is not None:
        program.allow_again(few.sizes.n_rows, narrow)
        program.keep += [own, other]
    program.keep += [arena, wide, visits, memory]
    return program


class _Temporaries:
    """Where temporaries lie: addresses by key, packed rows and rows by experts as structs."""

    def __init__(
        self,
        lowered: CpuLowered,
        places: Mapping[Hashable, int],
        packs: Mapping[Hashable, QuantisedActs],
        visits: dict[int, npt.NDArray[np.int32]],
    ) -> None:
        self.places = places
        self.packs: dict[Hashable, npt.NDArray[np.void]] = {}
        for key, p in packs.items():
            groups = layout.n_groups(p.n)
            if groups not in visits:
                visits[groups] = layout.visiting_order(groups)
            at = places[key]
            self.packs[key] = record(
                structs.Pack,
                {
                    **{part: at + offset for part, offset in p.parts.items()},
                    "s_stride": p.rows * groups,
                    "visit": visits[groups],
                    "n": p.n,
                    "n_groups": groups,
                    "sums": sum(1 << number for number in p.sums),
                },
            )
        self.routes = {
            route.key: record(structs.Route, {name: places[route.key] + at for name, at in route.parts.items()})
            for route in lowered.routes.values()
        }


def _bound(arguments: Mapping[str, Any], temporaries: _Temporaries, memory: BoundArrays) -> dict[str, Any]:
    """An operation's arguments with addresses in place of what stands for memory."""
    out = dict(arguments)
    for name, value in arguments.items():
        if isinstance(value, External):
            out[name] = memory.find(value)
        elif isinstance(value, TempRef):
            out[name] = temporaries.places[value.key] + value.offset
        elif isinstance(value, QuantisedActs):
            out[name] = temporaries.packs[value.key]
        elif isinstance(value, RouteRef):
            out[name] = temporaries.routes[value.key]
    return out


def placed_temporaries(lowered: CpuLowered) -> tuple[dict[Hashable, int], int]:
    """Offsets of temporaries by key, and the arena's size; gives operations their phases."""
    into_phases(lowered.operations)
    lives = _lives(lowered)
    keys = list(lives)
    offsets, size = place(
        [Lifetime(i, align_up(lowered.sizes[key] + REACH), *lives[key]) for i, key in enumerate(keys)]
    )
    return {keys[i]: at for i, at in offsets.items()}, size


def _lives(lowered: CpuLowered) -> dict[Hashable, tuple[int, int]]:
    """The first and the last phase that uses each temporary."""
    lives: dict[Hashable, tuple[int, int]] = {}
    for op in lowered.operations:
        for key in (*op.reads, *op.writes):
            if key in lowered.sizes:
                lives[key] = lives.get(key, (op.phase, 0))[0], op.phase
    return lives
