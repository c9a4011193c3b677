"""Kernels run on an emulated machine, arrays in and out, through any interface."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.machine import Machine
from tests.amdgpu.queue.stage import INTERFACES, machine, opened
from tests.compiled import gpu_kernel
from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.pool import GpuMemory
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.errors import DeviceLost
from zinc_rt.kernels.gpu.catalogue import (
    FLOATS,
    KernelEntry,
    block_tile,
    float_tile,
)
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.types import Struct

MANY: Mapping[str, bool] = {"Q4_0": False, "Q4_K": True, "Q6_K": False, "Q2_K": False, "F16": True}
"""Formats whose products of many rows are tested, and whether with a bias."""


def many_rows(kind: str, *, bias: bool) -> KernelEntry:
    """A matrix times many rows of activations."""
    return float_tile(kind, bias=bias) if kind in FLOATS else block_tile(kind, bias=bias)


@dataclass(frozen=True)
class Block:
    """A struct of arguments in memory: its fields by name, arrays for pointers."""

    kind: Any
    values: dict[str, Any]


@dataclass
class Stage:
    """A ring and what was put into its memory for one dispatch."""

    machine: Machine
    ring: GpuQueue
    held: list[tuple[np.ndarray, GpuMemory]] = field(default_factory=list)

    def run(self, entry: KernelEntry, groups: int | tuple[int, ...], *arguments: Any) -> None:
        """Dispatch a kernel: arrays go to the GPU and come back as the kernel left them, all else as it is.

        The first dispatch of each form (wave, workgroup, dwords of arguments, local memory) is repeated through the
        other interfaces, which must give the same bytes: a shader core does not know through which it was reached.
        """
        arrays = list(_arrays(arguments))
        before = [array.copy() for array in arrays]
        self._run(entry, groups, arguments)
        kernel = kernel_of(entry, self.ring.gfx.kernel_target)
        form = (kernel.wave, kernel.workgroup, kernel.dwords, kernel.lds_bytes > 0)
        if form not in _EVERYWHERE:
            _EVERYWHERE.add(form)
            after = [array.copy() for array in arrays]
            for interface in sorted(set(INTERFACES) - {self.ring.interface.name}):
                for array, old in zip(arrays, before, strict=True):
                    array[...] = old
                with opened(interface, self.machine.process()) as ring:
                    Stage(self.machine, ring)._run(entry, groups, arguments)
                for array, first in zip(arrays, after, strict=True):
                    assert array.tobytes() == first.tobytes(), f"{entry.spec.symbol}: {interface} gives other bytes"

    def _run(self, entry: KernelEntry, groups: int | tuple[int, ...], arguments: tuple[Any, ...]) -> None:
        kernel = kernel_of(entry, self.ring.gfx.kernel_target)
        values = [self._place(value) for value in arguments]
        shape = (groups,) if isinstance(groups, int) else groups
        batch = CommandList(kernel.name)
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


_EVERYWHERE: set[tuple[Any, ...]] = set()
"""Forms of dispatches that every interface has run."""


def _arrays(values: Iterable[Any]) -> Iterator[np.ndarray]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, Block):
            yield from _arrays(value.values.values())


_KERNELS: dict[tuple[str, str], GpuKernel] = {}


def kernel_of(entry: KernelEntry, target: str = "gfx1201") -> GpuKernel:
    """The kernel's machine code for a target, made once."""
    key = (entry.spec.symbol, target)
    if key not in _KERNELS:
        _KERNELS[key] = gpu_kernel(entry.spec, target)
    return _KERNELS[key]


@contextmanager
def stage(interface: str = "cs", core: ShaderCore | None = None) -> Iterator[Stage]:
    """A machine of its own with a shader core; what it found wrong raises at the end."""
    with machine(shader=core or ShaderCore(), time_scale=1.0) as made, opened(interface, made.process()) as ring:
        yield Stage(made, ring)


def same(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal, where NaN equals NaN."""
    return a.shape == b.shape and bool(((a == b) | (np.isnan(a) & np.isnan(b))).all())
