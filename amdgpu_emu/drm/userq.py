"""User queues: rings in the program's own memory, which it starts by writing to a doorbell."""

from __future__ import annotations

import ctypes
import errno
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from amdgpu_emu.abi import userq as uapi
from amdgpu_emu.abi.cs import AMDGPU_HW_IP_COMPUTE, AMDGPU_HW_IP_DMA, AMDGPU_HW_IP_GFX
from amdgpu_emu.abi.gem import AMDGPU_GEM_DOMAIN_DOORBELL
from amdgpu_emu.abi.requests import AMDGPU_USERQ
from amdgpu_emu.abi.userq import DrmAmdgpuUserq, DrmAmdgpuUserqIn
from amdgpu_emu.cp import CommandProcessor
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.drm.fences import Fence
from amdgpu_emu.drm.gem import Gem, gem_of
from amdgpu_emu.errors import CallRefused, GpuFault
from amdgpu_emu.gpu import Stream
from amdgpu_emu.memory import Placement
from amdgpu_emu.user_memory import read_struct
from zinc_rt.utils.linux import PAGE

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile

ENOTSUPP = 524
"""ENOTSUPP, the kernel's internal "not supported", which has no name in Python."""
MAX_QUEUES = 511
EOP_BYTES = 2048
SLOTS = {AMDGPU_HW_IP_GFX: 7, AMDGPU_HW_IP_COMPUTE: 4, AMDGPU_HW_IP_DMA: 12}
"""Queues that the scheduler firmware keeps on the hardware at once, per IP; further ones take turns."""
_MQDS: dict[int, type[ctypes.Structure]] = {
    AMDGPU_HW_IP_GFX: uapi.DrmAmdgpuUserqMqdGfx11,
    AMDGPU_HW_IP_COMPUTE: uapi.DrmAmdgpuUserqMqdComputeGfx11,
    AMDGPU_HW_IP_DMA: uapi.DrmAmdgpuUserqMqdSdmaGfx11,
}
_FLAGS = uapi.AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_MASK | uapi.AMDGPU_USERQ_CREATE_FLAGS_QUEUE_SECURE
_ALL_ONES = (1 << 64) - 1
_MUST_BE_ZERO = (
    "ip_type", "doorbell_handle", "doorbell_offset", "flags", "queue_va", "queue_size", "rptr_va", "wptr_va", "mqd",
    "mqd_size",
)  # fmt: skip


class UserQueue:
    """A user queue.

    wptr, rptr: the last doorbell value and the command processor's position, in dwords; fence_va: where the kernel
    keeps `rptr` for other queues to wait for.
    """

    def __init__(self, file: DrmFile, given: DrmAmdgpuUserqIn, doorbell: Gem, slot: int, *, has_eop: bool) -> None:
        self.file, self.doorbell, self.number = file, doorbell, 0
        self.ip_type, self.index = given.ip_type, given.doorbell_offset
        self.queue_va, self.queue_bytes = given.queue_va, given.queue_size
        self.wptr_va, self.rptr_va = given.wptr_va, given.rptr_va
        self.wptr = self.rptr = 0
        self.slot = slot
        self.fence_va = file.fence_page() + 8 * slot
        self.hung = ""
        self._fences: list[tuple[int, Fence]] = []
        name = f"user queue {given.doorbell_offset} of process {file.process.number}"
        # Without a save area its waves cannot be taken off the hardware, so an indirect buffer has as long as a job.
        longest = file.machine.profile.job_timeout
        processor = CommandProcessor(file.gpu, name, eop_buffer=has_eop, kind="umq", longest=longest)
        steps = processor.ring(file.vm, self.queue_va, self.queue_bytes, self._visible_wptr, self._moved)
        self._stream = Stream(name, steps, self._ended)
        doorbell.get()
        file.device.doorbells[doorbell.bo, self.index] = self
        file.gpu.start(self._stream)

    def __str__(self) -> str:
        return f"user queue {self.number} at {self.queue_va:#x}"

    def ring(self, value: int) -> None:
        """Handle a doorbell write: packets up to `value` are complete."""
        seen = self._seen(self.wptr_va)
        if seen != value:
            self.file.machine.report(
                "stale-write-pointer",
                f"the doorbell of {self} says {value}, its write pointer is {self._memory(self.wptr_va)} in memory and "
                f"{seen} for the firmware, which reads it when it puts the queue back on the hardware",
            )
        self.wptr = value
        if self.ip_type == AMDGPU_HW_IP_DMA:
            self.file.machine.report("not-emulated", f"{self} copies: the copy engine's packets are not emulated")
            self.hang("the copy engine's packets are not emulated")
        self.file.gpu.kick()

    def fence(self) -> Fence:
        """Make a fence for all packets up to the write pointer that memory holds now."""
        value = self._memory(self.wptr_va) or 0
        fence = Fence(f"dword {value} of {self}")
        fence.point = (self.fence_va, value)
        if self.hung:
            fence.signal(errno.ECANCELED)
        elif self.rptr >= value:
            fence.signal()
        else:
            self._fences.append((value, fence))
        return fence

    def hang(self, why: str) -> None:
        """Stop a hung queue and signal its fences with an error."""
        self.hung = why
        self.file.device.log(f"{self} of process {self.file.process.number} hung: {why}")
        self.file.gpu.remove(self._stream)
        fences, self._fences = self._fences, []
        for _, fence in fences:
            fence.signal(errno.ECANCELED)

    def destroy(self) -> None:
        """Take the queue off the hardware and free what it holds."""
        self.file.gpu.remove(self._stream)
        self.file.device.doorbells.pop((self.doorbell.bo, self.index), None)
        for _, fence in self._fences:
            fence.signal(errno.ECANCELED)
        self.doorbell.put()

    def _visible_wptr(self) -> int:
        """A GPU that left the bus hears no doorbell any more."""
        return self.rptr if self.file.gpu.lost else self.wptr

    def _moved(self, rptr: int) -> None:
        self.rptr = rptr
        caches = self.file.gpu.caches
        caches.write(self.file.vm, self.rptr_va, rptr.to_bytes(8, "little"), through=False)
        if rptr == self.wptr:
            self._seen(self.wptr_va)  # whether there is more
        self._cell(self.fence_va, "read")[0] = rptr  # the kernel's page, which programs only read
        done = [fence for value, fence in self._fences if value <= rptr]
        self._fences = [(value, fence) for value, fence in self._fences if value > rptr]
        for fence in done:
            fence.signal()

    def _ended(self, error: Exception | None) -> None:
        if isinstance(error, GpuFault):
            self.file.last_fault = error
        self.file.gpu.reset(whole=False)
        self.hang(str(error))

    def _seen(self, va: int) -> int | None:
        """A pointer as the firmware reads it, which is through the L2 where the memory's type lets it."""
        try:
            return int.from_bytes(self.file.gpu.caches.read(self.file.vm, va, 8).tobytes(), "little")
        except GpuFault:
            return None

    def _memory(self, va: int) -> int | None:
        try:
            return int(self._cell(va, "read")[0])
        except GpuFault:
            return None

    def _cell(self, va: int, access: str) -> npt.NDArray[np.uint64]:
        mapping, offset, n = next(self.file.vm.walk(va, 8, access))
        if n < 8:
            raise GpuFault(va, access, f"eight bytes that {mapping} ends within", self.file.vm.nearest(va))
        return mapping.bo.bytes[offset : offset + 8].view(np.uint64)


def userq(file: DrmFile, args: DrmAmdgpuUserq) -> None:
    """Serve USERQ, checked in the kernel's order."""
    given = DrmAmdgpuUserqIn.from_buffer_copy(args.in_)
    if file.since(7, 0) and not file.has_user_queues:
        raise CallRefused(ENOTSUPP, "user queues are off, or the firmware is too old for them")
    if given.op == uapi.AMDGPU_USERQ_OP_CREATE:
        _check_create(file, given)
        number = _create(file, given)
        ctypes.memset(ctypes.addressof(args.out), 0, ctypes.sizeof(args.out))
        args.out.queue_id = number
    elif given.op == uapi.AMDGPU_USERQ_OP_FREE:
        wrong = [name for name in _MUST_BE_ZERO if getattr(given, name)]
        if wrong:
            raise CallRefused(errno.EINVAL, f"{', '.join(wrong)} must be 0 to free a queue")
        queue = file.user_queues.remove(given.queue_id)
        if queue is None:
            raise CallRefused(
                errno.ENOENT if file.since(7, 0) else errno.EINVAL, f"user queue {given.queue_id} does not exist"
            )
        queue.destroy()
    else:
        raise CallRefused(errno.EINVAL, f"queue operation {given.op} does not exist")


def _check_create(file: DrmFile, given: DrmAmdgpuUserqIn) -> None:
    if given.flags & ~_FLAGS:
        raise CallRefused(errno.EINVAL, f"flags {given.flags & ~_FLAGS:#x} do not exist")
    if given.ip_type not in _MQDS:
        file.device.log(f"Usermode queue doesn't support IP type {given.ip_type}")
        raise CallRefused(errno.EINVAL, f"IP type {given.ip_type} has no user queues")
    if given.flags & uapi.AMDGPU_USERQ_CREATE_FLAGS_QUEUE_SECURE and given.ip_type == AMDGPU_HW_IP_DMA:
        raise CallRefused(errno.EINVAL, "secure copy queues need TMZ")
    if file.since(6, 18):
        _check_pointers(file, given)
    priority = given.flags & uapi.AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_MASK
    if priority >= uapi.AMDGPU_USERQ_CREATE_FLAGS_QUEUE_PRIORITY_HIGH and not file.is_privileged:
        raise CallRefused(errno.EACCES, "a queue of high priority needs CAP_SYS_NICE")
    if not file.has_user_queues:
        file.device.log(f"Usermode queue is not supported for this IP ({given.ip_type})")
        raise CallRefused(errno.EINVAL, f"IP type {given.ip_type}: user queues are off, or its firmware is too old")


def _check_pointers(file: DrmFile, given: DrmAmdgpuUserqIn) -> None:
    all_ones = file.since(6, 18) and given.queue_va == _ALL_ONES
    if not given.queue_va or not given.queue_size or all_ones:
        raise CallRefused(errno.EINVAL, f"a ring of {given.queue_size} bytes at {given.queue_va:#x}")
    size = given.queue_size
    if file.since(7, 0) and (size & (size - 1) or size < PAGE):
        raise CallRefused(errno.EINVAL, f"a ring of {size} bytes: a power of two from {PAGE} on is needed")
    if not given.wptr_va or not given.rptr_va:
        raise CallRefused(errno.EINVAL, f"write pointer at {given.wptr_va:#x}, read pointer at {given.rptr_va:#x}")
    if file.since(7, 2) and (given.wptr_va | given.rptr_va) % 8:
        raise CallRefused(errno.EINVAL, "write and read pointer are aligned to 8 bytes")


def _create(file: DrmFile, given: DrmAmdgpuUserqIn) -> int:
    newer = file.since(6, 18)
    if newer:
        pointer = 8 if file.since(7, 2) else PAGE
        _check_mapped(file, given.queue_va, given.queue_size, "ring")
        _check_mapped(file, given.rptr_va, pointer, "read pointer")
        _check_mapped(file, given.wptr_va, pointer, "write pointer")
    doorbell = gem_of(file, given.doorbell_handle, errno.EINVAL)
    if not doorbell.domains & AMDGPU_GEM_DOMAIN_DOORBELL or doorbell.bo.placement is not Placement.DOORBELL:
        raise CallRefused(errno.EINVAL, f"{doorbell.bo.label} is no doorbell page")
    if given.doorbell_offset * 8 + 8 > doorbell.bo.size:
        if not file.since(7, 0):
            file.machine.report("doorbell-outside", f"doorbell {given.doorbell_offset} of {doorbell.bo.size} bytes")
        raise CallRefused(errno.EINVAL, f"doorbell {given.doorbell_offset} is outside {doorbell.bo.size} bytes")
    if not newer:
        _check_pointers(file, given)
    has_eop = _check_mqd(file, given)
    mapping = file.vm.at(given.wptr_va)
    if mapping is None or mapping.bo.size > PAGE:
        raise CallRefused(errno.EINVAL, f"the write pointer at {given.wptr_va:#x} has no buffer of one page")
    if (doorbell.bo, given.doorbell_offset) in file.device.doorbells:
        # A real kernel takes it; then one of the two queues receives no doorbells.
        file.machine.report("doorbell-shared", f"two queues with doorbell {given.doorbell_offset}")
        raise CallRefused(errno.EINVAL, f"doorbell {given.doorbell_offset} has a queue already")
    if len(file.user_queues) >= MAX_QUEUES:
        raise CallRefused(errno.EBUSY if file.since(7, 0) else errno.ENOMEM, f"{MAX_QUEUES} user queues exist")
    queue = UserQueue(file, given, doorbell, file.free_fence_slot(), has_eop=has_eop)
    queue.number = file.user_queues.add(queue) or 0
    return queue.number


def _check_mqd(file: DrmFile, given: DrmAmdgpuUserqIn) -> bool:
    """Whether the queue has an end-of-pipe buffer: a compute queue names it, others have the kernel's."""
    kind = _MQDS[given.ip_type]
    if given.mqd_size != ctypes.sizeof(kind) or not given.mqd:
        raise CallRefused(
            errno.EINVAL, f"a queue descriptor of {given.mqd_size} bytes: {ctypes.sizeof(kind)} are needed"
        )
    try:
        mqd = read_struct(kind, given.mqd)
    except CallRefused as error:
        raise CallRefused(errno.EFAULT if file.since(7, 0) else errno.ENOMEM, error.why) from None
    if not isinstance(mqd, uapi.DrmAmdgpuUserqMqdComputeGfx11):
        return True
    if file.since(6, 18):
        _check_mapped(file, mqd.eop_va, EOP_BYTES if file.since(7, 2) else PAGE, "end-of-pipe buffer")
    return bool(mqd.eop_va)


def _check_mapped(file: DrmFile, va: int, size: int, what: str) -> None:
    mapping = file.vm.at(va)
    if mapping is None or va + size > mapping.end:
        raise CallRefused(errno.EINVAL, f"the {what}, {size:#x} bytes at {va:#x}, is not inside one mapping")


HANDLERS = (Handler(AMDGPU_USERQ, userq),)
