"""How many threads are worth running: the physical cores that this process may use."""

from __future__ import annotations

import os
from pathlib import Path


def default_threads(
    cpus: Path = Path("/sys/devices/system/cpu"), cgroup: Path = Path("/sys/fs/cgroup"), allowed: set[int] | None = None
) -> int:
    """Physical cores among the processors that the scheduler allows, within the control group's quota; at least 1."""
    if allowed is None:
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set(range(os.cpu_count() or 1))
    cores = {_core(cpus, cpu) for cpu in allowed}
    quota = _quota(cgroup)
    return max(1, len(cores) if quota is None else min(len(cores), quota))


def _core(cpus: Path, cpu: int) -> tuple[str, str]:
    """What tells a processor's core from others: package and core number; itself where the system does not say."""
    folder = cpus / f"cpu{cpu}" / "topology"
    try:
        return (folder / "physical_package_id").read_text().strip(), (folder / "core_id").read_text().strip()
    except OSError:
        return "", f"cpu{cpu}"


def _quota(cgroup: Path) -> int | None:
    """Processors' worth of time that the control group allows, rounded up; None without a limit."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()[:2]
    except (OSError, ValueError):
        try:
            quota = (cgroup / "cpu" / "cpu.cfs_quota_us").read_text().strip()
            period = (cgroup / "cpu" / "cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    try:
        return None if quota == "max" or int(quota) <= 0 else max(1, -(-int(quota) // int(period)))
    except (ValueError, ZeroDivisionError):
        return None
