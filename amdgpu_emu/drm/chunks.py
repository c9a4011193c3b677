"""The chunks of a submission: read from the caller, checked in the kernel's two passes."""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from amdgpu_emu.abi import cs as uapi
from amdgpu_emu.drm.bo_lists import BoList, make_list
from amdgpu_emu.drm.contexts import Context, Entity, context_of
from amdgpu_emu.drm.fences import Fence
from amdgpu_emu.drm.gem import gem_of
from amdgpu_emu.drm.jobs import IndirectBuffer
from amdgpu_emu.drm.syncobj import Syncobj
from amdgpu_emu.drm.syncobj_ioctls import find_fence
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.memory import BufferObject
from amdgpu_emu.user_memory import copy_from_user
from zinc_rt.utils.linux import PAGE

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile

GANG_SIZE = 4
MAX_IBS = {uapi.AMDGPU_HW_IP_GFX: 192, uapi.AMDGPU_HW_IP_COMPUTE: 125, uapi.AMDGPU_HW_IP_VCN_JPEG: 16}
"""Indirect buffers per compute job; 49 for other IPs."""
MAX_DWORDS = 0xFFFFF
"""Dwords of an indirect buffer: the field of the packet has twenty bits."""
ALIGNMENT = {uapi.AMDGPU_HW_IP_GFX: 32, uapi.AMDGPU_HW_IP_COMPUTE: 32}
"""Bytes to which an indirect buffer's start and length are aligned, as HW_IP_INFO says."""
_POST_CHUNKS = (uapi.AMDGPU_CHUNK_ID_SYNCOBJ_OUT, uapi.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL)
_KINDS = {
    uapi.AMDGPU_CHUNK_ID_IB: uapi.DrmAmdgpuCsChunkIb,
    uapi.AMDGPU_CHUNK_ID_FENCE: uapi.DrmAmdgpuCsChunkFence,
    uapi.AMDGPU_CHUNK_ID_BO_HANDLES: uapi.DrmAmdgpuBoListIn,
}
_OTHERS = (
    uapi.AMDGPU_CHUNK_ID_DEPENDENCIES,
    uapi.AMDGPU_CHUNK_ID_SYNCOBJ_IN,
    uapi.AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES,
    uapi.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT,
    uapi.AMDGPU_CHUNK_ID_CP_GFX_SHADOW,
    *_POST_CHUNKS,
)
_SHADOW_BYTES = 32
_T = TypeVar("_T", bound=ctypes.Structure)


@dataclass
class Submission:
    """The contents of a submission's chunks. buffers: per entity, the last named of them leads."""

    file: DrmFile
    context: Context
    buffers: dict[Entity, list[uapi.DrmAmdgpuCsChunkIb]] = field(default_factory=dict)
    leader: Entity | None = None
    user_fence: tuple[BufferObject, int] | None = None
    bo_list: BoList | None = None
    waits: list[Fence] = field(default_factory=list)
    signals: list[tuple[Syncobj, int]] = field(default_factory=list)

    def indirect_buffers(self, entity: Entity) -> list[IndirectBuffer]:
        """The indirect buffers that an entity's job runs."""
        return [
            IndirectBuffer(ib.va_start, ib.ib_bytes // 4, bool(ib.flags & uapi.AMDGPU_IB_FLAG_EMIT_MEM_SYNC))
            for ib in self.buffers[entity]
        ]


def read_chunks(address: int, count: int) -> list[tuple[int, bytes]]:
    """Read identifier and data of every chunk; the address is that of an array of pointers.

    Raises `CallRefused` (EFAULT).
    """
    chunks = []
    for (at,) in struct.iter_unpack("<Q", copy_from_user(address, 8 * count)):
        head = uapi.DrmAmdgpuCsChunk.from_buffer_copy(copy_from_user(at, ctypes.sizeof(uapi.DrmAmdgpuCsChunk)))
        chunks.append((head.chunk_id, copy_from_user(head.chunk_data, 4 * head.length_dw)))
    return chunks


def first_pass(submission: Submission, chunks: list[tuple[int, bytes]]) -> None:
    """First pass of the kernel's checks: identifiers, lengths, entities, the fence's page and the list."""
    file = submission.file
    for kind, data in chunks:
        struct_kind = _KINDS.get(kind)
        if struct_kind is None and kind not in _OTHERS:
            raise CallRefused(errno.EINVAL, f"chunk {kind} does not exist")
        need = ctypes.sizeof(struct_kind) if struct_kind else 0
        if kind == uapi.AMDGPU_CHUNK_ID_CP_GFX_SHADOW and file.since(7, 0):
            need = _SHADOW_BYTES
        if len(data) < need:
            raise CallRefused(errno.EINVAL, f"chunk {kind} has {len(data)} bytes, {need} are needed")
        if kind == uapi.AMDGPU_CHUNK_ID_IB:
            _add_buffer(submission, uapi.DrmAmdgpuCsChunkIb.from_buffer_copy(data))
        elif kind == uapi.AMDGPU_CHUNK_ID_FENCE:
            _set_user_fence(submission, uapi.DrmAmdgpuCsChunkFence.from_buffer_copy(data))
        elif kind == uapi.AMDGPU_CHUNK_ID_BO_HANDLES:
            if submission.bo_list is not None:
                raise CallRefused(errno.EINVAL, "two chunks of buffer handles")
            submission.bo_list = make_list(file, uapi.DrmAmdgpuBoListIn.from_buffer_copy(data))
    if not submission.buffers:
        raise CallRefused(errno.EINVAL, "no chunk is an indirect buffer")


def _add_buffer(submission: Submission, ib: uapi.DrmAmdgpuCsChunkIb) -> None:
    entity = submission.context.entity(ib.ip_type, ib.ip_instance, ib.ring)
    if not submission.file.has_ring(ib.ip_type, ib.ring):
        raise CallRefused(errno.EINVAL, f"{entity}: the device has no such ring")
    if entity not in submission.buffers and len(submission.buffers) == GANG_SIZE:
        raise CallRefused(errno.EINVAL, f"more than {GANG_SIZE} rings in one submission")
    limit = MAX_IBS.get(ib.ip_type, 49)
    held = submission.buffers.setdefault(entity, [])
    if len(held) >= limit:
        raise CallRefused(errno.EINVAL, f"more than {limit} indirect buffers for {entity}")
    held.append(ib)
    submission.leader = entity


def _set_user_fence(submission: Submission, fence: uapi.DrmAmdgpuCsChunkFence) -> None:
    if submission.user_fence is not None and submission.file.since(7, 0):
        raise CallRefused(errno.EINVAL, "two chunks of a user fence")
    gem = gem_of(submission.file, fence.handle, errno.EINVAL)
    if gem.bo.size != PAGE or fence.offset > PAGE - 8:
        raise CallRefused(
            errno.EINVAL,
            f"user fence at {fence.offset} of {gem.bo.size} bytes: one page, offset up to {PAGE - 8}",
        )
    if gem.user_pages is not None:
        raise CallRefused(errno.EINVAL, "a user fence cannot be in user memory")
    submission.user_fence = gem.bo, fence.offset


def second_pass(submission: Submission, chunks: list[tuple[int, bytes]]) -> None:
    """Second pass: indirect buffers, fences to wait for and to signal, in the order of the chunks."""
    posted = False
    for kind, data in chunks:
        if kind == uapi.AMDGPU_CHUNK_ID_IB:
            _check_buffer(submission, uapi.DrmAmdgpuCsChunkIb.from_buffer_copy(data))
        elif kind in _WAITS:
            _WAITS[kind](submission, data)
        elif kind in _POST_CHUNKS:
            if posted:
                raise CallRefused(errno.EINVAL, "two chunks of sync objects to signal")
            posted = True
            _add_signals(submission, kind, data)


def _check_buffer(submission: Submission, ib: uapi.DrmAmdgpuCsChunkIb) -> None:
    newer = submission.file.since(7, 0)
    if newer and ib.flags & uapi.AMDGPU_IB_FLAG_CE:
        raise CallRefused(errno.EINVAL, "there is no constant engine")
    if newer and ib.ib_bytes // 4 > MAX_DWORDS:
        raise CallRefused(errno.EINVAL, f"an indirect buffer of {ib.ib_bytes // 4} dwords: {MAX_DWORDS} fit")
    alignment = ALIGNMENT.get(ib.ip_type, 4)
    text = f"an indirect buffer of {ib.ib_bytes:#x} bytes at {ib.va_start:#x}"
    if ib.va_start % alignment or ib.ib_bytes % alignment or not ib.ib_bytes:
        # A real kernel takes it; then the engine hangs, or, below four bytes, the kernel itself crashes.
        submission.file.machine.report("misaligned-ib", f"{text}: start and length are multiples of {alignment}")
        raise CallRefused(errno.EINVAL, f"{text} is not aligned to {alignment}")
    if ib.ib_bytes // 4 > MAX_DWORDS:
        submission.file.machine.report("oversized-ib", f"{text}: this kernel would corrupt the packet")
        raise CallRefused(errno.EINVAL, f"{text} is too long")
    if ib.ip_type not in ALIGNMENT:
        submission.file.machine.report("not-emulated", f"{text} for IP {ib.ip_type}: only PM4 is emulated")
        raise CallRefused(errno.EINVAL, f"packets of IP {ib.ip_type} are not emulated")


def _structs(kind: type[_T], data: bytes) -> list[_T]:
    size = ctypes.sizeof(kind)
    return [kind.from_buffer_copy(data, at) for at in range(0, len(data) - size + 1, size)]


def _add_dependencies(submission: Submission, data: bytes) -> None:
    _dependencies(submission, data, scheduled=False)


def _add_scheduled(submission: Submission, data: bytes) -> None:
    _dependencies(submission, data, scheduled=True)


def _dependencies(submission: Submission, data: bytes, *, scheduled: bool) -> None:
    for dep in _structs(uapi.DrmAmdgpuCsChunkDep, data):
        context = context_of(submission.file, dep.ctx_id)
        fence = context.entity(dep.ip_type, dep.ip_instance, dep.ring).fence(dep.handle)
        if fence is not None:
            submission.waits.append((scheduled and fence.started) or fence)


def _add_syncobjs(submission: Submission, data: bytes) -> None:
    for one in _structs(uapi.DrmAmdgpuCsChunkSem, data):
        submission.waits.append(find_fence(submission.file, one.handle, 0))


def _add_points(submission: Submission, data: bytes) -> None:
    for one in _structs(uapi.DrmAmdgpuCsChunkSyncobj, data):
        submission.waits.append(find_fence(submission.file, one.handle, one.point, one.flags))


def _add_signals(submission: Submission, kind: int, data: bytes) -> None:
    if kind == uapi.AMDGPU_CHUNK_ID_SYNCOBJ_OUT:
        wanted = [(one.handle, 0) for one in _structs(uapi.DrmAmdgpuCsChunkSem, data)]
    else:
        wanted = [(one.handle, one.point) for one in _structs(uapi.DrmAmdgpuCsChunkSyncobj, data)]
    for handle, point in wanted:
        syncobj = submission.file.syncobjs.get(handle)
        if syncobj is None:
            raise CallRefused(errno.EINVAL, f"sync object {handle} does not exist")
        submission.signals.append((syncobj, point))


_WAITS: dict[int, Callable[[Submission, bytes], None]] = {
    uapi.AMDGPU_CHUNK_ID_DEPENDENCIES: _add_dependencies,
    uapi.AMDGPU_CHUNK_ID_SCHEDULED_DEPENDENCIES: _add_scheduled,
    uapi.AMDGPU_CHUNK_ID_SYNCOBJ_IN: _add_syncobjs,
    uapi.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT: _add_points,
}
