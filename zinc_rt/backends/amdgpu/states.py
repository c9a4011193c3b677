"""Copies of what a sequence keeps of recurrent layers, in the GPU's memory, made by the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.loaded_kernel import LoadedKernel
from zinc_rt.amdgpu.pool import GpuMemory
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.backends.amdgpu.placement import ALIGNMENT
from zinc_rt.backends.base import LoweredGraph, SequenceState
from zinc_rt.mem.arena import align_up

SlotStates = Sequence[tuple[int, int]]
"""Of each state buffer its address and the bytes of a slot, a multiple of 4."""


@dataclass(eq=False)
class GpuState(SequenceState):
    """One stretch of memory with the entries of a slot, one after another. owner: the graph that they are of."""

    owner: LoweredGraph
    gpu: GpuQueue
    memory: GpuMemory
    size: int
    closed: bool = field(default=False)

    @property
    def n_bytes(self) -> int:
        """See `SequenceState.n_bytes`."""
        return self.size

    def close(self) -> None:
        """See `SequenceState.close`."""
        if not self.closed:
            self.closed = True
            self.gpu.free(self.memory)


def room(states: SlotStates) -> int:
    """Bytes of a copy."""
    return max(ALIGNMENT, sum(align_up(size, ALIGNMENT) for _, size in states))


def move(
    gpu: GpuQueue, program: LoadedKernel, states: SlotStates, slot: int, copy: GpuMemory, *, out: bool
) -> None:  # fmt: skip
    """Copy a slot's entries out, or back in, and wait. program: of `elementwise.move`."""
    commands, at = CommandList("save state" if out else "load state"), copy.va
    for address, size in states:
        entry = address + slot * size
        source, target = (entry, at) if out else (at, entry)
        commands.dispatch(program, -(-size // 4 // 1024), source, target, size // 4)
        at += align_up(size, ALIGNMENT)
    gpu.wait(gpu.submit(commands))
