"""The queues of a process: their table, their doorbells, and the streams that run them."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from amdgpu_emu.abi.driver import KFD_MAX_NUM_OF_QUEUES_PER_PROCESS
from amdgpu_emu.abi.kfd import KFD_IOC_QUEUE_TYPE_COMPUTE
from amdgpu_emu.cp import CommandProcessor
from amdgpu_emu.errors import CallRefused, GpuFault, GpuHang
from amdgpu_emu.gpu import IDLE, Stream
from amdgpu_emu.kfd.buffers import QueueProperties
from amdgpu_emu.vm import Mapping
from zinc_rt.utils.linux import PAGE

if TYPE_CHECKING:
    from amdgpu_emu.kfd.process import KfdProcess, ProcessDevice


@dataclass(eq=False)
class ProcessQueue:
    """A KFD queue. written: the last write pointer from the doorbell; consumed: the read pointer; both in dwords of a
    PM4 queue. dead: why it runs no more, empty while it may; hung: its packets or waves cannot be stopped.
    """

    number: int
    device: ProcessDevice
    properties: QueueProperties
    percentage: int
    priority: int
    doorbell: int
    held: list[Mapping]
    sdma: int | None = None
    written: int = 0
    consumed: int = 0
    dead: str = ""
    hung: bool = False
    gws: int = 0
    cu_mask: tuple[int, ...] = ()
    stream: Stream | None = field(default=None, repr=False)

    def is_active(self) -> bool:
        """Whether the queue is scheduled."""
        return bool(self.properties.ring_bytes and self.properties.ring and self.percentage and not self.dead)

    @property
    def place(self) -> tuple[int, int]:
        """Address and bytes of the ring."""
        return self.properties.ring, self.properties.ring_bytes

    def word(self, address: int) -> tuple[Mapping, int]:
        """The memory of a pointer: mapping and byte offset in its buffer."""
        mapping = self.held[0] if address == self.properties.write_pointer else self.held[1]
        return mapping, mapping.offset + address % PAGE

    def write_pointer_memory(self) -> int:
        """The write pointer's value, as the GPU sees it."""
        mapping, at = self.word(self.properties.write_pointer)
        return self.device.gpu.caches.word(mapping.bo, at)

    def retire(self, consumed: int) -> None:
        """Advance the read pointer."""
        self.consumed = consumed
        mapping, at = self.word(self.properties.read_pointer)
        data = np.frombuffer(consumed.to_bytes(8, "little"), np.uint8)
        self.device.gpu.caches.store(mapping.bo, at, data, through=False)
        if consumed == self.written:
            self.write_pointer_memory()  # whether there is more


class Queues:
    """The queues of one process."""

    def __init__(self, kfd: KfdProcess) -> None:
        self._kfd = kfd
        self._queues: dict[int, ProcessQueue] = {}

    def __iter__(self) -> Iterator[ProcessQueue]:
        return iter(tuple(self._queues.values()))

    def __len__(self) -> int:
        return len(self._queues)

    def of(self, device: ProcessDevice) -> list[ProcessQueue]:
        """The queues on one GPU."""
        return [queue for queue in self if queue.device is device]

    def find(self, number: int, code: int) -> ProcessQueue:
        """Find a queue by id. Raises `CallRefused` with `code`."""
        queue = self._queues.get(number)
        if queue is None:
            raise CallRefused(code, f"there is no queue {number}")
        return queue

    def using(self, mapping: Mapping) -> list[int]:
        """The queues that use a mapping."""
        return [queue.number for queue in self if mapping in queue.held]

    # Life.

    def add(self, queue: ProcessQueue) -> None:
        """Add a new queue; a PM4 queue starts to run."""
        self._queues[queue.number] = queue
        if queue.properties.type == KFD_IOC_QUEUE_TYPE_COMPUTE:
            name = f"KFD queue {queue.number} of process {self._kfd.process.number}"
            queue.stream = Stream(name, self._steps(queue, name), lambda error: self._stopped(queue, error))
            queue.device.gpu.start(queue.stream)

    def free_number(self) -> int:
        """The lowest free id. Raises `CallRefused` (ENOMEM)."""
        for number in range(KFD_MAX_NUM_OF_QUEUES_PER_PROCESS):
            if number not in self._queues:
                return number
        raise CallRefused(errno.ENOMEM, f"all {KFD_MAX_NUM_OF_QUEUES_PER_PROCESS} queue ids are taken")

    def remove(self, queue: ProcessQueue) -> None:
        """Remove a queue: its stream, its doorbell, its hold on its buffers."""
        if queue.stream is not None:
            queue.device.gpu.remove(queue.stream)
            queue.stream = None
        queue.device.doorbells.give_back(queue.doorbell)
        del self._queues[queue.number]

    def kill(self, device: ProcessDevice, why: str) -> None:
        """Stop all queues on a GPU for good; they must still be destroyed."""
        for queue in self.of(device):
            queue.dead = queue.dead or why
            queue.hung = False
            if queue.stream is not None:
                device.gpu.remove(queue.stream)
                queue.stream = None

    def release(self) -> None:
        """The process ends."""
        for queue in self:
            self._kfd.machine.report("leak", f"queue {queue.number} on GPU {queue.device.id} was not destroyed")
            self.remove(queue)

    # Running.

    def _steps(self, queue: ProcessQueue, name: str) -> Iterator[str]:
        """Packets of the ring while the queue is active. One that UPDATE_QUEUE moved goes on where the pointers are."""
        device = queue.device
        processor = CommandProcessor(
            device.gpu, name, interrupt=self._kfd.events.interrupt, eop_buffer=bool(queue.properties.eop), kind="kfd"
        )
        while True:
            while not queue.is_active():
                yield IDLE
            place = queue.place
            steps = processor.ring(device.vm, *place, lambda: queue.written, queue.retire, start=queue.consumed)
            for step in steps:
                yield step
                while not queue.is_active():
                    yield IDLE
                if device.gpu.lost:
                    raise CallRefused(errno.ENODEV, f"GPU {device.id} is gone")
                if queue.place != place:
                    break

    def _stopped(self, queue: ProcessQueue, error: Exception | None) -> None:
        queue.stream = None
        kfd, device = self._kfd, queue.device
        if isinstance(error, GpuFault):
            kfd.fault(device, error)
        elif isinstance(error, GpuHang):
            queue.hung, queue.dead = True, str(error)
            kfd.machine.dmesg.append(f"amdgpu: queue {queue.number} of process {kfd.process.number} hangs: {error}")
        else:
            self.kill(device, str(error))
            kfd.events.gpu_reset(device.gpu)

    def rang(self, device: ProcessDevice, cell: int, value: int) -> None:
        """A doorbell was written."""
        report = self._kfd.machine.report
        queue = next((queue for queue in self.of(device) if queue.doorbell == cell), None)
        if queue is None:
            report("doorbell-without-queue", f"doorbell {cell} of GPU {device.id} rang with {value}: no queue has it")
            return
        if queue.properties.type != KFD_IOC_QUEUE_TYPE_COMPUTE:
            report("queue-type", f"queue {queue.number} has type {queue.properties.type}; only PM4 (0) is run")
            return
        memory, ring = queue.write_pointer_memory(), queue.properties.ring_bytes // 4
        if value != memory:
            report("doorbell-mismatch", f"queue {queue.number}: the doorbell says {value}, the write pointer {memory}")
        if value < queue.written:
            report("doorbell-backwards", f"queue {queue.number}: the doorbell went from {queue.written} to {value}")
        ahead = value - queue.consumed
        if ring and ahead > ring:
            report("ring-overrun", f"queue {queue.number}: {ahead} dwords are not read, the ring has {ring}")
        if self._kfd.strict_runtime and not (self._kfd.runtime_called and self._kfd.events.page is not None):
            return
        queue.written = value
        device.gpu.kick()
