"""Refusals of the dispatcher, of mmap, of buffers and their addresses, of INFO."""

from __future__ import annotations

import errno as e
from collections.abc import Callable
from typing import Any

from amdgpu_emu import profiles as p
from amdgpu_emu.abi import cs, drm, gem, info, requests
from tests.amdgpu_emu.drm.card import (
    ALWAYS_VALID,
    BAD_POINTER,
    COMPUTE,
    DATA_VA,
    DMA,
    DOORBELL,
    GFX,
    GTT,
    RWX,
    VRAM,
    Card,
)
from tests.amdgpu_emu.drm.refusal import BEFORE_7, SINCE_6_16, SINCE_7, TIB, R, user_pages


def _raw(request: int) -> Callable[[Card], Any]:
    return lambda c: c.process.ioctl(c.fd, request, drm.DrmGetCap())


def _flags(flags: int, domains: int = GTT) -> Callable[[Card], Any]:
    return lambda c: c.create(flags=flags, domains=domains)


DISPATCH = [
    R("0.type", "type K", e.ENOTTY, _raw(0xC010_4B0C)),
    R("0.past-table", "number 0x9f", e.EINVAL, _raw(0xC010_649F)),
    R("0.hole", "number 0x4a", e.EINVAL, _raw(0xC010_644A)),
    R("0.hole", "number 0x20 of the core", e.EINVAL, _raw(0xC010_6420)),
    R("0.not-render", "GET_MAGIC", e.EACCES, _raw(0x8004_6402)),
    R("0.not-render", "MODE_GETRESOURCES", e.EACCES, _raw(0xC040_64A0)),
    R("0.no-userq-6.12", "USERQ", e.EINVAL, lambda c: c.userq(op=1), (p.LINUX_6_12,)),
    R("0.no-userq-6.12", "UQ_FW_AREAS", e.EINVAL, lambda c: c.info(info.AMDGPU_INFO_UQ_FW_AREAS), (p.LINUX_6_12,)),
    R("0.sched", "any operation", e.EACCES, lambda c: c.call(requests.AMDGPU_SCHED, cs.DrmAmdgpuSched())),
    R("0.gem-close", "handle 9", e.EINVAL, lambda c: c.close_gem(9)),
    R("0.hole", "capability 0x99", e.EINVAL, lambda c: c.call(requests.DRM_GET_CAP, drm.DrmGetCap(capability=0x99))),
]


def _map(c: Card, offset: int, size: int = 8192, shift: int = 0, length: int = 8192) -> None:
    c.map_offset(c.gem_mmap(c.create(size)) + shift + offset, length)


def _foreign(c: Card) -> None:
    other = Card(c.machine)
    try:
        c.map_offset(other.gem_mmap(other.create()), 4096)
    finally:
        other.close()


def _map_refused(c: Card, handle: int) -> None:
    gem_object = c.file.gems.get(handle)
    assert gem_object is not None
    c.map_offset(gem_object.node.start, 4096)


def _no_cpu(c: Card) -> int:
    return c.create(flags=gem.AMDGPU_GEM_CREATE_NO_CPU_ACCESS)


MMAP = [
    R("1.offset-start", "second page", e.EINVAL, lambda c: _map(c, 4096, length=4096)),
    R("1.offset-start", "offset 0", e.EINVAL, lambda c: c.map_offset(0, 4096)),
    R("1.length", "a page more", e.EINVAL, lambda c: _map(c, 0, length=12288)),
    R("1.not-opened", "another file's", e.EACCES, _foreign),
    R("1.no-cpu", "NO_CPU_ACCESS", e.EPERM, lambda c: _map_refused(c, _no_cpu(c))),
    R("1.no-cpu", "user memory", e.EPERM, lambda c: _map_refused(c, user_pages(c))),
]

_NEW_FLAGS = (
    gem.AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE,
    gem.AMDGPU_GEM_CREATE_COHERENT,
    gem.AMDGPU_GEM_CREATE_UNCACHED,
    gem.AMDGPU_GEM_CREATE_EXT_COHERENT,
)
_GDS, _GWS, _OA = gem.AMDGPU_GEM_DOMAIN_GDS, gem.AMDGPU_GEM_DOMAIN_GWS, gem.AMDGPU_GEM_DOMAIN_OA
CREATE = [
    R("3.create-flags", "bit 30", e.EINVAL, _flags(1 << 30)),
    R("3.create-flags", "PREEMPTIBLE", e.EINVAL, _flags(gem.AMDGPU_GEM_CREATE_PREEMPTIBLE)),
    R("3.create-flags", "CP_MQD_GFX9", e.EINVAL, _flags(gem.AMDGPU_GEM_CREATE_CP_MQD_GFX9)),
    R("3.create-contiguous", "VRAM_CONTIGUOUS", e.EINVAL, _flags(gem.AMDGPU_GEM_CREATE_VRAM_CONTIGUOUS)),
    *(R("3.create-flags-7", f"{flag:#x}", e.EINVAL, _flags(flag), BEFORE_7) for flag in _NEW_FLAGS),
    *(R("3.create-flags-7", f"{flag:#x}", 0, _flags(flag), SINCE_7) for flag in _NEW_FLAGS),
    R("3.create-domains", "MMIO_REMAP", e.EINVAL, _flags(0, 0x80)),
    R("3.create-domains", "bit 40", e.EINVAL, _flags(0, 1 << 40)),
    R("3.create-special", "doorbell and GTT", e.EINVAL, _flags(0, DOORBELL | GTT), SINCE_7),
    R("3.create-special", "GDS and VRAM", e.EINVAL, _flags(0, _GDS | VRAM), SINCE_7),
    R("3.create-special", "GDS and GWS", e.EINVAL, _flags(0, _GDS | _GWS), SINCE_7),
    R("3.create-special", "GDS and VRAM", 0, _flags(0, _GDS | VRAM), BEFORE_7),
    R("3.create-encrypted", "ENCRYPTED", e.EINVAL, _flags(gem.AMDGPU_GEM_CREATE_ENCRYPTED)),
    *(R("3.create-gds", f"domain {d:#x}", e.EINVAL, _flags(ALWAYS_VALID, d)) for d in (_GDS, _GWS, _OA)),
    R("3.create-large", "a TiB of system memory", e.ENOMEM, lambda c: c.create(TIB)),
    R("3.create-large", "a TiB of VRAM", e.ENOMEM, lambda c: c.create(TIB, VRAM)),
    R("3.create-large", "doorbells", e.ENOMEM, lambda c: c.create(4 << 20, DOORBELL), SINCE_6_16),
    R("3.create-large", "on-chip memory", e.ENOMEM, lambda c: c.create(0x2000, _GDS)),
    R("3.create-large", "0 bytes", e.ENOSPC, lambda c: c.create(0)),
    R("3.create-large", "0 bytes of user memory", e.ENOSPC, lambda c: c.userptr(c.anonymous(4096), 0)),
    R("3.create-doorbell", "in 6.12", e.EINVAL, _flags(0, DOORBELL), (p.LINUX_6_12,)),
    R("3.create-doorbell", "later", 0, _flags(0, DOORBELL), SINCE_6_16),
    R("3.mmap-unknown", "handle 9", e.ENOENT, lambda c: c.gem_mmap(9)),
    R("3.mmap-perm", "NO_CPU_ACCESS", e.EPERM, lambda c: c.gem_mmap(_no_cpu(c))),
    R("3.mmap-perm", "user memory", e.EPERM, lambda c: c.gem_mmap(user_pages(c))),
    R("3.always-valid", "as a file", e.EPERM, lambda c: c.prime(c.create(flags=ALWAYS_VALID))),
    R("3.always-valid", "user memory as a file", e.EPERM, lambda c: c.prime(user_pages(c))),
    R("3.userptr-align", "address", e.EINVAL, lambda c: c.userptr(c.anonymous(4096) + 8)),
    R("3.userptr-align", "size", e.EINVAL, lambda c: c.userptr(c.anonymous(4096), 100)),
    R("3.userptr-fault", "nobody's page", e.EFAULT, lambda c: c.userptr(4096)),
    R("3.userptr-flags", "bit 8", e.EINVAL, lambda c: c.userptr(c.anonymous(4096), flags=0x108)),
    R("3.userptr-write", "no flags", e.EACCES, lambda c: c.userptr(c.anonymous(4096), flags=0)),
    R("3.userptr-write", "read only", 0, lambda c: c.userptr(c.anonymous(4096), flags=1)),
]

_MAP, _UNMAP, _CLEAR, _REPLACE = 1, 2, 3, 4
_TOP = (1 << 48) - 0x410000


def _va(**fields: int) -> Callable[[Card], Any]:
    """A valid call of GEM_VA on a buffer of two pages, with some fields changed."""

    def call(c: Card) -> None:
        given = {"handle": c.create(8192), "va": DATA_VA, "size": 8192, **fields}
        c.va(given.pop("handle"), given.pop("va"), given.pop("size"), **given)

    return call


def _inputs(*handles: int) -> Callable[[Card], Any]:
    return lambda c: c.va(
        c.create(), num_syncobj_handles=len(handles), input_fence_syncobj_handles=c.array("I", list(handles))
    )


def _overlap(c: Card) -> None:
    handle = c.create(8192)
    c.va(handle, size=8192)
    c.va(handle, DATA_VA + 4096, 4096)


def _delayed(c: Card) -> None:
    c.va(c.create(), flags=RWX | gem.AMDGPU_VM_DELAY_UPDATE, vm_timeline_syncobj_out=c.syncobj())


def _unmap_inside(c: Card) -> None:
    handle = c.create(8192)
    c.va(handle, size=8192)
    c.va(handle, DATA_VA + 4096, op=_UNMAP)


def _unmap_other(c: Card) -> None:
    c.va(c.create())
    c.va(c.create(), op=_UNMAP)


_PRT = gem.AMDGPU_VM_PAGE_PRT
VA = [
    R("3.va-low", "below 64 KiB", e.EINVAL, _va(va=0xF000)),
    R("3.va-hole", "its start", e.EINVAL, _va(va=0x8000_0000_0000)),
    R("3.va-hole", "its last page", e.EINVAL, _va(va=0xFFFF_7FFF_FFFF_F000)),
    R("3.va-top", "a page into it", e.EINVAL, _va(va=0xFFFF_0000_0000_0000 | _TOP - 4096)),
    R("3.va-top", "up to it", 0, _va(va=0xFFFF_0000_0000_0000 | _TOP - 8192)),
    R("3.va-any-op", "UNMAP low", e.EINVAL, _va(va=0x1000, op=_UNMAP)),
    R("3.va-any-op", "CLEAR in the hole", e.EINVAL, _va(va=0x8000_0000_0000, op=_CLEAR)),
    R("3.va-any-op", "UNMAP with a huge size", e.EINVAL, _va(size=1 << 48, op=_UNMAP)),
    R("3.va-overflow", "UNMAP", e.EINVAL, _va(size=(1 << 64) - 4096, op=_UNMAP), SINCE_7),
    R("3.va-overflow", "CLEAR", e.EINVAL, _va(size=(1 << 64) - 4096, op=_CLEAR)),
    R("3.va-overflow", "UNMAP finds nothing", e.ENOENT, _va(size=(1 << 64) - 4096, op=_UNMAP), BEFORE_7),
    R("3.va-flags", "bit 20", e.EINVAL, _va(flags=1 << 20)),
    R("3.va-flags", "PRT with READABLE", e.EINVAL, _va(flags=_PRT | 2)),
    R("3.va-flags", "PRT alone", 0, _va(flags=_PRT)),
    R("3.va-flags", "more PRT than is emulated", e.ENOMEM, _va(flags=_PRT, size=1 << 40)),
    R("3.va-flags", "NOALLOC and MTYPE", 0, _va(flags=RWX | 0x200 | gem.AMDGPU_VM_MTYPE_NC)),
    R("3.va-op", "0", e.EINVAL, _va(op=0)),
    R("3.va-op", "5", e.EINVAL, _va(op=5)),
    R("3.va-delay", "with a timeline", e.EINVAL, _delayed, SINCE_7),
    R("3.va-delay", "with a timeline", 0, _delayed, BEFORE_7),
    R("3.va-handle", "MAP", e.ENOENT, _va(handle=9)),
    R("3.va-handle", "CLEAR", 0, _va(handle=9, op=_CLEAR)),
    R("3.va-handle", "PRT", 0, _va(handle=9, flags=_PRT)),
    R("3.va-input-0", "handle 0", e.EINVAL, _inputs(0), SINCE_6_16),
    R("3.va-input-missing", "handle 9", e.ENOENT, _inputs(9), SINCE_6_16),
    R("3.va-input-missing", "6.12 knows none", 0, _inputs(9), (p.LINUX_6_12,)),
    R("3.va-align", "address", e.EINVAL, _va(va=DATA_VA + 256)),
    R("3.va-align", "offset", e.EINVAL, _va(offset=256, size=4096)),
    R("3.va-align", "size", e.EINVAL, _va(size=256)),
    R("3.va-align", "CLEAR", e.EINVAL, _va(size=256, op=_CLEAR)),
    R("3.va-size-0", "MAP", e.EINVAL, _va(size=0)),
    R("3.va-size-0", "CLEAR", e.EINVAL, _va(size=0, op=_CLEAR)),
    R("3.va-beyond", "size", e.EINVAL, _va(size=12288)),
    R("3.va-beyond", "offset", e.EINVAL, _va(offset=4096)),
    R("3.va-beyond", "REPLACE", e.EINVAL, _va(size=12288, op=_REPLACE)),
    R("3.va-overlap", "second page", e.EINVAL, _overlap),
    R("3.va-unmap-none", "nothing there", e.ENOENT, _va(op=_UNMAP)),
    R("3.va-unmap-none", "inside a mapping", e.ENOENT, _unmap_inside),
    R("3.va-unmap-none", "another buffer's", e.ENOENT, _unmap_other),
]

_INFO, _PLACE, _MAPPINGS = 0, 1, 2


def _imported(c: Card) -> None:
    other = Card(c.machine, 1, c.process)
    try:
        fd = other.prime(other.create())
        c.gem_op(c.import_fd(fd), _PLACE, VRAM)
    finally:
        other.close()


def _metadata(c: Card, size: int) -> None:
    data = gem.DrmAmdgpuGemMetadata(handle=c.create(), op=1)
    data.data.data_size_bytes = size
    c.call(requests.AMDGPU_GEM_METADATA, data)


OPS = [
    R("3.idle-unknown", "handle 9", e.ENOENT, lambda c: c.wait_idle(9)),
    R("3.op-unknown", "handle 9", e.ENOENT, lambda c: c.gem_op(9, _INFO)),
    R("3.op-fault", "bad pointer", e.EFAULT, lambda c: c.gem_op(c.create(), _INFO, BAD_POINTER)),
    R("3.op-userptr", "to VRAM", e.EPERM, lambda c: c.gem_op(user_pages(c), _PLACE, VRAM)),
    R("3.op-imported", "to VRAM", e.EINVAL, _imported, machine={"two": True}),
    R("3.op-unknown", "operation 7", e.EINVAL, lambda c: c.gem_op(c.create(), 7)),
    R("3.op-unknown", "mapping info", e.EINVAL, lambda c: c.gem_op(c.create(), _MAPPINGS), BEFORE_7),
    R("3.op-padding", "1", e.EINVAL, lambda c: c.gem_op(c.create(), _PLACE, GTT, padding=1), SINCE_7),
    R("3.op-padding", "1", 0, lambda c: c.gem_op(c.create(), _PLACE, GTT, padding=1), BEFORE_7),
    R("3.metadata", "257 bytes", e.EINVAL, lambda c: _metadata(c, 257)),
    R("3.metadata", "256 bytes", 0, lambda c: _metadata(c, 256)),
]


def _info_raw(pointer: int, size: int, query: int = 0) -> Callable[[Card], Any]:
    return lambda c: c.call(
        requests.AMDGPU_INFO, info.DrmAmdgpuInfo(return_pointer=pointer, return_size=size, query=query)
    )


_HW_IP, _AREAS = info.AMDGPU_INFO_HW_IP_INFO, info.AMDGPU_INFO_UQ_FW_AREAS
INFO = [
    R("3.info-room", "size 0", e.EINVAL, _info_raw(0x10000, 0)),
    R("3.info-room", "pointer 0", e.EINVAL, _info_raw(0, 4)),
    R("3.info-unknown", "query 0x77", e.EINVAL, lambda c: c.info(0x77)),
    R("3.info-fault", "bad pointer", e.EFAULT, _info_raw(BAD_POINTER, 4)),
    R("3.ip-instance", "1", e.EINVAL, lambda c: c.info(_HW_IP, 40, COMPUTE, 1)),
    R("3.ip-type", "10", e.EINVAL, lambda c: c.info(_HW_IP, 40, 10)),
    R("3.ip-type", "count of 10", e.EINVAL, lambda c: c.info(info.AMDGPU_INFO_HW_IP_COUNT, 4, 10)),
    R("3.areas-types", "compute", e.EINVAL, lambda c: c.info(_AREAS, 16, COMPUTE), (p.LINUX_6_17,)),
    R("3.areas-types", "copies", e.EINVAL, lambda c: c.info(_AREAS, 16, DMA), (p.LINUX_6_17,)),
    R("3.areas-types", "video", e.EINVAL, lambda c: c.info(_AREAS, 16, 7), SINCE_7),
    R("3.areas-types", "compute", 0, lambda c: c.info(_AREAS, 16, COMPUTE), SINCE_7),
    R("3.areas-types", "graphics", 0, lambda c: c.info(_AREAS, 16, GFX), SINCE_6_16),
    R("3.areas-fault", "bad pointer", 0, _info_raw(BAD_POINTER, 16, _AREAS), SINCE_6_16),
    R("3.info-unknown", "firmware type 99", e.EINVAL, lambda c: c.info(info.AMDGPU_INFO_FW_VERSION, 8, 99)),
    R("3.info-unknown", "register", e.EFAULT, lambda c: c.info(info.AMDGPU_INFO_READ_MMR_REG, 8)),
    R("3.info-unknown", "129 registers", e.EINVAL, lambda c: c.info(info.AMDGPU_INFO_READ_MMR_REG, 8, 0, 129)),
    R("3.info-unknown", "sensor 99", e.EINVAL, lambda c: c.info(info.AMDGPU_INFO_SENSOR, 4, 99)),
    R("3.info-unknown", "video sessions", e.ENODATA, lambda c: c.info(info.AMDGPU_INFO_NUM_HANDLES, 8, 3)),
]
