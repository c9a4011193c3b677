"""The GEM_VA ioctl: maps pages of buffers at addresses of the GPU."""

from __future__ import annotations

import dataclasses
import errno
from typing import TYPE_CHECKING

from amdgpu_emu.abi import gem as uapi
from amdgpu_emu.abi.gem import DrmAmdgpuGemVa
from amdgpu_emu.abi.requests import AMDGPU_GEM_VA
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.drm.fences import Fence, signalled, wait_until
from amdgpu_emu.drm.gem import Gem, gem_of
from amdgpu_emu.drm.syncobj_ioctls import find_fence
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.memory import BufferObject, Placement
from amdgpu_emu.user_memory import copy_from_user
from amdgpu_emu.vm import Mapping
from zinc_rt.utils.linux import PAGE

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile

RESERVED_BOTTOM = 0x10000
HOLE_START, HOLE_END = 0x8000_0000_0000, 0xFFFF_8000_0000_0000
ADDRESS_MASK = 0xFFFF_FFFF_FFFF
VM_SIZE = 1 << 48
RESERVED_TOP = 0x410000
"""Bytes of the context save area, the fence page and the trap handler, at the end of every address space."""
MAX_SPARSE = 1 << 36
_OPERATIONS = (
    uapi.AMDGPU_VA_OP_MAP,
    uapi.AMDGPU_VA_OP_UNMAP,
    uapi.AMDGPU_VA_OP_CLEAR,
    uapi.AMDGPU_VA_OP_REPLACE,
)
_FLAGS = (
    uapi.AMDGPU_VM_DELAY_UPDATE
    | uapi.AMDGPU_VM_PAGE_READABLE
    | uapi.AMDGPU_VM_PAGE_WRITEABLE
    | uapi.AMDGPU_VM_PAGE_EXECUTABLE
    | uapi.AMDGPU_VM_MTYPE_MASK
    | uapi.AMDGPU_VM_PAGE_NOALLOC
)
_PRT_FLAGS = uapi.AMDGPU_VM_DELAY_UPDATE | uapi.AMDGPU_VM_PAGE_PRT


def gem_va(file: DrmFile, args: DrmAmdgpuGemVa) -> None:
    """Serve GEM_VA, checked in the kernel's order. The page tables change for later submissions only."""
    va = _check(file, args)
    timeline = file.since(6, 16)
    gem = None
    if args.operation != uapi.AMDGPU_VA_OP_CLEAR and not args.flags & uapi.AMDGPU_VM_PAGE_PRT:
        gem = gem_of(file, args.handle)
    if timeline:
        _wait_for_inputs(file, args)
    out = None
    if timeline and args.vm_timeline_syncobj_out:
        out = file.syncobjs.get(args.vm_timeline_syncobj_out)
        if out is None:
            raise CallRefused(errno.ENOENT, f"sync object {args.vm_timeline_syncobj_out} does not exist")
    if args.operation == uapi.AMDGPU_VA_OP_UNMAP:
        _unmap(file, gem, va)
    elif args.operation == uapi.AMDGPU_VA_OP_CLEAR:
        _check_range(None, va, 0, args.map_size)
        cut(file, va, args.map_size)
    else:
        _map(file, gem, va, args)
    if out is not None and not args.flags & uapi.AMDGPU_VM_DELAY_UPDATE:
        out.add(signalled("page tables"), args.vm_timeline_point)


def _check(file: DrmFile, args: DrmAmdgpuGemVa) -> int:
    va, size, flags = args.va_address, args.map_size, args.flags
    if va < RESERVED_BOTTOM:
        raise CallRefused(errno.EINVAL, f"address {va:#x} is below {RESERVED_BOTTOM:#x}")
    if HOLE_START <= va < HOLE_END:
        raise CallRefused(errno.EINVAL, f"address {va:#x} is in the hole {HOLE_START:#x}..{HOLE_END:#x}")
    va &= ADDRESS_MASK
    end = va + size
    if not file.since(7, 0):
        end &= (1 << 64) - 1  # the kernel does not notice the overflow
    if end > VM_SIZE - RESERVED_TOP:
        raise CallRefused(errno.EINVAL, f"end {end:#x} is above {VM_SIZE - RESERVED_TOP:#x}, which is reserved")
    if flags & ~_FLAGS and flags & ~_PRT_FLAGS:
        raise CallRefused(errno.EINVAL, f"flags {flags:#x} do not exist or not together")
    if args.operation not in _OPERATIONS:
        raise CallRefused(errno.EINVAL, f"address operation {args.operation} does not exist")
    if file.since(7, 0) and args.vm_timeline_syncobj_out and flags & uapi.AMDGPU_VM_DELAY_UPDATE:
        raise CallRefused(errno.EINVAL, "a delayed update cannot signal a timeline")
    return int(va)


def _wait_for_inputs(file: DrmFile, args: DrmAmdgpuGemVa) -> None:
    raw = copy_from_user(args.input_fence_syncobj_handles, 4 * args.num_syncobj_handles)
    handles = [int.from_bytes(raw[i : i + 4], "little") for i in range(0, len(raw), 4)]
    fences: list[Fence] = []
    for handle in handles:
        if not handle:
            raise CallRefused(errno.EINVAL, "sync object 0 does not exist")
        fences.append(find_fence(file, handle, 0))
    wait_until(file, lambda: all(fence.done for fence in fences), None)


def _check_range(bo: BufferObject | None, va: int, offset: int, size: int) -> None:
    if (va | offset | size) % PAGE:
        raise CallRefused(errno.EINVAL, f"{size:#x} bytes from {offset:#x} at {va:#x} are not whole pages")
    if not size:
        raise CallRefused(errno.EINVAL, "0 bytes cannot be mapped")
    if bo is not None and offset + size > bo.size:
        raise CallRefused(errno.EINVAL, f"{size:#x} bytes from {offset:#x}: the buffer has {bo.size:#x}")
    if va + size > VM_SIZE:
        raise CallRefused(errno.EINVAL, f"end {va + size:#x} is above {VM_SIZE:#x}")


def _map(file: DrmFile, gem: Gem | None, va: int, args: DrmAmdgpuGemVa) -> None:
    offset, size, flags = args.offset_in_bo, args.map_size, args.flags
    _check_range(gem.bo if gem else None, va, offset, size)
    if args.operation == uapi.AMDGPU_VA_OP_REPLACE:
        cut(file, va, size)
    else:
        for other in file.vm.overlapping(va, size):
            raise CallRefused(errno.EINVAL, f"{size:#x} bytes at {va:#x} overlap {other}")
    if gem is None:
        if size > MAX_SPARSE:
            raise CallRefused(errno.ENOMEM, f"a sparse range of {size:#x} bytes: {MAX_SPARSE:#x} are emulated")
        # Pages that are not there: reads give zero. (Hardware drops writes; here they stay readable.)
        bo, offset = BufferObject(size, Placement.GTT, f"sparse range at {va:#x}"), 0
        rights = uapi.AMDGPU_VM_PAGE_READABLE | uapi.AMDGPU_VM_PAGE_WRITEABLE
    else:
        bo, rights = gem.bo, flags
        if flags & uapi.AMDGPU_VM_MTYPE_MASK == uapi.AMDGPU_VM_MTYPE_UC:
            bo.uncached = True
    file.vm.insert(
        Mapping(
            va,
            size,
            bo,
            offset,
            readable=bool(rights & uapi.AMDGPU_VM_PAGE_READABLE),
            writable=bool(rights & uapi.AMDGPU_VM_PAGE_WRITEABLE),
            executable=bool(rights & uapi.AMDGPU_VM_PAGE_EXECUTABLE),
        )
    )


def _unmap(file: DrmFile, gem: Gem | None, va: int) -> None:
    """The start alone identifies a mapping; the size is not looked at."""
    mapping = file.vm.starting_at(va)
    if mapping is None or (gem is not None and mapping.bo is not gem.bo):
        raise CallRefused(errno.ENOENT, f"no mapping of this buffer starts at {va:#x}")
    file.vm.remove(mapping)


def cut(file: DrmFile, va: int, size: int) -> None:
    """Remove a range from every mapping; mappings that reach beyond it are split."""
    end = va + size
    for mapping in file.vm.overlapping(va, size):
        file.vm.remove(mapping)
        if mapping.va < va:
            file.vm.insert(dataclasses.replace(mapping, size=va - mapping.va))
        if mapping.end > end:
            rest = dataclasses.replace(
                mapping, va=end, size=mapping.end - end, offset=mapping.offset + end - mapping.va
            )
            file.vm.insert(rest)


HANDLERS = (Handler(AMDGPU_GEM_VA, gem_va),)
