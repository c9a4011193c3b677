"""Buffers of one render node, each at an address of the GPU and, when asked for, in the process; all given back."""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass

from zinc_rt.amdgpu import drm as kmd
from zinc_rt.amdgpu.umq.timeline import Timeline
from zinc_rt.linux import PROT_READ, PROT_WRITE, Linux

READ_WRITE = PROT_READ | PROT_WRITE
GPU_ALL = (
    kmd.AMDGPU_VM_PAGE_READABLE
    | kmd.AMDGPU_VM_PAGE_WRITEABLE
    | kmd.AMDGPU_VM_PAGE_EXECUTABLE
    | kmd.AMDGPU_VM_MTYPE_DEFAULT
)
ALIGNMENT = 256


@dataclass(eq=False)
class QueueBuffer:
    """va: on the GPU, None when it has no address there, as a doorbell; map: bytes in the process, None without."""

    bo: kmd.Bo
    va: int | None = None
    map: kmd.Mapped | None = None
    label: str = ""

    @property
    def address(self) -> int:
        """Where its bytes are in the process."""
        assert self.map is not None, "the buffer was made without a map"
        return ctypes.addressof(self.map)


class Buffers:
    """What was made on `fd` and not given back."""

    def __init__(self, fd: int, linux: Linux, timeline: Timeline | None = None) -> None:
        """timeline: tells when the page tables are written."""
        self.fd, self.linux, self._timeline = fd, linux, timeline
        self._made: list[QueueBuffer] = []

    def make(
        self,
        size: int,
        domain: int,
        flags: int,
        *,
        va: int | None = None,
        prot: int = READ_WRITE,
        access: int = GPU_ALL,
    ) -> QueueBuffer:
        """Create, map into the process (prot 0: not), put at `va` (None: nowhere). Raises `kmd.KmdError`, and then
        nothing is left of it.
        """
        buffer = QueueBuffer(kmd.create_gem(self.fd, size, ALIGNMENT, domain, flags, linux=self.linux))
        self._made.append(buffer)
        try:
            if prot:
                buffer.map = kmd.mmap_gem(self.fd, buffer.bo, prot, linux=self.linux)
            if va is not None:
                point = self._timeline.next_point() if self._timeline else (0, 0)
                kmd.map_gem_va(self.fd, buffer.bo, va, access, timeline=point, linux=self.linux)
                buffer.va = va
        except BaseException:
            self.drop(buffer)
            raise
        return buffer

    def drop(self, buffer: QueueBuffer, *, keep_map: bool = False) -> None:
        """Give one back. A GPU that is gone refuses the calls: the kernel frees everything with the file."""
        self._made.remove(buffer)
        linux = self.linux
        if buffer.va is not None:
            with contextlib.suppress(kmd.KmdError):
                kmd.unmap_gem_va(self.fd, buffer.bo, buffer.va, linux=linux)
        if buffer.map is not None and not keep_map:
            with contextlib.suppress(OSError):
                kmd.unmap_gem(buffer.map, linux=linux)
        with contextlib.suppress(kmd.KmdError):
            kmd.close_gem(self.fd, buffer.bo, linux=linux)

    def close(self) -> None:
        """Give all back, the latest first."""
        for buffer in reversed(tuple(self._made)):
            self.drop(buffer)
