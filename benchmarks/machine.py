"""Facts about a run: the machine, the versions, and the share of the machine that other work took.

Nothing here names the computer, a user or a folder.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bandwidth import read_bandwidth

import zinc_rt

_FLAGS = re.compile(r"avx.*|fma|f16c|amx.*|asimd.*|i8mm|bf16|sve.*")
_PACKAGES = ("numpy", "llvmlite", "threadpoolctl")


class Clock:
    """Measures the share of the processor that other work took since the clock was made.

    also: processor seconds of other processes that belong to the measurement and still run.
    """

    def __init__(self, also: Callable[[], float] = lambda: 0.0) -> None:
        self._also = also
        self._wall = time.perf_counter()
        self._busy = _busy_seconds()
        self._own = _own_seconds() + also()

    def elsewhere(self) -> float:
        """Share of all cores' time: busy or stolen by the host, and not by this process or its ended children."""
        wall = time.perf_counter() - self._wall
        others = _busy_seconds() - self._busy - (_own_seconds() + self._also() - self._own)
        return max(0.0, others / (wall * (os.cpu_count() or 1)))


def _busy_seconds() -> float:
    """All cores: user, nice, system, irq, softirq, steal; fields of the first line of /proc/stat (proc(5))."""
    fields = [int(x) for x in _read(Path("/proc/stat")).partition("\n")[0].split()[1:9]]
    return sum(n for i, n in enumerate(fields) if i not in (3, 4)) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def host_state(threads: int) -> dict[str, float]:
    """What the machine gives at the moment: read bandwidth in GB/s, and the share of its processors that others use."""
    clock = Clock()
    time.sleep(1.0)
    others = clock.elsewhere()
    return {"read_bandwidth_gb_s": round(read_bandwidth(1 << 29, threads), 1), "others": round(others, 3)}


def machine_facts() -> dict[str, Any]:
    """The processor: name, flags that matter here, cores, memory, caches."""
    info = _read(Path("/proc/cpuinfo"))
    name = re.search(r"^model name\s*: (.+)$", info, re.M)
    flags = re.search(r"^(?:flags|Features)\s*: (.+)$", info, re.M)
    return {
        "cpu": name[1].strip() if name else platform.machine(),
        "cores": os.cpu_count(),
        "usable": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "flags": sorted(f for f in (flags[1].split() if flags else ()) if _FLAGS.fullmatch(f)),
        "caches": _caches(Path("/sys/devices/system/cpu/cpu0/cache")),
        "huge_pages": _read(Path("/sys/kernel/mm/transparent_hugepage/enabled")).strip(),
        "kernel": platform.release(),
    }


def version_facts(peer: str | None) -> dict[str, Any]:
    """Versions of all programs and libraries of the run."""
    found: dict[str, Any] = {"zinc_rt": importlib.metadata.version("zinc-rt"), "commit": _commit()}
    found["Python"] = platform.python_version()
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = None
    found["llama.cpp"] = peer
    return found


def _commit() -> str | None:
    """The commit that runs, with a + if files differ from it."""
    folder = Path(zinc_rt.__file__).parent
    try:
        commit = _git(folder, "rev-parse", "--short", "HEAD")
        return commit + ("+" if _git(folder, "status", "--porcelain", "-uno", "--", ".") else "")
    except (OSError, subprocess.CalledProcessError):
        return None


def _git(folder: Path, *arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _caches(folder: Path) -> dict[str, str]:
    found = {}
    for index in sorted(folder.glob("index*")):
        kind = _read(index / "type").strip()
        if kind != "Instruction":
            found[f"L{_read(index / 'level').strip()}"] = _read(index / "size").strip()
    return found


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""
