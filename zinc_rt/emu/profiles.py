"""Kernel versions that can be emulated: where their amdgpu and amdkfd differ. Read from the kernels' sources."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KernelProfile:
    """One kernel.

    release: as `uname -r`; version: for comparisons; drm_minor, kfd_minor: interface versions (major 3 and 1);
    job_timeout: seconds until a submission counts as hung; user_queue: the module parameter (None: there is none);
    user_queues: whether the driver offers them, which takes the parameter and recent firmware.
    """

    name: str
    release: str
    version: tuple[int, int]
    drm_minor: int
    kfd_minor: int
    job_timeout: float
    user_queue: int | None
    user_queues: bool = False

    def since(self, major: int, minor: int) -> bool:
        """Whether this kernel is at least that version."""
        return self.version >= (major, minor)


LINUX_6_12 = KernelProfile("6.12", "6.12.107-amd64", (6, 12), 61, 17, 60.0, None)
LINUX_6_17 = KernelProfile("6.17", "6.17.0-24-generic", (6, 17), 64, 18, 10.0, -1)
LINUX_7_3 = KernelProfile("7.3", "7.3.4-amd64", (7, 3), 64, 23, 2.0, -1)
LINUX_7_3_USERQ = KernelProfile("7.3-userq", "7.3.4-amd64", (7, 3), 64, 23, 2.0, 1, user_queues=True)
PROFILES = {p.name: p for p in (LINUX_6_12, LINUX_6_17, LINUX_7_3, LINUX_7_3_USERQ)}
