"""Buffers of amdgpu: made, mapped into the process, put at addresses of the GPU."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

from zinc_rt.amdgpu.abi.drm import DrmGemClose
from zinc_rt.amdgpu.abi.gem import (
    AMDGPU_VA_OP_MAP,
    AMDGPU_VA_OP_UNMAP,
    DrmAmdgpuGemCreate,
    DrmAmdgpuGemCreateIn,
    DrmAmdgpuGemMmap,
    DrmAmdgpuGemMmapIn,
    DrmAmdgpuGemVa,
)
from zinc_rt.amdgpu.abi.requests import AMDGPU_GEM_CREATE, AMDGPU_GEM_MMAP, AMDGPU_GEM_VA, DRM_GEM_CLOSE
from zinc_rt.amdgpu.drm.call import File, descriptor, ioctl
from zinc_rt.amdgpu.errors import CallFailed
from zinc_rt.utils.linux import MAP_SHARED, PAGE, Linux, host

Mapped = ctypes.Array[ctypes.c_uint8]


@dataclass(frozen=True)
class Bo:
    """A buffer of the kernel: its GEM handle, and the bytes that were asked for."""

    handle: int
    size: int


def create_gem(file: File, size: int, alignment: int, domains: int, flags: int, *, linux: Linux | None = None) -> Bo:
    """A new buffer: size and alignment in bytes, `AMDGPU_GEM_DOMAIN_*`, `AMDGPU_GEM_CREATE_*`. Raises `IoctlFailed`."""
    argument = DrmAmdgpuGemCreate(in_=DrmAmdgpuGemCreateIn(size, alignment, domains, flags))
    ioctl(file, AMDGPU_GEM_CREATE, argument, linux)
    return Bo(argument.out.handle, size)


def close_gem(file: File, bo: Bo, *, linux: Linux | None = None) -> None:
    """Give a buffer back; what was not, goes with the file. Raises `IoctlFailed`."""
    ioctl(file, DRM_GEM_CLOSE, DrmGemClose(bo.handle), linux)


def mmap_gem(file: File, bo: Bo, prot: int, *, linux: Linux | None = None) -> Mapped:
    """The buffer in this process, u8[bo.size] from a page's start; prot: `PROT_*`. It stays until `unmap_gem`.

    Raises `IoctlFailed` when the kernel does not say where it can be mapped, `CallFailed` when it cannot be there.
    """
    argument = DrmAmdgpuGemMmap(in_=DrmAmdgpuGemMmapIn(bo.handle))
    ioctl(file, AMDGPU_GEM_MMAP, argument, linux)
    fd = descriptor(file)
    try:
        address = (linux or host()).mmap(0, bo.size, prot, MAP_SHARED, fd, argument.out.addr_ptr)
    except OSError as error:
        raise CallFailed("mmap of the render node", error.errno or 0) from None
    return (ctypes.c_uint8 * bo.size).from_address(address)


def unmap_gem(mapped: Mapped, *, linux: Linux | None = None) -> None:
    """Undo `mmap_gem`; the bytes must not be touched afterwards. Raises `OSError`."""
    (linux or host()).munmap(ctypes.addressof(mapped), len(mapped))


def map_gem_va(
    file: File, bo: Bo, va: int, flags: int, *, timeline: tuple[int, int] = (0, 0), linux: Linux | None = None
) -> None:
    """Put a whole buffer at an address of the GPU, a multiple of 4096. flags: `AMDGPU_VM_PAGE_*` and
    `AMDGPU_VM_MTYPE_*`. Raises `IoctlFailed`.

    timeline: sync object and point that are signalled when the page tables are written (Linux 6.16 and newer). Kernel
    rings wait for that by themselves, user queues do not.
    """
    _gem_va(file, AMDGPU_VA_OP_MAP, bo, va, flags, timeline, linux)


def unmap_gem_va(file: File, bo: Bo, va: int, *, linux: Linux | None = None) -> None:
    """Undo `map_gem_va`. Raises `IoctlFailed`."""
    _gem_va(file, AMDGPU_VA_OP_UNMAP, bo, va, 0, (0, 0), linux)


def _gem_va(
    file: File, operation: int, bo: Bo, va: int, flags: int, timeline: tuple[int, int], linux: Linux | None
) -> None:
    # Whole pages, as the kernel rounded the buffer: with the bytes that were asked for, MAP would be refused.
    size = (bo.size + PAGE - 1) // PAGE * PAGE
    syncobj, point = timeline
    argument = DrmAmdgpuGemVa(bo.handle, 0, operation, flags, va, 0, size, point, syncobj)
    ioctl(file, AMDGPU_GEM_VA, argument, linux)
