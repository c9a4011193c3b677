"""The page `umq`: compute user queues of amdgpu, where kernel and firmware admit them.

Three questions in this order: do Linux and amdgpu have user queues (`probe_*`), does the kernel offer slots
(`admission_probe_*`), can a queue be made and freed (`create_free_smoke_*`).
"""

from zinc_rt.amdgpu.interface import DEFAULT_RENDER_NODE
from zinc_rt.amdgpu.umq.preflight import (
    MIN_LINUX,
    USER_QUEUE_PARAM_PATH,
    KernelVersion,
    ProbeResult,
    ProbeStatus,
    kernel_supports_umq,
    parse_kernel_release,
    probe_default,
    probe_path,
    user_queue_mode_enables_umq,
)
from zinc_rt.seed.umq.smoke import UmqSmokeResult as SmokeResult
from zinc_rt.seed.umq.smoke import UmqSmokeStatus as SmokeStatus
from zinc_rt.seed.umq.smoke import (
    admission_probe_default,
    admission_probe_path,
    create_free_smoke_default,
    create_free_smoke_path,
)

__all__ = [
    "DEFAULT_RENDER_NODE",
    "MIN_LINUX",
    "USER_QUEUE_PARAM_PATH",
    "KernelVersion",
    "ProbeResult",
    "ProbeStatus",
    "SmokeResult",
    "SmokeStatus",
    "admission_probe_default",
    "admission_probe_path",
    "create_free_smoke_default",
    "create_free_smoke_path",
    "kernel_supports_umq",
    "parse_kernel_release",
    "probe_default",
    "probe_path",
    "user_queue_mode_enables_umq",
]
