"""The ioctls of sync objects, which belong to the DRM core."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

from amdgpu_emu.abi import drm as uapi
from amdgpu_emu.abi import requests
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.drm.fences import Fence, signalled, wait_until
from amdgpu_emu.drm.syncobj import SyncFile, Syncobj, SyncobjFile, sync_file_fence
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.user_memory import copy_from_user, copy_to_user

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile

WAIT_FOR_SUBMIT_NS = 5_000_000_000
"""Nanoseconds that a call waits for a fence to be put into a sync object."""
_NO_INDEX = 0xFFFF_FFFF
_WAIT_FLAGS = (
    uapi.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL
    | uapi.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT
    | uapi.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_DEADLINE
)
_TIMELINE_WAIT_FLAGS = _WAIT_FLAGS | uapi.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE
_TO_FD_FLAGS = uapi.DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE | uapi.DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_TIMELINE


def find_fence(file: DrmFile, handle: int, point: int, flags: int = 0) -> Fence:
    """The fence of a sync object's point.

    Raises `CallRefused`: EINVAL for unknown flags or when there is no fence, ENOENT for an unknown object; with
    WAIT_FOR_SUBMIT ETIME when none came within five seconds.
    """
    if flags & ~uapi.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT:
        raise CallRefused(errno.EINVAL, f"flags {flags:#x}: only WAIT_FOR_SUBMIT is known")
    syncobj = file.syncobjs.get(handle)
    if syncobj is None:
        raise CallRefused(errno.ENOENT, f"sync object {handle} does not exist")
    found = syncobj.fence(point)
    if found is not None:
        return found
    if not flags:
        raise CallRefused(errno.EINVAL, f"sync object {handle} has no fence for point {point}")
    deadline = file.process.monotonic_ns() + WAIT_FOR_SUBMIT_NS
    if not wait_until(file, lambda: syncobj.fence(point) is not None, deadline):
        raise CallRefused(errno.ETIME, f"sync object {handle} got no fence for point {point} in five seconds")
    return syncobj.fence(point) or signalled()


def create(file: DrmFile, args: uapi.DrmSyncobjCreate) -> None:
    """Serve SYNCOBJ_CREATE."""
    if args.flags & ~uapi.DRM_SYNCOBJ_CREATE_SIGNALED:
        raise CallRefused(errno.EINVAL, f"flags {args.flags:#x}: only SIGNALED is known")
    syncobj = Syncobj()
    if args.flags:
        syncobj.replace(signalled())
    args.handle = file.syncobjs.add(syncobj)


def destroy(file: DrmFile, args: uapi.DrmSyncobjDestroy) -> None:
    """Serve SYNCOBJ_DESTROY."""
    _no_padding(args.pad)
    if file.syncobjs.remove(args.handle) is None:
        raise CallRefused(errno.EINVAL, f"sync object {args.handle} does not exist")


def handle_to_fd(file: DrmFile, args: uapi.DrmSyncobjHandle) -> None:
    """Serve SYNCOBJ_HANDLE_TO_FD."""
    point = _checked_point(args)
    if args.flags & uapi.DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE:
        fence = find_fence(file, args.handle, point)
        args.fd = file.process.add_file(SyncFile(file.process, fence))
        return
    syncobj = file.syncobjs.get(args.handle)
    if args.point or syncobj is None:
        raise CallRefused(
            errno.EINVAL, f"sync object {args.handle}, point {args.point}: no such object, or not point 0"
        )
    args.fd = file.process.add_file(SyncobjFile(file.process, syncobj))


def fd_to_handle(file: DrmFile, args: uapi.DrmSyncobjHandle) -> None:
    """Serve SYNCOBJ_FD_TO_HANDLE."""
    point = _checked_point(args)
    if args.flags & uapi.DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE:
        fence = sync_file_fence(file.process, args.fd)
        syncobj = file.syncobjs.get(args.handle)
        if syncobj is None:
            raise CallRefused(errno.ENOENT, f"sync object {args.handle} does not exist")
        syncobj.add(fence, point)
        file.gpu.kick()
        return
    held = file.process.file(args.fd)
    if args.point or not isinstance(held, SyncobjFile):
        raise CallRefused(errno.EINVAL, f"descriptor {args.fd}, point {args.point}: no sync object, or not point 0")
    args.handle = file.syncobjs.add(held.syncobj)


def _checked_point(args: uapi.DrmSyncobjHandle) -> int:
    _no_padding(args.pad)
    if args.flags & ~_TO_FD_FLAGS:
        raise CallRefused(errno.EINVAL, f"flags {args.flags:#x} do not exist")
    return args.point if args.flags & uapi.DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_TIMELINE else 0


def transfer(file: DrmFile, args: uapi.DrmSyncobjTransfer) -> None:
    """Serve SYNCOBJ_TRANSFER."""
    _no_padding(args.pad)
    target = file.syncobjs.get(args.dst_handle)
    if target is None:
        raise CallRefused(errno.ENOENT, f"sync object {args.dst_handle} does not exist")
    target.add(find_fence(file, args.src_handle, args.src_point, args.flags), args.dst_point)
    file.gpu.kick()


def wait(file: DrmFile, args: uapi.DrmSyncobjWait) -> None:
    """Serve SYNCOBJ_WAIT."""
    _check_wait(args.flags, _WAIT_FLAGS)
    if args.count_handles:
        syncobjs = _array(file, args.handles, args.count_handles)
        args.first_signaled = _wait(file, syncobjs, [0] * len(syncobjs), args.flags, args.timeout_nsec)


def timeline_wait(file: DrmFile, args: uapi.DrmSyncobjTimelineWait) -> None:
    """Serve SYNCOBJ_TIMELINE_WAIT."""
    _check_wait(args.flags, _TIMELINE_WAIT_FLAGS)
    if args.count_handles:
        syncobjs = _array(file, args.handles, args.count_handles)
        points = _points(args.points, args.count_handles)
        args.first_signaled = _wait(file, syncobjs, points, args.flags, args.timeout_nsec)


def _check_wait(flags: int, known: int) -> None:
    if flags & ~known:
        raise CallRefused(errno.EINVAL, f"flags {flags & ~known:#x} do not exist")


def _wait(file: DrmFile, syncobjs: list[Syncobj], points: list[int], flags: int, timeout: int) -> int:
    """Index of the first that is done. Raises `CallRefused`: EINVAL without a fence, ETIME."""
    available = bool(flags & uapi.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE)
    patient = available or flags & uapi.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT
    fences = [syncobj.fence(point) for syncobj, point in zip(syncobjs, points)]
    if not patient and None in fences:
        raise CallRefused(errno.EINVAL, f"sync object number {fences.index(None)} of the array has no fence yet")

    def done() -> list[int]:
        for i, held in enumerate(fences):
            if held is None:
                fences[i] = syncobjs[i].fence(points[i])
        return [i for i, fence in enumerate(fences) if fence is not None and (available or fence.done)]

    every = bool(flags & uapi.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL)
    enough = len(fences) if every else 1
    at_entry = done()
    if not wait_until(file, lambda: len(done()) >= enough, max(timeout, 0)):
        raise CallRefused(errno.ETIME, f"{len(done())} of {enough} fences were done at the deadline")
    first = at_entry if every else done()
    return first[0] if first else _NO_INDEX


def _array(file: DrmFile, address: int, count: int) -> list[Syncobj]:
    raw = copy_from_user(address, 4 * count)
    found = []
    for handle in struct.unpack(f"<{count}I", raw):
        syncobj = file.syncobjs.get(handle)
        if syncobj is None:
            raise CallRefused(errno.ENOENT, f"sync object {handle} does not exist")
        found.append(syncobj)
    return found


def _points(address: int, count: int) -> list[int]:
    return list(struct.unpack(f"<{count}Q", copy_from_user(address, 8 * count)))


def reset(file: DrmFile, args: uapi.DrmSyncobjArray) -> None:
    """Serve SYNCOBJ_RESET."""
    for syncobj in _checked_array(file, args):
        syncobj.replace(None)


def signal(file: DrmFile, args: uapi.DrmSyncobjArray) -> None:
    """Serve SYNCOBJ_SIGNAL."""
    for syncobj in _checked_array(file, args):
        syncobj.replace(signalled())
    file.gpu.kick()


def _checked_array(file: DrmFile, args: uapi.DrmSyncobjArray) -> list[Syncobj]:
    _no_padding(args.pad)
    _not_empty(args.count_handles)
    return _array(file, args.handles, args.count_handles)


def timeline_signal(file: DrmFile, args: uapi.DrmSyncobjTimelineArray) -> None:
    """Serve SYNCOBJ_TIMELINE_SIGNAL."""
    if args.flags:
        raise CallRefused(errno.EINVAL, f"flags must be 0, not {args.flags:#x}")
    _not_empty(args.count_handles)
    syncobjs = _array(file, args.handles, args.count_handles)
    points = _points(args.points, args.count_handles) if args.points else [0] * len(syncobjs)
    for syncobj, point in zip(syncobjs, points):
        syncobj.add(signalled(), point)
    file.gpu.kick()


def query(file: DrmFile, args: uapi.DrmSyncobjTimelineArray) -> None:
    """Serve SYNCOBJ_QUERY."""
    if args.flags & ~uapi.DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED:
        raise CallRefused(errno.EINVAL, f"flags {args.flags:#x}: only LAST_SUBMITTED is known")
    _not_empty(args.count_handles)
    syncobjs = _array(file, args.handles, args.count_handles)
    points = [syncobj.last_point if args.flags else syncobj.reached_point for syncobj in syncobjs]
    copy_to_user(args.points, struct.pack(f"<{len(points)}Q", *points))


def _no_padding(pad: int) -> None:
    if pad:
        raise CallRefused(errno.EINVAL, f"padding is {pad:#x}, not 0")


def _not_empty(count: int) -> None:
    if not count:
        raise CallRefused(errno.EINVAL, "an array of 0 sync objects")


HANDLERS = (
    Handler(requests.DRM_SYNCOBJ_CREATE, create),
    Handler(requests.DRM_SYNCOBJ_DESTROY, destroy),
    Handler(requests.DRM_SYNCOBJ_HANDLE_TO_FD, handle_to_fd),
    Handler(requests.DRM_SYNCOBJ_FD_TO_HANDLE, fd_to_handle),
    Handler(requests.DRM_SYNCOBJ_WAIT, wait),
    Handler(requests.DRM_SYNCOBJ_RESET, reset),
    Handler(requests.DRM_SYNCOBJ_SIGNAL, signal),
    Handler(requests.DRM_SYNCOBJ_TIMELINE_WAIT, timeline_wait),
    Handler(requests.DRM_SYNCOBJ_QUERY, query),
    Handler(requests.DRM_SYNCOBJ_TRANSFER, transfer),
    Handler(requests.DRM_SYNCOBJ_TIMELINE_SIGNAL, timeline_signal),
)
