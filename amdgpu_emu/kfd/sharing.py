"""Buffers as files: EXPORT_DMABUF, IMPORT_DMABUF, GET_DMABUF_INFO."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from amdgpu_emu.abi import kfd as uapi
from amdgpu_emu.drm.gem import Gem
from amdgpu_emu.drm.prime import DmaBuf
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.kfd.memory import KfdMemory
from amdgpu_emu.memory import Placement
from amdgpu_emu.user_memory import copy_to_user

if TYPE_CHECKING:
    from amdgpu_emu.kfd.process import KfdProcess

_IMPORTED = uapi.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE | uapi.KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE
_PLACES = {
    Placement.VRAM: uapi.KFD_IOC_ALLOC_MEM_FLAGS_VRAM | uapi.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC,
    Placement.GTT: uapi.KFD_IOC_ALLOC_MEM_FLAGS_GTT,
}


def _shared(kfd: KfdProcess, fd: int) -> Gem:
    file = kfd.process.file(fd)
    if file is None:
        raise CallRefused(errno.EBADF, f"{fd} is not an open descriptor")
    if not isinstance(file, DmaBuf) or file.gem is None:
        raise CallRefused(errno.EINVAL, f"{file.path} is no buffer of amdgpu")
    return file.gem


def export_dmabuf(kfd: KfdProcess, args: uapi.ExportDmabufArgs) -> None:
    """Serve EXPORT_DMABUF: a new descriptor for a buffer."""
    kfd.device(args.handle >> 32)
    memory = kfd.memory(args.handle, errno.EINVAL)
    args.dmabuf_fd = kfd.process.add_file(DmaBuf(kfd.process, memory.bo, memory.gem))


def import_dmabuf(kfd: KfdProcess, args: uapi.ImportDmabufArgs) -> None:
    """Serve IMPORT_DMABUF: give a file's buffer a handle; it is writable and executable wherever it is mapped."""
    device = kfd.device(args.gpu_id)
    device.bind()
    gem = _shared(kfd, args.dmabuf_fd)
    if gem.bo.placement not in _PLACES:
        raise CallRefused(errno.EINVAL, f"a buffer in {gem.bo.placement} cannot be imported, only VRAM and GTT")
    args.handle = kfd.memories.add(KfdMemory(device, gem, args.va_addr, _IMPORTED))


def get_dmabuf_info(kfd: KfdProcess, args: uapi.GetDmabufInfoArgs) -> None:
    """Serve GET_DMABUF_INFO: what a file stands for, before it is imported."""
    if not kfd.devices:
        raise CallRefused(errno.EINVAL, "there is no GPU")
    gem = _shared(kfd, args.dmabuf_fd)
    if gem.bo.placement not in _PLACES:
        raise CallRefused(errno.EINVAL, f"a buffer in {gem.bo.placement} is neither VRAM nor GTT")
    room, args.metadata_size = args.metadata_size, len(gem.metadata)
    if args.metadata_ptr and room < len(gem.metadata):
        raise CallRefused(errno.EINVAL, f"{len(gem.metadata)} bytes of metadata do not fit into {room}")
    if args.metadata_ptr:
        copy_to_user(args.metadata_ptr, gem.metadata)
    args.size, args.gpu_id, args.flags = gem.bo.size, gem.device.gpu.gpu_id, _PLACES[gem.bo.placement]
