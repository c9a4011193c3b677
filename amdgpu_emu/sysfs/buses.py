"""PCI addresses of the emulated GPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amdgpu_emu.gpu import Gpu

_FIRST_BUS, _BUSES_PER_CARD = 5, 3


def bus(gpu: Gpu) -> int:
    """PCI bus number of a GPU; each card sits behind a bridge of its own."""
    return _FIRST_BUS + _BUSES_PER_CARD * gpu.index


def location_id(gpu: Gpu) -> int:
    """Location id of a GPU: bus << 8 | device and function."""
    return bus(gpu) << 8


def slot_name(gpu: Gpu) -> str:
    """PCI address of a GPU, as `lspci -D` prints it."""
    return f"0000:{bus(gpu):02x}:00.0"
