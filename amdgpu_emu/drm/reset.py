"""Resets after a hang.

The guilty job ends with ETIME, its ring or the whole card is reset, and jobs whose memory was lost end with ECANCELED.
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from amdgpu_emu.errors import GpuFault

if TYPE_CHECKING:
    from amdgpu_emu.drm.device import DrmDevice
    from amdgpu_emu.drm.jobs import Job
    from amdgpu_emu.drm.rings import KernelRing


def note_fault(device: DrmDevice, job: Job, error: Exception) -> None:
    """Write a page fault, or what stopped the command processor, into the kernel's log."""
    if isinstance(error, GpuFault):
        job.file.last_fault = error
        device.log(f"[gfxhub] page fault in {job.name}: {error}")
    else:
        device.log(f"{job.name} stopped: {error}")


def error_before(job: Job) -> int:
    """The errno with which a job ends instead of running: its entity's last job failed, its VRAM or GPU is gone."""
    if job.file.gpu.lost or job.generation != job.file.gpu.generation:
        return errno.ECANCELED
    return job.entity.error


def error_of_lost_device(device: DrmDevice) -> int:
    """ECANCELED for work that ended because the GPU left the bus, otherwise 0."""
    return errno.ECANCELED if device.gpu.lost else 0


def timed_out(ring: KernelRing, job: Job, error: Exception) -> None:
    """Handle the timeout of a job: end it and reset its ring or the card."""
    device, gpu = ring.device, ring.device.gpu
    device.log(f"ring {ring.id} timeout, {job.name} of process {job.file.process.number}: {error}")
    job.entity.context.guilty = True
    if gpu.ring_reset:
        device.log(f"ring {ring.id} reset succeeded")
        ring.restart()
        gpu.reset(whole=False)
        job.fence.signal(errno.ETIME)
        return
    device.log("GPU reset begin: MODE1, VRAM is lost")
    job.fence.signal(errno.ETIME)
    gpu.reset(whole=True)
    device.log("GPU reset succeeded")


def card_was_reset(device: DrmDevice) -> None:
    """The whole card was reset, by this driver's timer or by KFD's: what ran on it is gone."""
    for ring in device.rings():
        ring.restart()
    for queue in tuple(device.doorbells.values()):
        queue.hang("the GPU was reset")
    for ring in device.rings():
        ring.abort(errno.ECANCELED)
    for ring in device.rings():
        ring.advance()
