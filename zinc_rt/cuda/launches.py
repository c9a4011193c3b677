"""Lists of launches, and the graph that the driver makes of one.

A list that runs for the first time is launched kernel by kernel: many shapes of a prompt's steps come once, and making
a graph takes as long. From the second time on it is a graph, whose launch is one call, and in which the kernels between
two barriers run side by side.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from ctypes import byref, c_uint, c_uint32, c_void_p
from dataclasses import dataclass, field
from mmap import mmap
from typing import Any, Final, Self

from zinc_rt.cuda.calls import DriverCalls, KernelNode
from zinc_rt.cuda.kernels import CudaKernel
from zinc_rt.errors import BackendError
from zinc_rt.utils.gpu_calls import Groups, checked_groups

MAX_GROUPS: Final = ((1 << 31) - 1, 65535, 65535)
"""Workgroups in x, y and z on every GPU from compute capability 3.0 on (CUDA programming guide, technical
specifications).
"""


@dataclass(eq=False)
class CudaMemory:
    """Memory that the GPU reaches. va: its address there; size: bytes; host: where the processor finds it, None for the
    GPU's own; freed: whether it was given back.
    """

    va: int
    size: int
    label: str
    host: mmap | None = None
    freed: bool = field(default=False)


@dataclass(frozen=True, eq=False)
class CudaLaunch:
    """One kernel's launch. words: its arguments' dwords; parameters: the address of each argument."""

    program: CudaKernel
    groups: tuple[int, int, int]
    words: ctypes.Array[c_uint32]
    parameters: ctypes.Array[c_void_p]


class CudaLaunches:
    """Launches in phases: those of a phase may run side by side. label: for messages; memory: what it names; work: how
    much it is. Methods raise `BackendError` and `LangError` for what cannot be run.
    """

    def __init__(self, label: str) -> None:
        self.label, self.work = label, 0
        self.memory: list[CudaMemory] = []
        self.phases: list[list[CudaLaunch]] = [[]]
        self.n_launches = 0

    def dispatch(self, program: CudaKernel, groups: Groups, /, *arguments: Any) -> Self:
        """CudaLaunch a kernel. arguments: as it declares them, addresses or `CudaMemory` for pointers."""
        groups = checked_groups(program.name, groups, MAX_GROUPS)
        for memory in (a for a in arguments if isinstance(a, CudaMemory)):
            if memory.freed:
                raise BackendError(f"{memory.label}: {memory.size} bytes that were freed")
            self.memory.append(memory)
        values = program.kernel.user_data(*(a.va if isinstance(a, CudaMemory) else a for a in arguments))
        words = (c_uint32 * len(values))(*values)
        start = ctypes.addressof(words)
        parameters = (c_void_p * len(arguments))(*(start + 4 * a.dword for a in program.kernel.arguments))
        self.phases[-1].append(CudaLaunch(program, groups, words, parameters))
        self.n_launches += 1
        return self

    def barrier(self, *, light: bool = False) -> Self:
        """Launches behind it see the results of those before it. light: makes no difference here."""
        if self.phases[-1]:
            self.phases.append([])
        return self


def launch(cuda: DriverCalls, one: CudaLaunch, stream: c_void_p) -> None:
    """Start a kernel behind all that is in the stream. Raises as `DriverCalls`."""
    block = (one.program.kernel.workgroup, 1, 1)
    cuda.cuLaunchKernel(one.program.function, *one.groups, *block, 0, stream, one.parameters, None)


def graph_of(cuda: DriverCalls, phases: Iterable[Sequence[CudaLaunch]]) -> c_void_p:
    """What `cuGraphLaunch` takes: each phase behind the one before it. Raises as `DriverCalls`."""
    graph, out = c_void_p(), c_void_p()
    cuda.cuGraphCreate(byref(graph), 0)
    try:
        before: ctypes.Array[c_void_p] = (c_void_p * 0)()
        for phase in phases:
            nodes = (c_void_p * len(phase))(*(_node(cuda, graph, one, before) for one in phase))
            before = nodes if len(phase) <= 1 else _joined(cuda, graph, nodes)
        cuda.cuGraphInstantiateWithFlags(byref(out), graph, 0)
    finally:
        cuda.cuGraphDestroy(graph)
    return out


def _node(cuda: DriverCalls, graph: c_void_p, one: CudaLaunch, before: ctypes.Array[c_void_p]) -> int | None:
    node = c_void_p()
    grid, block = (c_uint * 3)(*one.groups), (c_uint * 3)(one.program.kernel.workgroup, 1, 1)
    about = KernelNode(one.program.function, grid, block, 0, one.parameters, None)
    cuda.cuGraphAddKernelNode(byref(node), graph, before, len(before), byref(about))
    return node.value


def _joined(cuda: DriverCalls, graph: c_void_p, nodes: ctypes.Array[c_void_p]) -> ctypes.Array[c_void_p]:
    """A node of no work behind all of these: n + m edges between two phases in place of n * m."""
    node = c_void_p()
    cuda.cuGraphAddEmptyNode(byref(node), graph, nodes, len(nodes))
    return (c_void_p * 1)(node.value)
