"""The kernel's rings: submissions of all contexts wait their turn, run one after the other, and end or hang."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from amdgpu_emu.cp import CommandProcessor
from amdgpu_emu.drm import reset
from amdgpu_emu.drm.jobs import Job
from amdgpu_emu.errors import GpuFault, GpuHang
from amdgpu_emu.gpu import POLLING, Stream

if TYPE_CHECKING:
    from amdgpu_emu.drm.device import DrmDevice

_NAMES = {0: "gfx_0.0", 1: "comp_1.0"}


@dataclass(frozen=True)
class RingId:
    """IP type and index of a ring."""

    ip_type: int
    index: int

    def __str__(self) -> str:
        return f"{_NAMES.get(self.ip_type, f'ip{self.ip_type}')}.{self.index}"


class KernelRing:
    """A kernel ring: jobs in the order of submission, each after the earlier ones of its entity and its own fences.

    A real kernel's timer runs from the start of a job. Here a job hangs when it makes no progress for that long, since
    the emulated GPU is slow, or when an indirect buffer takes longer on the modelled card (`Gpu.seconds_of`).
    """

    def __init__(self, device: DrmDevice, ring: RingId) -> None:
        self.device, self.id = device, ring
        self.running: tuple[Job, Stream] | None = None
        self._waiting: list[Job] = []
        self.restart()

    def restart(self) -> None:
        """Reset the engine's registers."""
        gpu = self.device.gpu
        self.processor = CommandProcessor(gpu, str(self.id), longest=gpu.machine.profile.job_timeout)

    def submit(self, job: Job) -> None:
        """Queue a job; it starts in its turn."""
        self._waiting.append(job)
        for fence in job.waits:
            fence.then(self.advance)
        self.advance()

    def advance(self) -> None:
        """Start the next job that is ready, unless one runs."""
        while self.running is None:
            job = self._next()
            if job is None:
                return
            self._waiting.remove(job)
            error = reset.error_before(job)
            job.entity.last = job.fence
            job.started.signal()
            if error:
                job.fence.signal(error)
                continue
            gpu = self.device.gpu
            timeout = gpu.machine.profile.job_timeout * gpu.machine.time_scale
            stream = Stream(job.name, iter(()), partial(self._ended, job), timeout)
            stream.steps = self._steps(job, stream)
            self.running = job, stream
            gpu.start(stream)

    def abort(self, error: int) -> None:
        """Abort the job that runs."""
        if self.running is not None:
            job, stream = self.running
            self.device.gpu.remove(stream)
            self.running = None
            job.fence.signal(error)

    def _next(self) -> Job | None:
        passed = set()
        for job in self._waiting:
            if job.entity in passed:
                continue
            if all(fence.done for fence in job.waits):
                return job
            passed.add(job.entity)
        return None

    def _steps(self, job: Job, stream: Stream) -> Iterator[str]:
        gpu = self.device.gpu
        try:
            yield from self._work(job)
        except (GpuFault, GpuHang) as error:
            reset.note_fault(self.device, job, error)
            while not gpu.lost:  # as on a real ring: nothing moves until the driver's timer fires
                yield POLLING
        if gpu.fence_delay:
            stream.timeout = None
            clock = gpu.machine.clock
            end = clock.now() + gpu.fence_delay
            while clock.now() < end and not gpu.lost:
                yield POLLING
        if job.user_fence is not None and not gpu.lost:
            bo, offset = job.user_fence
            bo.bytes[offset : offset + 8].view("<u8")[0] = job.sequence

    def _work(self, job: Job) -> Iterator[str]:
        packets = self._packets(job)
        for state in packets:
            if self.device.gpu.lost:
                return
            try:
                yield state
            except GpuHang as hang:
                packets.throw(hang)  # comes back with the packet that waits
                raise

    def _packets(self, job: Job) -> Generator[str, None, None]:
        for buffer in job.buffers:
            yield from self.processor.indirect(job.vm, buffer.va, buffer.n_dwords, mem_sync=buffer.memory_sync)
        yield from self.processor.end_of_pipe()

    def _ended(self, job: Job, error: Exception | None) -> None:
        if self.running is None or self.running[0] is not job:
            return  # aborted meanwhile
        self.running = None
        if error is None:
            job.fence.signal(reset.error_of_lost_device(self.device))
        else:
            reset.timed_out(self, job, error)
        self.advance()
