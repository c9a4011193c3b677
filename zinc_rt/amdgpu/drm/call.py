"""One call of amdgpu's render node, and how it fails."""

from __future__ import annotations

import os
from ctypes import Structure, Union
from typing import Protocol

from zinc_rt.amdgpu.abi.requests import Request
from zinc_rt.errors import ZincError
from zinc_rt.linux import LastErrno, Linux, host


class HasFileno(Protocol):
    """A file object."""

    def fileno(self) -> int:
        """Its descriptor."""


File = int | HasFileno


def descriptor(file: File) -> int:
    """Of an open render node."""
    return file if isinstance(file, int) else file.fileno()


class KmdError(ZincError):
    """The kernel's driver refused a call. call: which one; errno: its answer."""

    def __init__(self, call: str, errno: int) -> None:
        super().__init__(f"{call} failed: {os.strerror(errno)} (errno {errno})")
        self.call, self.errno = call, errno


class IoctlFailed(KmdError):
    """An ioctl was refused; `last_errno` has the errno until the next one."""


class GemMapFailed(KmdError):
    """The kernel told where a buffer can be mapped, and then refused to map it there."""


_last = LastErrno()


def last_errno() -> int | None:
    """The errno of this thread's latest ioctl of this module; None when it went well or there was none yet.

    Every ioctl clears it first, so it says something right after an `IoctlFailed` only.
    """
    return _last.errno


def ioctl(file: File, request: Request, argument: Structure | Union, linux: Linux | None) -> None:
    """Run it. Raises `IoctlFailed`."""
    fd = descriptor(file)
    try:
        with _last.noted():
            (linux or host()).ioctl(fd, request.value, argument)
    except OSError as error:
        raise IoctlFailed(request.name, error.errno or 0) from None
