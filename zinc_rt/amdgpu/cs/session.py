"""A render node with a submission context, and buffers in it: what the smoke test, `TokenBoundary` and the interface
share.

Used by several threads it takes turns; a forked child is refused, since context and addresses are its parent's.
"""

from __future__ import annotations

import ctypes
import errno
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from zinc_rt.amdgpu import drm as kmd
from zinc_rt.amdgpu.cs import calls
from zinc_rt.amdgpu.cs.errors import (
    BUFFER_ERRORS,
    BoListFailed,
    BufferFailed,
    CtxAllocFailed,
    HwIpQueryFailed,
    NoComputeRings,
    RenderNodeOpenFailed,
    SubmitFailed,
    UnsupportedOs,
    VaReservationFailed,
    WaitFailed,
    WaitTimedOut,
)
from zinc_rt.errors import BackendClosed, BackendError
from zinc_rt.linux import PAGE, PROT_READ, PROT_WRITE, Linux
from zinc_rt.mem.arena import align_up

_BO_ALIGNMENT = 256
_RIGHTS = kmd.AMDGPU_VM_PAGE_READABLE | kmd.AMDGPU_VM_PAGE_WRITEABLE | kmd.AMDGPU_VM_MTYPE_DEFAULT
_EXECUTE = kmd.AMDGPU_VM_PAGE_EXECUTABLE
_NS = 1_000_000_000


@dataclass(eq=False)
class CsBuffer:
    """address: in this process, None when it is not mapped here or somebody else will unmap it."""

    name: str
    bo: kmd.Bo
    va: int
    address: int | None = None

    @property
    def handle(self) -> int:
        """Of GEM."""
        return self.bo.handle

    @property
    def size(self) -> int:
        """Bytes, whole pages."""
        return self.bo.size


class CsSession:
    """An open render node. Made by `open`."""

    def __init__(self, linux: Linux, node: str, fd: int) -> None:
        self.linux, self.node, self.fd = linux, node, fd
        self.driver = calls.Driver("", 0, 0)
        self.rings = 0
        self.ip_version = (0, 0)
        self.ip_discovery = 0
        self.ib_alignment = (PAGE, PAGE)  # bytes, of start and size
        self.ctx_id = 0
        self.list_handle: int | None = None
        self.buffers: list[CsBuffer] = []
        self.last_wait_status = 0
        self._pid = linux.pid()
        self._lock = threading.RLock()
        self._closed = False

    @classmethod
    def open(cls, node: str, linux: Linux, seen: Callable[[CsSession], None] = lambda session: None) -> CsSession:
        """Open the node and make a context. seen: called after each step that learnt something.

        Raises `UnsupportedOs`, `RenderNodeOpenFailed`, `HwIpQueryFailed`, `NoComputeRings`, `CtxAllocFailed`; what was
        acquired is given back then.
        """
        if not linux.is_linux:
            raise UnsupportedOs(f"opening {node}", None, "amdgpu is a driver of Linux, and this is another system")
        try:
            session = cls(linux, node, linux.open(node))
        except OSError as error:
            raise RenderNodeOpenFailed(f"opening {node}", error.errno, _ADVICE.get(error.errno or 0, "")) from None
        except ValueError as error:  # a NUL in the path
            raise RenderNodeOpenFailed(f"opening {node!r}", errno.EINVAL, str(error)) from None
        try:
            session._describe()
            seen(session)
            if not session.rings:
                raise NoComputeRings(
                    f"{node}: asking for compute rings", None, "the driver offers none: is amdgpu.user_queue=2 set?"
                )
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
            raise RenderNodeOpenFailed(f"{self.node}: asking for its driver", error.errno) from None
        if self.driver.name != "amdgpu":
            # Another driver would take amdgpu's requests for its own.
            advice = f"the node belongs to {self.driver.name!r}, not to amdgpu; choose another"
            raise RenderNodeOpenFailed(f"opening {self.node}", errno.ENODEV, advice)
        try:
            with calls.noted():
                ip = kmd.query_hw_ip(self.fd, kmd.AMDGPU_HW_IP_COMPUTE, linux=self.linux)
        except OSError as error:
            raise HwIpQueryFailed(f"{self.node}: describing its compute engine", error.errno) from None
        self.rings = int(ip.available_rings)
        self.ip_version = (int(ip.hw_ip_version_major), int(ip.hw_ip_version_minor))
        self.ip_discovery = int(ip.ip_discovery_version)
        self.ib_alignment = (int(ip.ib_start_alignment) or 1, int(ip.ib_size_alignment) or 1)

    def _allocate_context(self) -> None:
        try:
            self.ctx_id = calls.alloc_context(self.linux, self.fd)
        except OSError as error:
            raise CtxAllocFailed(f"{self.node}: making a context", error.errno) from None

    # Memory.

    def check_addresses(self, start: int, end: int) -> None:
        """Raise `VaReservationFailed` unless this GPU can address [start, end)."""
        try:
            device = calls.query_device(self.linux, self.fd)
        except OSError as error:
            raise VaReservationFailed(f"{self.node}: asking for the range of addresses", error.errno) from None
        low, high = int(device.virtual_address_offset), int(device.virtual_address_max)
        if not low <= start < end <= high:
            advice = f"the buffers need {start:#x}..{end:#x}, the GPU addresses {low:#x}..{high:#x}"
            raise VaReservationFailed(f"{self.node}: placing buffers", None, advice)

    def create(
        self,
        name: str,
        size: int,
        va: int,
        *,
        executable: bool = False,
        domain: int = kmd.AMDGPU_GEM_DOMAIN_GTT,
        flags: int = kmd.AMDGPU_GEM_CREATE_CPU_GTT_USWC,
        mapped: bool = True,
    ) -> CsBuffer:
        """A buffer at a GPU address, readable and writable there, mapped here unless `mapped` is False.

        Raises the error of `BUFFER_ERRORS` for the step, with everything before it undone.
        """
        size = align_up(size, PAGE)
        linux, fd = self.linux, self.fd
        step, what = "bo", f"allocating {size} bytes"
        buffer = None
        try:
            with calls.noted():
                buffer = CsBuffer(name, kmd.create_gem(fd, size, _BO_ALIGNMENT, domain, flags, linux=linux), va)
                if mapped:
                    step, what = "map", f"mapping {size} bytes into the process"
                    there = kmd.mmap_gem(fd, buffer.bo, PROT_READ | PROT_WRITE, linux=linux)
                    buffer.address = ctypes.addressof(there)
                step, what = "va", f"giving {size} bytes the GPU address {va:#x}"
                kmd.map_gem_va(fd, buffer.bo, va, _RIGHTS | (_EXECUTE if executable else 0), linux=linux)
        except OSError as error:
            if buffer is not None:
                self._undo(buffer, unmap_va=False)
            kind = BUFFER_ERRORS.get((name, step), BufferFailed)
            raise kind(f"{self.node}: {name}: {what}", error.errno, _ADVICE.get(error.errno or 0, "")) from None
        self.buffers.append(buffer)
        return buffer

    def destroy(self, buffer: CsBuffer) -> None:
        """Give a buffer back; every part is tried. Raises `BufferFailed` when the driver refused one."""
        self.buffers.remove(buffer)
        refused = self._undo(buffer, unmap_va=True)
        if refused is not None:
            raise BufferFailed(f"{self.node}: giving {buffer.name} back", refused)

    def _undo(self, buffer: CsBuffer, *, unmap_va: bool) -> int | None:
        refused = None
        address, buffer.address = buffer.address, None
        linux, fd, bo = self.linux, self.fd, buffer.bo
        steps: list[Callable[[], None]] = [lambda: kmd.close_gem(fd, bo, linux=linux)]
        if address is not None:
            steps.insert(0, lambda: linux.munmap(address, bo.size))
        if unmap_va:
            steps.insert(0, lambda: kmd.unmap_gem_va(fd, bo, buffer.va, linux=linux))
        for step in steps:
            try:
                with calls.errno_kept(), calls.noted():
                    step()
            except OSError as error:
                refused = error.errno
        return refused

    def list_buffers(self, handles: Sequence[int]) -> None:
        """Say which buffers submissions use from now on. Raises `BoListFailed`; the list before stays then."""
        try:
            self.list_handle = calls.set_buffer_list(self.linux, self.fd, handles, self.list_handle)
        except OSError as error:
            raise BoListFailed(f"{self.node}: listing {len(handles)} buffers", error.errno) from None

    # Submission.

    def submit(self, va: int, n_bytes: int) -> int:
        """Run an indirect buffer; its fence. Host stores made before are visible to it. Raises `SubmitFailed`."""
        self.linux.store_fence()  # the maps are write-combined
        try:
            return calls.submit(self.linux, self.fd, self.ctx_id, self.list_handle or 0, va, n_bytes)
        except OSError as error:
            raise SubmitFailed(f"{self.node}: submitting {n_bytes} bytes at {va:#x}", error.errno) from None

    def wait(self, fence: int, seconds: float) -> None:
        """Return once the fence has retired. Raises `WaitFailed`, `WaitTimedOut`."""
        deadline = self.linux.monotonic_ns() + int(seconds * _NS)
        try:
            self.last_wait_status = calls.wait(self.linux, self.fd, self.ctx_id, fence, deadline)
        except OSError as error:
            raise WaitFailed(f"{self.node}: waiting for fence {fence}", error.errno, LOOK) from None
        if self.last_wait_status:
            raise WaitTimedOut(f"{self.node}: fence {fence} within {seconds:g} s", None, LOOK)

    # Who may use it, and its end.

    @contextmanager
    def entered(self) -> Iterator[None]:
        """One thread at a time. Raises `BackendClosed`, and `BackendError` in a forked child."""
        if self.linux.pid() != self._pid:
            raise BackendError(
                f"{self.node} was opened by process {self._pid}, this is {self.linux.pid()}: a forked child shares the"
                " GPU addresses of its parent; open the node again in the child"
            )
        with self._lock:
            if self._closed:
                raise BackendClosed(f"{self.node} was closed")
            yield

    def close(self, first: Callable[[], None] = lambda: None) -> None:
        """Give everything back; what the driver refuses goes with the descriptor. Calling it again does nothing.

        first: runs once nobody else is inside. In a forked child nothing happens at all: the context is the parent's.
        """
        if self.linux.pid() != self._pid:
            return
        with self._lock:
            if self._closed:
                return
            first()
            self._closed = True
            linux, fd = self.linux, self.fd
            if self.list_handle is not None:
                with suppress(OSError), calls.errno_kept():
                    calls.destroy_buffer_list(linux, fd, self.list_handle)
            if self.ctx_id:
                with suppress(OSError), calls.errno_kept():
                    calls.free_context(linux, fd, self.ctx_id)
            for buffer in reversed(self.buffers):
                self._undo(buffer, unmap_va=True)
            with suppress(OSError):
                linux.close(fd)


LOOK = "look for amdgpu in the kernel's log (dmesg): a hang, a page fault or a reset is reported there"
_ADVICE = {
    errno.EACCES: "the user may not: be in the group of the file, often `render` or `video`",
    errno.EPERM: "the user may not: be in the group of the file, often `render` or `video`",
    errno.ENOENT: "there is no such node: is the amdgpu module loaded, is the device given to the container?",
    errno.ENOMEM: "memory is short: free some, or use smaller buffers",
}
