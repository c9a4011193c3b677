"""Facts about a GPU from its render node, for messages and for kernels."""

from __future__ import annotations

import contextlib

from zinc_rt.amdgpu import drm
from zinc_rt.amdgpu.abi.cs import AMDGPU_HW_IP_COMPUTE
from zinc_rt.amdgpu.abi.drm import DrmVersion
from zinc_rt.amdgpu.abi.info import (
    AMDGPU_INFO_DEV_INFO,
    AMDGPU_INFO_MEMORY,
    DrmAmdgpuInfoDevice,
    DrmAmdgpuMemoryInfo,
)
from zinc_rt.amdgpu.abi.requests import DRM_VERSION
from zinc_rt.amdgpu.drm import ioctl
from zinc_rt.amdgpu.errors import IoctlFailed
from zinc_rt.amdgpu.gfx import version_of
from zinc_rt.amdgpu.interface import CLOCK_HZ, DeviceInfo
from zinc_rt.utils.linux import Linux


def device_info(fd: int, render_node: str, linux: Linux) -> tuple[DeviceInfo, range]:
    """The GPU, and the GPU addresses that programs may use. Raises `IoctlFailed`."""
    ip = drm.query_hw_ip(fd, AMDGPU_HW_IP_COMPUTE, linux=linux)
    device, memory = DrmAmdgpuInfoDevice(), DrmAmdgpuMemoryInfo()
    drm.query_info(fd, AMDGPU_INFO_DEV_INFO, device, linux=linux)
    drm.query_info(fd, AMDGPU_INFO_MEMORY, memory, linux=linux)
    info = DeviceInfo(
        render_node=render_node,
        gfx_target_version=version_of(ip.ip_discovery_version),
        compute_units=device.cu_active_number,
        vram=memory.vram.total_heap_size,
        visible_vram=memory.cpu_accessible_vram.total_heap_size,
        driver=f"amdgpu {_drm_version(fd, linux)} of Linux {linux.kernel_release()}",
        clock_hz=1000 * device.gpu_counter_freq or CLOCK_HZ,
    )
    return info, range(device.virtual_address_offset, device.virtual_address_max)


def _drm_version(fd: int, linux: Linux) -> str:
    version = DrmVersion()
    with contextlib.suppress(IoctlFailed):
        ioctl(fd, DRM_VERSION, version, linux)
    return f"{version.version_major}.{version.version_minor}"
