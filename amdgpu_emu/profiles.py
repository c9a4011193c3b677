"""The kernel versions that can be emulated, with the differences of their amdgpu and amdkfd (from the kernels'
sources).
"""

from __future__ import annotations

from dataclasses import dataclass

from amdgpu_emu.models import Firmware

# ME, PFP, MEC, MES
_QUEUE_FIRMWARE = (2780, 2840, 3050, 123)
_QUEUE_FIRMWARE_7 = (3090, 3190, 3450, 147)


@dataclass(frozen=True)
class KernelProfile:
    """A kernel version that can be emulated.

    Attributes:
        release: as `uname -r` prints it.
        version: major and minor, for comparisons.
        drm_minor, kfd_minor: minor versions of the interfaces (major 3 and 1).
        job_timeout: seconds until a submission counts as hung.
        user_queue: the module parameter of this name; None: the kernel has none.
        lockup_timeout: the module parameter of this name, which says where `job_timeout` is from; empty: the default.
    """

    name: str
    release: str
    version: tuple[int, int]
    drm_minor: int
    kfd_minor: int
    job_timeout: float
    user_queue: int | None
    lockup_timeout: str = ""

    def offers_user_queues(self, firmware: Firmware) -> bool:
        """Whether this driver takes user queues of gfx12: module parameter and firmware decide (gfx_v12_0.c)."""
        least = _QUEUE_FIRMWARE_7 if self.since(7, 0) else _QUEUE_FIRMWARE
        found = (firmware.me, firmware.pfp, firmware.mec, firmware.mes)
        return self.user_queue in (1, 2) and all(a >= b for a, b in zip(found, least, strict=True))

    def since(self, major: int, minor: int) -> bool:
        """Whether this kernel is at least of this version."""
        return self.version >= (major, minor)


LINUX_6_12 = KernelProfile("6.12", "6.12.107-amd64", (6, 12), 61, 17, 60.0, None)
LINUX_6_17 = KernelProfile("6.17", "6.17.0-24-generic", (6, 17), 64, 18, 10.0, -1)
LINUX_7_3 = KernelProfile("7.3", "7.3.4-amd64", (7, 3), 64, 23, 2.0, -1)
LINUX_7_3_USERQ = KernelProfile("7.3-userq", "7.3.4-amd64", (7, 3), 64, 23, 2.0, 1)
PROFILES = {p.name: p for p in (LINUX_6_12, LINUX_6_17, LINUX_7_3, LINUX_7_3_USERQ)}
