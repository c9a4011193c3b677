"""One call of amdgpu's render node, and how it fails."""

from __future__ import annotations

from ctypes import Structure, Union
from typing import Protocol

from zinc_rt.amdgpu.abi.requests import Ioctl
from zinc_rt.amdgpu.errors import IoctlFailed
from zinc_rt.utils.linux import LastErrno, Linux, host


class HasFileno(Protocol):
    """A file object."""

    def fileno(self) -> int:
        """Its descriptor."""


File = int | HasFileno


def descriptor(file: File) -> int:
    """Of an open render node."""
    return file if isinstance(file, int) else file.fileno()


_last = LastErrno()


def last_errno() -> int | None:
    """The errno of this thread's latest ioctl of this module; None when it went well or there was none yet.

    Every ioctl clears it first, so it says something right after an `IoctlFailed` only.
    """
    return _last.errno


def ioctl(file: File, request: Ioctl, argument: Structure | Union, linux: Linux | None) -> None:
    """Run it. Raises `IoctlFailed`."""
    fd = descriptor(file)
    try:
        with _last.noted():
            (linux or host()).ioctl(fd, request.value, argument)
    except OSError as error:
        raise IoctlFailed(request.name, error.errno or 0) from None
