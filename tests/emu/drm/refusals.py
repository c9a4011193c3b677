"""Every refusal of the emulated DRM driver: which check, what is done, which errno, and in which kernels.

Written from the kernel's source. An errno of 0 says that those kernels accept what others refuse.
"""

from __future__ import annotations

import ctypes
import errno as e
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from tests.emu.drm.card import (
    ALWAYS_VALID,
    BAD_POINTER,
    COMPUTE,
    DATA_VA,
    DMA,
    DOORBELL,
    GFX,
    GTT,
    IB_VA,
    RWX,
    VRAM,
    Card,
    nop,
)  # fmt: skip
from tests.emu.drm.checks import covers
from zinc_rt.emu import profiles as p
from zinc_rt.uapi import cs, drm, gem, info, requests, userq

BEFORE_7, SINCE_7 = (p.LINUX_6_12, p.LINUX_6_17), (p.LINUX_7_3,)
SINCE_6_16 = (p.LINUX_6_17, p.LINUX_7_3)
ALL = (*BEFORE_7, *SINCE_7)
USER_QUEUES = (p.LINUX_7_3_USERQ,)
ENOTSUPP = 524
TIB = 1 << 40


@dataclass(frozen=True)
class Refusal:
    """findings: kinds of findings that the emulator adds, for what a real kernel would not notice."""

    check: str
    what: str
    errno: int
    call: Callable[[Card], Any]
    kernels: tuple[p.KernelProfile, ...] = ALL
    findings: tuple[str, ...] = ()
    machine: dict[str, Any] = field(default_factory=dict)


R = Refusal


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
]  # fmt: skip


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


def _user_pages(c: Card) -> int:
    return c.userptr(c.anonymous(4096))


MMAP = [
    R("1.offset-start", "second page", e.EINVAL, lambda c: _map(c, 4096, length=4096)),
    R("1.offset-start", "offset 0", e.EINVAL, lambda c: c.map_offset(0, 4096)),
    R("1.length", "a page more", e.EINVAL, lambda c: _map(c, 0, length=12288)),
    R("1.not-opened", "another file's", e.EACCES, _foreign),
    R("1.no-cpu", "NO_CPU_ACCESS", e.EPERM, lambda c: _map_refused(c, _no_cpu(c))),
    R("1.no-cpu", "user memory", e.EPERM, lambda c: _map_refused(c, _user_pages(c))),
]

_NEW_FLAGS = (
    gem.AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE, gem.AMDGPU_GEM_CREATE_COHERENT, gem.AMDGPU_GEM_CREATE_UNCACHED,
    gem.AMDGPU_GEM_CREATE_EXT_COHERENT,
)  # fmt: skip
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
    R("3.mmap-perm", "user memory", e.EPERM, lambda c: c.gem_mmap(_user_pages(c))),
    R("3.always-valid", "as a file", e.EPERM, lambda c: c.prime(c.create(flags=ALWAYS_VALID))),
    R("3.always-valid", "user memory as a file", e.EPERM, lambda c: c.prime(_user_pages(c))),
    R("3.userptr-align", "address", e.EINVAL, lambda c: c.userptr(c.anonymous(4096) + 8)),
    R("3.userptr-align", "size", e.EINVAL, lambda c: c.userptr(c.anonymous(4096), 100)),
    R("3.userptr-fault", "nobody's page", e.EFAULT, lambda c: c.userptr(4096)),
    R("3.userptr-flags", "bit 8", e.EINVAL, lambda c: c.userptr(c.anonymous(4096), flags=0x108)),
    R("3.userptr-write", "no flags", e.EACCES, lambda c: c.userptr(c.anonymous(4096), flags=0)),
    R("3.userptr-write", "read only", 0, lambda c: c.userptr(c.anonymous(4096), flags=1)),
]  # fmt: skip

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
]  # fmt: skip

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
    R("3.op-userptr", "to VRAM", e.EPERM, lambda c: c.gem_op(_user_pages(c), _PLACE, VRAM)),
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
]  # fmt: skip

CTX = [
    R("4.ctx-op", "9", e.EINVAL, lambda c: c.ctx(9)),
    R("4.ctx-flags", "ALLOC", e.EINVAL, lambda c: c.ctx(1, flags=1)),
    R("4.ctx-flags", "QUERY", e.EINVAL, lambda c: c.ctx(3, c.ctx(), flags=1)),
    R("4.ctx-flags", "SET_STABLE_PSTATE", 0, lambda c: c.ctx(6, c.ctx(), flags=4)),
    R("4.ctx-flags", "SET_STABLE_PSTATE beyond", e.EINVAL, lambda c: c.ctx(6, c.ctx(), flags=5)),
    R("4.ctx-priority", "high", e.EACCES, lambda c: c.ctx(priority=cs.AMDGPU_CTX_PRIORITY_HIGH)),
    R("4.ctx-priority", "invalid", 0, lambda c: c.ctx(priority=77)),
    R("4.ctx-priority", "low", 0, lambda c: c.ctx(priority=cs.AMDGPU_CTX_PRIORITY_VERY_LOW)),
    *(R("4.ctx-unknown", f"operation {op}", e.EINVAL, partial(Card.ctx, op=op, number=9)) for op in (2, 3, 4, 5, 6)),
]  # fmt: skip


def _wrong_stride(size: int) -> Callable[[Card], Any]:
    return lambda c: c.bo_list(0, handles=(c.create(), c.create()), size=size)


def _bad_list(op: int, c: Card) -> int:
    return c.bo_list(op, 1, count=1, pointer=BAD_POINTER)


LISTS = [
    R("4.list-op", "3", e.EINVAL, lambda c: c.bo_list(3)),
    R("4.list-handle", "handle 9", e.ENOENT, lambda c: c.bo_list(0, handles=(9,))),
    R("4.list-fault", "bad pointer", e.EFAULT, lambda c: c.bo_list(0, count=1, pointer=BAD_POINTER)),
    R("4.list-size", "4", e.EINVAL, _wrong_stride(4), SINCE_7),
    R("4.list-size", "16", e.EINVAL, _wrong_stride(16), SINCE_7),
    R("4.list-size", "too many", e.EINVAL, lambda c: c.bo_list(0, count=131073, pointer=BAD_POINTER), SINCE_7),
    R("4.list-stride", "0, but too many", e.ENOMEM, lambda c: c.bo_list(0, size=0, count=1 << 31), BEFORE_7),
    R("4.list-stride", "0", e.ENOENT, _wrong_stride(0), BEFORE_7),
    R("4.list-stride", "4", 0, _wrong_stride(4), BEFORE_7),
    R("4.list-stride", "16", 0, _wrong_stride(16), BEFORE_7),
    *(R("4.list-destroy-reads", f"operation {op}", e.EFAULT, partial(_bad_list, op), BEFORE_7) for op in (1, 3)),
    R("4.list-destroy-reads", "DESTROY", 0, partial(_bad_list, 1), SINCE_7),
    R("4.list-destroy-reads", "unknown operation", e.EINVAL, partial(_bad_list, 3), SINCE_7),
    R("4.list-destroy-reads", "entries of 0 bytes", 0, lambda c: c.bo_list(1, 1, size=0)),
    R("4.list-destroy", "list 9", 0, lambda c: c.bo_list(1, 9)),
    R("4.list-update", "list 9", e.ENOENT, lambda c: c.bo_list(2, 9)),
]


def _cs(*chunks: Callable[[Card], tuple[int, bytes]], **to: int) -> Callable[[Card], Any]:
    """A submission of a NOP and these chunks."""
    return lambda c: c.prepare().submit(nop(8), *(chunk(c) for chunk in chunks), **to)


def _chunk(kind: int, data: ctypes.Structure | bytes) -> Callable[[Card], tuple[int, bytes]]:
    return lambda c: (kind, bytes(data))


def _ib(**fields: int) -> Callable[[Card], Any]:
    def call(c: Card) -> None:
        va, size = c.prepare().program(nop(64))
        given = {"va": va, "size": size, **fields}
        c.cs(c.ib_chunk(given.pop("va"), given.pop("size"), **given))

    return call


def _fence(make: Callable[[Card], int], offset: int = 0) -> Callable[[Card], tuple[int, bytes]]:
    return lambda c: (cs.AMDGPU_CHUNK_ID_FENCE, bytes(cs.DrmAmdgpuCsChunkFence(make(c), offset)))


def _dep(**fields: int) -> Callable[[Card], tuple[int, bytes]]:
    given = {"ip_type": COMPUTE, "ctx_id": 1, **fields}
    return _chunk(cs.AMDGPU_CHUNK_ID_DEPENDENCIES, cs.DrmAmdgpuCsChunkDep(**given))


def _sem(kind: int, make: Callable[[Card], int]) -> Callable[[Card], tuple[int, bytes]]:
    return lambda c: (kind, bytes(cs.DrmAmdgpuCsChunkSem(make(c))))


def _point(kind: int, make: Callable[[Card], int], point: int, flags: int = 0) -> Callable[[Card], tuple[int, bytes]]:
    return lambda c: (kind, bytes(cs.DrmAmdgpuCsChunkSyncobj(make(c), flags, point)))


def _handles(c: Card) -> tuple[int, bytes]:
    entry = cs.DrmAmdgpuBoListEntry(c.create(), 0)
    return cs.AMDGPU_CHUNK_ID_BO_HANDLES, bytes(cs.DrmAmdgpuBoListIn(0, 0, 1, 8, c.address_of(entry)))


def _bad_chunk(c: Card) -> None:
    head = cs.DrmAmdgpuCsChunk(cs.AMDGPU_CHUNK_ID_IB, 8, BAD_POINTER)
    c.prepare().cs_raw(1, c.array("Q", [c.address_of(head)]))


def _five_rings(c: Card) -> None:
    va, size = c.prepare().program(nop(8))
    c.cs(c.ib_chunk(va, size, GFX), *(c.ib_chunk(va, size, COMPUTE, ring) for ring in range(4)))


def _many(ip: int, n: int) -> Callable[[Card], Any]:
    def call(c: Card) -> None:
        va, size = c.prepare().program(nop(8))
        c.cs(*(c.ib_chunk(va, size, ip) for _ in range(n)))

    return call


def _listed_twice(c: Card) -> None:
    c.prepare()
    c.submit(nop(8), _handles(c), bo_list=c.bo_list(0, handles=(c.data,)))


def _gone_user_memory(c: Card) -> None:
    c.prepare()
    address = c.anonymous(4096)
    held = c.bo_list(0, handles=(c.userptr(address),))
    c.process.munmap(address, 4096)
    c._maps.remove((address, 4096))
    c.submit(nop(8), bo_list=held)


_OUT, _IN = cs.AMDGPU_CHUNK_ID_SYNCOBJ_OUT, cs.AMDGPU_CHUNK_ID_SYNCOBJ_IN
_WAIT_POINT = cs.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT
_SIGNAL_POINT = cs.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL
_CE = cs.AMDGPU_IB_FLAG_CE
_NO_KERNEL_QUEUES = p.KernelProfile("7.3-userq-only", "7.3.4", (7, 3), 64, 23, 2.0, 2, user_queues=True)
SUBMIT = [
    R("4.cs-chunks-0", "no chunks", e.EINVAL, lambda c: c.prepare().cs()),
    R("4.cs-ctx", "context 9", e.EINVAL, _cs(ctx=9)),
    R("4.cs-fault", "array", e.EFAULT, lambda c: c.prepare().cs_raw(1, BAD_POINTER)),
    R("4.cs-fault", "chunk", e.EFAULT, lambda c: c.prepare().cs_raw(1, c.array("Q", [BAD_POINTER]))),
    R("4.cs-fault", "data", e.EFAULT, _bad_chunk),
    R("4.cs-chunk-id", "0xb", e.EINVAL, _cs(_chunk(0xB, b""))),
    R("4.cs-chunk-id", "0", e.EINVAL, _cs(_chunk(0, b""))),
    R("4.cs-chunk-short", "IB", e.EINVAL, _cs(_chunk(cs.AMDGPU_CHUNK_ID_IB, b"\0" * 28))),
    R("4.cs-chunk-short", "FENCE", e.EINVAL, _cs(_chunk(cs.AMDGPU_CHUNK_ID_FENCE, b"\0" * 4))),
    R("4.cs-chunk-short", "BO_HANDLES", e.EINVAL, _cs(_chunk(cs.AMDGPU_CHUNK_ID_BO_HANDLES, b"\0" * 20))),
    R("4.cs-chunk-short", "SHADOW", e.EINVAL, _cs(_chunk(cs.AMDGPU_CHUNK_ID_CP_GFX_SHADOW, b"")), SINCE_7),
    R("4.cs-chunk-short", "SHADOW", 0, _cs(_chunk(cs.AMDGPU_CHUNK_ID_CP_GFX_SHADOW, b"")), BEFORE_7),
    R("4.cs-no-ib", "a dependency alone", e.EINVAL, lambda c: c.prepare().cs((3, b""))),
    R("4.cs-gang", "five", e.EINVAL, _five_rings),
    R("4.cs-ibs", "126 for compute", e.EINVAL, _many(COMPUTE, 126)),
    R("4.cs-ibs", "125 for compute", 0, _many(COMPUTE, 125)),
    R("4.cs-ibs", "193 for graphics", e.EINVAL, _many(GFX, 193)),
    R("4.entity", "ring 4", e.EINVAL, _ib(ring=4)),
    R("4.entity", "graphics ring 1", e.EINVAL, _ib(ip=GFX, ring=1)),
    R("4.entity", "instance 1", e.EINVAL, _ib(instance=1)),
    R("4.entity", "IP 10", e.EINVAL, _ib(ip=10)),
    R("4.entity", "an IP that is absent", e.EINVAL, _ib(ip=cs.AMDGPU_HW_IP_UVD)),
    R("4.cs-fence-bo", "handle 9", e.EINVAL, _cs(_fence(lambda c: 9))),
    R("4.cs-fence-bo", "two pages", e.EINVAL, _cs(_fence(lambda c: c.create(8192)))),
    R("4.cs-fence-bo", "offset 4092", e.EINVAL, _cs(_fence(lambda c: c.create(), 4092))),
    R("4.cs-fence-bo", "offset 4088", 0, _cs(_fence(lambda c: c.create(), 4088))),
    R("4.cs-fence-bo", "user memory", e.EINVAL, _cs(_fence(_user_pages))),
    R("4.cs-fence-two", "two", e.EINVAL, _cs(_fence(lambda c: c.create()), _fence(lambda c: c.create())), SINCE_7),
    R("4.cs-fence-two", "two", 0, _cs(_fence(lambda c: c.create()), _fence(lambda c: c.create())), BEFORE_7),
    R("4.cs-lists", "list and chunk", e.EINVAL, _listed_twice),
    R("4.cs-lists", "two chunks", e.EINVAL, _cs(_handles, _handles)),
    R("4.cs-list-unknown", "list 9", e.ENOENT, _cs(bo_list=9)),
    R("4.cs-no-queues", "user_queue=2", e.EINVAL, _ib(), (_NO_KERNEL_QUEUES,)),
    R("4.cs-ce", "CE", e.EINVAL, _ib(flags=_CE), SINCE_7),
    R("4.cs-ce", "CE", 0, _ib(flags=_CE), BEFORE_7),
    R("4.cs-dep", "context 9", e.EINVAL, _cs(_dep(ctx_id=9))),
    R("4.cs-dep", "number 5", e.EINVAL, _cs(_dep(handle=5))),
    R("4.cs-dep", "number 0", 0, _cs(_dep(handle=0))),
    R("4.cs-dep", "ring 9", e.EINVAL, _cs(_dep(ring=9))),
    R("4.cs-in", "missing", e.ENOENT, _cs(_sem(_IN, lambda c: 9))),
    R("4.cs-in", "no fence", e.EINVAL, _cs(_sem(_IN, lambda c: c.syncobj()))),
    R("4.cs-in", "point not submitted", e.EINVAL, _cs(_point(_WAIT_POINT, lambda c: c.syncobj(), 5))),
    R("4.cs-in", "flags of a point", e.EINVAL, _cs(_point(_WAIT_POINT, lambda c: c.syncobj(), 5, 1))),
    R("4.cs-out", "missing", e.EINVAL, _cs(_sem(_OUT, lambda c: 9))),
    R("4.cs-out", "missing point", e.EINVAL, _cs(_point(_SIGNAL_POINT, lambda c: 9, 1))),
    R("4.cs-out", "two chunks", e.EINVAL, _cs(_sem(_OUT, lambda c: c.syncobj()), _sem(_OUT, lambda c: c.syncobj()))),
    R("4.cs-misaligned", "start", e.EINVAL, _ib(va=IB_VA + 8), findings=("misaligned-ib",)),
    R("4.cs-misaligned", "odd start", e.EINVAL, _ib(va=IB_VA + 2), findings=("misaligned-ib",)),
    R("4.cs-misaligned", "length", e.EINVAL, _ib(size=40), findings=("misaligned-ib",)),
    R("4.cs-misaligned", "empty", e.EINVAL, _ib(size=0), findings=("misaligned-ib",)),
    R("4.cs-dwords", "0x100000", e.EINVAL, _ib(size=0x400000), SINCE_7),
    R("4.cs-dwords", "0x100000", e.EINVAL, _ib(size=0x400000), BEFORE_7, findings=("oversized-ib",)),
    R("4.cs-userptr", "unmapped meanwhile", e.EFAULT, _gone_user_memory),
    R("4.entity", "packets of the copy engine", e.EINVAL, _ib(ip=DMA), findings=("not-emulated",)),
]  # fmt: skip

WAITS = [
    R("4.wait-entity", "context 9", e.EINVAL, lambda c: c.prepare().wait(0, ctx=9)),
    R("4.wait-entity", "ring 4", e.EINVAL, lambda c: c.prepare().wait(0, ring=4)),
    R("4.wait-entity", "IP 10", e.EINVAL, lambda c: c.prepare().wait(0, ip=10)),
    R("4.wait-entity", "instance 1", e.EINVAL, lambda c: c.prepare().wait(0, instance=1)),
    R("4.wait-later", "number 1", e.EINVAL, lambda c: c.prepare().wait(1)),
    R("4.wait-old", "number 0", 0, lambda c: c.prepare().wait(0)),
    R("4.wait-last", "before any", 0, lambda c: c.prepare().wait((1 << 64) - 1)),
    R("4.fences-0", "all of none", e.EINVAL, lambda c: c.prepare().wait_fences(every=True), SINCE_7),
    R("4.fences-0", "all of none", 0, lambda c: c.prepare().wait_fences(every=True), BEFORE_7),
    R("4.to-handle-kind", "3", e.EINVAL, lambda c: c.prepare().fence_to(3, 0)),
    R("4.to-handle-kind", "number 7", e.EINVAL, lambda c: c.prepare().fence_to(0, 7)),
]

_RESET, _SIGNAL = requests.DRM_SYNCOBJ_RESET, requests.DRM_SYNCOBJ_SIGNAL
_LAST = (1 << 63) - 1


def _destroy(c: Card, handle: int, pad: int = 0) -> None:
    c.call(requests.DRM_SYNCOBJ_DESTROY, drm.DrmSyncobjDestroy(handle=handle, pad=pad))


def _query(count: int, flags: int = 0) -> Callable[[Card], Any]:
    return lambda c: c.call(
        requests.DRM_SYNCOBJ_QUERY,
        drm.DrmSyncobjTimelineArray(
            handles=c.array("I", [c.syncobj()]), points=c.array("Q", [0]), count_handles=count, flags=flags
        ),
    )


def _to_fd(**fields: int) -> Callable[[Card], Any]:
    return lambda c: c.call(
        requests.DRM_SYNCOBJ_HANDLE_TO_FD, drm.DrmSyncobjHandle(**{"handle": c.syncobj(), **fields})
    )


def _timeline_signal(count: int, flags: int) -> Callable[[Card], Any]:
    return lambda c: c.call(
        requests.DRM_SYNCOBJ_TIMELINE_SIGNAL,
        drm.DrmSyncobjTimelineArray(handles=c.array("I", [c.syncobj()]), count_handles=count, flags=flags),
    )


def _sync_file_into_nothing(c: Card) -> None:
    export = drm.DrmSyncobjHandle(handle=c.syncobj(1), flags=drm.DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE)
    fd = c.owns(c.call(requests.DRM_SYNCOBJ_HANDLE_TO_FD, export).fd)
    _from_fd(c, fd=fd, handle=9, flags=drm.DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE)


def _from_fd(c: Card, **fields: int) -> None:
    c.call(requests.DRM_SYNCOBJ_FD_TO_HANDLE, drm.DrmSyncobjHandle(**{"fd": c.fd, **fields}))


SYNC = [
    R("4.sync-create", "flag 2", e.EINVAL, lambda c: c.syncobj(2)),
    R("4.sync-destroy", "handle 9", e.EINVAL, lambda c: _destroy(c, 9)),
    R("4.sync-destroy", "padding", e.EINVAL, lambda c: _destroy(c, c.syncobj(), 1)),
    R("4.sync-wait-flags", "bit 8", e.EINVAL, lambda c: c.syncobj_wait(c.syncobj(1), flags=0x100)),
    R("4.sync-wait-flags", "AVAILABLE of a lone fence", e.EINVAL, lambda c: c.syncobj_wait(c.syncobj(1), flags=4)),
    R("4.sync-wait-flags", "AVAILABLE of a point", 0, lambda c: c.timeline_wait(c.syncobj(1), 0, flags=4)),
    R("4.sync-wait-0", "none", 0, lambda c: c.syncobj_wait()),
    R("4.sync-array-0", "RESET", e.EINVAL, lambda c: c.syncobj_array(_RESET)),
    R("4.sync-array-0", "SIGNAL", e.EINVAL, lambda c: c.syncobj_array(_SIGNAL)),
    R("4.sync-array-0", "QUERY", e.EINVAL, _query(0)),
    R("4.sync-array-0", "RESET with padding", e.EINVAL, lambda c: c.syncobj_array(_RESET, c.syncobj(), pad=1)),
    R("4.sync-wait-flags", "QUERY flag 4", e.EINVAL, _query(1, 4)),
    R("4.sync-missing", "WAIT", e.ENOENT, lambda c: c.syncobj_wait(9)),
    R("4.sync-missing", "RESET", e.ENOENT, lambda c: c.syncobj_array(_RESET, 9)),
    R("4.sync-no-fence", "WAIT", e.EINVAL, lambda c: c.syncobj_wait(c.syncobj())),
    R("4.sync-no-fence", "point of a lone fence", e.EINVAL, lambda c: c.timeline_wait(c.syncobj(1), 5)),
    R("4.sync-time", "may come later", e.ETIME, lambda c: c.syncobj_wait(c.syncobj(), flags=2)),
    R("4.sync-time", "past deadline", e.ETIME, lambda c: c.syncobj_wait(c.syncobj(), flags=2, timeout=1)),
    R("4.sync-time", "negative deadline", e.ETIME, lambda c: c.syncobj_wait(c.syncobj(), flags=2, timeout=-1)),
    R("4.sync-time", "done already", 0, lambda c: c.syncobj_wait(c.syncobj(1))),
    R("4.sync-destroy", "padding of HANDLE_TO_FD", e.EINVAL, _to_fd(pad=1)),
    R("4.sync-wait-flags", "flags of HANDLE_TO_FD", e.EINVAL, _to_fd(flags=8)),
    R("4.sync-no-fence", "sync file of nothing", e.EINVAL, _to_fd(flags=1)),
    R("4.sync-missing", "HANDLE_TO_FD", e.EINVAL, _to_fd(handle=9)),
    R("4.sync-missing", "FD_TO_HANDLE of a render node", e.EINVAL, _from_fd),
    R("4.sync-missing", "a sync file into nothing", e.ENOENT, _sync_file_into_nothing),
    R("4.sync-wait-flags", "flags of TIMELINE_SIGNAL", e.EINVAL, _timeline_signal(1, 1)),
    R("4.sync-array-0", "TIMELINE_SIGNAL", e.EINVAL, _timeline_signal(0, 0)),
    R("4.sync-missing", "sync file of a render node", e.EINVAL, lambda c: _from_fd(c, flags=1)),
    R("3.always-valid", "PRIME of a render node", e.EINVAL, lambda c: c.import_fd(c.fd)),
    R("3.always-valid", "PRIME of nothing", e.EBADF, lambda c: c.import_fd(3)),
    R("3.always-valid", "PRIME flags", e.EINVAL, lambda c: c.prime(c.create(), 0x8000000)),
]  # fmt: skip


QUEUE_VA, WPTR_VA, RPTR_VA, EOP_VA = (0x2_0000_0000 + 0x1_0000 * i for i in range(4))
QUEUE_BYTES = 0x4000


def queue_fields(c: Card) -> dict[str, int]:
    """A compute queue that is created."""
    for va, size, domains in (
        (QUEUE_VA, QUEUE_BYTES, GTT), (WPTR_VA, 4096, GTT), (RPTR_VA, 4096, VRAM), (EOP_VA, 4096, VRAM),
    ):  # fmt: skip
        c.va(c.create(size, domains, ALWAYS_VALID), va, size)
    mqd = userq.DrmAmdgpuUserqMqdComputeGfx11(EOP_VA)
    return {
        "op": 1, "ip_type": COMPUTE, "doorbell_handle": c.create(4096, DOORBELL), "doorbell_offset": 4,
        "queue_va": QUEUE_VA, "queue_size": QUEUE_BYTES, "wptr_va": WPTR_VA, "rptr_va": RPTR_VA,
        "mqd": c.address_of(mqd), "mqd_size": ctypes.sizeof(mqd),
    }  # fmt: skip


def _queue(change: Callable[[Card, dict[str, int]], None] | None = None, **fields: int) -> Callable[[Card], Any]:
    def call(c: Card) -> int:
        given = queue_fields(c) | fields
        if change is not None:
            change(c, given)
        return c.userq(**given)

    return call


def _bare(**fields: int) -> Callable[[Card], Any]:
    return lambda c: c.userq(**{"op": 1, "ip_type": COMPUTE, **fields})


def _gtt_doorbell(c: Card, given: dict[str, int]) -> None:
    given["doorbell_handle"] = c.create()


def _large_wptr(c: Card, given: dict[str, int]) -> None:
    c.va(c.create(8192), given["wptr_va"] + 0x8000, 8192)
    given["wptr_va"] += 0x8000


def _eop_elsewhere(c: Card, given: dict[str, int]) -> None:
    given["mqd"] = c.address_of(userq.DrmAmdgpuUserqMqdComputeGfx11(0x5_0000_0000))


_OLD_QUEUES = p.KernelProfile("6.17-userq", "6.17.0", (6, 17), 64, 18, 10.0, 1, user_queues=True)
_ODD_QUEUES = p.KernelProfile("6.18-userq", "6.18.0", (6, 18), 64, 18, 10.0, 1, user_queues=True)
OLD, QUEUES = (_OLD_QUEUES,), (_OLD_QUEUES, _ODD_QUEUES, *USER_QUEUES)
LATER = (_ODD_QUEUES, *USER_QUEUES)
QUIET = (p.LINUX_6_17,)


def _signal(**fields: int) -> Callable[[Card], Any]:
    return lambda c: c.call(
        requests.AMDGPU_USERQ_SIGNAL,
        userq.DrmAmdgpuUserqSignal(
            **{"queue_id": c.userq(**queue_fields(c)), "syncobj_handles": c.array("I", [9]),
               "bo_read_handles": c.array("I", [99]), **fields}
        ),
    )  # fmt: skip


def _wait(**fields: int) -> Callable[[Card], Any]:
    def call(c: Card) -> None:
        sync = c.syncobj(1)
        args = userq.DrmAmdgpuUserqWait(
            **{"waitq_id": c.userq(**queue_fields(c)), "syncobj_handles": c.array("I", [sync, sync]),
               "num_syncobj_handles": 2, "num_fences": 2, "out_fences": c.array("Q", [0] * 4), **fields}
        )  # fmt: skip
        c.call(requests.AMDGPU_USERQ_WAIT, args)

    return call


USERQ = [
    R("5.op", "3", e.EINVAL, _bare(op=3), (*QUIET, *QUEUES)),
    R("5.op", "without user queues", ENOTSUPP, _bare(op=3), SINCE_7),
    R("5.flags", "bit 3", e.EINVAL, _bare(flags=8), (*QUIET, *QUEUES)),
    R("5.free-fields", "ip_type", e.EINVAL, _bare(op=2), (*QUIET, *QUEUES)),
    R("5.free-fields", "mqd", e.EINVAL, _bare(op=2, ip_type=0, mqd=1), QUEUES),
    R("5.free-unknown", "queue 9", e.EINVAL, _bare(op=2, ip_type=0, queue_id=9), (*QUIET, _OLD_QUEUES)),
    R("5.free-unknown", "queue 9", e.ENOENT, _bare(op=2, ip_type=0, queue_id=9), USER_QUEUES),
    R("5.ip", "video", e.EINVAL, _bare(ip_type=7), (*QUIET, *QUEUES)),
    R("5.priority", "high", e.EACCES, _queue(flags=3), QUEUES),
    R("5.priority", "high, before the rest", e.EACCES, _bare(flags=3), QUIET),
    R("5.priority", "normal high", 0, _queue(flags=2), QUEUES),
    R("5.secure", "copies", e.EINVAL, _queue(flags=4, ip_type=DMA), QUEUES),
    R("5.unsupported", "compute", e.EINVAL, _bare(), QUIET),
    R("5.unsupported", "compute", ENOTSUPP, _bare(), SINCE_7),
    R("5.doorbell", "handle 99", e.EINVAL, _queue(doorbell_handle=99), QUEUES),
    R("5.doorbell-range", "system memory", e.EINVAL, _queue(_gtt_doorbell), QUEUES),
    R("5.doorbell-range", "offset 512", e.EINVAL, _queue(doorbell_offset=512), USER_QUEUES),
    R("5.doorbell-range", "offset 512", e.EINVAL, _queue(doorbell_offset=512), OLD, findings=("doorbell-outside",)),
    R("5.doorbell-range", "offset 511", 0, _queue(doorbell_offset=511), QUEUES),
    *(R("5.pointers", name, e.EINVAL, _queue(None, **{name: 0}), QUEUES)
      for name in ("queue_va", "queue_size", "wptr_va", "rptr_va")),
    R("5.mqd-size", "16", e.EINVAL, _queue(mqd_size=16), QUEUES),
    R("5.mqd-size", "null", e.EINVAL, _queue(mqd=0), QUEUES),
    R("5.mqd-read", "bad pointer", e.ENOMEM, _queue(mqd=BAD_POINTER), OLD),
    R("5.mqd-read", "bad pointer", e.EFAULT, _queue(mqd=BAD_POINTER), USER_QUEUES),
    R("5.wptr", "not mapped", e.EINVAL, _queue(wptr_va=0x6_0000_0000), QUEUES),
    R("5.wptr", "in two pages", e.EINVAL, _queue(_large_wptr), QUEUES),
    R("5.ring-mapped", "ring", e.EINVAL, _queue(queue_va=0x6_0000_0000), LATER),
    R("5.ring-mapped", "ring", 0, _queue(queue_va=0x6_0000_0000), OLD),
    R("5.ring-mapped", "longer ring", e.EINVAL, _queue(queue_size=2 * QUEUE_BYTES), LATER),
    R("5.ring-mapped", "read pointer", e.EINVAL, _queue(rptr_va=0x6_0000_0000), LATER),
    R("5.ring-mapped", "EOP", e.EINVAL, _queue(_eop_elsewhere), LATER),
    R("5.ring-mapped", "EOP", 0, _queue(_eop_elsewhere), OLD),
    R("5.all-ones", "ring", e.EINVAL, _queue(queue_va=(1 << 64) - 1), LATER),
    R("5.ring-size", "not a power of two", e.EINVAL, _queue(queue_size=0x3000), USER_QUEUES),
    R("5.ring-size", "not a power of two", 0, _queue(queue_size=0x3000), (_OLD_QUEUES, _ODD_QUEUES)),
    R("5.ring-size", "2048", e.EINVAL, _queue(queue_size=2048), USER_QUEUES),
    R("5.pointer-align", "write pointer", e.EINVAL, _queue(wptr_va=WPTR_VA + 4), USER_QUEUES),
    R("5.pointer-align", "read pointer", e.EINVAL, _queue(rptr_va=RPTR_VA + 4), USER_QUEUES),
    R("5.signal", "sync object", e.ENOENT, _signal(num_syncobj_handles=1), USER_QUEUES),
    R("5.signal", "buffer", e.ENOENT, _signal(num_bo_read_handles=1), USER_QUEUES),
    R("5.signal", "queue", e.ENOENT, _signal(queue_id=9), USER_QUEUES),
    R("5.signal", "without user queues", ENOTSUPP,
      lambda c: c.call(requests.AMDGPU_USERQ_SIGNAL, userq.DrmAmdgpuUserqSignal()), SINCE_6_16),
    R("5.wait-small", "one of two", e.EINVAL, _wait(num_fences=1), USER_QUEUES),
    R("5.wait-small", "queue 9", e.EINVAL, _wait(waitq_id=9), USER_QUEUES),
    R("5.wait-small", "room for all", 0, _wait(), USER_QUEUES),
]  # fmt: skip

REFUSALS = [
    *DISPATCH, *MMAP, *CREATE, *VA, *OPS, *INFO, *CTX, *LISTS, *SUBMIT, *WAITS, *SYNC, *USERQ,
]  # fmt: skip
for _row in REFUSALS:
    covers(_row.check)
