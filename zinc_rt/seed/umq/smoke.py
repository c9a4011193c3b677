"""Asking the kernel for user queues, and making one only to free it again: every way to fail has a status."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from enum import StrEnum

from zinc_rt.amdgpu import drm as kmd
from zinc_rt.amdgpu.drm import QueryStatus
from zinc_rt.amdgpu.umq.buffers import Buffers
from zinc_rt.amdgpu.umq.preflight import DEFAULT_RENDER_NODE, ProbeStatus, probe_path
from zinc_rt.amdgpu.umq.queue import UserQueue
from zinc_rt.linux import Linux, host


class SmokeStatus(StrEnum):
    """How it ended."""

    passed = "passed"
    unsupported_os = "unsupported_os"
    preflight_failed = "preflight_failed"
    compute_userq_unavailable = "compute_userq_unavailable"
    render_node_open_failed = "render_node_open_failed"
    gem_create_failed = "gem_create_failed"
    gem_mmap_failed = "gem_mmap_failed"
    gem_va_failed = "gem_va_failed"
    userq_create_failed = "userq_create_failed"
    userq_free_failed = "userq_free_failed"


_STATUS_OF_CALL = {
    "AMDGPU_GEM_CREATE": SmokeStatus.gem_create_failed,
    "AMDGPU_GEM_VA": SmokeStatus.gem_va_failed,
    "AMDGPU_USERQ": SmokeStatus.userq_create_failed,
}


@dataclass(frozen=True)
class SmokeResult:
    """What was seen on the way. queue_id: of the queue that was made; preflight_status, query_status: None when it did
    not come so far; errno: of the call that failed; eop_size, eop_alignment: bytes, as the kernel reports them.
    """

    status: SmokeStatus
    queue_id: int = 0
    preflight_status: ProbeStatus | None = None
    query_status: QueryStatus | None = None
    errno: int | None = None
    userq_slots: int = 0
    eop_size: int = 0
    eop_alignment: int = 0

    def ok(self) -> bool:
        """Whether everything went well."""
        return self.status is SmokeStatus.passed


def admission_probe_default(*, linux: Linux | None = None) -> SmokeResult:
    """`admission_probe_path` of the first render node."""
    return admission_probe_path(DEFAULT_RENDER_NODE, linux=linux)


def admission_probe_path(render_node: str, *, linux: Linux | None = None) -> SmokeResult:
    """Whether the kernel would take a compute user queue: the preflight, then its own answer. Nothing is created.

    Passed means that it reports slots; a queue that retires a fence is still to be seen. Never raises.
    """
    linux = linux or host()
    preflight = probe_path(render_node, linux=linux)
    if preflight.status is ProbeStatus.unsupported_os:
        return SmokeResult(SmokeStatus.unsupported_os, preflight_status=preflight.status)
    if not preflight.preflight_ok():
        return SmokeResult(SmokeStatus.preflight_failed, preflight_status=preflight.status)
    query = kmd.query_compute_userq(render_node, linux=linux)
    result = SmokeResult(
        SmokeStatus.passed, preflight_status=preflight.status, query_status=query.status, errno=query.errno
    )
    if query.info is None:
        return replace(result, status=SmokeStatus.compute_userq_unavailable)
    info = query.info
    return replace(result, userq_slots=info.userq_slots, eop_size=info.eop_size, eop_alignment=info.eop_alignment)


def create_free_smoke_default(*, linux: Linux | None = None) -> SmokeResult:
    """`create_free_smoke_path` of the first render node."""
    return create_free_smoke_path(DEFAULT_RENDER_NODE, linux=linux)


def create_free_smoke_path(render_node: str, *, linux: Linux | None = None) -> SmokeResult:
    """Create a compute user queue and free it. Nothing is submitted, everything is given back. Never raises."""
    linux = linux or host()
    result = admission_probe_path(render_node, linux=linux)
    if not result.ok():
        return result
    try:
        fd = linux.open(render_node)
    except OSError as error:
        return replace(result, status=SmokeStatus.render_node_open_failed, errno=error.errno)
    buffers = Buffers(fd, linux)
    try:
        return _create_and_free(buffers, result)
    finally:
        buffers.close()
        with contextlib.suppress(OSError):
            linux.close(fd)


def _create_and_free(buffers: Buffers, result: SmokeResult) -> SmokeResult:
    try:
        queue = UserQueue.allocate(buffers, result.eop_size, result.eop_alignment)
        queue.create()
    except kmd.KmdError as error:
        # Only the two steps of a map are left: asking for its offset, and the mmap itself.
        status = _STATUS_OF_CALL.get(error.call, SmokeStatus.gem_mmap_failed)
        return replace(result, status=status, errno=error.errno)
    result = replace(result, queue_id=queue.queue_id)
    try:
        queue.free()
    except kmd.IoctlFailed as error:
        with contextlib.suppress(kmd.IoctlFailed):
            queue.free()  # its buffers go next; what stays even now, ends with the file
        return replace(result, status=SmokeStatus.userq_free_failed, errno=error.errno)
    return result
