"""Memory from amdkfd, at one address for the processor and the GPU.

The address is reserved first, by a map of nothing (PROT_NONE). amdkfd is told to allocate for that address, the render
node's file is mapped over it where the processor shall reach it, and then the GPU's page tables get it. Undone in the
opposite order: off the GPU, free, unmap.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from zinc_rt.amdgpu.abi.kfd import AllocMemoryOfGpuArgs, FreeMemoryOfGpuArgs, MapMemoryToGpuArgs, UnmapMemoryFromGpuArgs
from zinc_rt.amdgpu.abi.requests import (
    KFD_ALLOC_MEMORY_OF_GPU,
    KFD_FREE_MEMORY_OF_GPU,
    KFD_MAP_MEMORY_TO_GPU,
    KFD_UNMAP_MEMORY_FROM_GPU,
    Ioctl,
)
from zinc_rt.amdgpu.errors import StepFailed
from zinc_rt.amdgpu.kfd.calls import call, step
from zinc_rt.amdgpu.kfd.constants import ALLOC_MEM_FLAGS_EXECUTABLE, ALLOC_MEM_FLAGS_PUBLIC
from zinc_rt.amdgpu.kfd.session import KfdSession
from zinc_rt.amdgpu.kfd.sizes import align_up
from zinc_rt.utils.linux import (
    MAP_ANONYMOUS,
    MAP_FIXED,
    MAP_NORESERVE,
    MAP_PRIVATE,
    MAP_SHARED,
    PAGE,
    PROT_NONE,
    PROT_READ,
    PROT_WRITE,
)

HUGE_PAGE = 1 << 21
"""From this size on, addresses are multiples of it: the GPU's page tables then take one entry for 2 MiB."""


class Memory:
    """`size` bytes, whole pages. va: its address, 0 until it is reserved; handle: amdkfd's, None until allocated.

    Every step raises `StepFailed` with the name of a `BringUpStatus`, and leaves what was reached for `discard`.
    """

    def __init__(self, session: KfdSession, size: int, label: str, window: int | None = None) -> None:
        """window: bytes to reserve, when that shall be more than the size."""
        self.session, self.label = session, label
        self.size = align_up(size, PAGE)
        self.window = max(window or 0, self.size)
        self.va = 0
        self.handle: int | None = None
        self.on_cpu = self.on_gpu = self.executable = False
        self._mmap_offset = 0
        self._reserved = False

    def create(self, flags: int, *, visible: bool) -> None:
        """All steps up to the GPU's page tables. visible: whether the processor shall reach it."""
        try:
            self.reserve()
            self.allocate(flags)
            if visible:
                self.map_cpu()
            self.map_gpu()
        except StepFailed as failed:
            failed.memory = f"{'visible ' if flags & ALLOC_MEM_FLAGS_PUBLIC else ''}{self.label}, {self.size} bytes"
            raise

    def reserve(self) -> None:
        """Choose the address."""
        linux = self.session.linux
        alignment = HUGE_PAGE if self.size >= HUGE_PAGE else PAGE
        length = self.window + alignment - PAGE
        flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE
        with step("va_reservation_failed"):
            start = linux.mmap(0, length, PROT_NONE, flags)
            self.va = align_up(start, alignment)
            self._reserved = True
            before, behind = self.va - start, start + length - (self.va + self.window)
            if before:
                linux.munmap(start, before)
            if behind:
                linux.munmap(self.va + self.window, behind)
        base, limit = self.session.aperture
        if self.va < base or self.va + self.window - 1 > limit:
            raise StepFailed("va_outside_aperture")

    def allocate(self, flags: int) -> None:
        """Take the pages. flags: `ALLOC_MEM_FLAGS_*`."""
        args = AllocMemoryOfGpuArgs(self.va, self.size, 0, 0, self.session.node.gpu_id, flags)
        with step("alloc_failed"):
            self._call(KFD_ALLOC_MEMORY_OF_GPU, args)
        self.handle, self._mmap_offset = args.handle, args.mmap_offset
        self.executable = bool(flags & ALLOC_MEM_FLAGS_EXECUTABLE)

    def map_cpu(self) -> None:
        """Let the processor read and write it."""
        session = self.session
        with step("mmap_failed"):
            session.linux.mmap(
                self.va, self.size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, session.render_fd, self._mmap_offset
            )
        self.on_cpu = True

    def map_gpu(self) -> None:
        """Put it into the GPU's page tables."""
        gpu = (ctypes.c_uint32 * 1)(self.session.node.gpu_id)
        args = MapMemoryToGpuArgs(self.handle or 0, ctypes.addressof(gpu), 1, 0)
        with step("map_failed"):
            self._call(KFD_MAP_MEMORY_TO_GPU, args)
        self.on_gpu = True
        if args.n_success != 1:
            raise StepFailed("map_incomplete")

    def unmap_gpu(self) -> None:
        """Take it out of the GPU's page tables; the GPU must no longer use it."""
        gpu = (ctypes.c_uint32 * 1)(self.session.node.gpu_id)
        with step("unmap_failed"):
            self._call(KFD_UNMAP_MEMORY_FROM_GPU, UnmapMemoryFromGpuArgs(self.handle or 0, ctypes.addressof(gpu), 1, 0))
        self.on_gpu = False

    def free(self) -> None:
        """Give the pages back."""
        with step("free_failed"):
            self._call(KFD_FREE_MEMORY_OF_GPU, FreeMemoryOfGpuArgs(self.handle or 0))
        self.handle = None

    def unreserve(self) -> None:
        """Give the address back, and the processor's map with it."""
        if not self._reserved:
            return
        with step("free_failed"):
            # All in one: whatever another thread maps in between would be lost.
            self.session.linux.munmap(self.va, self.window)
        self._reserved = self.on_cpu = False

    def hand_over_map(self) -> None:
        """Somebody else will undo the processor's map, `size` bytes at `va`, later."""
        if self.window > self.size:
            self.session.linux.munmap(self.va + self.size, self.window - self.size)
        self._reserved = self.on_cpu = False

    def destroy(self) -> None:
        """Undo all steps that were done, each once. Raises `StepFailed` at the first that fails."""
        if self.on_gpu:
            self.unmap_gpu()
        if self.handle is not None:
            self.free()
        self.unreserve()

    def discard(self) -> StepFailed | None:
        """Undo all steps that were done, each at most twice; returns what still failed. The address stays taken as long
        as the GPU has something there.
        """
        failed = None
        if self.on_gpu and (failed := _twice(self.unmap_gpu)):
            return failed
        if self.handle is not None:
            failed = _twice(self.free)
        stuck = _twice(self.unreserve)
        return failed or stuck

    def _call(self, request: Ioctl, args: ctypes.Structure) -> None:
        call(self.session.linux, self.session.kfd_fd, request, args)


def _twice(undo: Callable[[], None]) -> StepFailed | None:
    failed = None
    for _ in range(2):
        try:
            undo()
            return None
        except StepFailed as error:
            failed = error
    return failed
