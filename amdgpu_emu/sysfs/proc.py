"""/proc and /etc/machine-id: which machine and boot this is, and which processes run."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amdgpu_emu.machine import Machine

_BEHIND_THE_NAME = 50
"""Fields of /proc/PID/stat from the state on; the twentieth is when the process began."""


def read(machine: Machine, path: str) -> str | None:
    """A file's text; None for one that is not there."""
    if path == "/etc/machine-id":
        return f"{machine.machine_id}\n"
    if path == "/proc/sys/kernel/random/boot_id":
        return f"{machine.boot_id}\n"
    for process in machine.processes:
        if path == f"/proc/{process.number}/stat" and not process.ended:
            fields = ["S", *("0" for _ in range(_BEHIND_THE_NAME - 1))]
            fields[19] = str(100 * process.number)
            return f"{process.number} (python) {' '.join(fields)}\n"
    return None
