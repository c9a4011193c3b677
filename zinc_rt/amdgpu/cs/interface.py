"""Command submission: the kernel owns the ring, we hand it indirect buffers and wait for fences."""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import replace

from zinc_rt.amdgpu.abi.gem import AMDGPU_GEM_CREATE_VM_ALWAYS_VALID
from zinc_rt.amdgpu.advice import KERNEL_LOG, RESIZABLE_BAR
from zinc_rt.amdgpu.cs import calls
from zinc_rt.amdgpu.cs.loss import account
from zinc_rt.amdgpu.cs.session import CsSession
from zinc_rt.amdgpu.drm_memory import HUGE_PAGE, RenderMemory
from zinc_rt.amdgpu.errors import BufferFailed, InterfaceError, StepFailed
from zinc_rt.amdgpu.gfx import version_of
from zinc_rt.amdgpu.interface import CLOCK_HZ, DEFAULT_RENDER_NODE, DeviceBuffer, DeviceInfo, Heap, HostUse, Interface
from zinc_rt.amdgpu.job_limit import job_limit
from zinc_rt.amdgpu.packets import PAD_DWORDS
from zinc_rt.amdgpu.pool import ALIGNMENT
from zinc_rt.amdgpu.ranges import Ranges
from zinc_rt.amdgpu.room import gtt_of
from zinc_rt.errors import BackendError, DeviceLost, FenceTimeout
from zinc_rt.utils.linux import Linux, host

VA_START = 0x1_0000_0000
DRAIN_SECONDS = 10.0
_SAFETY = 4
"""What a job is planned to take is this many times shorter than what it may."""
_LOST = (errno.ETIME, errno.ECANCELED, errno.ENODEV, errno.EIO)


class CsInterface(Interface):
    """Through the ioctl CS of a render node."""

    name = "cs"

    def __init__(
        self,
        render_node: str = DEFAULT_RENDER_NODE,
        *,
        linux: Linux | None = None,
        always_valid: bool = True,
        partial_flush: bool = True,
    ) -> None:
        """Open a render node. always_valid: the kernel keeps all buffers resident by itself; else each submission names
        them in a list, as buffers must that other programs share. partial_flush: see `DeviceInfo`.

        Raises `InterfaceError` with the step that failed; nothing stays behind then.
        """
        self.linux = linux or host()
        self.longest_job = min(self.longest_job, job_limit(self.linux) / _SAFETY)
        self._session = CsSession.open(render_node, self.linux)
        self._lists, self._list_is_old = not always_valid, True
        self._submitted = self._retired = 0
        self._lost = False
        try:
            device, addresses = _describe(self._session)
            self.device = replace(device, partial_flush=partial_flush)
            _check_alignment(self._session)
        except BaseException:
            self._session.close()
            raise
        self._memory = RenderMemory(
            self._session.buffers,
            addresses,
            flags=AMDGPU_GEM_CREATE_VM_ALWAYS_VALID if always_valid else 0,
            combined=not self.device.gtt,  # weights lie there, which the processor reads, too
        )

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
        """See `Interface`. vram and visible: only as much as the processor can reach."""
        if heap == "vram" and visible:
            self._check_reach(size, label)
        try:
            with calls.noted_buffers():
                buffer = self._memory.allocate(size, heap, label, executable=executable, visible=visible, use=use)
        except InterfaceError as error:
            raise self._lost_or(error) from None
        self._list_is_old = True
        return buffer

    def _check_reach(self, size: int, label: str) -> None:
        device = self.device
        taken = sum(b.size for b in self._memory if b.heap == "vram" and b.address is not None)
        if taken + size > device.visible_vram:
            advice = (
                f"the processor reaches {device.visible_vram} of {device.vram} bytes and {taken} of them are taken:"
                f" {RESIZABLE_BAR}, or use gtt"
            )
            raise InterfaceError(f"{label}: allocating {size} bytes of visible VRAM", None, advice)

    def release(self, buffer: DeviceBuffer) -> None:
        """See `Interface`."""
        handles = [other.handle for other in self._memory if other is not buffer]
        try:
            if self._lists:
                self._list(handles)  # first: a list holds its buffers' memory
        except StepFailed:
            self._list_is_old = True
        refused = self._memory.release(buffer)
        if refused is not None:
            step = f"{self.device.render_node}: giving {buffer.label} back"
            raise BufferFailed(buffer.label, "free", refused, step)

    # Submission.

    def submit(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
        """See `Interface`."""
        try:
            if self._lists and self._list_is_old:
                self._list(self._memory.handles)
            self._push_vram_stores()
            self._submitted = self._session.submit(buffer.va + offset, 4 * n_dwords)
        except StepFailed as error:
            raise self._lost_or(error) from None
        return self._submitted

    def _list(self, handles: list[int]) -> None:
        self._session.list_buffers(handles)
        self._list_is_old = False

    def _push_vram_stores(self) -> None:
        """Stores on their way to VRAM arrive before a load from it is answered."""
        for buffer in self._memory:
            if buffer.heap == "vram" and buffer.address is not None:
                self.linux.store_fence()
                self.linux.load32(buffer.address)
                return

    def retired(self) -> int:
        """See `Interface`."""
        while self._retired < self._submitted:
            try:
                if calls.wait(self.linux, self._session.fd, self._session.ctx_id, self._retired + 1, 0):
                    break
            except OSError as error:
                raise self._loss(f"fence {self._retired + 1}", error.errno) from None
            self._retired += 1
        return self._retired

    def wait(self, sequence: int, timeout: float) -> None:
        """See `Interface`."""
        if sequence <= self._retired:
            return
        try:
            self._session.wait(sequence, timeout)
        except StepFailed as error:
            if error.word != "wait_timeout":
                raise self._lost_or(error) from None
            seen = self.retired()
            raise FenceTimeout(
                f"{self.device.render_node}: fence {sequence} did not retire within {timeout:g} s; {seen} of"
                f" {self._submitted} have{self._account()}; {KERNEL_LOG}"
            ) from None
        self._retired = max(self._retired, sequence)

    # Loss.

    def _lost_or(self, error: InterfaceError) -> InterfaceError | DeviceLost:
        """The error itself, or that the device is lost."""
        return self._loss(error.step, error.errno) if error.errno in _LOST else error

    def _loss(self, step: str, code: int | None) -> DeviceLost:
        why = {errno.ETIME: "it hung", errno.ECANCELED: "it was lost with others"}.get(code or 0, "the device is gone")
        self._lost = True
        return DeviceLost(
            f"{self.device.render_node}: {step}: {why} (errno {code}){self._account()}; {self._retired} of"
            f" {self._submitted} submissions retired. The device stays lost for this queue: open a new one;"
            f" {KERNEL_LOG}"
        )

    def _account(self) -> str:
        return account(self._session, self._memory.ranges)

    def close(self) -> None:
        """See `Interface`. What does not retire within ten seconds is left to the driver."""
        with suppress(BackendError):
            if not self._lost and self._submitted > self._retired:
                self.wait(self._submitted, DRAIN_SECONDS)
        self._memory.let_go()
        self._submitted = self._retired
        self._session.close()


def _check_alignment(session: CsSession) -> None:
    """What the kernel asks of packets, beside what a queue gives: a start and a length that are multiples."""
    start, length = session.ib_alignment
    if ALIGNMENT % start or 4 * PAD_DWORDS % length:
        raise InterfaceError(
            f"{session.node}: preparing submissions",
            None,
            f"the kernel wants packets at multiples of {start} bytes in lengths of {length}; they come at multiples of"
            f" {ALIGNMENT} in lengths of {4 * PAD_DWORDS}",
        )


def _describe(session: CsSession) -> tuple[DeviceInfo, Ranges]:
    linux, node = session.linux, session.node
    try:
        device = calls.query_device(linux, session.fd)
        memory = calls.query_memory(linux, session.fd)
    except OSError as error:
        raise StepFailed("hw_ip_query_failed", error.errno, f"{node}: describing the device") from None
    info = DeviceInfo(
        render_node=node,
        gfx_target_version=_gfx_target_version(session),
        compute_units=int(device.cu_active_number),
        vram=int(memory.vram.total_heap_size),
        visible_vram=int(memory.cpu_accessible_vram.total_heap_size),
        driver=f"amdgpu {session.driver.major}.{session.driver.minor} of Linux {linux.kernel_release()}",
        clock_hz=1000 * int(device.gpu_counter_freq) or CLOCK_HZ,
        gtt=gtt_of(int(device.ids_flags), node, linux),
    )
    size = int(device.virtual_address_max) - VA_START
    if size < HUGE_PAGE:
        advice = f"no GPU address from {VA_START:#x} on is usable"
        raise StepFailed("va_reservation_failed", None, f"{node}: placing buffers", advice)
    return info, Ranges(VA_START, size, f"GPU addresses of {node}")


def _gfx_target_version(session: CsSession) -> int:
    """120001 for gfx1201: the discovery table's version where the kernel passes it on, else the engine's."""
    if session.ip_discovery:
        return version_of(session.ip_discovery)
    major, minor = session.ip_version
    return major * 10000 + minor * 100
