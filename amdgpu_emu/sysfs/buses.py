"""Where a GPU sits on the PCI bus."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amdgpu_emu.gpu import Gpu

_FIRST_BUS, _BUSES_PER_CARD = 5, 3


def bus(gpu: Gpu) -> int:
    """Bus number: cards sit behind bridges of their own."""
    return _FIRST_BUS + _BUSES_PER_CARD * gpu.index


def location_id(gpu: Gpu) -> int:
    """bus << 8 | device and function."""
    return bus(gpu) << 8


def slot_name(gpu: Gpu) -> str:
    """As `lspci -D` prints it."""
    return f"0000:{bus(gpu):02x}:00.0"
