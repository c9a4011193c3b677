"""Calls about queues, in the order of `kfd_chardev.c` and `kfd_process_queue_manager.c`."""

from __future__ import annotations

import errno
import struct
from typing import TYPE_CHECKING

from amdgpu_emu.abi import kfd as uapi
from amdgpu_emu.abi.driver import KFD_MMAP_GPU_ID_SHIFT, KFD_MMAP_TYPE_DOORBELL
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.kfd import buffers
from amdgpu_emu.kfd.address_space import is_user_address
from amdgpu_emu.kfd.buffers import QueueProperties
from amdgpu_emu.kfd.queues import ProcessQueue
from amdgpu_emu.memory import Placement
from amdgpu_emu.user_memory import copy_from_user
from amdgpu_emu.vm import Mapping

if TYPE_CHECKING:
    from amdgpu_emu.kfd.process import KfdProcess, ProcessDevice

ENOTSUPP = 524
"""ENOTSUPP, the kernel's internal errno, which is not the EOPNOTSUPP of programs."""
MAX_QUEUES = 127
"""Most queues of a process on one GPU."""
MIN_RING_BYTES = 1024
SDMA_QUEUES = 6
"""Queues of a copy engine for programs; the kernel has two more."""
GWS = 64
"""Global wave sync slots of a GPU: one queue at a time has them."""
_MAX_PERCENTAGE, _MAX_PRIORITY, _MAX_CU_BITS = 100, 15, 1024


def _check_common(args: uapi.CreateQueueArgs96 | uapi.UpdateQueueArgs) -> None:
    percentage = args.queue_percentage & 0xFF  # the next eight bits choose a die
    if percentage > _MAX_PERCENTAGE:
        raise CallRefused(errno.EINVAL, f"queue_percentage {percentage} is beyond {_MAX_PERCENTAGE}")
    if args.queue_priority > _MAX_PRIORITY:
        raise CallRefused(errno.EINVAL, f"queue_priority {args.queue_priority} is beyond {_MAX_PRIORITY}")
    if args.ring_base_address and not is_user_address(args.ring_base_address):
        raise CallRefused(errno.EFAULT, f"ring_base_address {args.ring_base_address:#x} cannot be a program's")
    if args.ring_size & (args.ring_size - 1):
        raise CallRefused(errno.EINVAL, f"ring_size {args.ring_size} is neither 0 nor a power of two")


def _properties(kfd: KfdProcess, args: uapi.CreateQueueArgs96) -> QueueProperties:
    _check_common(args)
    profile = kfd.machine.profile
    metadata = args.metadata_ring_size if profile.kfd_minor >= 22 else 0  # was padding before
    if metadata & (metadata - 1):
        raise CallRefused(errno.EINVAL, f"metadata_ring_size {metadata} is neither 0 nor a power of two")
    addresses = (
        ("read_pointer_address", args.read_pointer_address),
        ("write_pointer_address", args.write_pointer_address),
        ("eop_buffer_address", args.eop_buffer_address),
        ("ctx_save_restore_address", args.ctx_save_restore_address),
    )
    for name, address in addresses:
        if not is_user_address(address):
            raise CallRefused(errno.EFAULT, f"{name} {address:#x} cannot be a program's")
    highest = uapi.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID if profile.kfd_minor >= 17 else uapi.KFD_IOC_QUEUE_TYPE_SDMA_XGMI
    if args.queue_type > highest:
        raise CallRefused(ENOTSUPP, f"there is no queue type {args.queue_type}")
    is_aql = args.queue_type == uapi.KFD_IOC_QUEUE_TYPE_COMPUTE_AQL
    return QueueProperties(
        args.queue_type,
        args.ring_base_address,
        max(args.ring_size, MIN_RING_BYTES) if args.ring_size else 0,
        args.write_pointer_address,
        args.read_pointer_address,
        args.eop_buffer_address,
        args.eop_buffer_size,
        args.ctx_save_restore_address,
        args.ctx_save_restore_size,
        args.ctl_stack_size,
        metadata if is_aql else 0,
    )


def create(kfd: KfdProcess, args: uapi.CreateQueueArgs96) -> None:
    """Serve CREATE_QUEUE."""
    wanted = _properties(kfd, args)
    device = kfd.device(args.gpu_id)
    if device.gpu.lost:
        raise CallRefused(errno.EIO, f"GPU {device.id} is gone")
    device.bind(errno.ESRCH)
    engines = sdma_engines(device)
    if wanted.type == uapi.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID and args.sdma_engine_id >= engines:
        raise CallRefused(errno.EINVAL, f"sdma_engine_id {args.sdma_engine_id}: there are {engines} engines")
    held = buffers.acquire(device, wanted)
    if len(kfd.queues.of(device)) >= MAX_QUEUES:
        raise CallRefused(errno.ENOSPC, f"{MAX_QUEUES} queues of the process are on GPU {device.id} already")
    number = kfd.queues.free_number()
    if held[0].bo.placement is Placement.VRAM and not _is_on(device, held[0]):
        raise CallRefused(errno.EINVAL, "the write pointer lies in the memory of another GPU")
    if device.gpu.in_reset:
        raise CallRefused(errno.EIO, f"GPU {device.id} is being reset")
    sdma = None
    if wanted.is_compute:
        doorbell = device.doorbells.take()
    else:
        sdma = _free_sdma(kfd, device, wanted.type, args.sdma_engine_id)
        doorbell = device.doorbells.take_sdma(sdma % engines, sdma // engines)
    kfd.queues.add(
        ProcessQueue(number, device, wanted, args.queue_percentage & 0xFF, args.queue_priority, doorbell, held, sdma)
    )
    args.queue_id = number
    args.doorbell_offset = KFD_MMAP_TYPE_DOORBELL | device.id << KFD_MMAP_GPU_ID_SHIFT | doorbell * 8


def _is_on(device: ProcessDevice, mapping: Mapping) -> bool:
    return any(memory.bo is mapping.bo and memory.device is device for _, memory in device.kfd.memories)


def sdma_engines(device: ProcessDevice) -> int:
    """Number of copy engines of a GPU."""
    return 1 if device.gpu.model.integrated else 2


def _free_sdma(kfd: KfdProcess, device: ProcessDevice, kind: int, engine: int) -> int:
    """A queue of a copy engine: number = queue of the engine * engines + engine."""
    engines = sdma_engines(device)
    if kind == uapi.KFD_IOC_QUEUE_TYPE_SDMA_XGMI:
        raise CallRefused(errno.ENOMEM, f"GPU {device.id} has no copy engine for links between GPUs")
    taken = {queue.sdma for queue in kfd.queues.of(device)}
    by_engine = kind == uapi.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID
    for number in range(engines * SDMA_QUEUES):
        if number not in taken and (not by_engine or number % engines == engine):
            return number
    raise CallRefused(errno.ENOMEM, f"all queues of the copy engines of GPU {device.id} are taken")


# Calls on an existing queue.


def destroy(kfd: KfdProcess, args: uapi.DestroyQueueArgs) -> None:
    """Serve DESTROY_QUEUE. A queue that hangs is gone too, but only through a reset of the whole GPU (ETIME)."""
    queue = kfd.queues.find(args.queue_id, errno.EINVAL)
    gpu, hung = queue.device.gpu, queue.hung
    kfd.queues.remove(queue)
    if gpu.lost:
        raise CallRefused(errno.EIO, f"GPU {queue.device.id} is gone; the queue is dropped")
    if hung:
        gpu.reset(whole=True)
        raise CallRefused(errno.ETIME, f"the queue could not be stopped, GPU {queue.device.id} was reset: {queue.dead}")


def update(kfd: KfdProcess, args: uapi.UpdateQueueArgs) -> None:
    """Serve UPDATE_QUEUE: ring, percentage, priority. A ring at 0 stops the queue."""
    _check_common(args)
    queue = kfd.queues.find(args.queue_id, errno.EFAULT)
    size = max(args.ring_size, MIN_RING_BYTES) if args.ring_size else 0
    if args.ring_base_address and size:
        try:
            queue.held[2] = buffers.ring(queue.device, args.ring_base_address, size)
        except CallRefused as error:
            raise CallRefused(errno.EFAULT, error.why) from None
    queue.properties.ring, queue.properties.ring_bytes = args.ring_base_address, size
    queue.percentage, queue.priority = args.queue_percentage & 0xFF, args.queue_priority
    queue.device.gpu.kick()


def set_cu_mask(kfd: KfdProcess, args: uapi.SetCuMaskArgs) -> None:
    """Serve SET_CU_MASK: one bit per compute unit; those of a pair (a WGP) go together since gfx10."""
    count = args.num_cu_mask
    if not count or count % 32:
        raise CallRefused(errno.EINVAL, f"num_cu_mask {count} is 0 or not a multiple of 32")
    count = min(count, _MAX_CU_BITS)
    mask = struct.unpack(f"<{count // 32}I", copy_from_user(args.cu_mask_ptr, count // 8))
    queue = kfd.queues.find(args.queue_id, errno.EFAULT)
    for word in mask:
        if (word ^ word >> 1) & 0x55555555:
            raise CallRefused(errno.EINVAL, f"mask {word:#x} splits a pair of compute units")
    queue.cu_mask = mask


def alloc_queue_gws(kfd: KfdProcess, args: uapi.AllocQueueGwsArgs) -> None:
    """Serve ALLOC_QUEUE_GWS: num_gws 0 gives them back."""
    queue = kfd.queues.find(args.queue_id, errno.EINVAL)
    if queue.device.gpu.model.integrated:
        raise CallRefused(errno.ENODEV, f"GPU {queue.device.id} has no GWS")
    owner = next((other for other in kfd.queues.of(queue.device) if other.gws), None)
    if args.num_gws and owner is not None:
        raise CallRefused(errno.EBUSY, f"queue {owner.number} has the GWS already")
    if not args.num_gws and owner is not queue:
        raise CallRefused(errno.EINVAL, f"queue {queue.number} has no GWS to give back")
    queue.gws = GWS if args.num_gws else 0
    args.first_gws = 0


def get_queue_wave_state(kfd: KfdProcess, args: uapi.GetQueueWaveStateArgs) -> None:
    """Serve GET_QUEUE_WAVE_STATE: of a compute queue that is stopped. No wave is ever saved here."""
    queue = kfd.queues.find(args.queue_id, errno.EFAULT)
    if queue.is_active() or not queue.properties.is_compute:
        raise CallRefused(errno.EINVAL, f"queue {queue.number} is active, or no compute queue")
    args.ctl_stack_used_size = args.save_area_used_size = 0
