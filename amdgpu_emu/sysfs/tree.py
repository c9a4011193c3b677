"""The tree of emulated files: reading, listing, access rights."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from typing import TYPE_CHECKING

from amdgpu_emu.errors import CallRefused
from amdgpu_emu.sysfs import cards, topology

if TYPE_CHECKING:
    from amdgpu_emu.machine import Machine


_STAT_FIELDS = 50
"""Fields of /proc/PID/stat from the state on; the twentieth is when the process began."""

Content = str | Callable[[], str]
"""A file's text, or a function that makes it at each read."""
_FILE_MODE, _DIR_MODE = stat.S_IFREG | 0o444, stat.S_IFDIR | 0o755
_READ_WRITE = 6


class SysFs:
    """The emulated files of a machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._files: dict[str, Content] = {}
        self._folders: dict[str, set[str]] = {}

    def _build(self) -> None:
        """Build the tree at the first access; the GPUs of an emulated machine never change."""
        if self._folders:
            return
        self._files |= topology.files(self._machine) | cards.files(self._machine)
        for path in (*self._files, *self._device_files()):
            parts = path.split("/")
            for i in range(1, len(parts)):
                self._folders.setdefault("/".join(parts[:i]) or "/", set()).add(parts[i])

    def _device_files(self) -> list[str]:
        machine = self._machine
        return ["/dev/kfd"] * machine.has_kfd + [gpu.render_node for gpu in machine.gpus if machine.has_dri]

    def read(self, path: str) -> str:
        """A file's text. Raises `CallRefused` (ENOENT, EISDIR, EPERM)."""
        self._build()
        path = _clean(path)
        content = self._files.get(path)
        if content is None and (text := _process_file(self._machine, path)) is not None:
            return text
        if content is None:
            if path in self._folders:
                raise CallRefused(errno.EISDIR, f"{path} is a folder")
            raise CallRefused(errno.ENOENT, f"{path} does not exist here")
        if not self._machine.has_dri and topology.is_of_gpu(path):
            raise CallRefused(errno.EPERM, f"{path}: the container's device rules hide the GPU")
        return content if isinstance(content, str) else content()

    def list(self, path: str) -> list[str]:
        """Names in a folder, sorted. Raises `CallRefused` (ENOENT, ENOTDIR)."""
        self._build()
        path = _clean(path)
        if path in self._files:
            raise CallRefused(errno.ENOTDIR, f"{path} is a file")
        if path not in self._folders:
            raise CallRefused(errno.ENOENT, f"{path} does not exist here")
        return sorted(self._folders[path])

    def stat(self, path: str) -> os.stat_result:
        """Kind, mode, owner. Raises `CallRefused` (ENOENT)."""
        self._build()
        path = _clean(path)
        if path in self._device_files():
            rules = self._machine.device_file
            return _stat(stat.S_IFCHR | rules.mode, rules.uid, rules.gid)
        if path in self._files:
            return _stat(_FILE_MODE)
        if path in self._folders:
            return _stat(_DIR_MODE)
        raise CallRefused(errno.ENOENT, f"{path} does not exist here")

    def check_access(self) -> None:
        """Raise `CallRefused` (EACCES) when the machine's user may not open device files for reading and writing."""
        machine, rules = self._machine, self._machine.device_file
        if machine.uid == 0:
            return
        if machine.uid == rules.uid:
            granted, who = rules.mode >> 6, "owner"
        elif rules.gid in machine.groups:
            granted, who = rules.mode >> 3, "group"
        else:
            granted, who = rules.mode, "others"
        if granted & _READ_WRITE != _READ_WRITE:
            raise CallRefused(
                errno.EACCES,
                f"user {machine.uid}, groups {list(machine.groups)}, counts as {who} of a device file of "
                f"{rules.uid}:{rules.gid} with mode {rules.mode:o}",
            )


def _clean(path: str) -> str:
    return os.path.normpath(path)


def _stat(mode: int, uid: int = 0, gid: int = 0) -> os.stat_result:
    return os.stat_result((mode, 0, 0, 1, uid, gid, 0, 0, 0, 0))


def _process_file(machine: Machine, path: str) -> str | None:
    """The text of a file of /proc or of /etc/machine-id; None for one that is not there."""
    if path == "/etc/machine-id":
        return f"{machine.machine_id}\n"
    if path == "/proc/sys/kernel/random/boot_id":
        return f"{machine.boot_id}\n"
    for process in machine.processes:
        if path == f"/proc/{process.number}/stat" and not process.ended:
            fields = ["S", *("0" for _ in range(_STAT_FIELDS - 1))]
            fields[19] = str(100 * process.number)
            return f"{process.number} (python) {' '.join(fields)}\n"
    return None
