"""Copies of the states of recurrent layers, in the GPU's memory, made by the GPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from zinc_rt.backends.base import LoweredGraph, SequenceState
from zinc_rt.backends.gpu.device import DeviceKernel, DeviceMemory, GpuDevice
from zinc_rt.backends.gpu.placement import ALIGNMENT
from zinc_rt.mem.arena import align_up

SlotStates = Sequence[tuple[int, int]]
"""Of each state buffer its address and the bytes of a slot, a multiple of 4."""


@dataclass(eq=False)
class GpuState(SequenceState):
    """One stretch of memory with the entries of a slot, one after another. owner: the graph that they are of."""

    owner: LoweredGraph
    gpu: GpuDevice
    memory: DeviceMemory
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


def entries(states: SlotStates) -> Iterator[int]:
    """Where in a copy each state's entry begins."""
    at = 0
    for _, size in states:
        yield at
        at += align_up(size, ALIGNMENT)


def room(states: SlotStates) -> int:
    """Bytes of a copy."""
    return max(ALIGNMENT, sum(align_up(size, ALIGNMENT) for _, size in states))


def move(
    gpu: GpuDevice, program: DeviceKernel, states: SlotStates, slot: int, copy: DeviceMemory, *, out: bool
) -> None:
    """Copy a slot's entries out, or back in, and wait. program: of `elementwise.move`."""
    commands = gpu.commands("save state" if out else "load state")
    for (address, size), at in zip(states, entries(states), strict=True):
        inside, outside = address + slot * size, copy.va + at
        source, target = (inside, outside) if out else (outside, inside)
        commands.dispatch(program, -(-size // 4 // 1024), source, target, size // 4)
    gpu.wait(gpu.submit(commands))
