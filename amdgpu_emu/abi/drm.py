"""The DRM core: rows of `drm.h` that the runtime does not use."""

from __future__ import annotations

from ctypes import Structure

from zinc_rt.amdgpu.abi.drm import *
from zinc_rt.amdgpu.abi.types import i32, i64, u32, u64

DRM_CAP_ADDFB2_MODIFIERS = 0x10
DRM_CAP_ASYNC_PAGE_FLIP = 7
DRM_CAP_ATOMIC_ASYNC_PAGE_FLIP = 0x15
DRM_CAP_CRTC_IN_VBLANK_EVENT = 0x12
DRM_CAP_CURSOR_HEIGHT = 9
DRM_CAP_CURSOR_WIDTH = 8
DRM_CAP_DUMB_BUFFER = 1
DRM_CAP_DUMB_PREFERRED_DEPTH = 3
DRM_CAP_DUMB_PREFER_SHADOW = 4
DRM_CAP_PAGE_FLIP_TARGET = 0x11
DRM_CAP_PRIME = 5
DRM_CAP_SYNCOBJ = 0x13
DRM_CAP_SYNCOBJ_TIMELINE = 0x14
DRM_CAP_TIMESTAMP_MONOTONIC = 6
DRM_CAP_VBLANK_HIGH_CRTC = 2
DRM_SYNCOBJ_CREATE_SIGNALED = 1
DRM_SYNCOBJ_FD_TO_HANDLE_FLAGS_IMPORT_SYNC_FILE = 1
DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_EXPORT_SYNC_FILE = 1
DRM_SYNCOBJ_HANDLE_TO_FD_FLAGS_TIMELINE = 2
DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED = 1
DRM_SYNCOBJ_WAIT_FLAGS_WAIT_AVAILABLE = 4
DRM_SYNCOBJ_WAIT_FLAGS_WAIT_DEADLINE = 8


class DrmGetCap(Structure):
    """GET_CAP."""

    _fields_ = (
        ("capability", u64),
        ("value", u64),
    )


class DrmPrimeHandle(Structure):
    """PRIME_HANDLE_TO_FD and PRIME_FD_TO_HANDLE."""

    _fields_ = (
        ("handle", u32),
        ("flags", u32),
        ("fd", i32),
    )


class DrmSyncobjHandle(Structure):
    """HANDLE of sync objects."""

    _fields_ = (
        ("handle", u32),
        ("flags", u32),
        ("fd", i32),
        ("pad", u32),
        ("point", u64),
    )


class DrmSyncobjWait(Structure):
    """WAIT of sync objects."""

    _fields_ = (
        ("handles", u64),
        ("timeout_nsec", i64),
        ("count_handles", u32),
        ("flags", u32),
        ("first_signaled", u32),
        ("pad", u32),
        ("deadline_nsec", u64),
    )


class DrmSyncobjArray(Structure):
    """ARRAY of sync objects."""

    _fields_ = (
        ("handles", u64),
        ("count_handles", u32),
        ("pad", u32),
    )


class DrmSyncobjTimelineArray(Structure):
    """TIMELINE_ARRAY of sync objects."""

    _fields_ = (
        ("handles", u64),
        ("points", u64),
        ("count_handles", u32),
        ("flags", u32),
    )


class DrmSyncobjTransfer(Structure):
    """TRANSFER of sync objects."""

    _fields_ = (
        ("src_handle", u32),
        ("dst_handle", u32),
        ("src_point", u64),
        ("dst_point", u64),
        ("flags", u32),
        ("pad", u32),
    )
