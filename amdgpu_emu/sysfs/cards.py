"""/sys/class/drm/renderD*/device and /sys/module/amdgpu: a card's identity and memory, the module's parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from amdgpu_emu.memory import Placement
from amdgpu_emu.sysfs.buses import slot_name

if TYPE_CHECKING:
    from amdgpu_emu.gpu import Gpu
    from amdgpu_emu.machine import Machine

MODULE = "/sys/module/amdgpu"
_GC, _SDMA, _NBIF = 11, 42, 108
"""Numbers of hardware blocks in the card's own table of contents."""
_BLOCKS: dict[tuple[int, int, int], tuple[tuple[int, int, int], tuple[int, int, int]]] = {
    (10, 3, 6): ((5, 2, 6), (7, 3, 0)),
    (11, 0, 0): ((6, 0, 0), (4, 3, 0)),
    (11, 0, 1): ((6, 0, 3), (4, 3, 0)),
    (11, 0, 2): ((6, 0, 2), (4, 3, 0)),
    (11, 5, 0): ((6, 1, 0), (7, 11, 0)),
    (11, 5, 1): ((6, 1, 1), (7, 11, 1)),
    (12, 0, 0): ((7, 0, 0), (6, 3, 1)),
    (12, 0, 1): ((7, 0, 1), (6, 3, 1)),
}
"""Versions of SDMA and of the bus interface, by version of the graphics core."""
_DRM_MAJOR = 226
_FIRST_CARD = 1
"""The firmware's own screen is often the first, so that numbers of cards and render nodes differ."""
_CONNECTORS = ("DP-1", "DP-2", "DP-3", "HDMI-A-1")


def files(machine: Machine) -> dict[str, str | Callable[[], str]]:
    """The files of all cards: path to text."""
    found: dict[str, str | Callable[[], str]] = {f"{MODULE}/initstate": "live\n", f"{MODULE}/refcnt": "1\n"}
    if machine.profile.user_queue is not None:
        found[f"{MODULE}/parameters/user_queue"] = f"{machine.profile.user_queue}\n"
    found[f"{MODULE}/parameters/cwsr_enable"] = "1\n"
    found[f"{MODULE}/parameters/lockup_timeout"] = f"{machine.profile.lockup_timeout}\n"
    for gpu in machine.gpus:
        root = f"/sys/class/drm/renderD{gpu.render_minor}"
        found[f"{root}/dev"] = f"{_DRM_MAJOR}:{gpu.render_minor}\n"
        found |= {f"{root}/device/{name}": text for name, text in _device(gpu).items()}
        card = f"card{_FIRST_CARD + gpu.index}"
        for name in (card, f"renderD{gpu.render_minor}"):
            found[f"{root}/device/drm/{name}/dev"] = f"{_DRM_MAJOR}:0\n"
        for connector in () if gpu.model.integrated else _CONNECTORS:
            connected = connector in machine.displays.get(gpu.index, ())
            folder = f"/sys/class/drm/{card}-{connector}"
            found[f"{folder}/status"] = "connected\n" if connected else "disconnected\n"
            found[f"{folder}/enabled"] = "enabled\n" if connected else "disabled\n"
    return found


def _device(gpu: Gpu) -> dict[str, str | Callable[[], str]]:
    model = gpu.model
    subsystem = 0x0E36
    found: dict[str, str | Callable[[], str]] = {
        "vendor": "0x1002\n",
        "device": f"0x{model.device_id:04x}\n",
        "class": "0x030000\n",
        "revision": "0xc0\n",
        "subsystem_vendor": "0x1002\n",
        "subsystem_device": f"0x{subsystem:04x}\n",
        "mem_info_vram_total": f"{model.vram}\n",
        "mem_info_vis_vram_total": f"{model.mappable_vram}\n",
        "mem_info_gtt_total": f"{model.gtt}\n",
        "mem_info_vram_used": lambda: f"{gpu.used[Placement.VRAM]}\n",
        "mem_info_gtt_used": lambda: f"{gpu.used[Placement.GTT]}\n",
        "gpu_busy_percent": lambda: f"{100 * gpu.busy()}\n",
        "uevent": (
            f"DRIVER=amdgpu\nPCI_CLASS=30000\nPCI_ID=1002:{model.device_id:04X}\n"
            f"PCI_SUBSYS_ID=1002:{subsystem:04X}\nPCI_SLOT_NAME={slot_name(gpu)}\n"
            f"MODALIAS=pci:v00001002d{model.device_id:08X}sv00001002sd{subsystem:08X}bc03sc00i00\n"
        ),
        "ip_discovery/num_dies": "1\n",
    }
    sdma, nbif = _BLOCKS.get(model.gfx, ((0, 0, 0), (0, 0, 0)))
    for number, name, version in ((_GC, "GC", model.ip), (_SDMA, "SDMA0", sdma), (_NBIF, "NBIF", nbif)):
        for folder in (str(number), name):  # the kernel links the name to the number
            for part, value in zip(("major", "minor", "revision"), version, strict=True):
                found[f"ip_discovery/die/0/{folder}/0/{part}"] = f"{value}\n"
    return found
