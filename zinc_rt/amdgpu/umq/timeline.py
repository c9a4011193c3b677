"""When the GPU's page tables are written. A kernel ring waits for that by itself; a user queue runs ahead of it."""

from __future__ import annotations

import contextlib
import ctypes

from zinc_rt.amdgpu.abi.drm import (
    DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL,
    DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT,
    DrmSyncobjCreate,
    DrmSyncobjDestroy,
    DrmSyncobjTimelineWait,
)
from zinc_rt.amdgpu.abi.requests import DRM_SYNCOBJ_CREATE, DRM_SYNCOBJ_DESTROY, DRM_SYNCOBJ_TIMELINE_WAIT
from zinc_rt.amdgpu.drm import ioctl
from zinc_rt.amdgpu.errors import IoctlFailed
from zinc_rt.utils.linux import Linux


class Timeline:
    """A sync object whose points are signalled one after the other, one per change of the page tables."""

    def __init__(self, fd: int, linux: Linux) -> None:
        """Raises `IoctlFailed`."""
        self._fd, self._linux = fd, linux
        argument = DrmSyncobjCreate()
        ioctl(fd, DRM_SYNCOBJ_CREATE, argument, linux)
        self._handle: int = argument.handle
        self._point = self._waited = 0

    def next_point(self) -> tuple[int, int]:
        """The sync object and the point that the next change shall signal. One that is refused leaves a gap, which a
        later point closes.
        """
        self._point += 1
        return self._handle, self._point

    def wait(self, seconds: float) -> None:
        """Until all changes are done. Raises `IoctlFailed`, with ETIME when the time runs out."""
        if self._waited == self._point:
            return
        handle, point = ctypes.c_uint32(self._handle), ctypes.c_uint64(self._point)
        flags = DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL | DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT
        until = self._linux.monotonic_ns() + int(seconds * 1e9)
        argument = DrmSyncobjTimelineWait(ctypes.addressof(handle), ctypes.addressof(point), until, 1, flags)
        ioctl(self._fd, DRM_SYNCOBJ_TIMELINE_WAIT, argument, self._linux)
        self._waited = self._point

    def close(self) -> None:
        """Give the sync object back."""
        with contextlib.suppress(IoctlFailed):
            ioctl(self._fd, DRM_SYNCOBJ_DESTROY, DrmSyncobjDestroy(self._handle), self._linux)
