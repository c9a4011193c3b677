"""Sync objects, which hold one fence or the points of a timeline, and files that carry them."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from amdgpu_emu.drm.fences import Fence, merged, signalled
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.file import OpenFile

if TYPE_CHECKING:
    from amdgpu_emu.process import Process


class Syncobj:
    """A sync object: empty, one fence, or a timeline of points in the order in which they were added.

    A point has been reached once its fence and those of all points before it are done.
    """

    def __init__(self) -> None:
        self._points: list[tuple[int, Fence]] = []  # a lone fence is point 0

    def replace(self, fence: Fence | None) -> None:
        """Replace the contents by one fence, or by nothing."""
        self._points = [] if fence is None else [(0, fence)]

    def add(self, fence: Fence, point: int) -> None:
        """Add a point to the timeline; point 0 replaces everything."""
        if not point:
            self.replace(fence)
            return
        # Points that do not rise count as the highest so far.
        self._points.append((max(point, self.last_point), fence))
        while len(self._points) > 1 and all(old.done and not old.error for _, old in self._points[:2]):
            del self._points[0]

    @property
    def is_timeline(self) -> bool:
        """Whether points were added."""
        return bool(self._points) and self._points[-1][0] > 0

    @property
    def last_point(self) -> int:
        """The highest point that was submitted; 0 for a lone fence or none."""
        return self._points[-1][0] if self._points else 0

    @property
    def reached_point(self) -> int:
        """The highest point that has been reached; 0 for a lone fence or none."""
        reached = 0
        for point, fence in self._points:
            if not fence.done:
                break
            reached = point
        return reached

    def fence(self, point: int) -> Fence | None:
        """The fence of a point (0: of everything); None if the point was not submitted yet."""
        if not self._points:
            return None
        if not point:
            return self._until(len(self._points))
        if not self.is_timeline or self.last_point < point:
            return None
        upto = next(i for i, (at, _) in enumerate(self._points, 1) if at >= point)
        return self._until(upto)

    def _until(self, count: int) -> Fence:
        parts = [fence for _, fence in self._points[:count]]
        if len(parts) == 1:
            return parts[0]
        if all(part.done for part in parts):
            return next((part for part in parts if part.error), signalled("timeline"))
        return merged(parts, "timeline")


class SyncobjFile(OpenFile):
    """A sync object as a descriptor."""

    path = "anon_inode:syncobj_file"

    def __init__(self, process: Process, syncobj: Syncobj) -> None:
        super().__init__(process)
        self.syncobj = syncobj


class SyncFile(OpenFile):
    """A fence as a descriptor."""

    path = "anon_inode:sync_file"

    def __init__(self, process: Process, fence: Fence) -> None:
        super().__init__(process)
        self.fence = fence


def sync_file_fence(process: Process, fd: int) -> Fence:
    """The fence of a sync file's descriptor. Raises `CallRefused` (EINVAL)."""
    file = process.file(fd)
    if not isinstance(file, SyncFile):
        raise CallRefused(errno.EINVAL, f"descriptor {fd} is no sync file")
    return file.fence
