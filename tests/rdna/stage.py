"""Kernels run on an emulated machine, arrays in and out, through any door."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tests.ring.door.stage import machine, opened
from zinc_rt.emu.core.core import ShaderCore
from zinc_rt.emu.machine import Machine
from zinc_rt.kernels.rdna.catalogue import Entry
from zinc_rt.lang.gpu import GpuKernel, gpu_kernel
from zinc_rt.lang.types import Struct
from zinc_rt.ring.door.batch import Batch
from zinc_rt.ring.door.gpu_ring import GpuRing
from zinc_rt.ring.door.pool import GpuMemory
from zinc_rt.ring.errors import DeviceLost


@dataclass(frozen=True)
class Block:
    """A struct of arguments in memory: its fields by name, arrays for pointers."""

    kind: Any
    values: dict[str, Any]


@dataclass
class Stage:
    """A ring and what was put into its memory for one dispatch."""

    machine: Machine
    ring: GpuRing
    held: list[tuple[np.ndarray, GpuMemory]] = field(default_factory=list)

    def run(self, entry: Entry, groups: int | tuple[int, ...], *arguments: Any) -> None:
        """Dispatch a kernel: arrays go to the GPU and come back as the kernel left them, all else as it is."""
        kernel = compiled(entry)
        values = [self._place(value) for value in arguments]
        shape = (groups,) if isinstance(groups, int) else groups
        batch = Batch(kernel.name)
        batch.dispatch(self.ring.load_kernel(kernel), (*shape, 1, 1)[:3], *values)
        try:
            self.ring.wait(self.ring.submit(batch), 30.0)
        except DeviceLost as error:
            error.add_note("; ".join(self.machine.dmesg))
            raise
        for array, memory in self.held:
            array.reshape(-1).view(np.uint8)[:] = np.frombuffer(self.ring.read(memory, array.nbytes), np.uint8)
            self.ring.free(memory)
        self.held.clear()

    def _place(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            assert value.flags.c_contiguous
            memory = self.ring.alloc(max(value.nbytes, 4))
            self.ring.write(memory, value)
            self.held.append((value, memory))
            return memory
        if isinstance(value, Block):
            assert isinstance(value.kind, Struct)
            row = np.zeros(1, np.dtype(dict(value.kind.numpy)))
            for name, x in value.values.items():
                row[name] = self._place(x).va if isinstance(x, np.ndarray) else x
            return self._place(row)
        return value


def compiled(entry: Entry) -> GpuKernel:
    """The kernel's machine code for gfx1201, made once."""
    known = _MADE.get(entry.spec.symbol)
    if known is None:
        known = _MADE[entry.spec.symbol] = gpu_kernel(entry.spec)
    return known


_MADE: dict[str, GpuKernel] = {}


@contextmanager
def stage(door: str = "cs", core: ShaderCore | None = None) -> Iterator[Stage]:
    """A machine of its own with a shader core; what it found wrong raises at the end."""
    with machine(shader=core or ShaderCore(), time_scale=1.0) as made, opened(door, made.process()) as ring:
        yield Stage(made, ring)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal, where NaN equals NaN."""
    return a.shape == b.shape and bool(((a == b) | (np.isnan(a) & np.isnan(b))).all())
