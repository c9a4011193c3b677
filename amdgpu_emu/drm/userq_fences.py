"""Fences between user queues and the rest: USERQ_SIGNAL and USERQ_WAIT."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

from amdgpu_emu.abi.drm import DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT
from amdgpu_emu.abi.requests import AMDGPU_USERQ_SIGNAL, AMDGPU_USERQ_WAIT
from amdgpu_emu.abi.userq import DrmAmdgpuUserqFenceInfo, DrmAmdgpuUserqSignal, DrmAmdgpuUserqWait
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.drm.fences import Fence, wait_until
from amdgpu_emu.drm.gem import Gem, gem_of
from amdgpu_emu.drm.syncobj_ioctls import find_fence
from amdgpu_emu.drm.userq import ENOTSUPP
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.user_memory import copy_from_user, copy_to_user

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile


def signal(file: DrmFile, args: DrmAmdgpuUserqSignal) -> None:
    """Serve USERQ_SIGNAL: everything named gets a fence for what the queue holds now.

    Here the fence is done when the command processor has read that far; real queues end with a packet that says so.
    """
    _check_enabled(file)
    syncobjs = []
    for handle in _handles(args.syncobj_handles, args.num_syncobj_handles):
        syncobj = file.syncobjs.get(handle)
        if syncobj is None:
            raise CallRefused(errno.ENOENT, f"sync object {handle} does not exist")
        syncobjs.append(syncobj)
    gems = _gems(file, args)
    queue = file.user_queues.get(args.queue_id)
    if queue is None:
        raise CallRefused(errno.ENOENT, f"user queue {args.queue_id} does not exist")
    fence = queue.fence()
    for gem in gems:
        gem.add_fence(fence)
    for syncobj in syncobjs:
        syncobj.replace(fence)
    file.gpu.kick()


def wait(file: DrmFile, args: DrmAmdgpuUserqWait) -> None:
    """Serve USERQ_WAIT: give addresses and values for a queue to wait for; the call itself waits for kernel fences."""
    _check_enabled(file)
    lone = _handles(args.syncobj_handles, args.num_syncobj_handles)
    timelines = _handles(args.syncobj_timeline_handles, args.num_syncobj_timeline_handles)
    # Points are read as 32-bit words, whatever the header's comment says.
    points = _handles(args.syncobj_timeline_points, args.num_syncobj_timeline_handles)
    gems = _gems(file, args)
    fences: list[Fence] = [fence for gem in gems for fence in gem.busy]
    for handle, point in [*zip(timelines, points), *((handle, 0) for handle in lone)]:
        fences.append(find_fence(file, handle, point, DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT))
    if not args.num_fences:
        args.num_fences = len(fences)
        return
    if len(fences) > args.num_fences:
        raise CallRefused(errno.EINVAL, f"{len(fences)} fences: the array has room for {args.num_fences}")
    if file.user_queues.get(args.waitq_id) is None:
        raise CallRefused(errno.EINVAL, f"user queue {args.waitq_id} does not exist")
    latest: dict[int, int] = {}
    for fence in fences:
        if fence.point is None:
            wait_until(file, lambda fence=fence: fence.done, None)  # type: ignore[misc]
        else:
            va, value = fence.point
            latest[va] = max(value, latest.get(va, 0))
    copy_to_user(args.out_fences, b"".join(bytes(DrmAmdgpuUserqFenceInfo(va, value)) for va, value in latest.items()))
    args.num_fences = len(latest)


def _check_enabled(file: DrmFile) -> None:
    if not file.has_user_queues:
        raise CallRefused(ENOTSUPP, "user queues are off, or the firmware is too old for them")


def _handles(address: int, count: int) -> list[int]:
    return list(struct.unpack(f"<{count}I", copy_from_user(address, 4 * count)))


def _gems(file: DrmFile, args: DrmAmdgpuUserqSignal | DrmAmdgpuUserqWait) -> list[Gem]:
    read = _handles(args.bo_read_handles, args.num_bo_read_handles)
    return [gem_of(file, handle) for handle in read + _handles(args.bo_write_handles, args.num_bo_write_handles)]


HANDLERS = (Handler(AMDGPU_USERQ_SIGNAL, signal), Handler(AMDGPU_USERQ_WAIT, wait))
