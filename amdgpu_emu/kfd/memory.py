"""Buffers that KFD allocates, and their mappings into address spaces (`amdgpu_amdkfd_gpuvm.c`)."""

from __future__ import annotations

import errno
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amdgpu_emu.abi import kfd as uapi
from amdgpu_emu.abi.driver import KFD_DOORBELL_SLICE, KFD_MMAP_GPU_ID_SHIFT, KFD_MMAP_TYPE_MMIO
from amdgpu_emu.abi.gem import AMDGPU_GEM_DOMAIN_DOORBELL, AMDGPU_GEM_DOMAIN_GTT, AMDGPU_GEM_DOMAIN_VRAM
from amdgpu_emu.drm.gem import Gem, new_gem
from amdgpu_emu.drm.handles import Handles
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.kfd.address_space import is_mapped, is_page_aligned
from amdgpu_emu.memory import BufferObject, Placement, UserMemory
from amdgpu_emu.user_memory import copy_from_user
from amdgpu_emu.vm import Mapping
from zinc_rt.utils.linux import PAGE

if TYPE_CHECKING:
    from amdgpu_emu.kfd.process import KfdProcess, ProcessDevice

ADDRESS_LIMIT = 1 << 48
"""Bytes of a GPU's address space."""
GRANULE = 2 << 20
"""Granularity in bytes to which AVAILABLE_MEMORY rounds down."""
_HANDLE_BITS, _NUMBER = 32, (1 << 32) - 1
_DOMAINS = {Placement.VRAM: AMDGPU_GEM_DOMAIN_VRAM, Placement.DOORBELL: AMDGPU_GEM_DOMAIN_DOORBELL}


@dataclass(eq=False)
class KfdMemory:
    """A buffer with a KFD handle. gem:  the object behind it, which other handles and files may share; va: where
    MAP_MEMORY_TO_GPU puts it; aql: mapped twice, one after the other; owned: its pages go with the last holder;
    mapped: its mappings, by device.
    """

    device: ProcessDevice
    gem: Gem
    va: int
    flags: int
    aql: bool = False
    owned: bool = True
    mapped: dict[ProcessDevice, list[Mapping]] = field(default_factory=dict)

    @property
    def bo(self) -> BufferObject:
        """The buffer object with the pages."""
        return self.gem.bo

    def hold(self) -> None:
        """Hold the pages, and let the device's open render node map them."""
        self.gem.get()
        if self.device.drm is not None:
            self.gem.node.allow(self.device.drm)

    def let_go(self) -> None:
        """Drop the hold of a freed handle on the pages."""
        if self.device.drm is not None:
            self.gem.node.revoke(self.device.drm)
        if self.owned:
            self.gem.put()
        else:
            self.gem.device.remove_node(self.gem.node)


class Memories:
    """The KFD handles of a process: the GPU's id << 32 | the lowest free number, from 0 on, for each GPU."""

    def __init__(self) -> None:
        self._of: dict[int, Handles[KfdMemory]] = {}

    def add(self, memory: KfdMemory) -> int:
        """Give a buffer a handle, which holds it."""
        memory.hold()
        numbers = self._of.setdefault(memory.device.id, Handles(first=0))
        return memory.device.id << _HANDLE_BITS | (numbers.add(memory) or 0)

    def find(self, handle: int, code: int) -> KfdMemory:
        """Find a buffer by handle. Raises `CallRefused` with `code`."""
        numbers = self._of.get(handle >> _HANDLE_BITS)
        found = None if numbers is None else numbers.get(handle & _NUMBER)
        if found is None:
            raise CallRefused(code, f"there is no buffer with handle {handle:#x}")
        return found

    def __iter__(self) -> Iterator[tuple[int, KfdMemory]]:
        for gpu_id, numbers in self._of.items():
            for number in numbers:
                yield gpu_id << _HANDLE_BITS | number, self.find(gpu_id << _HANDLE_BITS | number, errno.EINVAL)

    def remove(self, handle: int) -> None:
        """Remove a buffer: free its pages and its offset for mmap."""
        memory = self.find(handle, errno.EINVAL)
        self._of[handle >> _HANDLE_BITS].remove(handle & _NUMBER)
        memory.let_go()

    def release(self, kfd: KfdProcess) -> None:
        """Free all buffers when the process ends.

        The event page is no leak: the driver keeps it until then by design.
        """
        for handle, memory in self:
            if handle != kfd.events.page_handle or not handle:
                where = f", mapped at {memory.va:#x}" if memory.mapped else ""
                kfd.machine.report("leak", f"{memory.bo.label}, {memory.bo.size} bytes, was not freed{where}")
            for device in tuple(memory.mapped):
                _unmap(memory, device)
            self.remove(handle)


# ALLOC_MEMORY_OF_GPU.


def alloc(kfd: KfdProcess, args: uapi.AllocMemoryOfGpuArgs) -> None:
    """Serve ALLOC_MEMORY_OF_GPU. The address is checked only when the buffer is mapped."""
    size, flags = args.size, args.flags
    if not size:
        raise CallRefused(errno.EINVAL, "size is 0")
    vram, user = flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_VRAM, flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR
    if not (vram and not args.va_addr) and kfd.svm.overlaps(args.va_addr, size):
        raise CallRefused(errno.EADDRINUSE, f"{args.va_addr:#x} lies in a range of SVM")
    if user and kfd.svm.overlaps(args.mmap_offset, size):
        raise CallRefused(errno.EADDRINUSE, f"user memory at {args.mmap_offset:#x} lies in a range of SVM")
    device = kfd.device(args.gpu_id)
    model = device.gpu.model
    if vram and flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC and model.mappable_vram < model.vram:
        raise CallRefused(
            errno.EINVAL,
            f"public VRAM needs a large BAR; the processor sees {model.mappable_vram} of {model.vram} bytes",
        )
    device.bind()
    if flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL:
        if size != KFD_DOORBELL_SLICE:
            raise CallRefused(errno.EINVAL, f"doorbells are {KFD_DOORBELL_SLICE} bytes, not {size}")
    elif flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP and size != PAGE:
        raise CallRefused(errno.EINVAL, f"remapped registers are {PAGE} bytes, not {size}")
    memory = _allocate(device, args)
    args.handle = kfd.memories.add(memory)
    args.mmap_offset = memory.gem.node.start
    if flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP:
        args.mmap_offset = KFD_MMAP_TYPE_MMIO | device.id << KFD_MMAP_GPU_ID_SHIFT


def _allocate(device: ProcessDevice, args: uapi.AllocMemoryOfGpuArgs) -> KfdMemory:
    flags, gpu = args.flags, device.gpu
    aql = bool(flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM)
    size = _page_round(args.size // 2 if aql else args.size)
    label = f"buffer for {args.va_addr:#x}"
    owned = True
    if flags & (uapi.KFD_IOC_ALLOC_MEM_FLAGS_VRAM | uapi.KFD_IOC_ALLOC_MEM_FLAGS_GTT):
        vram = bool(flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_VRAM)
        if not size:
            raise CallRefused(errno.EINVAL, "half of the size, for a queue's memory that is mapped twice, is 0")
        place = Placement.VRAM if vram else Placement.GTT
        bo = gpu.allocate(size, place, label, write_combined=vram, uncached=_uncached(device, flags))
    elif flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR:
        if not args.mmap_offset:
            raise CallRefused(errno.EINVAL, "the address of user memory is 0")
        if not is_mapped(args.mmap_offset, args.size):
            raise CallRefused(errno.EFAULT, f"{args.size} bytes at {args.mmap_offset:#x} are not the caller's")
        bo = UserMemory(args.mmap_offset, size, f"user memory at {args.mmap_offset:#x}")
        bo.uncached = _uncached(device, flags)
    elif flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL:
        bo, owned = device.doorbells.page(), False
    elif flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP:
        bo, owned = device.registers(), False
    else:
        raise CallRefused(errno.EINVAL, f"flags {flags:#x} name no place for the memory")
    assert device.drm is not None
    gem = new_gem(device.drm, bo, _DOMAINS.get(bo.placement, AMDGPU_GEM_DOMAIN_GTT), 0)
    return KfdMemory(device, gem, args.va_addr, flags, aql, owned)


def _uncached(device: ProcessDevice, flags: int) -> bool:
    """Whether the driver maps a buffer uncached (`gmc_v10_0.c`, `gmc_v12_0.c`, get_vm_pte)."""
    coherent = uapi.KFD_IOC_ALLOC_MEM_FLAGS_COHERENT if device.gpu.model.gfx[0] < 12 else 0
    return bool(flags & (uapi.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED | coherent))


def _page_round(size: int) -> int:
    return (size + PAGE - 1) // PAGE * PAGE


def free(kfd: KfdProcess, args: uapi.FreeMemoryOfGpuArgs) -> None:
    """Serve FREE_MEMORY_OF_GPU."""
    if args.handle and args.handle == kfd.events.page_handle:
        raise CallRefused(errno.EPERM, "the event page stays until the process ends")
    kfd.device(args.handle >> _HANDLE_BITS)
    memory = kfd.memory(args.handle, errno.EINVAL)
    if memory.mapped:
        raise CallRefused(errno.EBUSY, f"{memory.bo.label} is still mapped on {len(memory.mapped)} GPUs")
    kfd.memories.remove(args.handle)


# Mapping.


def _targets(kfd: KfdProcess, args: uapi.MapMemoryToGpuArgs | uapi.UnmapMemoryFromGpuArgs) -> list[int]:
    if not args.n_devices:
        raise CallRefused(errno.EINVAL, "n_devices is 0")
    if args.n_success > args.n_devices:
        raise CallRefused(errno.EINVAL, f"n_success {args.n_success} is beyond n_devices {args.n_devices}")
    data = copy_from_user(args.device_ids_array_ptr, 4 * args.n_devices)
    kfd.device(args.handle >> _HANDLE_BITS)
    return list(struct.unpack(f"<{args.n_devices}I", data))


def map_memory(kfd: KfdProcess, args: uapi.MapMemoryToGpuArgs) -> None:
    """Serve MAP_MEMORY_TO_GPU: on each GPU of the array; `n_success` counts them, also when a later one fails."""
    targets = _targets(kfd, args)
    kfd.device(args.handle >> _HANDLE_BITS).bind()
    memory = kfd.memory(args.handle, errno.ENOMEM)
    for i in range(args.n_success, args.n_devices):
        device = kfd.device(targets[i])
        device.bind()
        if device not in memory.mapped:
            _map(memory, device)
        args.n_success = i + 1


def _map(memory: KfdMemory, device: ProcessDevice) -> None:
    bo, va, size = memory.bo, memory.va, _page_round(memory.bo.size)
    home = memory.gem.device.gpu
    if not va:
        raise CallRefused(errno.EINVAL, f"{bo.label} has no address")
    out_of_reach = device.gpu is not home and home.model.mappable_vram < home.model.vram
    if bo.placement is Placement.VRAM and out_of_reach:
        raise CallRefused(errno.EINVAL, f"GPU {device.id} cannot reach VRAM of GPU {home.gpu_id}: no large BAR")
    places = (va, va + size) if memory.aql else (va,)
    if not is_page_aligned(va):
        raise CallRefused(errno.EINVAL, f"address {va:#x} is not a multiple of {PAGE}")
    if places[-1] + size > ADDRESS_LIMIT:
        raise CallRefused(errno.EINVAL, f"{va:#x} + {size:#x} is beyond the address space, {ADDRESS_LIMIT:#x}")
    for place in places:
        others = device.vm.overlapping(place, size)
        if others:
            raise CallRefused(errno.EINVAL, f"{size} bytes at {place:#x} overlap {others[0]}")
    writable = bool(memory.flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE)
    executable = bool(memory.flags & uapi.KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE)
    memory.mapped[device] = [Mapping(place, size, bo, 0, True, writable, executable) for place in places]
    for mapping in memory.mapped[device]:
        device.vm.insert(mapping)


def unmap_memory(kfd: KfdProcess, args: uapi.UnmapMemoryFromGpuArgs) -> None:
    """Serve UNMAP_MEMORY_FROM_GPU."""
    targets = _targets(kfd, args)
    memory = kfd.memory(args.handle, errno.ENOMEM)
    for i in range(args.n_success, args.n_devices):
        device = kfd.device(targets[i])
        if device not in memory.mapped:
            raise CallRefused(errno.EINVAL, f"{memory.bo.label} is not mapped on GPU {device.id}")
        for mapping in memory.mapped[device]:
            users = kfd.queues.using(mapping)
            if users:
                raise CallRefused(errno.EBUSY, f"{memory.bo.label} belongs to queue {users[0]}")
        _unmap(memory, device)
        args.n_success = i + 1


def _unmap(memory: KfdMemory, device: ProcessDevice) -> None:
    for mapping in memory.mapped.pop(device):
        if device.vm.starting_at(mapping.va) is mapping:
            device.vm.remove(mapping)


def available(kfd: KfdProcess, args: uapi.GetAvailableMemoryArgs) -> None:
    """Serve AVAILABLE_MEMORY: bytes that the next allocation may take; system memory for an integrated GPU."""
    gpu = kfd.device(args.gpu_id).gpu
    place = Placement.GTT if gpu.model.integrated else Placement.VRAM
    args.available = max(0, gpu.limits[place] - gpu.used[place]) // GRANULE * GRANULE
