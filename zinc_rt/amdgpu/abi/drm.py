"""The DRM core: layouts of `drm.h`."""

from __future__ import annotations

from ctypes import Structure

from zinc_rt.amdgpu.abi.types import i32, i64, u32, u64

DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL = 1
DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT = 2


class DrmVersion(Structure):
    """VERSION: lengths in, strings and lengths out."""

    _fields_ = (
        ("version_major", i32),
        ("version_minor", i32),
        ("version_patchlevel", i32),
        ("name_len", u64),
        ("name", u64),
        ("date_len", u64),
        ("date", u64),
        ("desc_len", u64),
        ("desc", u64),
    )


class DrmGemClose(Structure):
    """GEM_CLOSE."""

    _fields_ = (
        ("handle", u32),
        ("pad", u32),
    )


class DrmSyncobjCreate(Structure):
    """CREATE of sync objects."""

    _fields_ = (
        ("handle", u32),
        ("flags", u32),
    )


class DrmSyncobjDestroy(Structure):
    """DESTROY of sync objects."""

    _fields_ = (
        ("handle", u32),
        ("pad", u32),
    )


class DrmSyncobjTimelineWait(Structure):
    """TIMELINE_WAIT of sync objects."""

    _fields_ = (
        ("handles", u64),
        ("points", u64),
        ("timeout_nsec", i64),
        ("count_handles", u32),
        ("flags", u32),
        ("first_signaled", u32),
        ("pad", u32),
        ("deadline_nsec", u64),
    )
