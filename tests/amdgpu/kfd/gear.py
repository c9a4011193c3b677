"""What tests of the interface share."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from amdgpu_emu.machine import Machine
from zinc_rt.amdgpu.interface import DeviceBuffer
from zinc_rt.amdgpu.kfd.interface import KfdInterface
from zinc_rt.amdgpu.pm4 import PacketBuilder
from zinc_rt.amdgpu.pm4.values import Compare

Words = npt.NDArray[np.uint32]


@contextmanager
def opened(machine: Machine | None = None, **how: Any) -> Iterator[tuple[Machine, KfdInterface]]:
    """A machine, closed at the end and so searched for anything left behind, and an open interface on it."""
    with machine or Machine(time_scale=0.01) as made:
        interface = KfdInterface(linux=made.process(), **how)
        try:
            yield made, interface
        finally:
            interface.close()


def dwords(buffer: DeviceBuffer) -> Words:
    """View of a visible buffer, u32."""
    assert buffer.address is not None
    return np.ctypeslib.as_array((ctypes.c_uint32 * (buffer.size // 4)).from_address(buffer.address))


class Writer:
    """Submissions that write numbers to a page of memory."""

    def __init__(self, interface: KfdInterface, n: int = 256) -> None:
        self.interface = interface
        self.code = interface.allocate(64 * 4 * n, "gtt", "packets", executable=True)
        self.data = interface.allocate(4096, "gtt", "numbers")
        self.gate = interface.allocate(4096, "gtt", "gate", use="polls")
        self.n = n
        self._next = 0

    def submit(self, build: Callable[[PacketBuilder], None]) -> int:
        """Any packets, in the next of `n` places."""
        at, self._next = 64 * self._next, (self._next + 1) % self.n
        builder = PacketBuilder(dwords(self.code)[at : at + 64])
        build(builder)
        return self.interface.submit(self.code, 4 * at, builder.cursor)

    def write(self, slot: int, value: int) -> int:
        """One number."""
        return self.submit(lambda b: b.write_data32(self.data.va + 4 * slot, value))

    def numbers(self) -> Words:
        """u32[1024], as the processor sees it."""
        return dwords(self.data)

    def open_gate(self, slot: int, value: int) -> None:
        """Store a number that a submission waits for."""
        dwords(self.gate)[slot] = value

    def wait_for(self, slot: int, value: int) -> int:
        """A submission that ends when somebody stores the number, as `open_gate` does."""
        where = self.gate.va + 4 * slot
        return self.submit(lambda b: b.wait_mem(where, value, Compare.EQUAL))
