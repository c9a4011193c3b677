"""The work of an operation, in products of int8 weights. Submissions are cut by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

from zinc_rt.backends.gpu.device import DeviceKernel, DispatchList
from zinc_rt.backends.gpu.operations import GpuOperation, StepShape
from zinc_rt.kernels.gpu.catalogue import FLOATS, KernelEntry
from zinc_rt.lang.frontend import Spec
from zinc_rt.utils.gpu_calls import Groups

_FLOAT_PRODUCT = 4
"""Of a product of floats: four products of int8 are one instruction, and float weights are two to four bytes."""
_DISPATCH, _GROUP = 1 << 20, 1 << 12
"""Of a dispatch and of each of its workgroups, whatever they do: norms and recurrences count no products."""


def work_of(op: GpuOperation, shape: StepShape) -> int:
    """The work of a dispatch for a step of this shape."""
    entry = op.kernel(shape)
    return op.work(shape) * _weight(entry) + dispatch_work(op.groups(shape))


def dispatch_work(groups: Groups) -> int:
    """The least work of a dispatch with so many workgroups."""
    return _DISPATCH + _GROUP * (groups if isinstance(groups, int) else prod(groups))


def _weight(entry: KernelEntry) -> int:
    floats = any(value in FLOATS for value in entry.spec.constants.values() if isinstance(value, str))
    attends = entry.spec.function.name.startswith("attention")
    return _FLOAT_PRODUCT if floats or attends else 1


@dataclass(frozen=True)
class StepDispatch:
    """A dispatch of a step. kernel: what it runs; program: the same, loaded; groups: workgroups; arguments: as the
    kernel declares them; work: what submissions are cut by (`work_of`); products: of weights, and of attention;
    weights: addresses and bytes of matrices that it reads wholly.
    """

    kernel: Spec
    program: DeviceKernel
    groups: tuple[int, int, int]
    arguments: tuple[Any, ...]
    work: int
    products: int = 0
    weights: tuple[tuple[int, int], ...] = ()


class CommandLists:
    """A step's dispatches, in as many command lists as their work takes. begun: makes one; max_work: work of each."""

    def __init__(self, begun: Callable[[], DispatchList], max_work: float) -> None:
        self._begun, self._max_work = begun, max_work
        self.batches, self._counts = [begun()], [0]

    @property
    def last(self) -> DispatchList:
        """The list that is being recorded."""
        return self.batches[-1]

    @property
    def uncut(self) -> int:
        """Work of the largest list that could be cut further, 0 where there is none."""
        return max((b.work for b, n in zip(self.batches, self._counts, strict=True) if n > 1), default=0)

    def holds(self, work: int) -> bool:
        """Whether one list may have so much work."""
        return work <= self._max_work

    def make_room(self, work: int, dispatches: int = 1) -> DispatchList:
        """The list for what is recorded next: a new one when the last has too much. It begins with a full barrier."""
        if self.last.work and not self.holds(self.last.work + work):
            self.batches.append(self._begun())
            self._counts.append(0)
        self.last.work += work
        self._counts[-1] += dispatches
        return self.last

    def dispatch(self, program: DeviceKernel, groups: Groups, *arguments: Any, work: int) -> None:
        """Record one of so much work."""
        self.make_room(work).dispatch(program, groups, *arguments)
