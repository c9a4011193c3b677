"""The interface through command submission: the kernel owns the ring, we hand it indirect buffers and wait for
fences.
"""

from __future__ import annotations

import errno
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from zinc_rt.amdgpu.abi.gem import (
    AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED,
    AMDGPU_GEM_CREATE_CPU_GTT_USWC,
    AMDGPU_GEM_CREATE_NO_CPU_ACCESS,
    AMDGPU_GEM_CREATE_VRAM_CLEARED,
    AMDGPU_GEM_DOMAIN_GTT,
    AMDGPU_GEM_DOMAIN_VRAM,
)
from zinc_rt.amdgpu.cs import calls
from zinc_rt.amdgpu.cs.errors import CsError, HwIpQueryFailed, VaReservationFailed, WaitTimedOut
from zinc_rt.amdgpu.cs.loss import account
from zinc_rt.amdgpu.cs.session import LOOK, CsBuffer, CsSession
from zinc_rt.amdgpu.cs.structs import DEFAULT_RENDER_NODE
from zinc_rt.amdgpu.errors import DeviceLost, FenceTimeout, InterfaceError
from zinc_rt.amdgpu.gfx import version_of
from zinc_rt.amdgpu.interface import DeviceBuffer, DeviceInfo, Heap, Interface
from zinc_rt.amdgpu.ranges import Ranges
from zinc_rt.errors import BackendError
from zinc_rt.linux import PAGE, Linux, host
from zinc_rt.mem.arena import align_up

VA_START = 0x1_0000_0000
DRAIN_SECONDS = 10.0
_HUGE = 2 << 20  # page tables take this much at once
_MAX_DWORDS = 0xF_FFFF
_LOST = (errno.ETIME, errno.ECANCELED, errno.ENODEV, errno.EIO)


class CsInterface(Interface):
    """Two threads take turns, also with a wait; a forked child is refused."""

    name = "cs"

    def __init__(self, render_node: str = DEFAULT_RENDER_NODE, *, linux: Linux | None = None) -> None:
        """Open a render node. Raises `InterfaceError` with the step that failed; nothing stays behind then."""
        self.linux = linux or host()
        self._session = CsSession.open(render_node, self.linux)
        self._buffers: dict[DeviceBuffer, CsBuffer] = {}
        self._list_is_old = True
        self._submitted = self._retired = 0
        self._lost: str | None = None
        try:
            self.device, self._addresses = _describe(self._session)
        except BaseException:
            self._session.close()
            raise

    # Memory.

    def allocate(
        self, size: int, heap: Heap, label: str, *, executable: bool = False, visible: bool = True
    ) -> DeviceBuffer:
        """See `Interface`. gtt: write-combined; vram and visible: only as much as the processor can reach."""
        with self._entered():
            size = align_up(size, PAGE)
            if heap == "vram":
                self._check_reach(size, label, visible)
                access = AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED if visible else AMDGPU_GEM_CREATE_NO_CPU_ACCESS
                domain, flags = AMDGPU_GEM_DOMAIN_VRAM, AMDGPU_GEM_CREATE_VRAM_CLEARED | access
            else:
                domain, flags = AMDGPU_GEM_DOMAIN_GTT, AMDGPU_GEM_CREATE_CPU_GTT_USWC
            # A page that nothing is mapped to follows every buffer: who runs over the end faults.
            va = self._addresses.take(size + PAGE, _HUGE if size >= _HUGE else PAGE)
            if va is None:
                raise InterfaceError(f"{label}: finding {size} bytes of GPU addresses", None, "free some buffers")
            try:
                made = self._session.create(
                    label, size, va, executable=executable, domain=domain, flags=flags, mapped=visible
                )
            except CsError as error:
                self._addresses.give(va)
                raise self._worse(error) from None
            buffer = DeviceBuffer(va, size, heap, made.address, made.handle, label)
            self._buffers[buffer] = made
            self._list_is_old = True
            return buffer

    def _check_reach(self, size: int, label: str, visible: bool) -> None:
        device = self.device
        taken = sum(b.size for b in self._buffers if b.heap == "vram" and b.address is not None)
        if visible and taken + size > device.visible_vram:
            advice = (
                f"the processor reaches {device.visible_vram} of {device.vram} bytes and {taken} of them are taken:"
                " switch resizable BAR on in the firmware, or use gtt"
            )
            raise InterfaceError(f"{label}: allocating {size} bytes of visible VRAM", None, advice)

    def release(self, buffer: DeviceBuffer) -> None:
        """See `Interface`. Raises `BackendError` for a buffer that is not this interface's, `InterfaceError` when the
        driver refuses.
        """
        with self._entered():
            made = self._buffers.pop(buffer, None)
            if made is None:
                raise BackendError(
                    f"{buffer.label} at {buffer.va:#x} is not a buffer of this interface, or was released"
                )
            made.address = buffer.address
            try:
                self._list(tuple(self._buffers.values()))  # first: a list holds its buffers' memory
            except CsError:
                self._list_is_old = True
            try:
                self._session.destroy(made)
            finally:
                buffer.address = None
                self._addresses.give(made.va)

    # Submission.

    def submit(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
        """See `Interface`. Raises `BackendError` for packets that are not whole inside the buffer, or not aligned."""
        with self._entered():
            self._check_packets(buffer, offset, n_dwords)
            try:
                if self._list_is_old:
                    self._list(tuple(self._buffers.values()))
                self._push_vram_stores()
                self._submitted = self._session.submit(buffer.va + offset, 4 * n_dwords)
            except CsError as error:
                raise self._worse(error) from None
            return self._submitted

    def _list(self, buffers: Sequence[CsBuffer]) -> None:
        self._session.list_buffers([buffer.handle for buffer in buffers])
        self._list_is_old = False

    def _check_packets(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> None:
        start, step = self._session.ib_alignment
        n_bytes = 4 * n_dwords
        if buffer not in self._buffers:
            raise BackendError(f"{buffer.label} at {buffer.va:#x} is not a buffer of this interface, or was released")
        if not (offset >= 0 and 0 < n_dwords <= _MAX_DWORDS and offset + n_bytes <= buffer.size):
            raise BackendError(
                f"{n_dwords} dwords at byte {offset} of {buffer.label}: the buffer has {buffer.size} bytes, one"
                f" submission at most {_MAX_DWORDS} dwords"
            )
        if (buffer.va + offset) % start or n_bytes % step:
            raise BackendError(
                f"{n_bytes} bytes of packets at {buffer.va + offset:#x}: this GPU wants the start at a multiple of"
                f" {start} bytes, the length of {step}"
            )

    def _push_vram_stores(self) -> None:
        """Stores on their way to VRAM arrive before a load from it is answered."""
        for buffer in self._buffers:
            if buffer.heap == "vram" and buffer.address is not None:
                self.linux.store_fence()
                self.linux.load32(buffer.address)
                return

    def retired(self) -> int:
        """See `Interface`."""
        with self._entered():
            while self._retired < self._submitted:
                try:
                    if calls.wait(self.linux, self._session.fd, self._session.ctx_id, self._retired + 1, 0):
                        break
                except OSError as error:
                    raise self._lose(f"fence {self._retired + 1}", error.errno) from None
                self._retired += 1
            return self._retired

    def wait(self, sequence: int, timeout: float) -> None:
        """See `Interface`. Raises `BackendError` for a number that was not given out, or a timeout that is no finite
        time.
        """
        with self._entered():
            if not 0 < sequence <= self._submitted:
                raise BackendError(f"fence {sequence} was not given out; the last one is {self._submitted}")
            if not 0 <= timeout < math.inf:
                raise BackendError(f"a timeout of {timeout} s; it must be finite and not negative")
            if sequence <= self._retired:
                return
            try:
                self._session.wait(sequence, timeout)
            except WaitTimedOut:
                seen = self.retired()
                raise FenceTimeout(
                    f"{self.device.render_node}: fence {sequence} did not retire within {timeout:g} s; {seen} of"
                    f" {self._submitted} have{self._account()}; {LOOK}"
                ) from None
            except CsError as error:
                raise self._worse(error) from None
            self._retired = max(self._retired, sequence)

    # Loss.

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._session.entered():
            if self._lost is not None:
                raise DeviceLost(self._lost)
            yield

    def _worse(self, error: CsError) -> InterfaceError | DeviceLost:
        """The error itself, or that the device is lost."""
        return self._lose(error.step, error.errno) if error.errno in _LOST else error

    def _lose(self, what: str, code: int | None) -> DeviceLost:
        why = {errno.ETIME: "it hung", errno.ECANCELED: "it was lost with others"}.get(code or 0, "the device is gone")
        self._lost = (
            f"{self.device.render_node}: {what}: {why} (errno {code}){self._account()}; {self._retired} of"
            f" {self._submitted} submissions retired. The device stays lost for this ring: open a new one; {LOOK}"
        )
        return DeviceLost(self._lost)

    def _account(self) -> str:
        return account(self._session, [(buffer.va, buffer.size, buffer.label) for buffer in self._buffers])

    def close(self) -> None:
        """See `Interface`. What does not retire within ten seconds is left to the driver."""
        self._session.close(self._drain)

    def _drain(self) -> None:
        with suppress(BackendError):
            if self._lost is None and self._submitted > self._retired:
                self.wait(self._submitted, DRAIN_SECONDS)
        for buffer, made in self._buffers.items():
            made.address, buffer.address = buffer.address, None
        self._buffers.clear()


def _describe(session: CsSession) -> tuple[DeviceInfo, Ranges]:
    linux, node = session.linux, session.node
    try:
        device = calls.query_device(linux, session.fd)
        memory = calls.query_memory(linux, session.fd)
    except OSError as error:
        raise HwIpQueryFailed(f"{node}: describing the device", error.errno) from None
    info = DeviceInfo(
        render_node=node,
        gfx_target_version=_gfx_target_version(session),
        compute_units=int(device.cu_active_number),
        vram=int(memory.vram.total_heap_size),
        visible_vram=int(memory.cpu_accessible_vram.total_heap_size),
        driver=f"amdgpu {session.driver.major}.{session.driver.minor} of Linux {linux.kernel_release()}",
    )
    size = int(device.virtual_address_max) - VA_START
    if size < _HUGE:
        raise VaReservationFailed(f"{node}: placing buffers", None, f"no GPU address from {VA_START:#x} on is usable")
    return info, Ranges(VA_START, size, f"GPU addresses of {node}")


def _gfx_target_version(session: CsSession) -> int:
    """120001 for gfx1201: the discovery table's version where the kernel passes it on, else the engine's."""
    found = session.ip_discovery
    if found:
        return version_of(found)
    major, minor = session.ip_version
    return major * 10000 + minor * 100
