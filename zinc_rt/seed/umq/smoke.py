"""Asking the kernel for user queues, and making one only to free it again: every way to fail has a status."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, replace
from enum import StrEnum

from zinc_rt.amdgpu.advice import STEPS
from zinc_rt.amdgpu.drm import QueryStatus
from zinc_rt.amdgpu.drm_memory import RenderBuffers
from zinc_rt.amdgpu.errors import BufferFailed, IoctlFailed
from zinc_rt.amdgpu.interface import DEFAULT_RENDER_NODE
from zinc_rt.amdgpu.umq.admission import admission
from zinc_rt.amdgpu.umq.preflight import ProbeStatus
from zinc_rt.amdgpu.umq.queue import UmqQueue
from zinc_rt.utils.linux import Linux, host


class UmqSmokeStatus(StrEnum):
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


_STATUS_OF_PART = {
    "bo": UmqSmokeStatus.gem_create_failed,
    "map": UmqSmokeStatus.gem_mmap_failed,
    "va": UmqSmokeStatus.gem_va_failed,
}


@dataclass(frozen=True)
class UmqSmokeResult:
    """What was seen on the way. queue_id: of the queue that was made; preflight_status, query_status: None when it did
    not come so far; errno: of the call that failed; eop_size, eop_alignment: bytes, as the kernel reports them.
    """

    status: UmqSmokeStatus
    queue_id: int = 0
    preflight_status: ProbeStatus | None = None
    query_status: QueryStatus | None = None
    errno: int | None = None
    userq_slots: int = 0
    eop_size: int = 0
    eop_alignment: int = 0

    def ok(self) -> bool:
        """Whether everything went well."""
        return self.status is UmqSmokeStatus.passed


def admission_probe_default(*, linux: Linux | None = None) -> UmqSmokeResult:
    """`admission_probe_path` of the first render node."""
    return admission_probe_path(DEFAULT_RENDER_NODE, linux=linux)


def admission_probe_path(render_node: str, *, linux: Linux | None = None) -> UmqSmokeResult:
    """Whether the kernel would take a compute user queue: the preflight, then its own answer. Nothing is created.

    Passed means that it reports slots; a queue that retires a fence is still to be seen. Never raises.
    """
    seen = admission(render_node, linux or host())
    preflight, query = seen.preflight.status, seen.query
    if preflight is ProbeStatus.unsupported_os:
        return UmqSmokeResult(UmqSmokeStatus.unsupported_os, preflight_status=preflight)
    if query is None:
        return UmqSmokeResult(UmqSmokeStatus.preflight_failed, preflight_status=preflight)
    result = UmqSmokeResult(UmqSmokeStatus.passed, 0, preflight, query.status, query.errno)
    if query.info is None:
        return replace(result, status=UmqSmokeStatus.compute_userq_unavailable)
    info = query.info
    return replace(result, userq_slots=info.userq_slots, eop_size=info.eop_size, eop_alignment=info.eop_alignment)


def explain(result: UmqSmokeResult) -> tuple[str, str]:
    """Reason and remedy of a result that is not ok; two empty texts for one that is."""
    if result.ok():
        return "", ""
    words: dict[UmqSmokeStatus, ProbeStatus | QueryStatus | None] = {
        UmqSmokeStatus.unsupported_os: result.preflight_status,
        UmqSmokeStatus.preflight_failed: result.preflight_status,
        UmqSmokeStatus.compute_userq_unavailable: result.query_status,
    }
    step = STEPS[(words.get(result.status) or result.status).value]
    return step.text, step.remedy


def create_free_smoke_default(*, linux: Linux | None = None) -> UmqSmokeResult:
    """`create_free_smoke_path` of the first render node."""
    return create_free_smoke_path(DEFAULT_RENDER_NODE, linux=linux)


def create_free_smoke_path(render_node: str, *, linux: Linux | None = None) -> UmqSmokeResult:
    """Create a compute user queue and free it. Nothing is submitted, everything is given back. Never raises."""
    linux = linux or host()
    result = admission_probe_path(render_node, linux=linux)
    if not result.ok():
        return result
    try:
        fd = linux.open(render_node)
    except OSError as error:
        return replace(result, status=UmqSmokeStatus.render_node_open_failed, errno=error.errno)
    buffers = RenderBuffers(fd, render_node, linux)
    try:
        return _create_and_free(buffers, result)
    finally:
        buffers.close()
        with contextlib.suppress(OSError):
            linux.close(fd)


def _create_and_free(buffers: RenderBuffers, result: UmqSmokeResult) -> UmqSmokeResult:
    try:
        queue = UmqQueue.allocate(buffers, result.eop_size, result.eop_alignment)
        queue.create()
    except BufferFailed as error:
        return replace(result, status=_STATUS_OF_PART[error.part], errno=error.errno)
    except IoctlFailed as error:
        return replace(result, status=UmqSmokeStatus.userq_create_failed, errno=error.errno)
    result = replace(result, queue_id=queue.queue_id)
    try:
        queue.free()
    except IoctlFailed as error:
        with contextlib.suppress(IoctlFailed):
            queue.free()  # its buffers go next; what stays even now, ends with the file
        return replace(result, status=UmqSmokeStatus.userq_free_failed, errno=error.errno)
    return result
