"""A compute user queue: packets go into a ring that the GPU reads by itself; the kernel sees none of them.

A submission is a few packets in the ring, as over /dev/kfd: earlier waves are done, host writes become visible (HDP
flush, caches dropped), the caller's packets run as a called indirect buffer, and an end-of-pipe fence writes the
submission's number to memory.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from zinc_rt.amdgpu import drm
from zinc_rt.amdgpu.abi.cs import AMDGPU_HW_IP_COMPUTE
from zinc_rt.amdgpu.abi.drm import DrmVersion
from zinc_rt.amdgpu.abi.gem import AMDGPU_GEM_DOMAIN_GTT
from zinc_rt.amdgpu.abi.info import (
    AMDGPU_INFO_DEV_INFO,
    AMDGPU_INFO_MEMORY,
    DrmAmdgpuInfoDevice,
    DrmAmdgpuMemoryInfo,
)
from zinc_rt.amdgpu.abi.requests import DRM_VERSION
from zinc_rt.amdgpu.advice import KERNEL_LOG, STEPS, file_advice, remedy
from zinc_rt.amdgpu.drm import QueryResult, ioctl
from zinc_rt.amdgpu.drm_memory import GPU_UNCACHED, RenderBuffers, RenderMemory
from zinc_rt.amdgpu.errors import BufferFailed, CallFailed, InterfaceError, IoctlFailed
from zinc_rt.amdgpu.gfx import generations, gfx_name, gfx_of, version_of
from zinc_rt.amdgpu.interface import CLOCK_HZ, DEFAULT_RENDER_NODE, DeviceBuffer, DeviceInfo, Heap, HostUse, Interface
from zinc_rt.amdgpu.job_limit import job_limit
from zinc_rt.amdgpu.ranges import Ranges
from zinc_rt.amdgpu.room import gtt_of
from zinc_rt.amdgpu.submission_packets import SubmissionPackets
from zinc_rt.amdgpu.umq.admission import admission
from zinc_rt.amdgpu.umq.queue import ALWAYS, EOP_VA, QUEUE_VA, UmqQueue
from zinc_rt.amdgpu.umq.timeline import Timeline
from zinc_rt.amdgpu.umq.watch import Watch
from zinc_rt.errors import DeviceLost, FenceTimeout
from zinc_rt.utils.linux import PAGE, Linux, host

FENCE_VA = QUEUE_VA + 0x10_0000
_POOL_VA = QUEUE_VA + 0x1000_0000
_SAFETY = 4
_SPIN = 0.0002
_LONGEST_SLEEP = 0.001
_WATCH_AFTER = 0.05


class UserQueueInterface(Interface):
    """A compute user queue of one render node.

    room_timeout: seconds that `submit` waits for a full ring; table_timeout: seconds for a change of the GPU's page
    tables; drain_timeout: seconds that `close` waits for what still runs; reset_grace: seconds that the queue gets to
    move again after a reset, which may have been another program's.
    """

    name = "umq"
    room_timeout = 10.0
    table_timeout = 10.0
    drain_timeout = 5.0
    reset_grace = 1.0
    longest_job = 0.02
    """Its waves cannot be saved: whoever wants the GPU, or memory back, waits for the end of a submission."""

    def __init__(
        self, render_node: str = DEFAULT_RENDER_NODE, *, linux: Linux | None = None, partial_flush: bool = True
    ) -> None:
        """partial_flush: see `DeviceInfo`. Raises `InterfaceError` with the step that failed and what would help; then
        nothing is left open.
        """
        self.linux = linux or host()
        admitted = _admitted(render_node, self.linux)
        self.longest_job = min(self.longest_job, job_limit(self.linux) / _SAFETY)
        self._lost = self._closed = False
        self._submitted = 0
        with ExitStack() as undo, self._step(f"opening {render_node}"):
            self._fd = self._open(render_node)
            undo.callback(self._close_file)
            self._watch = Watch(self._fd, self.linux)
            undo.callback(self._watch.close)
            timeline = Timeline(self._fd, self.linux)
            undo.callback(timeline.close)
            self._timeline = timeline
            device, addresses = device_info(self._fd, render_node, self.linux)
            self.device = replace(device, partial_flush=partial_flush)
            gfx = gfx_of(self.device.gfx_target_version)
            if gfx is None:
                name = gfx_name(self.device.gfx_target_version)
                raise InterfaceError(
                    f"a user queue on {render_node}", None, f"{generations()} are supported, not {name}"
                )
            self._buffers = RenderBuffers(self._fd, render_node, self.linux, timeline)
            undo.callback(self._buffers.close)
            ranges = Ranges(_POOL_VA, addresses.stop - _POOL_VA, "GPU addresses")
            self._memory = RenderMemory(self._buffers, ranges, flags=ALWAYS, combined=False)
            info = admitted.info
            assert info is not None, "it was admitted"
            queue = UmqQueue.allocate(self._buffers, info.eop_size, info.eop_alignment, readable=True)
            self._fence = self._buffers.make(
                "fence", PAGE, AMDGPU_GEM_DOMAIN_GTT, ALWAYS, va=FENCE_VA, access=GPU_UNCACHED
            ).mapped
            timeline.wait(self.table_timeout)
            queue.create()
            undo.callback(self._free_queue, queue)
            self._ring = queue.user_ring()
            self._gfx = gfx
            self._packets = self._packets_of(partial_flush=partial_flush)
            self._undo = undo.pop_all()

    def _packets_of(self, *, partial_flush: bool) -> SubmissionPackets:
        return SubmissionPackets(
            FENCE_VA, self._gfx, flush_hdp=not self.device.gtt, inherit_vmid=True, partial_flush=partial_flush
        )

    def wait_by_release(self) -> None:
        """See `Interface`."""
        super().wait_by_release()
        self._packets = self._packets_of(partial_flush=False)

    def _open(self, render_node: str) -> int:
        try:
            return self.linux.open(render_node)
        except OSError as error:
            advice = "; ".join(file_advice(self.linux, render_node, error.errno or 0))
            raise InterfaceError(f"opening {render_node}", error.errno, advice) from None

    # Memory.

    def allocate(
        self,
        size: int,
        heap: Heap,
        label: str,
        *,
        executable: bool = False,
        visible: bool = True,
        use: HostUse = "writes",
    ) -> DeviceBuffer:
        """See `Interface`."""
        with self._step(f"{label}: {size} bytes of {heap}"):
            buffer = self._memory.allocate(size, heap, label, executable=executable, visible=visible, use=use)
            try:
                self._timeline.wait(self.table_timeout)
            except IoctlFailed:
                self._memory.release(buffer)
                raise
        return buffer

    def release(self, buffer: DeviceBuffer) -> None:
        """See `Interface`. What a GPU that is gone refuses, the kernel frees with the file."""
        self._memory.release(buffer)

    # Work.

    def submit(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
        """See `Interface`."""
        sequence = self._submitted + 1
        self._wait_for_room(self._packets.n_dwords, sequence)
        self._ring.put(self._packets.build(buffer.va + offset, n_dwords, sequence))
        self._ring.kick()
        self._submitted = sequence
        return sequence

    def _unread(self) -> int:
        """Dwords that the GPU has not fetched yet."""
        return (self._ring.written - self._ring.read_pointer()) % len(self._ring)

    def _wait_for_room(self, n: int, sequence: int) -> None:
        """Until `n` dwords can be written without touching one that is still to be read. A full ring would look empty,
        so one dword stays free.
        """
        for _ in self._patience(self.room_timeout):
            if n < len(self._ring) - self._unread():
                return
        raise InterfaceError(
            f"submission {sequence}: the ring stayed full for {self.room_timeout:g} s; {self._progress()}",
            None,
            KERNEL_LOG,
        )

    def retired(self) -> int:
        """See `Interface`."""
        return self.linux.load64(self._fence)

    def wait(self, sequence: int, timeout: float) -> None:
        """See `Interface`."""
        if self.retired() >= sequence:
            return
        for _ in self._patience(timeout):
            if self.retired() >= sequence:
                return
        raise FenceTimeout(
            f"{self.name}: submission {sequence} did not retire within {timeout:g} s; {self._progress()}; {KERNEL_LOG}"
        )

    def _patience(self, seconds: float) -> Iterator[None]:
        """Yields until the time is over: without a pause at first, then with longer ones, looking after the GPU."""
        start = now = self.linux.monotonic_ns()
        pause, watch, reset_at = 0.00002, _WATCH_AFTER, 0.0
        while True:
            yield
            now = self.linux.monotonic_ns()
            passed = (now - start) / 1e9
            if passed >= seconds:
                self._look()
                return
            if passed < _SPIN:
                continue
            if passed >= watch:
                watch = passed + _WATCH_AFTER
                self._look()
                if not reset_at and self._watch.was_reset():
                    reset_at = passed
                if reset_at and passed - reset_at > self.reset_grace:
                    raise self._loss("an engine of the GPU was reset and the queue does not move any more")
            self.linux.sleep(min(pause, seconds - passed))
            pause = min(2 * pause, _LONGEST_SLEEP)

    # What became of it.

    def _progress(self) -> str:
        fault = self._watch.fault()
        unread = self._unread()
        text = f"{self.retired()} was the last of {self._submitted} to retire, {unread} dwords of the ring are unread"
        return text if fault is None else f"{text}, page fault at {self._name_of(fault)}"

    def _name_of(self, va: int) -> str:
        """An address with the buffer that it is in, or behind."""
        names = {at: label for at, _, label in self._memory.ranges}
        names |= {QUEUE_VA: "the ring", EOP_VA: "the end-of-pipe buffer", FENCE_VA: "the fence"}
        start = max((at for at in names if at <= va), default=None)
        return f"{va:#x}" + (f", {va - start:#x} behind the start of {names[start]}" if start is not None else "")

    def _look(self) -> None:
        why = self._watch.gone()
        if why:
            raise self._loss(why)

    def _loss(self, why: str) -> DeviceLost:
        self._lost = True
        return DeviceLost(
            f"{self.name} on {self.device.render_node}: {why}; {self._progress()}; {KERNEL_LOG}; then start again"
        )

    @contextmanager
    def _step(self, step: str) -> Iterator[None]:
        """Name the step that a refused call belongs to; `DeviceLost` when the GPU is gone."""
        try:
            yield
        except (BufferFailed, CallFailed) as error:
            if error.errno == errno.ENODEV:
                self._lost = True
                raise DeviceLost(f"{self.name}: {step}: {error.call}: the GPU left the bus; start again") from None
            if isinstance(error, BufferFailed):
                raise
            raise InterfaceError(f"{step}: {error.call}", error.errno, remedy("", error.errno)) from None

    # The end.

    def close(self) -> None:
        """See `Interface`."""
        if self._closed:
            return
        self._closed = True
        if not self._lost and self._submitted:
            self._drain()
        self._memory.let_go()
        self._undo.close()

    def _drain(self) -> None:
        with contextlib.suppress(DeviceLost):
            for _ in self._patience(self.drain_timeout):
                if self.retired() >= self._submitted:
                    return

    def _free_queue(self, queue: UmqQueue) -> None:
        with contextlib.suppress(IoctlFailed):
            queue.free()

    def _close_file(self) -> None:
        with contextlib.suppress(OSError):
            self.linux.close(self._fd)


def _admitted(render_node: str, linux: Linux) -> QueryResult:
    """What the kernel says of its user queues. Raises `InterfaceError` when it offers none."""
    found = admission(render_node, linux)
    if found.word or found.query is None:
        step = STEPS[found.word]
        code = found.query.errno if found.query is not None else None
        advice = f"{step.text}; {step.remedy}" if step.remedy else step.text
        raise InterfaceError(f"a user queue on {render_node}", code, advice)
    return found.query


def device_info(fd: int, render_node: str, linux: Linux) -> tuple[DeviceInfo, range]:
    """The GPU, and the GPU addresses that programs may use. Raises `IoctlFailed`."""
    ip = drm.query_hw_ip(fd, AMDGPU_HW_IP_COMPUTE, linux=linux)
    device, memory = DrmAmdgpuInfoDevice(), DrmAmdgpuMemoryInfo()
    drm.query_info(fd, AMDGPU_INFO_DEV_INFO, device, linux=linux)
    drm.query_info(fd, AMDGPU_INFO_MEMORY, memory, linux=linux)
    info = DeviceInfo(
        render_node=render_node,
        gfx_target_version=version_of(ip.ip_discovery_version),
        compute_units=device.cu_active_number,
        vram=memory.vram.total_heap_size,
        visible_vram=memory.cpu_accessible_vram.total_heap_size,
        driver=f"amdgpu {_drm_version(fd, linux)} of Linux {linux.kernel_release()}",
        clock_hz=1000 * device.gpu_counter_freq or CLOCK_HZ,
        gtt=gtt_of(device.ids_flags, render_node, linux),
    )
    return info, range(device.virtual_address_offset, device.virtual_address_max)


def _drm_version(fd: int, linux: Linux) -> str:
    version = DrmVersion()
    with contextlib.suppress(IoctlFailed):
        ioctl(fd, DRM_VERSION, version, linux)
    return f"{version.version_major}.{version.version_minor}"
