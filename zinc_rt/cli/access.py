"""Diagnosis of a device file that cannot be opened, as a line of `zinc check`."""

from __future__ import annotations

import contextlib

from zinc_rt.cli.machine import MachineFinding
from zinc_rt.utils.linux import Linux


def device_file(linux: Linux, path: str, label: str = "") -> MachineFinding:
    """Try to open a device file for reading and writing, as every interface does."""
    from zinc_rt.amdgpu.advice import file_advice

    name = label or path
    try:
        fd = linux.open(path)
    except OSError as error:
        reason, remedy = file_advice(linux, path, error.errno or 0)
        return MachineFinding(name, reason, False, remedy)
    with contextlib.suppress(OSError):
        linux.close(fd)
    return MachineFinding(name, f"{path} can be opened")
