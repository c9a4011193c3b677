"""Systems that answer as no real one does, for the statuses that need it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from amdgpu_emu.faults import ioctl_name
from amdgpu_emu.process import Process
from zinc_rt.utils.linux import Linux


class NotLinux(Linux):
    """Some other system: any call but the question for its name is a failure of the test."""

    @property
    def is_linux(self) -> bool:
        return False

    def open(self, path: str, flags: int = 0) -> int:
        raise AssertionError(f"{path} was opened")

    def read_text(self, path: str) -> str:
        raise AssertionError(f"{path} was read")

    def list_dir(self, path: str) -> list[str]:
        raise AssertionError(f"{path} was listed")


class Files(Linux):
    """sysfs out of a dictionary; there are no devices."""

    def __init__(self, files: dict[str, str | OSError]) -> None:
        self.files = files

    @property
    def is_linux(self) -> bool:
        return True

    def open(self, path: str, flags: int = 0) -> int:
        raise FileNotFoundError(2, "No such file or directory", path)

    def read_text(self, path: str) -> str:
        found = self.files.get(path, FileNotFoundError(2, "No such file or directory", path))
        if isinstance(found, OSError):
            raise found
        return found

    def list_dir(self, path: str) -> list[str]:
        inside = {name[len(path) + 1 :].split("/")[0] for name in self.files if name.startswith(f"{path}/")}
        if not inside:
            raise FileNotFoundError(2, "No such file or directory", path)
        return sorted(inside)


def after(process: Process, call: str, change: Callable[[Any], None]) -> None:
    """Change what an ioctl answers."""
    real = process.ioctl

    def ioctl(fd: int, request: int, argument: Any) -> int:
        result = real(fd, request, argument)
        if ioctl_name(request) == call:
            change(argument)
        return result

    process.ioctl = ioctl  # type: ignore[method-assign]
