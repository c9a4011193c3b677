"""The ioctls of command submission, one function each, and the errno of the latest. They raise `OSError`.

Buffers and queries are `zinc_rt.amdgpu.drm`'s; inside `noted` they count as this module's and raise `OSError` too.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from zinc_rt.amdgpu import drm
from zinc_rt.amdgpu.abi.cs import (
    AMDGPU_BO_LIST_OP_CREATE,
    AMDGPU_BO_LIST_OP_DESTROY,
    AMDGPU_BO_LIST_OP_UPDATE,
    AMDGPU_CHUNK_ID_IB,
    AMDGPU_CTX_OP_ALLOC_CTX,
    AMDGPU_CTX_OP_FREE_CTX,
    AMDGPU_CTX_OP_QUERY_STATE2,
    AMDGPU_HW_IP_COMPUTE,
    AMDGPU_IB_FLAG_EMIT_MEM_SYNC,
    DrmAmdgpuBoList,
    DrmAmdgpuBoListEntry,
    DrmAmdgpuBoListIn,
    DrmAmdgpuCs,
    DrmAmdgpuCsChunk,
    DrmAmdgpuCsChunkIb,
    DrmAmdgpuCsIn,
    DrmAmdgpuCtx,
    DrmAmdgpuCtxIn,
    DrmAmdgpuCtxOutState,
    DrmAmdgpuWaitCs,
    DrmAmdgpuWaitCsIn,
)
from zinc_rt.amdgpu.abi.drm import DrmVersion
from zinc_rt.amdgpu.abi.info import (
    AMDGPU_INFO_DEV_INFO,
    AMDGPU_INFO_GPUVM_FAULT,
    AMDGPU_INFO_MEMORY,
    DrmAmdgpuInfoDevice,
    DrmAmdgpuInfoGpuvmFault,
    DrmAmdgpuMemoryInfo,
)
from zinc_rt.amdgpu.abi.requests import AMDGPU_BO_LIST, AMDGPU_CS, AMDGPU_CTX, AMDGPU_WAIT_CS, DRM_VERSION, Ioctl
from zinc_rt.amdgpu.errors import CallFailed, InterfaceError, IoctlFailed
from zinc_rt.utils.linux import Argument, LastErrno, Linux

_latest = LastErrno()


def last_errno() -> int | None:
    """The errno of this thread's latest ioctl of command submission, None when it succeeded or there was none.

    Giving things back does not count: after a failed smoke test it is the failure's.
    """
    return _latest.errno


def _call(linux: Linux, fd: int, request: Ioctl, argument: Argument) -> None:
    with _latest.noted():
        linux.ioctl(fd, request.value, argument)


@contextmanager
def noted() -> Iterator[None]:
    """Calls of `zinc_rt.amdgpu.drm` inside it set `last_errno`. Raises `OSError` in place of its errors."""
    try:
        with noted_buffers():
            yield
    except CallFailed as error:
        raise OSError(error.errno, os.strerror(error.errno or 0)) from None


@contextmanager
def noted_buffers() -> Iterator[None]:
    """As `noted`, but errors keep their types. Errors of memory that an ioctl caused set `last_errno`, too."""
    _latest.errno = None
    try:
        yield
    except InterfaceError as error:
        if isinstance(error, IoctlFailed) or isinstance(error.__cause__, IoctlFailed):
            _latest.errno = error.errno
        raise


@contextmanager
def errno_kept() -> Iterator[None]:
    """For giving back: what `last_errno` says stays."""
    before = last_errno()
    try:
        yield
    finally:
        _latest.errno = before


# The device.


@dataclass(frozen=True)
class Driver:
    """The driver of a node: its name, as "amdgpu", and the version of its interface."""

    name: str
    major: int
    minor: int


def driver(linux: Linux, fd: int) -> Driver:
    """The kernel driver behind a render node."""
    name = ctypes.create_string_buffer(64)
    argument = DrmVersion(name_len=len(name) - 1, name=ctypes.addressof(name))
    _call(linux, fd, DRM_VERSION, argument)
    length = min(argument.name_len, len(name) - 1)
    return Driver(name.raw[:length].decode(errors="replace"), argument.version_major, argument.version_minor)


def query_device(linux: Linux, fd: int) -> DrmAmdgpuInfoDevice:
    """The GPU: compute units, range of addresses."""
    device = DrmAmdgpuInfoDevice()
    with noted():
        drm.query_info(fd, AMDGPU_INFO_DEV_INFO, device, linux=linux)
    return device


def query_memory(linux: Linux, fd: int) -> DrmAmdgpuMemoryInfo:
    """Sizes of the heaps."""
    memory = DrmAmdgpuMemoryInfo()
    with noted():
        drm.query_info(fd, AMDGPU_INFO_MEMORY, memory, linux=linux)
    return memory


def query_fault(linux: Linux, fd: int) -> DrmAmdgpuInfoGpuvmFault:
    """The last page fault of this file's address space; address 0: there was none."""
    fault = DrmAmdgpuInfoGpuvmFault()
    with noted():
        drm.query_info(fd, AMDGPU_INFO_GPUVM_FAULT, fault, linux=linux)
    return fault


# Contexts.


def alloc_context(linux: Linux, fd: int, priority: int = 0) -> int:
    """A new submission context."""
    argument = DrmAmdgpuCtx(in_=DrmAmdgpuCtxIn(op=AMDGPU_CTX_OP_ALLOC_CTX, priority=priority))
    _call(linux, fd, AMDGPU_CTX, argument)
    return int(argument.out_alloc.ctx_id)


def free_context(linux: Linux, fd: int, ctx_id: int) -> None:
    """Give it back."""
    _call(linux, fd, AMDGPU_CTX, DrmAmdgpuCtx(in_=DrmAmdgpuCtxIn(op=AMDGPU_CTX_OP_FREE_CTX, ctx_id=ctx_id)))


def context_state(linux: Linux, fd: int, ctx_id: int) -> DrmAmdgpuCtxOutState:
    """Flags `AMDGPU_CTX_QUERY2_FLAGS_*`: whether a reset hit it, whose fault, whether VRAM was lost."""
    argument = DrmAmdgpuCtx(in_=DrmAmdgpuCtxIn(op=AMDGPU_CTX_OP_QUERY_STATE2, ctx_id=ctx_id))
    _call(linux, fd, AMDGPU_CTX, argument)
    return DrmAmdgpuCtxOutState.from_buffer_copy(argument.out_state)


# Submission.


def set_buffer_list(linux: Linux, fd: int, handles: Sequence[int], update: int | None = None) -> int:
    """A list of the buffers that submissions use, all of priority 0: a new one, or list `update` with new contents."""
    entries = (DrmAmdgpuBoListEntry * len(handles))(*(DrmAmdgpuBoListEntry(handle, 0) for handle in handles))
    operation = AMDGPU_BO_LIST_OP_CREATE if update is None else AMDGPU_BO_LIST_OP_UPDATE
    size, address = ctypes.sizeof(DrmAmdgpuBoListEntry), ctypes.addressof(entries)
    argument = DrmAmdgpuBoList(in_=DrmAmdgpuBoListIn(operation, update or 0, len(handles), size, address))
    _call(linux, fd, AMDGPU_BO_LIST, argument)
    return int(argument.out.list_handle) if update is None else update


def destroy_buffer_list(linux: Linux, fd: int, handle: int) -> None:
    """Give a list back."""
    # Kernels read the entries also here: size and count are those of an empty list.
    size = ctypes.sizeof(DrmAmdgpuBoListEntry)
    argument = DrmAmdgpuBoList(in_=DrmAmdgpuBoListIn(AMDGPU_BO_LIST_OP_DESTROY, handle, 0, size, 0))
    _call(linux, fd, AMDGPU_BO_LIST, argument)


def submit(linux: Linux, fd: int, ctx_id: int, list_handle: int, va: int, n_bytes: int) -> int:
    """Run an indirect buffer on compute ring 0, host writes made visible to it first; the fence's number."""
    buffer = DrmAmdgpuCsChunkIb(
        flags=AMDGPU_IB_FLAG_EMIT_MEM_SYNC, va_start=va, ib_bytes=n_bytes, ip_type=AMDGPU_HW_IP_COMPUTE
    )
    chunk = DrmAmdgpuCsChunk(AMDGPU_CHUNK_ID_IB, ctypes.sizeof(buffer) // 4, ctypes.addressof(buffer))
    pointers = (ctypes.c_uint64 * 1)(ctypes.addressof(chunk))
    argument = DrmAmdgpuCs(in_=DrmAmdgpuCsIn(ctx_id, list_handle, 1, 0, ctypes.addressof(pointers)))
    _call(linux, fd, AMDGPU_CS, argument)
    return int(argument.out.handle)


def wait(linux: Linux, fd: int, ctx_id: int, fence: int, deadline_ns: int) -> int:
    """0 once the fence has retired, 1 when the deadline came first: nanoseconds of CLOCK_MONOTONIC, 0 to poll."""
    argument = DrmAmdgpuWaitCs(
        in_=DrmAmdgpuWaitCsIn(handle=fence, timeout=deadline_ns, ip_type=AMDGPU_HW_IP_COMPUTE, ctx_id=ctx_id)
    )
    _call(linux, fd, AMDGPU_WAIT_CS, argument)
    return int(argument.out.status)
