"""Facts about the machine and its AMD GPUs that a report may hold: each is asked for by name, nothing is copied whole.

Serial numbers, unique ids, host names and users are never asked for, except to keep them out (`private`).
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final

from zinc_rt.amdgpu import drm
from zinc_rt.amdgpu.abi import info
from zinc_rt.amdgpu.errors import IoctlFailed
from zinc_rt.amdgpu.gfx import gfx_of
from zinc_rt.amdgpu.kfd.sizes import compute_units, computed_ctl_stack_size, computed_cwsr_size, eop_bytes, save_area
from zinc_rt.amdgpu.kfd.topology import find_topology_node, node_properties, render_minor_of
from zinc_rt.backends.probe import DRM_CLASS, AmdCard
from zinc_rt.utils.linux import Linux

if TYPE_CHECKING:
    from zinc_rt.amdgpu.kfd.topology import TopologyNode

PARAMETERS: Final = ("user_queue", "lockup_timeout", "mes", "cwsr_enable", "gpu_recovery", "sched_policy", "runpm")
"""Parameters of the amdgpu module that change what the interfaces do."""
_MODULE = "/sys/module/amdgpu"
_NAMES = "/usr/share/libdrm/amdgpu.ids"
_FIRMWARE: Final = {
    "me": info.AMDGPU_INFO_FW_GFX_ME,
    "pfp": info.AMDGPU_INFO_FW_GFX_PFP,
    "mec": info.AMDGPU_INFO_FW_GFX_MEC,
    "rlc": info.AMDGPU_INFO_FW_GFX_RLC,
    "mes": info.AMDGPU_INFO_FW_MES,
    "mes_kiq": info.AMDGPU_INFO_FW_MES_KIQ,
    "imu": info.AMDGPU_INFO_FW_IMU,
    "sdma": info.AMDGPU_INFO_FW_SDMA,
    "smc": info.AMDGPU_INFO_FW_SMC,
}
_PCI: Final = ("vendor", "device", "revision", "subsystem_vendor", "subsystem_device")
_LINK: Final = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")


def system(linux: Linux) -> dict[str, Any]:
    """The kernel's release, and parameters of the module; None for one that the kernel does not have or tell."""
    return {
        "kernel": linux.kernel_release(),
        "parameters": {name: _text(linux, f"{_MODULE}/parameters/{name}") for name in PARAMETERS},
    }


def card(linux: Linux, gpu: AmdCard) -> dict[str, Any]:
    """A card: names, sizes in bytes, clocks in MHz, firmware, what a queue of amdkfd needs."""
    folder = f"{DRM_CLASS}/{gpu.render_node.rpartition('/')[2]}/device"
    pci = {name: _text(linux, f"{folder}/{name}") for name in _PCI}
    found: dict[str, Any] = {
        "render_node": gpu.render_node,
        "name": _text(linux, f"{folder}/product_name") or _name(linux, pci["device"], pci["revision"]),
        "pci": pci,
        "link": {name: _text(linux, f"{folder}/{name}") for name in _LINK},
        "gfx": gpu.name,
        "gfx_target_version": gpu.gfx_target_version,
        "integrated": gpu.integrated,
        "compute_units": gpu.compute_units,
        "vram": gpu.vram,
        "visible_vram": gpu.visible_vram,
        "gtt": gpu.gtt,
        "clocks_mhz": {},
        "firmware": {},
        "refused": gpu.refusal() or None,
    }
    if gpu.open_errno is None:
        found |= _answers(linux, gpu.render_node)
    node = find_topology_node(render_minor_of(gpu.render_node) or 0, linux=linux)
    return found | {"kfd": None if node is None else _kfd(linux, node)}


def _answers(linux: Linux, render_node: str) -> dict[str, Any]:
    """What the render node says; nothing where it does not answer."""
    try:
        fd = linux.open(render_node)
    except OSError:
        return {}
    try:
        device, firmware = info.DrmAmdgpuInfoDevice(), {}
        for name, kind in _FIRMWARE.items():
            answer = info.DrmAmdgpuInfoFirmware()
            with contextlib.suppress(IoctlFailed):
                drm.query_info(fd, info.AMDGPU_INFO_FW_VERSION, answer, ip_type=kind, linux=linux)
                firmware[name] = {"version": answer.ver, "feature": answer.feature}
        with contextlib.suppress(IoctlFailed):
            drm.query_info(fd, info.AMDGPU_INFO_DEV_INFO, device, linux=linux)
        return {"clocks_mhz": _clocks(device), "firmware": firmware, "hardware": _hardware(device)}
    finally:
        with contextlib.suppress(OSError):
            linux.close(fd)


def _clocks(device: info.DrmAmdgpuInfoDevice) -> dict[str, float]:
    names = ("min_engine_clock", "max_engine_clock", "min_memory_clock", "max_memory_clock")
    return {name.removesuffix("_clock"): getattr(device, name) / 1000 for name in names}  # the kernel counts in kHz


def _hardware(device: info.DrmAmdgpuInfoDevice) -> dict[str, int]:
    names = (
        "family", "chip_rev", "external_rev", "num_shader_engines", "num_shader_arrays_per_engine", "vram_type",
        "vram_bit_width", "wave_front_size", "pcie_gen", "pcie_num_lanes", "gl2c_cache_size", "mall_size",
        "userq_ip_mask",
    )  # fmt: skip
    return {name: int(getattr(device, name)) for name in names}


def _kfd(linux: Linux, node: TopologyNode) -> dict[str, Any]:
    """What CREATE_QUEUE compares, bytes: the kernel's figures and those that would be computed without them."""
    area, known = save_area(node), gfx_of(node.gfx_target_version) is not None
    properties = node_properties(linux, node.node_index)
    wanted = (
        "fw_version",
        "sdma_fw_version",
        "num_cp_queues",
        "lds_size_in_kb",
        "max_engine_clk_fcompute",
        "capability",
    )
    return {
        "compute_units": compute_units(node),
        "simd_count": node.simd_count,
        "num_xcc": node.num_xcc,
        "eop_bytes": eop_bytes(node.gfx_target_version),
        "kernel": {"save_area": node.cwsr_size or None, "control_stack": node.ctl_stack_size or None},
        "computed": {"save_area": computed_cwsr_size(node), "control_stack": computed_ctl_stack_size(node)}
        if known
        else None,
        "used": {
            "save_area": area.context,
            "control_stack": area.control_stack,
            "allocated": area.allocation,
        },
        "properties": {name: properties[name] for name in wanted if name in properties},
    }


def _name(linux: Linux, device: str | None, revision: str | None) -> str | None:
    """What the card is sold as, by libdrm's table of device and revision."""
    if device is None or revision is None:
        return None
    wanted = tuple(int(text, 16) for text in (device, revision))
    for line in (_text(linux, _NAMES) or "").splitlines():
        fields = [field.strip() for field in line.split(",", 2)]
        with contextlib.suppress(ValueError):
            if len(fields) == 3 and tuple(int(text, 16) for text in fields[:2]) == wanted:
                return fields[2]
    return None


def _text(linux: Linux, path: str) -> str | None:
    try:
        return linux.read_text(path).strip()
    except OSError:
        return None
