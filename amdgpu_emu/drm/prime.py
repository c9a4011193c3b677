"""PRIME: buffers as descriptors, to hand them to another driver, device or process."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from amdgpu_emu.abi.drm import DrmPrimeHandle
from amdgpu_emu.abi.gem import AMDGPU_GEM_CREATE_VM_ALWAYS_VALID
from amdgpu_emu.abi.requests import DRM_PRIME_FD_TO_HANDLE, DRM_PRIME_HANDLE_TO_FD
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.drm.gem import Gem, gem_of
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.file import OpenFile
from amdgpu_emu.memory import BufferObject

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile
    from amdgpu_emu.process import Process

_FLAGS = os.O_CLOEXEC | os.O_RDWR


class DmaBuf(OpenFile):
    """A buffer as a descriptor. gem: the object behind it, which lives as long as the descriptor."""

    path = "anon_inode:dmabuf"

    def __init__(self, process: Process, bo: BufferObject, gem: Gem) -> None:
        super().__init__(process)
        self.bo, self.gem = bo, gem
        gem.get()

    def find_map(self, length: int, protection: int, offset: int) -> BufferObject:
        """The buffer itself, for offset 0. Raises `CallRefused` for other ranges."""
        if offset or length > self.bo.size:
            raise CallRefused(errno.EINVAL, f"{length} bytes from {offset:#x}: the buffer has {self.bo.size}")
        return self.bo

    def release(self) -> None:
        """Drop the hold on the GEM object."""
        self.gem.put()


def handle_to_fd(file: DrmFile, args: DrmPrimeHandle) -> None:
    """Serve PRIME_HANDLE_TO_FD."""
    if args.flags & ~_FLAGS:
        raise CallRefused(errno.EINVAL, f"flags {args.flags:#x}: only O_CLOEXEC and O_RDWR are known")
    gem = gem_of(file, args.handle)
    if gem.user_pages is not None or gem.flags & AMDGPU_GEM_CREATE_VM_ALWAYS_VALID:
        raise CallRefused(errno.EPERM, f"{gem.bo.label} belongs to this address space or program alone")
    args.fd = file.process.add_file(DmaBuf(file.process, gem.bo, gem))


def fd_to_handle(file: DrmFile, args: DrmPrimeHandle) -> None:
    """Serve PRIME_FD_TO_HANDLE. A buffer that already has a handle in this file keeps that one."""
    held = file.process.file(args.fd)
    if held is None:
        raise CallRefused(errno.EBADF, f"descriptor {args.fd} is not open")
    if not isinstance(held, DmaBuf):
        raise CallRefused(errno.EINVAL, f"descriptor {args.fd} is {held.path}, no buffer")
    known = file.gems.number_of(held.gem)
    args.handle = file.open_gem(held.gem) if known is None else known


HANDLERS = (Handler(DRM_PRIME_HANDLE_TO_FD, handle_to_fd), Handler(DRM_PRIME_FD_TO_HANDLE, fd_to_handle))
