"""GEM objects, which are buffers with handles: creating, closing, and the caller's pages as a buffer."""

from __future__ import annotations

import ctypes
import errno
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amdgpu_emu.abi import gem as uapi
from amdgpu_emu.abi.drm import DrmGemClose
from amdgpu_emu.abi.gem import DrmAmdgpuGemCreate, DrmAmdgpuGemUserptr
from amdgpu_emu.abi.requests import AMDGPU_GEM_CREATE, AMDGPU_GEM_USERPTR, DRM_GEM_CLOSE
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.drm.device import DrmDevice, MapNode
from amdgpu_emu.drm.fences import Fence
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.memory import BufferObject, Placement, UserMemory
from amdgpu_emu.user_memory import copy_from_user
from zinc_rt.utils.linux import PAGE

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile

_FLAGS = (
    uapi.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED
    | uapi.AMDGPU_GEM_CREATE_NO_CPU_ACCESS
    | uapi.AMDGPU_GEM_CREATE_CPU_GTT_USWC
    | uapi.AMDGPU_GEM_CREATE_VRAM_CLEARED
    | uapi.AMDGPU_GEM_CREATE_VM_ALWAYS_VALID
    | uapi.AMDGPU_GEM_CREATE_EXPLICIT_SYNC
    | uapi.AMDGPU_GEM_CREATE_ENCRYPTED
    | uapi.AMDGPU_GEM_CREATE_GFX12_DCC
    | uapi.AMDGPU_GEM_CREATE_DISCARDABLE
)
_FLAGS_7 = (
    uapi.AMDGPU_GEM_CREATE_VRAM_WIPE_ON_RELEASE
    | uapi.AMDGPU_GEM_CREATE_COHERENT
    | uapi.AMDGPU_GEM_CREATE_UNCACHED
    | uapi.AMDGPU_GEM_CREATE_EXT_COHERENT
)
_ON_CHIP = uapi.AMDGPU_GEM_DOMAIN_GDS | uapi.AMDGPU_GEM_DOMAIN_GWS | uapi.AMDGPU_GEM_DOMAIN_OA
_SPECIAL = _ON_CHIP | uapi.AMDGPU_GEM_DOMAIN_DOORBELL
DOORBELL_BYTES, ON_CHIP_BYTES = 2 << 20, 0x1000
"""Bytes of the doorbell aperture, and of the global data share of gfx12."""
_USERPTR_FLAGS = (
    uapi.AMDGPU_GEM_USERPTR_READONLY
    | uapi.AMDGPU_GEM_USERPTR_ANONONLY
    | uapi.AMDGPU_GEM_USERPTR_VALIDATE
    | uapi.AMDGPU_GEM_USERPTR_REGISTER
)


@dataclass(eq=False)
class Gem:
    """A GEM object. domains, flags, alignment: as `GEM_OP` reports them; owner: the file whose address space it belongs
    to, when it is always valid there; user_pages: address and size of the caller's memory behind it; fences: of the
    jobs that listed it; references: handles, lists, exported files.
    """

    device: DrmDevice
    bo: BufferObject
    node: MapNode
    domains: int
    flags: int
    alignment: int
    owner: DrmFile | None = None
    user_pages: tuple[int, int] | None = None
    fences: list[Fence] = field(default_factory=list)
    tiling: int = 0
    metadata: bytes = b""
    metadata_flags: int = 0
    references: int = 0

    def get(self) -> None:
        """Count one more holder."""
        self.references += 1

    def put(self) -> None:
        """Count one holder less; the last one frees the pages."""
        self.references -= 1
        if not self.references:
            self.device.remove_node(self.node)
            self.device.gpu.release(self.bo)

    def add_fence(self, fence: Fence) -> None:
        """Add the fence of a job that uses the object."""
        self.fences = [old for old in self.fences if not old.done]
        self.fences.append(fence)

    @property
    def busy(self) -> list[Fence]:
        """Fences of jobs that may still use it."""
        fences = self.fences if self.owner is None else self.owner.vm_fences
        return [fence for fence in fences if not fence.done]


def gem_of(file: DrmFile, handle: int, code: int = errno.ENOENT) -> Gem:
    """Find the GEM object of a handle. Raises `CallRefused` with `code`."""
    gem = file.gems.get(handle)
    if gem is None:
        raise CallRefused(code, f"GEM handle {handle} does not exist")
    return gem


def create(file: DrmFile, args: DrmAmdgpuGemCreate) -> None:
    """Serve GEM_CREATE."""
    size, alignment = args.in_.bo_size, args.in_.alignment
    domains, flags = args.in_.domains, args.in_.domain_flags
    _check_create(file, domains, flags)
    bo, domains = _allocate(file, size, domains, flags)
    gem = new_gem(file, bo, domains, flags | uapi.AMDGPU_GEM_CREATE_VRAM_CLEARED, alignment)
    if flags & uapi.AMDGPU_GEM_CREATE_VM_ALWAYS_VALID:
        gem.owner = file
    handle = file.open_gem(gem)
    ctypes.memset(ctypes.addressof(args), 0, ctypes.sizeof(args))
    args.out.handle = handle


def new_gem(file: DrmFile, bo: BufferObject, domains: int, flags: int, alignment: int = 0) -> Gem:
    """Make a GEM object for a buffer."""
    device = file.device
    refused = ""
    if bo.placement is Placement.USERPTR:
        refused = "it is user memory"
    elif flags & uapi.AMDGPU_GEM_CREATE_NO_CPU_ACCESS or domains & _ON_CHIP:
        refused = "it was made without processor access"
    return Gem(device, bo, device.add_node(bo, refused), domains, flags, -(-alignment // PAGE) * PAGE)


def _check_create(file: DrmFile, domains: int, flags: int) -> None:
    known = _FLAGS | (_FLAGS_7 if file.since(7, 0) else 0)
    if not file.since(6, 16) and domains & uapi.AMDGPU_GEM_DOMAIN_DOORBELL:
        raise CallRefused(errno.EINVAL, "doorbells cannot be allocated before Linux 6.16")
    if flags & ~known:
        raise CallRefused(errno.EINVAL, f"domain flags {flags & ~known:#x} cannot be set")
    if domains & ~uapi.AMDGPU_GEM_DOMAIN_MASK:
        raise CallRefused(errno.EINVAL, f"domains {domains & ~uapi.AMDGPU_GEM_DOMAIN_MASK:#x} do not exist")
    special = domains & _SPECIAL
    if file.since(7, 0) and special and domains != special & -special:
        raise CallRefused(errno.EINVAL, f"domains {domains:#x}: a special one stands alone")
    if flags & uapi.AMDGPU_GEM_CREATE_ENCRYPTED:
        raise CallRefused(errno.EINVAL, "encrypted memory needs TMZ, which is off")
    if domains & _ON_CHIP and flags & uapi.AMDGPU_GEM_CREATE_VM_ALWAYS_VALID:
        raise CallRefused(errno.EINVAL, "memory on the chip cannot be always valid")


def _allocate(file: DrmFile, size: int, domains: int, flags: int) -> tuple[BufferObject, int]:
    """A buffer and the domains that it was allowed: what asks for VRAM alone falls back to system memory as well."""
    vram, gtt = uapi.AMDGPU_GEM_DOMAIN_VRAM, uapi.AMDGPU_GEM_DOMAIN_GTT
    try:
        return _place(file, size, domains, flags), domains
    except CallRefused:
        if domains != vram:
            raise
        return _place(file, size, vram | gtt, flags), vram | gtt


def _place(file: DrmFile, size: int, domains: int, flags: int) -> BufferObject:
    gpu, number = file.gpu, file.process.number
    if not domains & _ON_CHIP:
        size = -(-size // PAGE) * PAGE
    if not size:
        raise CallRefused(errno.ENOSPC, "0 bytes have no place among the offsets of mmap")
    special = DOORBELL_BYTES if domains & uapi.AMDGPU_GEM_DOMAIN_DOORBELL else ON_CHIP_BYTES
    if domains & _SPECIAL and size > special:
        raise CallRefused(errno.ENOMEM, f"{size} bytes: there are {special}")
    if domains & uapi.AMDGPU_GEM_DOMAIN_DOORBELL:
        bo = gpu.allocate(size, Placement.DOORBELL, f"doorbell page, process {number}")
        bo.doorbell = lambda offset, value: _ring(file.device, bo, offset, value)
        return bo
    if domains & _ON_CHIP:
        return gpu.allocate(-(-size // 4) * 4, Placement.ON_CHIP, f"on-chip memory, process {number}")
    limit = None
    if domains & uapi.AMDGPU_GEM_DOMAIN_GTT:
        limit = gpu.limits[Placement.GTT]
    elif domains & uapi.AMDGPU_GEM_DOMAIN_VRAM:
        limit = gpu.limits[Placement.VRAM]
    if limit is not None and size >= limit:
        raise CallRefused(errno.ENOMEM, f"{size} bytes: the heap has {limit}")
    label = f"GEM buffer of {size:#x} bytes, process {number}"
    uncached = bool(flags & uapi.AMDGPU_GEM_CREATE_UNCACHED)
    if domains & uapi.AMDGPU_GEM_DOMAIN_VRAM:
        try:
            # Stores to VRAM pass the PCIe aperture, which collects them like write-combined system memory.
            return gpu.allocate(size, Placement.VRAM, f"VRAM {label}", write_combined=True, uncached=uncached)
        except CallRefused:
            if not domains & uapi.AMDGPU_GEM_DOMAIN_GTT:
                raise
    combined = bool(flags & uapi.AMDGPU_GEM_CREATE_CPU_GTT_USWC)
    return gpu.allocate(size, Placement.GTT, f"GTT {label}", write_combined=combined, uncached=uncached)


def _ring(device: DrmDevice, bo: BufferObject, offset: int, value: int) -> None:
    queue = device.doorbells.get((bo, offset // 8))
    if queue is not None:
        queue.ring(value)


def userptr(file: DrmFile, args: DrmAmdgpuGemUserptr) -> None:
    """Serve GEM_USERPTR."""
    address, size, flags = args.addr, args.size, args.flags
    if (address | size) % PAGE:
        raise CallRefused(errno.EINVAL, f"{size:#x} bytes at {address:#x} are not whole pages")
    if flags & ~_USERPTR_FLAGS:
        raise CallRefused(errno.EINVAL, f"flags {flags & ~_USERPTR_FLAGS:#x} do not exist")
    if not flags & (uapi.AMDGPU_GEM_USERPTR_READONLY | uapi.AMDGPU_GEM_USERPTR_REGISTER):
        raise CallRefused(errno.EACCES, "memory that the GPU may write has to be registered")
    if not size:
        raise CallRefused(errno.ENOSPC, "0 bytes have no place among the offsets of mmap")
    check_pages(address, size)
    bo = UserMemory(address, size, f"user memory at {address:#x}, process {file.process.number}")
    gem = new_gem(file, bo, uapi.AMDGPU_GEM_DOMAIN_GTT, 0)
    gem.user_pages = address, size
    args.handle = file.open_gem(gem)


def check_pages(address: int, size: int) -> None:
    """Raise `CallRefused` (EFAULT) unless every page is the caller's."""
    for at in range(address, address + size, PAGE):
        copy_from_user(at, 1)


def close(file: DrmFile, args: DrmGemClose) -> None:
    """Serve GEM_CLOSE. The buffer's addresses on the GPU go with the handle."""
    gem = file.gems.remove(args.handle)
    if gem is None:
        raise CallRefused(errno.EINVAL, f"GEM handle {args.handle} does not exist")
    file.forget_gem(gem)


HANDLERS = (
    Handler(AMDGPU_GEM_CREATE, create),
    Handler(AMDGPU_GEM_USERPTR, userptr),
    Handler(DRM_GEM_CLOSE, close),
)
