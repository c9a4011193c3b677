"""`Sampler`: a profiler that executes a few workgroups of a large dispatch, and each kind of dispatch once.

Counts of a dispatch grow with its numbers of workgroups in x, y and z: some are there once, some for each column, row
or workgroup. So each count is a product of straight lines, which two numbers of workgroups in each direction determine.
What is skipped writes nothing: results are wrong, and kernels must not depend on them but for their time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

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

KeyOf = Callable[["Dispatch", "ShaderMemory"], tuple[str, bool] | None]
"""Names a dispatch by all that its counts depend on, and says whether its workgroups do equally much; None: what others
read depends on its results.
"""
BusyOf = Callable[["Dispatch", "ShaderMemory"], Sequence[int] | None]
_RUN: Final = (4, 1, 1)
"""Workgroups that stay together, in x, y and z: products of four rows each fill a half line."""


class Sampler(Profiler):
    """models: as for `Profiler`. key_of: dispatches of one key are executed once; those without a key always, wholly.
    found: the counts of a key that were kept, None if none were. busy_of: the workgroups in x that do anything, in a
    dispatch where others end at once; None for all. known: counts by key; executed: how many dispatches were.
    """

    def __init__(
        self, models: Sequence[GpuModel], key_of: KeyOf, found: Callable[[str], Work | None], busy_of: BusyOf =
        lambda dispatch, memory: None,
    ) -> None:  # fmt: skip
        super().__init__(models)
        self.key_of, self.found, self.busy_of, self.executed = key_of, found, busy_of, 0
        self.known: dict[str, Work] = {}
        self._chosen: list[tuple[int, int]] | None = None
        self._missing = 0  # workgroups in x that do not run

    def measured(self, dispatch: Dispatch, memory: ShaderMemory) -> Work:
        """The counts of a dispatch, from what its key is known for or from samples."""
        named = self.key_of(dispatch, memory)
        if named is None:
            self._missing = 0
            return super().measured(dispatch, memory)
        key, even = named
        if key not in self.known:
            kept = self.found(key)
            self.executed += kept is None
            self.known[key] = self._sampled(dispatch, memory, 1 if even else 2) if kept is None else kept
        return self.known[key]

    def _sampled(self, dispatch: Dispatch, memory: ShaderMemory, least: int) -> Work:
        """least: runs of the smaller choice; two are as much as the mean of all where the work grows steadily."""
        busy = self.busy_of(dispatch, memory)
        wholes = dispatch.groups if busy is None else (len(busy), *dispatch.groups[1:])
        samples = [_samples(n, run, least) for n, run in zip(wholes, _RUN, strict=True)]
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

    def _part(self, dispatch: Dispatch, memory: ShaderMemory, ids: list[list[int]]) -> Work:
        """The counts of workgroups with these x, y and z."""
        gx, gy, _ = dispatch.groups
        numbers = (x + gx * (y + gy * z) for z in ids[2] for y in ids[1] for x in ids[0])
        self._chosen, self._missing = list(_runs(numbers)), gx - len(ids[0])
        self.residency.begin()
        try:
            return super().measured(dispatch, memory)
        finally:
            self._chosen = None

    def parts(self, dispatch: Dispatch, n_vgprs: int, lanes: int) -> Iterable[tuple[int, int]]:
        """The chosen workgroups."""
        return chunks(dispatch, n_vgprs, lanes) if self._chosen is None else self._chosen

    def program(self, dispatch: Dispatch, memory: ShaderMemory, n_vgprs: int, lanes: int) -> Program:
        """The compiled program of a dispatch, in which workgroups that do not run count as having arrived."""
        return _Arriving(self, super().program(dispatch, memory, n_vgprs, lanes))

    def arrive(self, g: Group, fn: Step, register: int) -> Any:
        """Run an atomic by which workgroups of one y and z count themselves: those that do not run came before."""
        result = fn(g)
        g.put(register, g.v[register] + np.uint32(self._missing))
        return result


class _Arriving(Program):
    """A program whose arrivals go through the sampler. It shares the instructions of another one."""

    def __init__(self, sampler: Sampler, program: Program) -> None:
        super().__init__(program.fetch, program.n_vgprs, program.lanes)
        self.sampler, self.program, self.ops = sampler, program, program.ops

    def at(self, address: int) -> Any:
        """The compiled instruction at an address."""
        known = address in self.ops
        op = self.program.at(address)
        if not known and op.ins.name in ARRIVALS and op.ins.dst:
            op.fn = self._through(op.fn, op.ins.dst[0].index)
        return op

    def _through(self, fn: Step, register: int) -> Step:
        return lambda g: self.sampler.arrive(g, fn, register)


def _samples(n: int, run: int, least: int) -> list[list[int]]:
    """Two choices of n workgroups, of `least` runs and one more; or all, once."""
    if n <= (least + 1) * run:
        return [list(range(n))]
    return [_spread(n, run, least), _spread(n, run, least + 1)]


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
