"""How many threads are worth running: the physical cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path

from zinc_rt.mem.cgroup import GROUPS, ROOT, limiting_folders


def default_threads(
    cpus: Path = Path("/sys/devices/system/cpu"),
    cgroup: Path = ROOT,
    allowed: set[int] | None = None,
    groups: Path = GROUPS,
) -> int:
    """Physical cores among the processors that the scheduler allows, within the control groups' quota; at least 1.

    allowed: processors, None for those of this process. The other folders and files are where Linux has them.
    """
    if allowed is None:
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = {_core(cpus, cpu) for cpu in allowed}
    quota = min(
        (q for folder in limiting_folders("cpu", cgroup, groups) if (q := _quota(folder)) is not None),
        default=len(cores),
    )
    return max(1, min(len(cores), quota))


def _core(cpus: Path, cpu: int) -> str:
    """What tells a processor's core from others: the processors that share it; itself where the system does not say.

    Files of Documentation/ABI/stable/sysfs-devices-system-cpu; the second is the older name. Core numbers would not do:
    they repeat in other packages, and on some machines in other dies.
    """
    for name in ("core_cpus_list", "thread_siblings_list"):
        try:
            if shared := (cpus / f"cpu{cpu}" / "topology" / name).read_text().strip():
                return shared
        except OSError:
            continue
    return str(cpu)


def _quota(folder: Path) -> int | None:
    """Processors' worth of time that a control group allows, rounded up; None without a limit."""
    try:
        quota, period = (folder / "cpu.max").read_text().split()[:2]
    except (OSError, ValueError):
        try:
            quota = (folder / "cpu.cfs_quota_us").read_text().strip()
            period = (folder / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    try:
        return None if quota == "max" or int(quota) <= 0 else max(1, -(-int(quota) // int(period)))
    except (ValueError, ZeroDivisionError):
        return None
