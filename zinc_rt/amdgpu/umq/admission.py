"""What the statuses mean for somebody who wants a user queue, and what would help."""

from __future__ import annotations

from zinc_rt.amdgpu.drm import QueryStatus
from zinc_rt.amdgpu.umq.preflight import MIN_LINUX, ProbeStatus
from zinc_rt.amdgpu.umq.smoke import SmokeResult, SmokeStatus

_ENABLE = "boot with amdgpu.user_queue=1"
_PREFLIGHT = {
    ProbeStatus.unsupported_os: ("amdgpu exists on Linux only", ""),
    ProbeStatus.kernel_too_old: (
        f"the kernel is older than Linux {MIN_LINUX.major}.{MIN_LINUX.minor}",
        f"install Linux {MIN_LINUX.major}.{MIN_LINUX.minor} or newer",
    ),
    ProbeStatus.render_node_missing: (
        "the render node does not exist",
        "load amdgpu; in a container pass --device /dev/dri",
    ),
    ProbeStatus.user_queue_param_missing: (
        "amdgpu has no readable parameter user_queue: it was built without user queues, or is not loaded",
        "use a kernel whose amdgpu has user queues",
    ),
    ProbeStatus.user_queue_disabled: ("amdgpu.user_queue forbids user queues", _ENABLE),
}
_QUERY = {
    QueryStatus.unsupported_os: ("amdgpu exists on Linux only", ""),
    QueryStatus.render_node_open_failed: ("the render node cannot be opened", "see its permissions"),
    QueryStatus.hw_ip_info_failed: ("the kernel does not answer for its compute engine", "see the kernel's log"),
    QueryStatus.compute_userq_unsupported: (
        "the kernel has no compute rings beside user queues, which this probe asks for: amdgpu.user_queue=2 does that",
        _ENABLE,
    ),
    QueryStatus.compute_userq_slots_missing: (
        "the kernel reports no slots for compute user queues: its default on gfx12, or the firmware is too old",
        f"{_ENABLE}, with recent firmware; the other interfaces need neither",
    ),
    QueryStatus.fw_metadata_failed: (
        "the kernel does not say how large a compute queue's end-of-pipe buffer is",
        "install Linux 7.2 or newer",
    ),
    QueryStatus.invalid_fw_metadata: ("the kernel says that the end-of-pipe buffer has no size", "update the kernel"),
}
_SMOKE = {
    SmokeStatus.render_node_open_failed: ("the render node cannot be opened again", "see its permissions"),
    SmokeStatus.gem_create_failed: ("a buffer of the queue cannot be made", "free GPU memory"),
    SmokeStatus.gem_mmap_failed: ("a buffer of the queue cannot be mapped", "free memory of the process"),
    SmokeStatus.gem_va_failed: ("a buffer of the queue cannot be put at its GPU address", "see the kernel's log"),
    SmokeStatus.userq_create_failed: ("the kernel refuses the queue", "see the kernel's log: dmesg | grep amdgpu"),
    SmokeStatus.userq_free_failed: ("the queue cannot be freed", "see the kernel's log: dmesg | grep amdgpu"),
}


def explain(result: SmokeResult) -> tuple[str, str]:
    """Reason and remedy of a result that is not ok; two empty texts for one that is."""
    status = result.status
    if status is SmokeStatus.passed:
        return "", ""
    if status in {SmokeStatus.unsupported_os, SmokeStatus.preflight_failed}:
        return _PREFLIGHT[result.preflight_status or ProbeStatus.unsupported_os]
    if status is SmokeStatus.compute_userq_unavailable:
        return _QUERY[result.query_status or QueryStatus.compute_userq_unsupported]
    return _SMOKE[status]
