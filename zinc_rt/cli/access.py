"""Diagnosis of a device file that cannot be opened: it is missing, its mode and groups, a container's rules."""

from __future__ import annotations

import contextlib
import errno
import os
import stat

from zinc_rt.cli.machine import MachineFinding
from zinc_rt.linux import Linux

_CONTAINER = "in a container pass --device /dev/kfd --device /dev/dri"


def device_file(linux: Linux, path: str, label: str = "") -> MachineFinding:
    """Try to open a device file for reading and writing, as every interface does."""
    name = label or path
    try:
        fd = linux.open(path)
    except OSError as error:
        return _refused(linux, path, name, error.errno or 0)
    with contextlib.suppress(OSError):
        linux.close(fd)
    return MachineFinding(name, f"{path} can be opened")


def _refused(linux: Linux, path: str, name: str, code: int) -> MachineFinding:
    if code == errno.ENOENT:
        return MachineFinding(
            name, f"{path} does not exist", False, f"{_CONTAINER}; otherwise load the module: modprobe amdgpu"
        )
    if code in {errno.EACCES, errno.EPERM}:
        return _forbidden(linux, path, name)
    if code in {errno.ENXIO, errno.ENODEV}:
        return MachineFinding(
            name, f"{path}: no device answers behind it", False, "see the kernel's log: dmesg | grep amdgpu"
        )
    reason = f"{path} cannot be opened: {os.strerror(code)} (errno {code})"
    return MachineFinding(name, reason, False, "see the kernel's log: dmesg | grep -e amdgpu -e kfd")


def _forbidden(linux: Linux, path: str, name: str) -> MachineFinding:
    try:
        found = linux.stat(path)
    except OSError:
        return MachineFinding(name, f"{path} is forbidden, and so is a look at its mode", False, _CONTAINER)
    groups, gid = linux.groups(), found.st_gid
    group = _group_name(linux, gid)
    mode = stat.S_IMODE(found.st_mode)
    text = (
        f"{path} is forbidden: mode {mode:04o}, owner {found.st_uid}, group {group}; this process is in "
        f"{', '.join(_group_name(linux, g) for g in groups)}"
    )
    if gid in groups and mode & 0o060 == 0o060:
        return MachineFinding(
            name, f"{text}: the mode allows it, the container's device rules do not", False, _CONTAINER
        )
    if mode & 0o060 != 0o060:
        return MachineFinding(name, text, False, f"let the group read and write it: chmod g+rw {path}, by a udev rule")
    who = group.partition(" ")[0]
    remedy = f"sudo usermod -aG {who} $USER and log in again; in a container --group-add {gid}"
    return MachineFinding(name, text, False, remedy)


def _group_name(linux: Linux, gid: int) -> str:
    """ "render (992)" where the system says so, else the number."""
    try:
        lines = linux.read_text("/etc/group").splitlines()
    except OSError:
        return str(gid)
    for line in lines:
        fields = line.split(":")
        if len(fields) > 2 and fields[2] == str(gid):
            return f"{fields[0]} ({gid})"
    return str(gid)
