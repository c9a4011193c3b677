"""Does an interface retire work? A write that the GPU made, and the fence behind it, are the only proof."""

from __future__ import annotations

import ctypes

from zinc_rt.amdgpu.interface import Interface
from zinc_rt.amdgpu.pm4.builder import PacketBuilder
from zinc_rt.errors import ComputedWrong
from zinc_rt.utils.linux import PAGE

_VALUE = 0x5A494E435254_0001  # "ZINCRT", 1
_PAD_DWORDS = 64


class ProbeFailed(ComputedWrong):
    """A fence retired, but what the packets before it were to write is not there."""


def probe(interface: Interface, timeout: float = 2.0) -> float:
    """Let the GPU write a number; seconds from the submission to its retired fence.

    Raises `InterfaceError`, `FenceTimeout`, `DeviceLost`, and `ProbeFailed` when the number is not there.
    """
    buffer = interface.allocate(2 * PAGE, "gtt", "proof", executable=True)
    assert buffer.address is not None, "a visible buffer has an address"
    target = buffer.address + PAGE
    builder = PacketBuilder((ctypes.c_uint32 * (PAGE // 4)).from_address(buffer.address))
    builder.write_data64(buffer.va + PAGE, _VALUE)
    builder.pad_to_alignment(_PAD_DWORDS)
    started = interface.linux.monotonic_ns()
    interface.wait(interface.submit(buffer, 0, builder.cursor), timeout)
    seconds = (interface.linux.monotonic_ns() - started) / 1e9
    seen = interface.linux.load64(target)
    if seen != _VALUE:
        raise ProbeFailed(f"{interface.name}: the fence retired, but memory holds {seen:#x} instead of {_VALUE:#x}")
    interface.release(
        buffer
    )  # not after a failure: the GPU may still write to it, and closing the interface gives it back
    return seconds
