"""`DispatchSampler`: a profiler that executes a few workgroups of a large dispatch, and each kind of dispatch once.

Counts of a dispatch grow with its numbers of workgroups in x, y and z: some are there once, some for each column, row
or workgroup. So each count is a product of straight lines, which two numbers of workgroups in each direction determine.
What is skipped writes nothing: results are wrong, and kernels must not depend on them but for their time.

Workgroups that count themselves find in these samples that none is the last. What the last one of a counter does behind
all others is what a few do more when the last of them is told that it is.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from amdgpu_emu.core.core import ARRIVALS
from amdgpu_emu.core.launch import chunks
from amdgpu_emu.core.program import Program
from amdgpu_emu.core.state import Group, Step
from amdgpu_emu.models import GpuModel
from amdgpu_emu.profiler import Profiler

if TYPE_CHECKING:
    from amdgpu_emu.shader import Dispatch
    from amdgpu_emu.shader_memory import ShaderMemory
    from amdgpu_emu.work import Work


class DispatchKind(NamedTuple):
    """What a dispatch is to be counted as. key: a name of all that its counts depend on; even: whether its workgroups
    do equally much; counters: how many of each row of workgroups in x count themselves apart; near: bytes of what it
    reads that an earlier dispatch has brought into the L2, on which the key does not depend; pieces: see `Work`.
    """

    key: str
    even: bool
    counters: int = 1
    near: int = 0
    pieces: int = 0


KeyOf = Callable[["Dispatch", "ShaderMemory"], DispatchKind | None]
"""The kind of a dispatch; None: what others read depends on its results."""
BusyOf = Callable[["Dispatch", "ShaderMemory"], Sequence[int] | None]
_RUN: Final = (4, 1, 1)
"""Workgroups that stay together, in x, y and z: products of four rows each fill a half line."""
_NEVER: Final = 1 << 30
"""More than there are workgroups."""
_AS_THEY_ARE: Final = -1
"""Instead of a number of workgroups: counters in memory are right."""


class DispatchSampler(Profiler):
    """models: as for `Profiler`. key_of: dispatches of one key are executed once; those without a key always, wholly.
    found: the counts of a key that were kept, None if none were. busy_of: the workgroups in x that do anything, in a
    dispatch where others end at once; None for all. known: counts by key; plain: counts without what lay near, by the
    id of those with it; executed: how many dispatches were.
    """

    def __init__(
        self,
        models: Sequence[GpuModel],
        key_of: KeyOf,
        found: Callable[[str], Work | None],
        busy_of: BusyOf = lambda dispatch, memory: None,
    ) -> None:
        super().__init__(models)
        self.key_of, self.found, self.busy_of, self.executed = key_of, found, busy_of, 0
        self.known: dict[str, Work] = {}
        self.plain: dict[int, Work] = {}
        self._chosen: list[tuple[int, int]] | None = None
        self._before: int | None = _AS_THEY_ARE  # workgroups that came before those that run; None: none is the last
        self._first: int | None = None  # what the first of those that run found in memory
        self._arrived = False  # whether workgroups counted themselves

    def measured(self, dispatch: Dispatch, memory: ShaderMemory) -> Work:
        """The counts of a dispatch, from what its key is known for or from samples."""
        named = self.key_of(dispatch, memory)
        if named is None:
            return super().measured(dispatch, memory)
        if named.key not in self.known:
            kept = self.found(named.key)
            self.executed += kept is None
            made = self._counted(dispatch, memory, named) if kept is None else kept
            self.known[named.key] = replace(made, pieces=named.pieces)
        found = self.known[named.key]
        if not named.near:
            return found
        nearer = found.nearer(named.near)
        self.plain[id(nearer)] = found
        return nearer

    def _counted(self, dispatch: Dispatch, memory: ShaderMemory, kind: DispatchKind) -> Work:
        least = 1 if kind.even else 2
        if all(len(_samples(n, run, least)) == 1 for n, run in zip(dispatch.groups, _RUN, strict=True)):
            return self._sampled(dispatch, memory, least)
        self._arrived = False
        found = self._sampled(dispatch, memory, least)
        sharing = dispatch.groups[0] // kind.counters
        if not self._arrived or sharing < 2:
            return found
        few = [list(range(min(_RUN[0], sharing))), [0], [0]]
        without = self._part(dispatch, memory, few)
        before = set(self._reached)
        last = self._part(dispatch, memory, few, sharing - len(few[0]))
        waited = [ids for at in self._reached.keys() - before for ids in self._by_wave[at]]
        most = int(np.bincount(np.concatenate(waited)).max()) if waited else 1
        return found.with_last(without, last, most, prod(dispatch.groups) // sharing)

    def _sampled(self, dispatch: Dispatch, memory: ShaderMemory, n_runs: int) -> Work:
        """n_runs: runs of the smaller choice; two are as much as the mean of all where the work grows steadily."""
        busy = self.busy_of(dispatch, memory)
        wholes = dispatch.groups if busy is None else (len(busy), *dispatch.groups[1:])
        samples = [_samples(n, run, n_runs) for n, run in zip(wholes, _RUN, strict=True)]
        if busy is not None:
            samples[0] = [[busy[i] for i in each] for each in samples[0]]
        found: dict[tuple[int, ...], Work] = {}
        for which in itertools.product(*(range(len(each)) for each in samples)):
            found[which] = self._part(dispatch, memory, [each[i] for each, i in zip(samples, which, strict=True)])
        for axis in range(3):
            whole = wholes[axis]
            for rest in {key[axis + 1 :] for key in found}:
                first = found[0, *rest] if axis == 0 else found[(*[0] * axis, 0, *rest)]
                if len(samples[axis]) == 2:
                    few, more = (len(each) for each in samples[axis])
                    first = first.extended(found[(*[0] * axis, 1, *rest)], (whole - few) / (more - few))
                found[(*[0] * axis, 0, *rest)] = first
            found = {key: work for key, work in found.items() if not any(key[: axis + 1])}
        return found[0, 0, 0]

    def _part(self, dispatch: Dispatch, memory: ShaderMemory, ids: list[list[int]], before: int | None = None) -> Work:
        """The counts of workgroups with these x, y and z. before: how many count as having arrived; None: where some of
        x are left out none is the last, else as many as have.
        """
        gx, gy, _ = dispatch.groups
        numbers = (x + gx * (y + gy * z) for z in ids[2] for y in ids[1] for x in ids[0])
        self._chosen, self._first = list(_runs(numbers)), None
        self._before = before if before is not None or len(ids[0]) < gx else _AS_THEY_ARE
        self.residency.begin()
        try:
            return super().measured(dispatch, memory)
        finally:
            self._chosen, self._before = None, _AS_THEY_ARE

    def parts(self, dispatch: Dispatch, n_vgprs: int, lanes: int) -> Iterable[tuple[int, int]]:
        """The chosen workgroups."""
        return chunks(dispatch, n_vgprs, lanes) if self._chosen is None else self._chosen

    def program(self, dispatch: Dispatch, memory: ShaderMemory, n_vgprs: int, lanes: int) -> Program:
        """The compiled program of a dispatch, in which workgroups that do not run count as having arrived."""
        return _Arriving(self, super().program(dispatch, memory, n_vgprs, lanes))

    def arrive(self, g: Group, fn: Step, register: int) -> Any:
        """Run an atomic by which workgroups count themselves, and tell them what `_part` was asked for."""
        result = fn(g)
        self._arrived = True
        if self._before is None:
            g.put(register, np.uint32(_NEVER))
        elif self._before != _AS_THEY_ARE:
            found = g.v[register]
            if self._first is None:
                self._first = int(found[g.active()].min())
            g.put(register, found - np.uint32(self._first) + np.uint32(self._before))
        return result


class _Arriving(Program):
    """A program whose arrivals go through the sampler. It shares the instructions of another one."""

    def __init__(self, sampler: DispatchSampler, program: Program) -> None:
        super().__init__(program.fetch, program.n_vgprs, program.lanes, program.gfx)
        self.sampler, self.program, self.ops = sampler, program, program.ops

    def at(self, address: int) -> Any:
        """The compiled instruction at an address."""
        known = address in self.ops
        op = self.program.at(address)
        if not known and op.name in ARRIVALS and op.ins.dst:
            op.fn = self._through(op.fn, op.ins.dst[0].index)
        return op

    def _through(self, fn: Step, register: int) -> Step:
        return lambda g: self.sampler.arrive(g, fn, register)


def _samples(n: int, run: int, n_runs: int) -> list[list[int]]:
    """Two choices of n workgroups, of `n_runs` runs and one more; or all, once."""
    if n <= (n_runs + 1) * run:
        return [list(range(n))]
    return [_spread(n, run, n_runs), _spread(n, run, n_runs + 1)]


def _spread(n: int, run: int, count: int) -> list[int]:
    """`count` runs of neighbours, evenly over n."""
    starts = (round(i * (n - run) / max(count - 1, 1)) // run * run for i in range(count))
    return [min(start, n - run) + k for start in starts for k in range(run)]


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Neighbouring numbers as first and count."""
    first = count = 0
    for number in numbers:
        if count and number == first + count:
            count += 1
            continue
        if count:
            yield first, count
        first, count = number, 1
    if count:
        yield first, count
