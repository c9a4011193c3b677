"""PM4 through a compute queue of amdkfd: no ioctl per submission, a doorbell."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from zinc_rt.amdgpu import drm
from zinc_rt.amdgpu.abi.info import (
    AMDGPU_INFO_DEV_INFO,
    AMDGPU_INFO_FW_MES,
    AMDGPU_INFO_FW_VERSION,
    DrmAmdgpuInfoDevice,
    DrmAmdgpuInfoFirmware,
)
from zinc_rt.amdgpu.abi.kfd import RuntimeEnableArgs
from zinc_rt.amdgpu.abi.requests import KFD_RUNTIME_ENABLE
from zinc_rt.amdgpu.address_range import AddressRange
from zinc_rt.amdgpu.errors import InterfaceError, IoctlFailed, StepFailed
from zinc_rt.amdgpu.gfx import gfx_of
from zinc_rt.amdgpu.interface import DeviceBuffer, DeviceInfo, Heap, HostUse, Interface
from zinc_rt.amdgpu.kfd.calls import call, step
from zinc_rt.amdgpu.kfd.constants import (
    ALLOC_MEM_FLAGS_COHERENT,
    ALLOC_MEM_FLAGS_EXECUTABLE,
    ALLOC_MEM_FLAGS_GTT,
    ALLOC_MEM_FLAGS_NO_SUBSTITUTE,
    ALLOC_MEM_FLAGS_PUBLIC,
    ALLOC_MEM_FLAGS_UNCACHED,
    ALLOC_MEM_FLAGS_VRAM,
    ALLOC_MEM_FLAGS_WRITABLE,
    EVENTS_SINCE_MINOR,
)
from zinc_rt.amdgpu.kfd.events import KfdEvents
from zinc_rt.amdgpu.kfd.memory import Memory
from zinc_rt.amdgpu.kfd.messages import driver_text, interface_error, no_node_error
from zinc_rt.amdgpu.kfd.queue import RING_BYTES, KfdQueue
from zinc_rt.amdgpu.kfd.session import KfdSession
from zinc_rt.amdgpu.kfd.sizes import align_up, compute_units
from zinc_rt.amdgpu.kfd.submissions import KfdSubmissions
from zinc_rt.amdgpu.kfd.topology import TopologyNode, gpu_nodes, node_properties, render_minor_of, vram_sizes
from zinc_rt.amdgpu.room import gtt_of
from zinc_rt.errors import BackendError, DeviceLost
from zinc_rt.utils.linux import PAGE, Linux, host

DRAIN_SECONDS = 10.0
"""How long `close` waits for what runs."""
_COHERENCE: dict[HostUse, int] = {
    "writes": 0,
    "reads": ALLOC_MEM_FLAGS_COHERENT,
    "polls": ALLOC_MEM_FLAGS_COHERENT | ALLOC_MEM_FLAGS_UNCACHED,
}
"""Flags of system memory. The processor caches all of it."""
_MES_RELEASE = 0xFFF  # the bits above are the version of its interface


class KfdInterface(Interface):
    """Through a queue of /dev/kfd."""

    name = "kfd"
    saves_waves = True

    def __init__(
        self,
        render_node: str | None = None,
        *,
        linux: Linux | None = None,
        ring_bytes: int = RING_BYTES,
        partial_flush: bool = True,
    ) -> None:
        """render_node: None takes the first GPU that is supported. ring_bytes: a power of two, from 4096 up.
        partial_flush: see `DeviceInfo`.

        Raises `InterfaceError` with the failing step; nothing stays behind then.
        """
        if ring_bytes < 4096 or ring_bytes & (ring_bytes - 1):
            raise InterfaceError(f"a ring of {ring_bytes} bytes", None, "it must be a power of two, at least 4096")
        self.linux = linux or host()
        self._closed, self._partial_flush = False, partial_flush
        self._buffers: dict[DeviceBuffer, Memory] = {}
        node = _choose(self.linux, render_node)
        self._session = KfdSession(self.linux, node, render_node or f"/dev/dri/renderD{node.drm_render_minor}")
        self._queue = KfdQueue(self._session, ring_bytes)
        self._events: KfdEvents | None = None
        try:
            self._open()
        except StepFailed as failed:
            error = interface_error(self._session, failed)
            self._give_back()
            raise error from None
        except BaseException:
            self._give_back()
            raise

    def _open(self) -> None:
        session = self._session
        session.open()
        self.device = replace(_device(session), partial_flush=self._partial_flush)
        if session.version >= (1, EVENTS_SINCE_MINOR):
            # mode_mask 0, as a runtime does that is known to retire PM4 on gfx12: the bits would set up a debugger.
            with step("runtime_enable_failed"):
                call(self.linux, session.kfd_fd, KFD_RUNTIME_ENABLE, RuntimeEnableArgs())
            self._events = KfdEvents(session)
            self._events.open()
        self._queue.open()
        self._submissions = KfdSubmissions(
            session,
            self._queue,
            self._events,
            self._ranges,
            flush_hdp=not self.device.gtt,
            partial_flush=self._partial_flush,
        )

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
        """Whole pages, zeroed. Visible VRAM takes a resizable BAR. Raises `InterfaceError`, `DeviceLost`."""
        flags = ALLOC_MEM_FLAGS_WRITABLE | ALLOC_MEM_FLAGS_NO_SUBSTITUTE
        flags |= ALLOC_MEM_FLAGS_VRAM if heap == "vram" else ALLOC_MEM_FLAGS_GTT | _COHERENCE[use]
        if heap == "vram" and visible:
            flags |= ALLOC_MEM_FLAGS_PUBLIC
        if executable:
            flags |= ALLOC_MEM_FLAGS_EXECUTABLE
        # A page that nothing is mapped to follows every buffer: a program that runs over the end faults.
        memory = Memory(self._session, size, label, align_up(size, PAGE) + PAGE)
        try:
            memory.create(flags, visible=visible)
        except StepFailed as failed:
            try:
                raise self._refused(failed) from None
            finally:
                memory.discard()
        except BaseException:
            memory.discard()
            raise
        buffer = DeviceBuffer(memory.va, memory.size, heap, memory.va if visible else None, memory.handle or 0, label)
        self._buffers[buffer] = memory
        return buffer

    def release(self, buffer: DeviceBuffer) -> None:
        """See `Interface`; it can be called again when the driver refused."""
        memory = self._buffers[buffer]
        _leave_map(buffer, memory)
        try:
            memory.destroy()
        except StepFailed as failed:
            raise self._refused(failed) from None
        del self._buffers[buffer]
        buffer.address = None

    def submit(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
        """See `Interface`."""
        return self._submissions.submit(buffer, offset, n_dwords)

    def wait_by_release(self) -> None:
        """See `Interface`."""
        super().wait_by_release()
        self._submissions.wait_by_release()

    def retired(self) -> int:
        """See `Interface`. Without an ioctl: a page fault or reset shows in `wait`."""
        return self._queue.retired()

    def wait(self, sequence: int, timeout: float) -> None:
        """See `Interface`. Spins for two milliseconds, then sleeps until the interrupt that it asks for."""
        self._submissions.wait(sequence, timeout)

    def close(self) -> None:
        """Waits up to ten seconds for what runs. Raises, after everything was given back: `FenceTimeout` or
        `DeviceLost` for work that nobody has been told of yet, `InterfaceError` for what the kernel did not take back.
        """
        if self._closed:
            return
        late = self._drain()
        failed = self._give_back()
        if late is not None:
            raise late
        if failed is not None and not self._submissions.lost:
            raise interface_error(self._session, failed)

    def _refused(self, failed: StepFailed) -> InterfaceError | DeviceLost:
        if failed.errno == errno.ENODEV:
            return self._submissions.loss(f"it left the bus, says {failed.word}")
        return interface_error(self._session, failed)

    def _ranges(self) -> list[AddressRange]:
        return [(buffer.va, buffer.size, buffer.label) for buffer in self._buffers]

    def _drain(self) -> BackendError | None:
        submissions = self._submissions
        if submissions.lost or submissions.told_late == submissions.last:
            return None
        try:
            submissions.wait(submissions.last, DRAIN_SECONDS)
        except BackendError as error:
            return error
        return None

    def _give_back(self) -> StepFailed | None:
        """Everything, in the opposite order; the first thing that did not work."""
        self._closed = True
        failed = self._queue.destroy()
        for buffer, memory in reversed(self._buffers.items()):
            _leave_map(buffer, memory)
            stuck = memory.discard()
            failed = failed or stuck
            buffer.address = None
        self._buffers.clear()
        stuck = self._queue.free()
        failed = failed or stuck
        if self._events is not None:
            self._events.close()
        self._session.close()
        return failed


def _leave_map(buffer: DeviceBuffer, memory: Memory) -> None:
    if buffer.address is None and memory.on_cpu:
        memory.hand_over_map()


def _choose(linux: Linux, render_node: str | None) -> TopologyNode:
    if not linux.is_linux:
        raise InterfaceError("opening /dev/kfd", None, "amdkfd exists on Linux alone")
    nodes = None
    with suppress(OSError):
        nodes = gpu_nodes(linux)
    minor = None if render_node is None else render_minor_of(render_node)
    for node in nodes or ():
        if gfx_of(node.gfx_target_version) is not None and (render_node is None or node.drm_render_minor == minor):
            return node
    raise no_node_error(linux, f"opening {render_node or 'a GPU'}", nodes)


def _device(session: KfdSession) -> DeviceInfo:
    node, linux = session.node, session.linux
    driver = ", ".join((driver_text(session), *_firmware(session)))
    units = compute_units(node) * (node.num_xcc or 1)
    total, visible = vram_sizes(linux, node)
    about = DrmAmdgpuInfoDevice()
    with suppress(IoctlFailed):
        drm.query_info(session.render_fd, AMDGPU_INFO_DEV_INFO, about, linux=linux)
    gtt = gtt_of(about.ids_flags, session.render_node, linux)
    return DeviceInfo(session.render_node, node.gfx_target_version, units, total, visible, driver, gtt=gtt)


def _firmware(session: KfdSession) -> Iterator[str]:
    """What hangs are often about: the compute engine's microcode and the scheduler's."""
    mec = node_properties(session.linux, session.node.node_index).get("fw_version")
    if mec:
        yield f"MEC firmware {mec}"
    mes = DrmAmdgpuInfoFirmware()
    with suppress(IoctlFailed):
        drm.query_info(session.render_fd, AMDGPU_INFO_FW_VERSION, mes, ip_type=AMDGPU_INFO_FW_MES, linux=session.linux)
        yield f"MES firmware {mes.ver & _MES_RELEASE}"
