"""Refusals of contexts, lists, submissions, waits and sync objects."""

from __future__ import annotations

import ctypes
import errno as e
from collections.abc import Callable
from functools import partial
from typing import Any

from amdgpu_emu import profiles as p
from amdgpu_emu.abi import cs, drm, requests
from tests.amdgpu_emu.drm.card import (
    BAD_POINTER,
    COMPUTE,
    DMA,
    GFX,
    IB_VA,
    Card,
    nop,
)
from tests.amdgpu_emu.drm.refusal import BEFORE_7, SINCE_7, R, user_pages

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
]


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
_NO_KERNEL_QUEUES = p.KernelProfile("7.3-userq-only", "7.3.4", (7, 3), 64, 23, 2.0, 2)
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
    R("4.cs-fence-bo", "user memory", e.EINVAL, _cs(_fence(user_pages))),
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
]

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
]
