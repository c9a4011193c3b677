"""Which process wrote a marker, and whether it still runs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from zinc_rt.utils.linux import Linux

_BOOT = "/proc/sys/kernel/random/boot_id"
_NAMESPACE = "/proc/self/ns/pid"
_STATE, _STARTED = 0, 19  # fields of /proc/PID/stat behind the name, proc_pid_stat(5)
_ENDED = "ZX"


def this_process(linux: Linux) -> dict[str, Any]:
    """What tells this process from every other: its number, when it began, in which boot and which container."""
    number = linux.pid()
    return {"pid": number, "started": _started(linux, number), "boot": _boot(linux), "namespace": _namespace(linux)}


def is_alive(linux: Linux, process: Mapping[str, Any]) -> bool:
    """Whether the process that `this_process` described still runs. One of another container cannot be seen; it counts
    as running until the machine is started again.
    """
    if process.get("boot") != _boot(linux):
        return False
    if process.get("namespace") != _namespace(linux):
        return True
    number = process.get("pid")
    started = _started(linux, number) if isinstance(number, int) else ""
    return started != "" and started == process.get("started")


def _started(linux: Linux, number: int) -> str:
    """In clock ticks since the boot; empty for a process that has ended."""
    with suppress(OSError, IndexError):
        fields = linux.read_text(f"/proc/{number}/stat").rpartition(")")[2].split()
        return "" if fields[_STATE] in _ENDED else fields[_STARTED]
    return ""


def _boot(linux: Linux) -> str:
    with suppress(OSError):
        return linux.read_text(_BOOT).strip()
    return ""


def _namespace(linux: Linux) -> int:
    with suppress(OSError):
        return linux.stat(_NAMESPACE).st_ino
    return 0
