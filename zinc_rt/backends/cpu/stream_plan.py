"""What of a model's matrices is in memory when they are more than memory holds, planned before anything is loaded.

A dense matrix is in memory while a step's phase reads it: some stay for good (`pinned`), the others pass through a
window, in the order of the phases, step after step. Of an experts' tensor those that a step chose are in memory; they
stay until the room is wanted for others.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from zinc_rt.backends.cpu.lowering import CpuLowered, External, RouteRef
from zinc_rt.backends.cpu.program import CpuOperation
from zinc_rt.backends.cpu.weights import Matrix
from zinc_rt.backends.host_memory import HUGE
from zinc_rt.errors import BackendError
from zinc_rt.mem.arena import align_up
from zinc_rt.mem.disk import PAGE, Range, page_above, page_below
from zinc_rt.mem.plan import format_bytes

LARGE: Final = 8 << 20
"""Bytes from which on a dense matrix lies in huge pages: they take less time to map and to give back."""
WINDOW: Final = 64 << 20
"""Bytes of dense matrices that are read ahead, where there is room."""


@dataclass(frozen=True)
class ExpertLayer:
    """The experts that a choice is made among. phases: the matrices that each phase reads of a chosen one, by name."""

    n_experts: int
    k: int
    phases: Mapping[int, tuple[str, ...]]


@dataclass(frozen=True)
class StreamPlan:
    """Which bytes of the tiles are in memory, and when. Offsets are those of the file and of the memory alike.

    places: by name where a matrix lies, large dense ones in huge pages of their own; n_bytes: of all. phases: the dense
    matrices that phases read. layers: by route. pinned: dense matrices that stay. window, room: bytes for the other
    ones, and for experts. longest: a layer's experts that a step may need at once, in bytes.
    """

    matrices: Mapping[str, Matrix]
    places: Mapping[str, range]
    n_bytes: int
    phases: Mapping[int, tuple[str, ...]]
    layers: Mapping[Hashable, ExpertLayer]
    pinned: frozenset[str] = frozenset()
    window: int = 0
    room: int = 0
    longest: int = 0

    @classmethod
    def of(cls, lowered: CpuLowered, matrices: Sequence[Matrix], n_rows: int) -> StreamPlan:
        """Everything but what stays in memory. n_rows: of the largest step."""
        by_name = {m.name: m for m in matrices}
        dense: dict[int, list[str]] = {}
        routed: dict[Hashable, dict[int, list[str]]] = {}
        chosen: dict[Hashable, int] = {}
        for op in lowered.operations:
            route, names = op.arguments.get("route"), [name for name in tiles_of(op) if name in by_name]
            if isinstance(route, RouteRef) and op.kind == "route":
                chosen[route.key] = int(op.arguments["k"])
            elif isinstance(route, RouteRef) and names:
                routed.setdefault(route.key, {}).setdefault(op.phase, []).extend(names)
            elif names:
                dense.setdefault(op.phase, []).extend(names)
        # A tensor that is read otherwise as well is there as a whole.
        whole = {name for names in dense.values() for name in names}
        for key, found in list(routed.items()):
            for phase, names in found.items():
                if whole.intersection(names):
                    dense.setdefault(phase, []).extend(whole.intersection(names))
                    found[phase] = [name for name in names if name not in whole]
            routed[key] = {phase: names for phase, names in found.items() if names}
        layers = {
            key: ExpertLayer(by_name[found[min(found)][0]].count, chosen[key], _unique(found))
            for key, found in routed.items()
            if found
        }
        whole = {name for names in dense.values() for name in names}
        places, at = {}, 0
        for m in matrices:
            unit = HUGE if m.name in whole and m.n_bytes >= LARGE else PAGE
            places[m.name] = range(align_up(at, unit), align_up(align_up(at, unit) + m.n_bytes, unit))
            at = places[m.name].stop
        plan = cls(by_name, places, at, _unique(dense), layers)
        needs = [plan.expert_bytes(key) * min(layer.n_experts, n_rows * layer.k) for key, layer in layers.items()]
        return replace(plan, longest=max(needs, default=0))

    def within(self, n_bytes: int) -> StreamPlan:
        """The plan whose matrices take so many bytes of memory at the most. Raises `BackendError` where that is less
        than steps need.
        """
        left = n_bytes - self._fixed
        found = None
        for wanted in (min(WINDOW, left // 4), 0):  # a large window where there is room for it
            for pinned, least in self._choices():
                window = max(least, wanted) if least else 0
                if self._size(pinned) + window + self.longest <= left:
                    found = replace(self, pinned=pinned, window=window)
            if found is not None:
                break
        if found is None:
            raise BackendError(
                f"{format_bytes(max(0, n_bytes))} are left for weights that are read as steps need them, and a step"
                f" needs {format_bytes(self.least)} of them at once; allow more memory, or use a smaller batch (-b) or"
                " context (-c)"
            )
        if not found.window:
            return replace(found, room=min(left - self._size(found.pinned), self.all_experts))
        window = min(left - self._size(found.pinned) - self.longest, self._dense_bytes - self._size(found.pinned))
        return replace(found, window=window, room=self.longest)

    def _choices(self) -> Iterator[tuple[frozenset[str], int]]:
        """Matrices that may stay, more and more of them, and the least window for the others. The largest phases stay
        first: what is left passes through the smallest window then.
        """
        by_size = sorted(self.phases, key=lambda phase: (-self._size(self.phases[phase]), phase))
        for n in range(len(by_size) + 1):
            pinned = frozenset(name for phase in by_size[:n] for name in self.phases[phase])
            yield pinned, self._least_window(pinned)

    @cached_property
    def least(self) -> int:
        """Bytes of memory without which steps cannot run."""
        return self._fixed + self.longest + min(self._size(pinned) + window for pinned, window in self._choices())

    @property
    def resident(self) -> int:
        """Bytes of memory that the matrices take at the most, and the system's tables of their pages."""
        return self._fixed + self._size(self.pinned) + self.window + self.room

    @property
    def token_bytes(self) -> int:
        """Bytes that a step of one row reads, where each expert is as likely as any other."""
        missed = 1 - self.room / self.all_experts if self.all_experts else 0.0
        experts = sum(layer.k * self.expert_bytes(key) for key, layer in self.layers.items())
        return self._dense_bytes - self._size(self.pinned) + int(experts * missed)

    @cached_property
    def all_experts(self) -> int:
        """Bytes of the experts of all layers."""
        return sum(layer.n_experts * self.expert_bytes(key) for key, layer in self.layers.items())

    @cached_property
    def _dense_bytes(self) -> int:
        return self._size({name for names in self.phases.values() for name in names})

    @cached_property
    def _fixed(self) -> int:
        return self.n_bytes // 512 + sum(stop - start for start, stop in self.shared_pages())

    def _size(self, names: Iterable[str]) -> int:
        return sum(len(self.places[name]) for name in set(names))

    def _least_window(self, pinned: frozenset[str]) -> int:
        """Bytes of two phases after each other, of those that read what is not pinned."""
        passing = [names for phase in self.phases if (names := set(self.phases[phase]) - pinned)]
        return max((self._size(a | b) for a, b in zip(passing, passing[1:] + passing[:1], strict=True)), default=0)

    def matrix_range(self, name: str) -> Range:
        """A whole matrix."""
        return self.places[name].start, self.places[name].stop

    @property
    def huge(self) -> list[Range]:
        """What lies in huge pages, where the system gives them."""
        return [(p.start, p.stop) for p in self.places.values() if not p.start % HUGE and not p.stop % HUGE]

    def expert_range(self, name: str, expert: int) -> Range:
        """The pages of an expert's matrix that no other expert has a part of."""
        start, size = self.places[name].start, self._matrix_bytes(name)
        last = expert + 1 == self.matrices[name].count
        first, stop = page_above(start + expert * size), start + (expert + 1) * size
        return first, max(first, page_above(stop) if last else page_below(stop))

    def expert_bytes(self, route: Hashable) -> int:
        """Bytes of one expert's matrices, at the most."""
        return sum(page_above(self._matrix_bytes(name)) for name in self._names(route))

    def shared_pages(self) -> Iterator[Range]:
        """The pages where one expert's matrix ends and the next one's begins; they stay in memory."""
        for route, layer in self.layers.items():
            for name in self._names(route):
                start, size, seen = self.places[name].start, self._matrix_bytes(name), -1
                for border in range(start + size, start + layer.n_experts * size, size):
                    page = page_below(border)
                    if border % PAGE and page != seen:
                        seen = page
                        yield page, page + PAGE

    def _names(self, route: Hashable) -> set[str]:
        return {name for names in self.layers[route].phases.values() for name in names}

    def _matrix_bytes(self, name: str) -> int:
        m = self.matrices[name]
        return m.n_bytes // m.count


def tiles_of(op: CpuOperation) -> Iterator[str]:
    """The matrices that an operation reads, by name."""
    return (str(a.key) for a in op.arguments.values() if isinstance(a, External) and a.kind == "tiles")


def _unique(names: Mapping[int, Sequence[str]]) -> dict[int, tuple[str, ...]]:
    return {phase: tuple(dict.fromkeys(found)) for phase, found in sorted(names.items())}
