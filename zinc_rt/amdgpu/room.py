"""GPU memory that others need: a part stays free for the desktop, for other programs, and for the driver's page tables.

It is VRAM on cards. On a part of the processor it is the larger of two heaps (`DeviceInfo.data_heap`): the carve-out,
which the kernel calls VRAM, and the system memory that the GPU maps (GTT).
"""

from __future__ import annotations

from zinc_rt.amdgpu.abi.info import AMDGPU_IDS_FLAGS_FUSION
from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.interface import DeviceInfo, Heap, Interface
from zinc_rt.mem.plan import kept_free
from zinc_rt.utils.linux import Linux


def heap_bytes(linux: Linux, render_node: str, heap: Heap, figure: str) -> int | None:
    """The `total` or `used` bytes of a heap, as sysfs says; None when it does not."""
    node = render_node.rpartition("/")[2]
    try:
        return int(linux.read_text(f"/sys/class/drm/{node}/device/mem_info_{heap}_{figure}"))
    except (OSError, ValueError):
        return None


def gtt_of(ids_flags: int, render_node: str, linux: Linux) -> int:
    """`DeviceInfo.gtt`. ids_flags: of DEV_INFO."""
    return heap_bytes(linux, render_node, "gtt", "total") or 0 if ids_flags & AMDGPU_IDS_FLAGS_FUSION else 0


def memory_used(device: DeviceInfo, linux: Linux) -> int | None:
    """Bytes of `DeviceInfo.memory` that somebody uses, as sysfs says; None when it does not."""
    return heap_bytes(linux, device.render_node, device.data_heap, "used")


def check_room(interface: Interface, size: int, label: str) -> None:
    """Raise `InterfaceError` when `size` more bytes would leave less than the part that stays free."""
    device, used = interface.device, memory_used(interface.device, interface.linux)
    spare = kept_free(device.memory)
    if device.memory and used is not None and used + size > device.memory - spare:
        taken, whole, free = (n >> 20 for n in (used, device.memory, spare))
        raise InterfaceError(
            f"{label}: taking {size >> 20} MiB of {device.data_heap.upper()}, where {taken} of {whole} MiB are used and"
            f" {free} MiB (10 %) stay free,",
            None,
            "end other users of the GPU, or take a smaller model or context",
        )
