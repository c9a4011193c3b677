"""Waiting for submissions, and exporting their fences."""

from __future__ import annotations

import ctypes
import errno
from typing import TYPE_CHECKING

from amdgpu_emu.abi import cs as uapi
from amdgpu_emu.abi.requests import AMDGPU_FENCE_TO_HANDLE, AMDGPU_WAIT_CS, AMDGPU_WAIT_FENCES
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.drm.contexts import context_of
from amdgpu_emu.drm.fences import Fence, deadline_of, raise_error, signalled, wait_until
from amdgpu_emu.drm.syncobj import SyncFile, Syncobj, SyncobjFile
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.user_memory import copy_from_user

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile


def wait_cs(file: DrmFile, args: uapi.DrmAmdgpuWaitCs) -> None:
    """Serve WAIT_CS: status 0 when the submission retired, 1 when the time ran out."""
    given = args.in_
    entity = context_of(file, given.ctx_id).entity(given.ip_type, given.ip_instance, given.ring)
    fence = entity.fence(given.handle)
    done = fence is None or wait_until(file, lambda: fence.done, deadline_of(given.timeout))
    if fence is not None and done:
        raise_error(fence.error, fence.name)
    ctypes.memset(ctypes.addressof(args), 0, ctypes.sizeof(args))
    args.out.status = 0 if done else 1


def wait_fences(file: DrmFile, args: uapi.DrmAmdgpuWaitFences) -> None:
    """Serve WAIT_FENCES: status 1 when signalled, 0 when the time ran out."""
    address, count = args.in_.fences, args.in_.fence_count
    every, deadline = bool(args.in_.wait_all), deadline_of(args.in_.timeout_ns)
    if not count and (file.since(7, 0) or not every):
        raise CallRefused(errno.EINVAL, "0 fences to wait for")
    size = ctypes.sizeof(uapi.DrmAmdgpuFence)
    raw = copy_from_user(address, count * size)
    fences = [_fence(file, uapi.DrmAmdgpuFence.from_buffer_copy(raw, i * size)) for i in range(count)]
    first, error = 0, 0
    if every:
        done = True
        for fence in fences:
            done = wait_until(file, lambda fence=fence: fence.done, deadline)  # type: ignore[misc]
            if not done:
                break
            raise_error(fence.error, fence.name)
    else:
        done = wait_until(file, lambda: any(fence.done for fence in fences), deadline)
        if done:
            first = next(i for i, fence in enumerate(fences) if fence.done)
            error = fences[first].error
    ctypes.memset(ctypes.addressof(args), 0, ctypes.sizeof(args))
    args.out.status, args.out.first_signaled = int(done), first
    raise_error(error, f"fence {first} of the array")


def _fence(file: DrmFile, given: uapi.DrmAmdgpuFence) -> Fence:
    context = context_of(file, given.ctx_id)
    return context.entity(given.ip_type, given.ip_instance, given.ring).fence(given.seq_no) or signalled()


def fence_to_handle(file: DrmFile, args: uapi.DrmAmdgpuFenceToHandle) -> None:
    """Serve FENCE_TO_HANDLE."""
    fence, what, process = _fence(file, args.in_.fence), args.in_.what, file.process
    if what == uapi.AMDGPU_FENCE_TO_HANDLE_GET_SYNC_FILE_FD:
        args.out.handle = process.add_file(SyncFile(process, fence))
        return
    syncobj = Syncobj()
    syncobj.replace(fence)
    if what == uapi.AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ:
        args.out.handle = file.syncobjs.add(syncobj)
    elif what == uapi.AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ_FD:
        args.out.handle = process.add_file(SyncobjFile(process, syncobj))
    else:
        raise CallRefused(errno.EINVAL, f"a fence cannot become {what}: 0 sync object, 1 its file, 2 sync file")


HANDLERS = (
    Handler(AMDGPU_WAIT_CS, wait_cs),
    Handler(AMDGPU_WAIT_FENCES, wait_fences),
    Handler(AMDGPU_FENCE_TO_HANDLE, fence_to_handle),
)
