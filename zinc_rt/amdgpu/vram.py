"""VRAM that others need: a part stays free for the desktop, for other programs, and for the driver's page tables."""

from __future__ import annotations

from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.interface import DeviceInfo, Interface
from zinc_rt.utils.linux import Linux

_SHARE = 10  # a tenth: when VRAM is full, the driver moves other programs' memory, or stops queues to make room


def kept_free(device: DeviceInfo) -> int:
    """Bytes of VRAM that stay free."""
    return device.vram // _SHARE


def vram_used(device: DeviceInfo, linux: Linux) -> int | None:
    """Bytes of VRAM that somebody uses, as sysfs says; None when it does not."""
    node = device.render_node.rpartition("/")[2]
    try:
        return int(linux.read_text(f"/sys/class/drm/{node}/device/mem_info_vram_used"))
    except (OSError, ValueError):
        return None


def check_room(interface: Interface, size: int, label: str) -> None:
    """Raise `InterfaceError` when `size` more bytes would leave less than the part that stays free."""
    device, used = interface.device, vram_used(interface.device, interface.linux)
    if device.vram and used is not None and used + size > device.vram - kept_free(device):
        taken, whole, free = (n >> 20 for n in (used, device.vram, kept_free(device)))
        raise InterfaceError(
            f"{label}: taking {size >> 20} MiB of VRAM, where {taken} of {whole} MiB are used and {free} MiB (10 %)"
            " stay free,",
            None,
            "end other users of the GPU, or take a smaller model or context",
        )
