"""Facts about the machine that matter to a runtime: from Python, /proc and the control group."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zinc_rt.lang.target import host_flags, host_processor

MIN_PYTHON: Final = (3, 11)
_FEATURES: Final = (
    # x86-64 as /proc/cpuinfo writes them, then aarch64.
    *(
        "avx2",
        "fma",
        "f16c",
        "avx_vnni",
        "avx512f",
        "avx512_vnni",
        "avx512_bf16",
        "avx512_fp16",
        "amx_int8",
        "amx_bf16",
    ),
    *("asimd", "asimddp", "i8mm", "bf16", "sve", "sve2"),
)
_LOW_MEMORY: Final = 1 << 29  # bytes; below this, little more than the model in the package runs


@dataclass(frozen=True)
class MachineFinding:
    """One line of the report. ok False: something is wrong, and `remedy` says what to do."""

    name: str
    value: str
    ok: bool = True
    remedy: str = ""


def findings() -> list[MachineFinding]:
    """Findings about the machine: system, processor, memory, libraries."""
    return [_python(), _system(), _processor(), _cores(), _memory(), _numpy(), *_libraries(), _built_in()]


def _python() -> MachineFinding:
    version = platform.python_version()
    ok = tuple(map(int, platform.python_version_tuple()[:2])) >= MIN_PYTHON
    need = ".".join(map(str, MIN_PYTHON))
    return MachineFinding(
        "Python", f"{platform.python_implementation()} {version}", ok, "" if ok else f"install {need}"
    )


def _system() -> MachineFinding:
    return MachineFinding("system", f"{platform.system()} {platform.release()}, {platform.machine()}")


def _processor() -> MachineFinding:
    have = [f for f in _FEATURES if f in host_flags()]
    model = host_processor().get("model name") or platform.processor() or "unknown"
    return MachineFinding("processor", f"{model}; {' '.join(have) or 'no vector features known'}")


def _cores(cgroup: Path = Path("/sys/fs/cgroup")) -> MachineFinding:
    total = os.cpu_count() or 1
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else total
    text = f"{usable} of {total} usable" if usable != total else str(total)
    quota = _cpu_quota(cgroup)
    if quota is not None and quota < usable:
        return MachineFinding("CPU cores", f"{text}; the control group allows the time of {quota:.1f}")
    return MachineFinding("CPU cores", text)


def _cpu_quota(cgroup: Path) -> float | None:
    """Cores' worth of time that the control group grants (v2, then v1); None without a limit."""
    try:
        quota, period = (cgroup / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        pass
    try:
        quota_us = int((cgroup / "cpu/cpu.cfs_quota_us").read_text())
        period_us = int((cgroup / "cpu/cpu.cfs_period_us").read_text())
        return quota_us / period_us if quota_us > 0 else None
    except (OSError, ValueError, ZeroDivisionError):
        return None


def _memory(meminfo: Path = Path("/proc/meminfo")) -> MachineFinding:
    from zinc_rt.mem.plan import available_memory, format_bytes

    available = available_memory()
    if available is None:
        return MachineFinding("memory", "unknown: this system does not say")
    total = None
    try:
        for line in meminfo.read_text().splitlines():
            if line.startswith("MemTotal:"):
                total = int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    text = f"{format_bytes(available)} available" + (f" of {format_bytes(total)}" if total else "")
    ok = available >= _LOW_MEMORY
    return MachineFinding("memory", text, ok, "" if ok else "close programs or raise the control group's limit")


def _numpy() -> MachineFinding:
    try:
        import numpy as np
    except ImportError as error:
        return MachineFinding(
            "NumPy", f"cannot be imported: {error}", False, "reinstall: pip install --force-reinstall numpy"
        )
    return MachineFinding("NumPy", f"{np.__version__}, linear algebra by {_blas()}")


def _blas() -> str:
    import numpy as np

    try:
        config = np.show_config(mode="dicts")
        blas = config["Build Dependencies"]["blas"]
        return f"{blas.get('name', 'unknown')} {blas.get('version', '')}".strip()
    except (AttributeError, KeyError, TypeError):
        return "an unknown library"


def _libraries() -> list[MachineFinding]:
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for name in ("tokenizers", "jinja2"):
        try:
            found.append(MachineFinding(name, version(name)))
        except PackageNotFoundError:
            found.append(MachineFinding(name, "not installed", False, f"pip install {name}"))
    return found


def _built_in() -> MachineFinding:
    from zinc_rt.gguf import GGUFError, GGUFFile
    from zinc_rt.llm.load import built_in_model
    from zinc_rt.mem.plan import format_bytes

    try:
        with GGUFFile.open(built_in_model()) as file:
            return MachineFinding("model inside", f"{built_in_model().name}, {format_bytes(file.file_size)}")
    except GGUFError as error:
        return MachineFinding("model inside", error.problem, False, "reinstall the package, or give a model with -m")
