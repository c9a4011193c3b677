"""The plainest operation: the command processor copies one dword from input to output and says so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zinc_rt.amdgpu.pm4 import PacketBuilder
from zinc_rt.seed.cs.errors import ValueOutOfRange
from zinc_rt.seed.cs.sentinels import BoundaryOperation

if TYPE_CHECKING:
    from zinc_rt.seed.cs.boundary import TokenBoundary

_NOTHING = 0xFFFF_FFFF  # what output words hold before


def copy_u32(boundary: TokenBoundary, value: int) -> int:
    """See `TokenBoundary.copy_u32`."""
    if not 0 <= value < 1 << 32:
        raise ValueOutOfRange(f"{value} is no u32: 0 to {(1 << 32) - 1} can be copied")

    def prepare() -> None:
        boundary.input_map[0] = value
        boundary.output_map[0] = _NOTHING

    def record(builder: PacketBuilder, signal_va: int, expected: int) -> None:
        builder.copy_data32(boundary.input_va, boundary.output_va)
        builder.write_data64(signal_va, expected)

    with boundary.exclusive():
        boundary.perform(BoundaryOperation.copy, prepare, record)
        return int(boundary.output_map[0])
