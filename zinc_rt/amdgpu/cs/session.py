"""A render node with a submission context: what the interface and the seed's pages share. One thread at a time."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress

from zinc_rt.amdgpu import drm
from zinc_rt.amdgpu.abi.cs import AMDGPU_HW_IP_COMPUTE
from zinc_rt.amdgpu.abi.gem import AMDGPU_GEM_CREATE_CPU_GTT_USWC, AMDGPU_GEM_DOMAIN_GTT
from zinc_rt.amdgpu.advice import KERNEL_LOG, file_advice
from zinc_rt.amdgpu.cs import calls
from zinc_rt.amdgpu.drm_memory import GPU_ALL, GPU_READ_WRITE, RenderBuffer, RenderBuffers
from zinc_rt.amdgpu.errors import StepFailed
from zinc_rt.mem.arena import align_up
from zinc_rt.utils.linux import PAGE, Linux

_NS = 1_000_000_000


class CsSession:
    """An open render node. Made by `open`. buffers: all that were made on it."""

    def __init__(self, linux: Linux, node: str, fd: int) -> None:
        self.linux, self.node, self.fd = linux, node, fd
        self.driver = calls.Driver("", 0, 0)
        self.rings = 0
        self.ip_version = (0, 0)
        self.ip_discovery = 0
        self.ib_alignment = (PAGE, PAGE)  # bytes, of start and size
        self.ctx_id = 0
        self.list_handle: int | None = None
        self.buffers = RenderBuffers(fd, node, linux)
        self.last_wait_status = 0
        self._closed = False

    @classmethod
    def open(cls, node: str, linux: Linux, seen: Callable[[CsSession], None] = lambda session: None) -> CsSession:
        """Open the node and make a context. seen: called after each step that learnt something.

        Raises `StepFailed` with one of the words unsupported_os, render_node_open_failed, hw_ip_query_failed, no_rings,
        ctx_alloc_failed. What was acquired is given back then.
        """
        if not linux.is_linux:
            raise StepFailed("unsupported_os", None, f"opening {node}", "amdgpu is a driver of Linux, this is another")
        try:
            session = cls(linux, node, linux.open(node))
        except OSError as error:
            advice = "; ".join(file_advice(linux, node, error.errno or 0))
            raise StepFailed("render_node_open_failed", error.errno, f"opening {node}", advice) from None
        except ValueError as error:  # a NUL in the path
            raise StepFailed("render_node_open_failed", errno.EINVAL, f"opening {node!r}", str(error)) from None
        try:
            session._describe()
            seen(session)
            if not session.rings:
                advice = "the driver offers none: is amdgpu.user_queue=2 set?"
                raise StepFailed("no_rings", None, f"{node}: asking for compute rings", advice)
            session._allocate_context()
            seen(session)
        except BaseException:
            session.close()
            raise
        return session

    def _describe(self) -> None:
        try:
            self.driver = calls.driver(self.linux, self.fd)
        except OSError as error:
            step = f"{self.node}: asking for its driver"
            raise StepFailed("render_node_open_failed", error.errno, step) from None
        if self.driver.name != "amdgpu":
            # Another driver would take amdgpu's requests for its own.
            advice = f"the node belongs to {self.driver.name!r}, not to amdgpu; choose another"
            raise StepFailed("render_node_open_failed", errno.ENODEV, f"opening {self.node}", advice)
        try:
            with calls.noted():
                ip = drm.query_hw_ip(self.fd, AMDGPU_HW_IP_COMPUTE, linux=self.linux)
        except OSError as error:
            step = f"{self.node}: describing its compute engine"
            raise StepFailed("hw_ip_query_failed", error.errno, step) from None
        self.rings = int(ip.available_rings)
        self.ip_version = (int(ip.hw_ip_version_major), int(ip.hw_ip_version_minor))
        self.ip_discovery = int(ip.ip_discovery_version)
        self.ib_alignment = (int(ip.ib_start_alignment) or 1, int(ip.ib_size_alignment) or 1)

    def _allocate_context(self) -> None:
        try:
            self.ctx_id = calls.alloc_context(self.linux, self.fd)
        except OSError as error:
            raise StepFailed("ctx_alloc_failed", error.errno, f"{self.node}: making a context") from None

    # Memory.

    def check_addresses(self, start: int, end: int) -> None:
        """Raise `StepFailed` ("va_reservation_failed") unless this GPU can address [start, end)."""
        try:
            device = calls.query_device(self.linux, self.fd)
        except OSError as error:
            step = f"{self.node}: asking for the range of addresses"
            raise StepFailed("va_reservation_failed", error.errno, step) from None
        low, high = int(device.virtual_address_offset), int(device.virtual_address_max)
        if not low <= start < end <= high:
            advice = f"the buffers need {start:#x}..{end:#x}, the GPU addresses {low:#x}..{high:#x}"
            raise StepFailed("va_reservation_failed", None, f"{self.node}: placing buffers", advice)

    def create(self, name: str, size: int, va: int, *, executable: bool = False) -> RenderBuffer:
        """Write-combined system memory at a GPU address, in whole pages, mapped here. Raises `BufferFailed`."""
        access = GPU_ALL if executable else GPU_READ_WRITE
        flags, size = AMDGPU_GEM_CREATE_CPU_GTT_USWC, align_up(size, PAGE)
        with calls.noted_buffers():
            return self.buffers.make(name, size, AMDGPU_GEM_DOMAIN_GTT, flags, va=va, access=access)

    def list_buffers(self, handles: Sequence[int]) -> None:
        """Say which buffers submissions use from now on. Raises `StepFailed` ("bo_list_failed"); the list before stays
        then.
        """
        try:
            self.list_handle = calls.set_buffer_list(self.linux, self.fd, handles, self.list_handle)
        except OSError as error:
            raise StepFailed("bo_list_failed", error.errno, f"{self.node}: listing {len(handles)} buffers") from None

    # Submission.

    def submit(self, va: int, n_bytes: int) -> int:
        """Run an indirect buffer; its fence. Host stores made before are visible to it.

        Raises `StepFailed` ("cs_submit_failed").
        """
        self.linux.store_fence()  # the maps are write-combined
        try:
            return calls.submit(self.linux, self.fd, self.ctx_id, self.list_handle or 0, va, n_bytes)
        except OSError as error:
            step = f"{self.node}: submitting {n_bytes} bytes at {va:#x}"
            raise StepFailed("cs_submit_failed", error.errno, step) from None

    def wait(self, fence: int, seconds: float) -> None:
        """Return once the fence has retired. Raises `StepFailed` ("wait_cs_failed", "wait_timeout")."""
        deadline = self.linux.monotonic_ns() + int(seconds * _NS)
        try:
            self.last_wait_status = calls.wait(self.linux, self.fd, self.ctx_id, fence, deadline)
        except OSError as error:
            step = f"{self.node}: waiting for fence {fence}"
            raise StepFailed("wait_cs_failed", error.errno, step, KERNEL_LOG) from None
        if self.last_wait_status:
            raise StepFailed("wait_timeout", None, f"{self.node}: fence {fence} within {seconds:g} s", KERNEL_LOG)

    # Its end.

    def close(self) -> None:
        """Give everything back; what the driver refuses goes with the descriptor. Calling it again does nothing."""
        if self._closed:
            return
        self._closed = True
        linux, fd = self.linux, self.fd
        with calls.errno_kept():
            if self.list_handle is not None:
                with suppress(OSError):
                    calls.destroy_buffer_list(linux, fd, self.list_handle)
            if self.ctx_id:
                with suppress(OSError):
                    calls.free_context(linux, fd, self.ctx_id)
        self.buffers.close()
        with suppress(OSError):
            linux.close(fd)
