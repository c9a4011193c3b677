"""Queries of a GEM object: its offset for mmap, whether it is idle, how it was made, its metadata."""

from __future__ import annotations

import ctypes
import errno
import struct
from typing import TYPE_CHECKING

from amdgpu_emu.abi.gem import (
    AMDGPU_GEM_DOMAIN_CPU,
    AMDGPU_GEM_DOMAIN_GTT,
    AMDGPU_GEM_DOMAIN_VRAM,
    AMDGPU_GEM_METADATA_OP_GET_METADATA,
    AMDGPU_GEM_METADATA_OP_SET_METADATA,
    AMDGPU_GEM_OP_GET_GEM_CREATE_INFO,
    AMDGPU_GEM_OP_GET_MAPPING_INFO,
    AMDGPU_GEM_OP_SET_PLACEMENT,
    AMDGPU_VM_PAGE_EXECUTABLE,
    AMDGPU_VM_PAGE_READABLE,
    AMDGPU_VM_PAGE_WRITEABLE,
    DrmAmdgpuGemCreateIn,
    DrmAmdgpuGemMetadata,
    DrmAmdgpuGemMmap,
    DrmAmdgpuGemOp,
    DrmAmdgpuGemWaitIdle,
)
from amdgpu_emu.abi.requests import AMDGPU_GEM_METADATA, AMDGPU_GEM_MMAP, AMDGPU_GEM_OP, AMDGPU_GEM_WAIT_IDLE
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.drm.fences import deadline_of, wait_until
from amdgpu_emu.drm.gem import Gem, gem_of
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.user_memory import copy_to_user

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile

_METADATA_BYTES = 256


def mmap(file: DrmFile, args: DrmAmdgpuGemMmap) -> None:
    """Serve GEM_MMAP. The argument is cleared first, also when the call fails."""
    handle = args.in_.handle
    args.out.addr_ptr = 0
    gem = gem_of(file, handle)
    if gem.node.refused:
        raise CallRefused(errno.EPERM, f"{gem.bo.label} cannot be mapped: {gem.node.refused}")
    args.out.addr_ptr = gem.node.start


def wait_idle(file: DrmFile, args: DrmAmdgpuGemWaitIdle) -> None:
    """Serve GEM_WAIT_IDLE."""
    gem = gem_of(file, args.in_.handle)
    idle = wait_until(file, lambda: not gem.busy, deadline_of(args.in_.timeout))
    ctypes.memset(ctypes.addressof(args), 0, ctypes.sizeof(args))
    args.out.status = 0 if idle else 1


def op(file: DrmFile, args: DrmAmdgpuGemOp) -> None:
    """Serve GEM_OP."""
    newer = file.since(6, 18)
    if newer and args.padding:
        raise CallRefused(errno.EINVAL, f"padding is {args.padding}, not 0")
    gem = gem_of(file, args.handle)
    if args.op == AMDGPU_GEM_OP_GET_GEM_CREATE_INFO:
        info = DrmAmdgpuGemCreateIn(gem.bo.size, gem.alignment, gem.domains, gem.flags)
        copy_to_user(args.value, bytes(info))
    elif args.op == AMDGPU_GEM_OP_SET_PLACEMENT:
        _set_placement(file, gem, args.value)
    elif args.op == AMDGPU_GEM_OP_GET_MAPPING_INFO and newer:
        _mapping_info(file, gem, args)
    else:
        raise CallRefused(errno.EINVAL, f"buffer operation {args.op} does not exist")


def _set_placement(file: DrmFile, gem: Gem, domains: int) -> None:
    if gem.device is not file.device and domains & AMDGPU_GEM_DOMAIN_VRAM:
        raise CallRefused(errno.EINVAL, "an imported buffer cannot move to VRAM")
    if gem.user_pages is not None:
        raise CallRefused(errno.EPERM, "user memory cannot move")
    gem.domains = domains & (AMDGPU_GEM_DOMAIN_CPU | AMDGPU_GEM_DOMAIN_GTT | AMDGPU_GEM_DOMAIN_VRAM)


def _mapping_info(file: DrmFile, gem: Gem, args: DrmAmdgpuGemOp) -> None:
    found = file.vm.of(gem.bo)
    if 0 < len(found) <= args.num_entries:
        rows = []
        for one in found:
            flags = AMDGPU_VM_PAGE_READABLE * one.readable | AMDGPU_VM_PAGE_WRITEABLE * one.writable
            flags |= AMDGPU_VM_PAGE_EXECUTABLE * one.executable
            rows.append(struct.pack("<4Q", one.va, one.size, one.offset, flags))
        copy_to_user(args.value, b"".join(rows))
    args.num_entries = len(found)


def metadata(file: DrmFile, args: DrmAmdgpuGemMetadata) -> None:
    """Serve GEM_METADATA. An unknown operation does nothing, and succeeds."""
    gem, data = gem_of(file, args.handle), args.data
    if args.op == AMDGPU_GEM_METADATA_OP_GET_METADATA:
        data.tiling_info, data.flags = gem.tiling, gem.metadata_flags
        data.data_size_bytes = len(gem.metadata)
        ctypes.memmove(data.data, gem.metadata, len(gem.metadata))
    elif args.op == AMDGPU_GEM_METADATA_OP_SET_METADATA:
        if data.data_size_bytes > _METADATA_BYTES:
            raise CallRefused(errno.EINVAL, f"{data.data_size_bytes} bytes of metadata: {_METADATA_BYTES} fit")
        gem.tiling, gem.metadata_flags = data.tiling_info, data.flags
        gem.metadata = ctypes.string_at(data.data, data.data_size_bytes)


HANDLERS = (
    Handler(AMDGPU_GEM_MMAP, mmap),
    Handler(AMDGPU_GEM_WAIT_IDLE, wait_idle),
    Handler(AMDGPU_GEM_OP, op),
    Handler(AMDGPU_GEM_METADATA, metadata),
)
