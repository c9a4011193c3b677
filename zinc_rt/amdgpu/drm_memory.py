"""Memory of one open render node: buffers at GPU addresses and, when asked for, in the process; all of it given back.

CS and user queues have it in common. `RenderBuffers` makes single buffers at addresses of the caller's choice;
`RenderMemory` chooses the addresses and makes the `DeviceBuffer`s of an interface.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from zinc_rt.amdgpu import drm
from zinc_rt.amdgpu.abi import gem
from zinc_rt.amdgpu.address_range import AddressRange
from zinc_rt.amdgpu.advice import remedy
from zinc_rt.amdgpu.errors import BufferFailed, CallFailed, InterfaceError
from zinc_rt.amdgpu.interface import DeviceBuffer, Heap, HostUse
from zinc_rt.amdgpu.ranges import Ranges
from zinc_rt.mem.arena import align_up
from zinc_rt.utils.linux import PAGE, PROT_READ, PROT_WRITE, Linux

READ_WRITE = PROT_READ | PROT_WRITE
GPU_READ_WRITE = gem.AMDGPU_VM_PAGE_READABLE | gem.AMDGPU_VM_PAGE_WRITEABLE | gem.AMDGPU_VM_MTYPE_DEFAULT
GPU_ALL = GPU_READ_WRITE | gem.AMDGPU_VM_PAGE_EXECUTABLE
GPU_UNCACHED = gem.AMDGPU_VM_PAGE_READABLE | gem.AMDGPU_VM_PAGE_WRITEABLE | gem.AMDGPU_VM_MTYPE_UC
"""For what the processor and the GPU look at while work runs: the GPU's L2 keeps nothing of it."""
ALIGNMENT = 256
HUGE_PAGE = 2 << 20
"""From this size on, addresses are multiples of it: page tables take this much at once."""


class PageTableClock(Protocol):
    """Tells when the GPU's page tables are written."""

    def next_point(self) -> tuple[int, int]:
        """The sync object and the point that the next change shall signal."""


@dataclass(eq=False)
class RenderBuffer:
    """va: on the GPU, None when it has no address there, as a doorbell; address: in this process, None when it is not
    mapped here or somebody else will unmap it.
    """

    label: str
    bo: drm.Bo
    va: int | None = None
    address: int | None = None

    @property
    def handle(self) -> int:
        """Of GEM."""
        return self.bo.handle

    @property
    def size(self) -> int:
        """Bytes."""
        return self.bo.size

    @property
    def mapped(self) -> int:
        """The address in this process of a buffer that was made with one."""
        assert self.address is not None, "the buffer was made without a map"
        return self.address


class RenderBuffers:
    """Buffers of an open render node that are not released yet."""

    def __init__(self, fd: int, node: str, linux: Linux, clock: PageTableClock | None = None) -> None:
        """fd, node: of the render node; clock: for user queues, which run ahead of the page tables that kernel rings
        wait for.
        """
        self.fd, self.node, self.linux, self._clock = fd, node, linux, clock
        self._made: list[RenderBuffer] = []

    def make(
        self,
        label: str,
        size: int,
        domain: int,
        flags: int,
        *,
        va: int | None = None,
        prot: int = READ_WRITE,
        access: int = GPU_ALL,
    ) -> RenderBuffer:
        """Create, map into the process (prot 0: not), put at `va` (None: nowhere). size: whole pages.

        Raises `BufferFailed`, and then nothing is left of it.
        """
        fd, linux = self.fd, self.linux
        with self._part(label, "bo", f"allocating {size} bytes"):
            buffer = RenderBuffer(label, drm.create_gem(fd, size, ALIGNMENT, domain, flags, linux=linux))
        self._made.append(buffer)
        try:
            if prot:
                with self._part(label, "map", f"mapping {size} bytes into the process"):
                    buffer.address = ctypes.addressof(drm.mmap_gem(fd, buffer.bo, prot, linux=linux))
            if va is not None:
                with self._part(label, "va", f"giving {size} bytes the GPU address {va:#x}"):
                    point = self._clock.next_point() if self._clock else (0, 0)
                    drm.map_gem_va(fd, buffer.bo, va, access, timeline=point, linux=linux)
                buffer.va = va
        except BaseException:
            self.drop(buffer)
            raise
        return buffer

    @contextmanager
    def _part(self, label: str, part: str, action: str) -> Iterator[None]:
        try:
            yield
        except CallFailed as error:
            step, advice = f"{self.node}: {label}: {action}", remedy("", error.errno)
            raise BufferFailed(label, part, error.errno, step, advice, call=error.call) from error

    def drop(self, buffer: RenderBuffer) -> int | None:
        """Give one back, every part of it; the errno of the last that was refused. What stays goes with the file."""
        self._made.remove(buffer)
        fd, linux, bo, va = self.fd, self.linux, buffer.bo, buffer.va
        address, buffer.address = buffer.address, None
        steps: list[Callable[[], None]] = []
        if va is not None:
            steps.append(lambda: drm.unmap_gem_va(fd, bo, va, linux=linux))
        if address is not None:
            steps.append(lambda: linux.munmap(address, bo.size))
        steps.append(lambda: drm.close_gem(fd, bo, linux=linux))
        refused = None
        for step in steps:
            try:
                step()
            except (CallFailed, OSError) as error:
                refused = error.errno
        return refused

    def close(self) -> None:
        """Give all back, the latest first."""
        for buffer in reversed(tuple(self._made)):
            self.drop(buffer)


class RenderMemory:
    """The `DeviceBuffer`s of one interface. addresses: of the GPU, to choose from; flags: of GEM_CREATE for every
    buffer, beside those that say who reaches it; combined: whether maps of what the processor only writes are
    write-combined.
    """

    def __init__(self, buffers: RenderBuffers, addresses: Ranges, *, flags: int, combined: bool) -> None:
        self._buffers, self._addresses, self._flags, self._combined = buffers, addresses, flags, combined
        self._made: dict[DeviceBuffer, RenderBuffer] = {}

    def __iter__(self) -> Iterator[DeviceBuffer]:
        return iter(self._made)

    @property
    def handles(self) -> list[int]:
        """Of GEM."""
        return [buffer.handle for buffer in self._made]

    @property
    def ranges(self) -> list[AddressRange]:
        """Where the buffers are, for messages."""
        return [(buffer.va, buffer.size, buffer.label) for buffer in self._made]

    def allocate(
        self, size: int, heap: Heap, label: str, *, executable: bool, visible: bool, use: HostUse
    ) -> DeviceBuffer:
        """See `Interface.allocate`."""
        size = align_up(size, PAGE)
        domain, flags = gem.AMDGPU_GEM_DOMAIN_GTT, self._flags
        if heap == "gtt" and use == "writes" and self._combined:
            flags |= gem.AMDGPU_GEM_CREATE_CPU_GTT_USWC
        if heap == "vram":
            domain = gem.AMDGPU_GEM_DOMAIN_VRAM
            flags |= gem.AMDGPU_GEM_CREATE_VRAM_CLEARED
            flags |= gem.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED if visible else gem.AMDGPU_GEM_CREATE_NO_CPU_ACCESS
        # A page that nothing is mapped to follows every buffer: a program that runs over the end faults.
        va = self._addresses.take(size + PAGE, HUGE_PAGE if size >= HUGE_PAGE else PAGE)
        if va is None:
            raise InterfaceError(f"{label}: finding {size} bytes of GPU addresses", None, "free some buffers")
        try:
            prot, access = READ_WRITE if visible else 0, GPU_UNCACHED if use == "polls" else GPU_READ_WRITE
            if executable:
                access |= gem.AMDGPU_VM_PAGE_EXECUTABLE
            made = self._buffers.make(label, size, domain, flags, va=va, prot=prot, access=access)
        except BaseException:
            self._addresses.give(va)
            raise
        buffer = DeviceBuffer(va, size, heap, made.address, made.handle, label)
        self._made[buffer] = made
        return buffer

    def release(self, buffer: DeviceBuffer) -> int | None:
        """See `Interface.release`; the errno of what the driver refused."""
        made = self._made.pop(buffer)
        made.address, buffer.address = buffer.address, None
        try:
            return self._buffers.drop(made)
        finally:
            self._addresses.give(buffer.va)

    def let_go(self) -> None:
        """Before the buffers are closed: maps that somebody has taken over stay."""
        for buffer, made in self._made.items():
            made.address, buffer.address = buffer.address, None
        self._made.clear()
