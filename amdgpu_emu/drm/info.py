"""The INFO ioctl: queries of the device. `device_info` makes the larger answers."""

from __future__ import annotations

import errno
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

from amdgpu_emu.abi import cs, info
from amdgpu_emu.abi.info import DrmAmdgpuInfo
from amdgpu_emu.abi.requests import AMDGPU_INFO
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.drm import device_info
from amdgpu_emu.drm.chunks import MAX_IBS
from amdgpu_emu.drm.userq import SLOTS
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.memory import Placement
from amdgpu_emu.user_memory import copy_to_user

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile

_MAX_REGISTERS = 128
_WRITE_FAULT = 1 << 18
_Answer = Callable[["DrmFile", DrmAmdgpuInfo], bytes]


def query(file: DrmFile, args: DrmAmdgpuInfo) -> None:
    """Serve INFO. As much of the answer is copied as the caller has room for."""
    if not args.return_size or not args.return_pointer:
        raise CallRefused(
            errno.EINVAL, f"a buffer of {args.return_size} bytes at {args.return_pointer:#x} for the answer"
        )
    answer = _ANSWERS.get(args.query)
    if answer is None or (args.query == info.AMDGPU_INFO_UQ_FW_AREAS and not file.since(6, 16)):
        raise CallRefused(errno.EINVAL, f"query {args.query:#x} does not exist")
    data = answer(file, args)[: args.return_size]
    try:
        copy_to_user(args.return_pointer, data)
    except CallRefused:
        if args.query != info.AMDGPU_INFO_UQ_FW_AREAS:  # the kernel does not check this case
            raise


def _u32(value: int) -> bytes:
    return struct.pack("<I", value & 0xFFFFFFFF)


def _u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def _hw_ip(file: DrmFile, args: DrmAmdgpuInfo) -> bytes:
    kind = args.query_hw_ip.type
    if args.query_hw_ip.ip_instance:
        raise CallRefused(errno.EINVAL, f"IP instance {args.query_hw_ip.ip_instance}: there is one")
    if kind >= cs.AMDGPU_HW_IP_NUM:
        raise CallRefused(errno.EINVAL, f"IP type {kind}: there are {cs.AMDGPU_HW_IP_NUM}")
    ip = info.DrmAmdgpuInfoHwIp()
    version = device_info.ip_version(file.gpu.model, kind)
    if version is not None:
        major, minor, revision = version
        ip.hw_ip_version_major, ip.hw_ip_version_minor = major, minor
        ip.ip_discovery_version = major << 16 | minor << 8 | revision
        ip.ib_start_alignment, ip.ib_size_alignment = (256, 4) if kind == cs.AMDGPU_HW_IP_DMA else (32, 32)
        ip.available_rings = (1 << file.rings(kind)) - 1
        if file.has_user_queues:
            ip.userq_num_slots = SLOTS.get(kind, 0)
    return bytes(ip)[: 40 if file.since(6, 17) else 32]


def _hw_ip_count(file: DrmFile, args: DrmAmdgpuInfo) -> bytes:
    if args.query_hw_ip.type >= cs.AMDGPU_HW_IP_NUM:
        raise CallRefused(errno.EINVAL, f"IP type {args.query_hw_ip.type}: there are {cs.AMDGPU_HW_IP_NUM}")
    return _u32(device_info.ip_version(file.gpu.model, args.query_hw_ip.type) is not None)


def _firmware(file: DrmFile, args: DrmAmdgpuInfo) -> bytes:
    wanted = args.query_fw
    if wanted.ip_instance:
        raise CallRefused(errno.EINVAL, f"firmware of IP instance {wanted.ip_instance}: there is one")
    limits = {info.AMDGPU_INFO_FW_GFX_MEC: 2, info.AMDGPU_INFO_FW_SDMA: 2}
    if wanted.index >= limits.get(wanted.fw_type, 1 << 32):
        raise CallRefused(errno.EINVAL, f"firmware {wanted.fw_type:#x} number {wanted.index} does not exist")
    versions = device_info.firmware(file.gpu.model)
    if wanted.fw_type not in versions:
        raise CallRefused(errno.EINVAL, f"firmware {wanted.fw_type:#x} does not exist")
    return bytes(info.DrmAmdgpuInfoFirmware(*versions[wanted.fw_type]))


def _user_queue_areas(file: DrmFile, args: DrmAmdgpuInfo) -> bytes:
    kind, areas = args.query_hw_ip.type, device_info.user_queue_areas()
    known = (cs.AMDGPU_HW_IP_GFX,) if not file.since(7, 0) else tuple(areas)
    if kind not in known:
        raise CallRefused(errno.EINVAL, f"areas for user queues of IP {kind}: known are those of {known}")
    return areas[kind].ljust(16, b"\0")


def _registers(file: DrmFile, args: DrmAmdgpuInfo) -> bytes:
    wanted = args.read_mmr_reg
    if wanted.count > _MAX_REGISTERS:
        raise CallRefused(errno.EINVAL, f"{wanted.count} registers: {_MAX_REGISTERS} at once")
    raise CallRefused(errno.EFAULT, f"register {wanted.dword_offset:#x} is not one that programs may read")


def _handles(file: DrmFile, args: DrmAmdgpuInfo) -> bytes:
    known = args.query_hw_ip.type == cs.AMDGPU_HW_IP_UVD
    raise CallRefused(errno.ENODATA if known else errno.EINVAL, "video sessions are not counted on this card")


def _sensor(file: DrmFile, args: DrmAmdgpuInfo) -> bytes:
    value = device_info.sensors(file.gpu).get(args.sensor_info.type)
    if value is None:
        raise CallRefused(errno.EINVAL, f"sensor {args.sensor_info.type} does not exist")
    return _u32(value)


def _fault(file: DrmFile, args: DrmAmdgpuInfo) -> bytes:
    fault = info.DrmAmdgpuInfoGpuvmFault()
    if file.last_fault is not None:
        fault.addr = file.last_fault.va & ~0xFFF
        fault.status = 1 | (_WRITE_FAULT if file.last_fault.access == "write" else 0)
    return bytes(fault)


def _max_ibs(file: DrmFile, args: DrmAmdgpuInfo) -> bytes:
    return b"".join(_u32(MAX_IBS.get(kind, 49)) for kind in range(cs.AMDGPU_HW_IP_NUM))


def _zero64(file: DrmFile, args: DrmAmdgpuInfo) -> bytes:
    return _u64(0)


_ANSWERS: dict[int, _Answer] = {
    info.AMDGPU_INFO_ACCEL_WORKING: lambda file, args: _u32(1),
    info.AMDGPU_INFO_HW_IP_INFO: _hw_ip,
    info.AMDGPU_INFO_HW_IP_COUNT: _hw_ip_count,
    info.AMDGPU_INFO_TIMESTAMP: lambda file, args: _u64(file.process.monotonic_ns() // 10),  # 100 MHz
    info.AMDGPU_INFO_FW_VERSION: _firmware,
    info.AMDGPU_INFO_NUM_BYTES_MOVED: _zero64,
    info.AMDGPU_INFO_NUM_EVICTIONS: _zero64,
    info.AMDGPU_INFO_VRAM_USAGE: lambda file, args: _u64(file.gpu.used[Placement.VRAM]),
    info.AMDGPU_INFO_VIS_VRAM_USAGE: lambda file, args: _u64(
        min(file.gpu.used[Placement.VRAM], file.gpu.model.mappable_vram)
    ),
    info.AMDGPU_INFO_GTT_USAGE: lambda file, args: _u64(file.gpu.used[Placement.GTT]),
    info.AMDGPU_INFO_VRAM_GTT: lambda file, args: device_info.heaps(file.gpu),
    info.AMDGPU_INFO_MEMORY: lambda file, args: device_info.memory(file.gpu),
    info.AMDGPU_INFO_READ_MMR_REG: _registers,
    info.AMDGPU_INFO_DEV_INFO: lambda file, args: device_info.device(file),
    info.AMDGPU_INFO_NUM_HANDLES: _handles,
    info.AMDGPU_INFO_SENSOR: _sensor,
    info.AMDGPU_INFO_VRAM_LOST_COUNTER: lambda file, args: _u32(file.gpu.generation),
    info.AMDGPU_INFO_MAX_IBS: _max_ibs,
    info.AMDGPU_INFO_GPUVM_FAULT: _fault,
    info.AMDGPU_INFO_UQ_FW_AREAS: _user_queue_areas,
}
HANDLERS = (Handler(AMDGPU_INFO, query),)
