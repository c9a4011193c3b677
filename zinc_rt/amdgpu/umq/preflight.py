"""Whether it is worth asking for user queues: kernel version, render node, module parameter. No device is opened.

User queues of amdgpu came with Linux 6.16. The parameter `user_queue` says who may use them: -1 as the driver thinks
(kernel queues alone on gfx12 so far), 0 nobody, 1 user queues beside kernel queues, 2 user queues only, 3 nobody.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from zinc_rt.amdgpu.interface import DEFAULT_RENDER_NODE
from zinc_rt.utils.linux import Linux, host

USER_QUEUE_PARAM_PATH = "/sys/module/amdgpu/parameters/user_queue"


@dataclass(frozen=True, order=True)
class KernelVersion:
    """The version of a Linux kernel."""

    major: int
    minor: int
    patch: int = 0

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


MIN_LINUX = KernelVersion(6, 16)


class ProbeStatus(StrEnum):
    """The result of the checks from outside."""

    preflight_ok = "preflight_ok"
    unsupported_os = "unsupported_os"
    kernel_too_old = "kernel_too_old"
    render_node_missing = "render_node_missing"
    user_queue_param_missing = "user_queue_param_missing"
    user_queue_disabled = "user_queue_disabled"


@dataclass(frozen=True)
class ProbeResult:
    """The facts that the checks found. kernel: None when its release cannot be read; user_queue_mode: the parameter,
    None unread.
    """

    status: ProbeStatus
    kernel: KernelVersion | None = None
    render_node: str = DEFAULT_RENDER_NODE
    user_queue_mode: int | None = None

    def preflight_ok(self) -> bool:
        """Whether the kernel may have user queues; only asking it proves that it has."""
        return self.status is ProbeStatus.preflight_ok


def probe_default(*, linux: Linux | None = None) -> ProbeResult:
    """`probe_path` of the first render node."""
    return probe_path(DEFAULT_RENDER_NODE, linux=linux)


def probe_path(render_node: str, *, linux: Linux | None = None) -> ProbeResult:
    """Look at the kernel's version, then for the node, then at the parameter. Never raises."""
    linux = linux or host()
    if not linux.is_linux:
        return ProbeResult(ProbeStatus.unsupported_os, render_node=render_node)
    kernel = parse_kernel_release(linux.kernel_release())
    if kernel is None or not kernel_supports_umq(kernel):
        return ProbeResult(ProbeStatus.kernel_too_old, kernel, render_node)
    try:
        linux.stat(render_node)
    except (OSError, ValueError):  # ValueError: a path that no file can have
        return ProbeResult(ProbeStatus.render_node_missing, kernel, render_node)
    try:
        mode = int(linux.read_text(USER_QUEUE_PARAM_PATH))
    except (OSError, ValueError):
        return ProbeResult(ProbeStatus.user_queue_param_missing, kernel, render_node)
    enabled = user_queue_mode_enables_umq(mode)
    status = ProbeStatus.preflight_ok if enabled else ProbeStatus.user_queue_disabled
    return ProbeResult(status, kernel, render_node, mode)


def kernel_supports_umq(kernel: KernelVersion) -> bool:
    """Whether the version is one that can have user queues."""
    return kernel >= MIN_LINUX


def parse_kernel_release(release: str) -> KernelVersion | None:
    """`6.16.0-24-generic`, `6.16-rc4` and the like, as `uname -r` prints them; None for anything else."""
    found = re.match(r"(\d{1,9})\.(\d{1,9})(?:\.(\d{1,9}))?", release.strip(), re.ASCII)
    if found is None:
        return None
    return KernelVersion(int(found[1]), int(found[2]), int(found[3] or 0))


def user_queue_mode_enables_umq(mode: int) -> bool:
    """Whether a value of the parameter lets programs have user queues: -1, 1 and 2 do."""
    return mode in {-1, 1, 2}
