"""The interface over a user queue: packets go into a ring that the GPU reads by itself; the kernel sees none of them.

A submission is a few packets in the ring, as over /dev/kfd: earlier waves are done, host writes become visible (HDP
flush, caches dropped), the caller's packets run as a called indirect buffer, and an end-of-pipe fence writes the
submission's number to memory.
"""

from __future__ import annotations

import contextlib
import errno
import math
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from zinc_rt.amdgpu import drm as kmd
from zinc_rt.amdgpu.abi.gem import AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED, AMDGPU_GEM_CREATE_NO_CPU_ACCESS
from zinc_rt.amdgpu.errors import DeviceLost, FenceTimeout, InterfaceError
from zinc_rt.amdgpu.gfx import generations, gfx_name, gfx_of
from zinc_rt.amdgpu.interface import DeviceBuffer, Heap, Interface
from zinc_rt.amdgpu.ranges import Ranges
from zinc_rt.amdgpu.submission_packets import MAX_INDIRECT, SubmissionPackets
from zinc_rt.amdgpu.umq.advice import explain
from zinc_rt.amdgpu.umq.buffers import READ_WRITE, Buffers, QueueBuffer
from zinc_rt.amdgpu.umq.device import device_info
from zinc_rt.amdgpu.umq.preflight import DEFAULT_RENDER_NODE
from zinc_rt.amdgpu.umq.queue import EOP_VA, QUEUE_VA, QueueWriter, UserQueue
from zinc_rt.amdgpu.umq.smoke import admission_probe_path
from zinc_rt.amdgpu.umq.timeline import Timeline
from zinc_rt.amdgpu.umq.watch import Watch
from zinc_rt.errors import BackendClosed, BackendError
from zinc_rt.linux import PAGE, Linux, host
from zinc_rt.mem.arena import align_up

FENCE_VA = QUEUE_VA + 0x10_0000
_POOL_VA = QUEUE_VA + 0x1000_0000
_HUGE_PAGE = 1 << 21
_SPIN = 0.0002
_LONGEST_SLEEP = 0.001
_WATCH_AFTER = 0.05
_LOG = "see the kernel's log: dmesg | grep amdgpu"
_ALWAYS = kmd.AMDGPU_GEM_CREATE_VM_ALWAYS_VALID


class UserQueueInterface(Interface):
    """A compute user queue of one render node. Threads may share it; a forked child has to open one of its own.

    room_timeout: seconds that `submit` waits for a full ring; table_timeout: seconds for a change of the GPU's page
    tables; drain_timeout: seconds that `close` waits for what still runs; reset_grace: seconds that the queue gets to
    move again after a reset, which may have been another program's.
    """

    name = "umq"
    room_timeout = 10.0
    table_timeout = 10.0
    drain_timeout = 5.0
    reset_grace = 1.0

    def __init__(self, render_node: str = DEFAULT_RENDER_NODE, *, linux: Linux | None = None) -> None:
        """Raises `InterfaceError` with the step that failed and what would help; then nothing is left open."""
        self.linux = linux or host()
        admission = admission_probe_path(render_node, linux=self.linux)
        if not admission.ok():
            reason, remedy = explain(admission)
            advice = f"{reason}; {remedy}" if remedy else reason
            raise InterfaceError(f"a user queue on {render_node}", admission.errno, advice)
        self._lock = threading.RLock()
        self._pid = self.linux.pid()
        self._lost = ""
        self._closed = False
        self._submitted = 0
        self._made: dict[DeviceBuffer, QueueBuffer] = {}
        with ExitStack() as undo, self._step(f"opening {render_node}"):
            self._fd = self.linux.open(render_node)
            undo.callback(self._close_file)
            self._watch = Watch(self._fd, self.linux)
            undo.callback(self._watch.close)
            timeline = Timeline(self._fd, self.linux)
            undo.callback(timeline.close)
            self._timeline = timeline
            self.device, addresses = device_info(self._fd, render_node, self.linux)
            gfx = gfx_of(self.device.gfx_target_version)
            if gfx is None:
                name = gfx_name(self.device.gfx_target_version)
                raise InterfaceError(
                    f"a user queue on {render_node}", None, f"{generations()} are supported, not {name}"
                )
            self._addresses = Ranges(_POOL_VA, addresses.stop - _POOL_VA, "GPU addresses")
            self._buffers = Buffers(self._fd, self.linux, timeline)
            undo.callback(self._buffers.close)
            queue = UserQueue.allocate(self._buffers, admission.eop_size, admission.eop_alignment, readable=True)
            self._fence = self._buffers.make(PAGE, kmd.AMDGPU_GEM_DOMAIN_GTT, _ALWAYS, va=FENCE_VA)
            timeline.wait(self.table_timeout)
            queue.create()
            undo.callback(self._free_queue, queue)
            self._writer = QueueWriter(queue)
            self._packets = SubmissionPackets(FENCE_VA, gfx, flush_hdp=True)
            self._undo = undo.pop_all()

    # Memory.

    def allocate(
        self, size: int, heap: Heap, label: str, *, executable: bool = False, visible: bool = True
    ) -> DeviceBuffer:
        if size < 1:
            raise BackendError(f"{label}: {size} bytes cannot be allocated, at least 1")
        size = align_up(size, PAGE)
        with self._lock:
            self._check()
            # A page that nothing is mapped to follows every buffer: who runs over the end faults.
            va = self._addresses.take(size + PAGE, _HUGE_PAGE if size >= _HUGE_PAGE else PAGE)
            if va is None:
                raise InterfaceError(f"{label}: {size} bytes of GPU addresses", None, "free buffers first")
            try:
                buffer = self._make(size, heap, label, va, executable, visible)
            except BaseException:
                self._addresses.give(va)
                raise
            buffer.label = label
            address = buffer.address if visible else None
            device_buffer = DeviceBuffer(va, size, heap, address, buffer.bo.handle, label)
            self._made[device_buffer] = buffer
            return device_buffer

    def _make(self, size: int, heap: Heap, label: str, va: int, executable: bool, visible: bool) -> QueueBuffer:
        domain, flags = kmd.AMDGPU_GEM_DOMAIN_GTT, _ALWAYS
        if heap == "vram":
            domain = kmd.AMDGPU_GEM_DOMAIN_VRAM
            flags |= kmd.AMDGPU_GEM_CREATE_VRAM_CLEARED | (
                AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED if visible else AMDGPU_GEM_CREATE_NO_CPU_ACCESS
            )
        access = kmd.AMDGPU_VM_PAGE_READABLE | kmd.AMDGPU_VM_PAGE_WRITEABLE | kmd.AMDGPU_VM_MTYPE_DEFAULT
        access |= kmd.AMDGPU_VM_PAGE_EXECUTABLE if executable else 0
        with self._step(f"{label}: {size} bytes of {heap}"):
            prot = READ_WRITE if visible else 0
            buffer = self._buffers.make(size, domain, flags, va=va, prot=prot, access=access)
            try:
                self._timeline.wait(self.table_timeout)
            except kmd.IoctlFailed:
                self._buffers.drop(buffer)
                raise
        return buffer

    def release(self, buffer: DeviceBuffer) -> None:
        with self._lock:
            self._check()
            made = self._made.pop(buffer, None)
            if made is None:
                raise BackendError(f"{buffer.label}: the buffer was released before, or belongs to another interface")
            self._buffers.drop(made, keep_map=buffer.address is None)
            self._addresses.give(buffer.va)

    # Work.

    def submit(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
        inside = offset >= 0 and offset % 4 == 0 and offset + 4 * n_dwords <= buffer.size
        if not inside or not 0 < n_dwords <= MAX_INDIRECT:
            raise BackendError(
                f"{n_dwords} dwords at byte {offset} are not inside {buffer.label}, {buffer.size} bytes, or not 1 to "
                f"{MAX_INDIRECT}"
            )
        with self._lock:
            self._check()
            sequence = self._submitted + 1
            self._wait_for_room(self._packets.n_dwords, sequence)
            self._writer.write(self._packets.build(buffer.va + offset, n_dwords, sequence))
            self._submitted = sequence
            return sequence

    def _wait_for_room(self, n: int, sequence: int) -> None:
        for _ in self._patience(self.room_timeout):
            if self._writer.has_room(n):
                return
        raise InterfaceError(
            f"submission {sequence}: the ring stayed full for {self.room_timeout:g} s; {self._progress()}", None, _LOG
        )

    def retired(self) -> int:
        self._check()
        return self.linux.load64(self._fence.address)

    def wait(self, sequence: int, timeout: float) -> None:
        self._check()
        if not 0 <= sequence <= self._submitted:
            raise BackendError(f"submission {sequence} was not made; the last is {self._submitted}")
        if not 0 <= timeout < math.inf:
            raise BackendError(f"a timeout of {timeout} s; it must be finite and not negative")
        fence = self._fence.address
        if self.linux.load64(fence) >= sequence:
            return
        for _ in self._patience(timeout):
            if self.linux.load64(fence) >= sequence:
                return
        raise FenceTimeout(
            f"{self.name}: submission {sequence} did not retire within {timeout:g} s; {self._progress()}; {_LOG}"
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
                    self._lose("an engine of the GPU was reset and the queue does not move any more")
            self.linux.sleep(min(pause, seconds - passed))
            pause = min(2 * pause, _LONGEST_SLEEP)

    # What became of it.

    def _progress(self) -> str:
        last, unread = self.linux.load64(self._fence.address), self._writer.unread()
        fault = self._watch.fault()
        text = f"{last} was the last of {self._submitted} to retire, {unread} dwords of the ring are unread"
        return text if fault is None else f"{text}, page fault at {self._name_of(fault)}"

    def _name_of(self, va: int) -> str:
        """An address with the buffer that it is in, or behind."""
        names = {made.va: made.label for made in self._made.values() if made.va is not None}
        names |= {QUEUE_VA: "the ring", EOP_VA: "the end-of-pipe buffer", FENCE_VA: "the fence"}
        start = max((at for at in names if at <= va), default=None)
        return f"{va:#x}" + (f", {va - start:#x} behind the start of {names[start]}" if start is not None else "")

    def _look(self) -> None:
        why = self._watch.gone()
        if why:
            self._lose(why)

    def _lose(self, why: str) -> None:
        self._lost = f"{self.name} on {self.device.render_node}: {why}; {self._progress()}; {_LOG}; then start again"
        raise DeviceLost(self._lost)

    def _check(self) -> None:
        if self._closed:
            raise BackendClosed(f"{self.name} on {self.device.render_node} was closed")
        if self.linux.pid() != self._pid:
            raise BackendError(
                f"process {self._pid} opened this interface; process {self.linux.pid()} must open its own"
            )
        if self._lost:
            raise DeviceLost(self._lost)

    @contextmanager
    def _step(self, what: str) -> Iterator[None]:
        """Turn a refusal into `InterfaceError`, or `DeviceLost` when the GPU is gone."""
        try:
            yield
        except kmd.KmdError as error:
            if error.errno == errno.ENODEV:
                self._lost = f"{self.name}: {what}: {error}: the GPU left the bus; start again"
                raise DeviceLost(self._lost) from None
            raise InterfaceError(f"{what}: {error.call}", error.errno, _ADVICE.get(error.errno, _LOG)) from None
        except OSError as error:
            raise InterfaceError(what, error.errno, _ADVICE.get(error.errno or 0, "")) from None

    # The end.

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            if self.linux.pid() != self._pid:  # the queue and its buffers are the parent's
                self._undo.pop_all()
                self._close_file()
                return
            if not self._lost and self._submitted:
                self._drain()
            for device_buffer, made in self._made.items():
                if device_buffer.address is None:
                    made.map = None  # somebody has taken it over
            self._undo.close()

    def _drain(self) -> None:
        fence = self._fence.address
        with contextlib.suppress(DeviceLost):
            for _ in self._patience(self.drain_timeout):
                if self.linux.load64(fence) >= self._submitted:
                    return

    def _free_queue(self, queue: UserQueue) -> None:
        with contextlib.suppress(kmd.IoctlFailed):
            queue.free()

    def _close_file(self) -> None:
        with contextlib.suppress(OSError):
            self.linux.close(self._fd)


_ADVICE = {
    errno.ENOMEM: "free GPU memory, or ask for less",
    errno.ENOSPC: "free GPU memory, or ask for less",
    errno.EACCES: "add yourself to the group of the device file (`zinc check` names it)",
    errno.ETIME: _LOG,
}
