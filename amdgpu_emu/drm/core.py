"""Small ioctls of the DRM core and of amdgpu: version, capabilities, reserved VMIDs, other processes' priorities."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from amdgpu_emu.abi import drm as uapi
from amdgpu_emu.abi.cs import AMDGPU_VM_OP_RESERVE_VMID, AMDGPU_VM_OP_UNRESERVE_VMID, DrmAmdgpuSched, DrmAmdgpuVm
from amdgpu_emu.abi.requests import AMDGPU_SCHED, AMDGPU_VM, DRM_GET_CAP, DRM_VERSION
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.user_memory import copy_to_user

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile

NAME, DESCRIPTION = "amdgpu", "AMD GPU"
_PRIME_IMPORT_EXPORT = 3
_ALWAYS = {
    uapi.DRM_CAP_TIMESTAMP_MONOTONIC: 1,
    uapi.DRM_CAP_PRIME: _PRIME_IMPORT_EXPORT,
    uapi.DRM_CAP_SYNCOBJ: 1,
    uapi.DRM_CAP_SYNCOBJ_TIMELINE: 1,
}
_MODESETTING = {
    uapi.DRM_CAP_DUMB_BUFFER: 1, uapi.DRM_CAP_VBLANK_HIGH_CRTC: 1, uapi.DRM_CAP_DUMB_PREFERRED_DEPTH: 24,
    uapi.DRM_CAP_DUMB_PREFER_SHADOW: 1, uapi.DRM_CAP_ASYNC_PAGE_FLIP: 1, uapi.DRM_CAP_PAGE_FLIP_TARGET: 1,
    uapi.DRM_CAP_CURSOR_WIDTH: 256, uapi.DRM_CAP_CURSOR_HEIGHT: 256, uapi.DRM_CAP_ADDFB2_MODIFIERS: 1,
    uapi.DRM_CAP_CRTC_IN_VBLANK_EVENT: 1, uapi.DRM_CAP_ATOMIC_ASYNC_PAGE_FLIP: 1,
}  # fmt: skip


def version(file: DrmFile, args: uapi.DrmVersion) -> None:
    """Serve VERSION. Strings are cut to the caller's lengths; then the true lengths are stored."""
    args.version_major, args.version_minor, args.version_patchlevel = 3, file.machine.profile.drm_minor, 0
    date = "0" if file.since(6, 14) else "20150101"
    for text, field in ((NAME, "name"), (date, "date"), (DESCRIPTION, "desc")):
        room = getattr(args, f"{field}_len")
        if getattr(args, field):
            copy_to_user(getattr(args, field), text.encode()[:room])
        setattr(args, f"{field}_len", len(text))


def get_cap(file: DrmFile, args: uapi.DrmGetCap) -> None:
    """Serve GET_CAP."""
    value = {**_ALWAYS, **_MODESETTING}.get(args.capability)
    if value is None:
        raise CallRefused(errno.EINVAL, f"capability {args.capability:#x} does not exist")
    args.value = value


def vm(file: DrmFile, args: DrmAmdgpuVm) -> None:
    """Serve VM: reserve a VMID for this file; the emulator does not use it."""
    op, flags = args.in_.op, args.in_.flags
    if flags:
        raise CallRefused(errno.EINVAL, f"flags must be 0, not {flags:#x}")
    if op not in (AMDGPU_VM_OP_RESERVE_VMID, AMDGPU_VM_OP_UNRESERVE_VMID):
        raise CallRefused(errno.EINVAL, f"VM operation {op} does not exist")


def sched(file: DrmFile, args: DrmAmdgpuSched) -> None:
    """Serve SCHED: refused, since only the DRM master may call it, and a render node never is one."""
    raise CallRefused(errno.EACCES, "only the DRM master changes priorities of others")


HANDLERS = (
    Handler(DRM_VERSION, version),
    Handler(DRM_GET_CAP, get_cap),
    Handler(AMDGPU_VM, vm),
    Handler(AMDGPU_SCHED, sched),
)
