"""Ioctls of /dev/kfd, the errno of the last one, and how a step says that it failed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zinc_rt.amdgpu.abi.requests import Request
from zinc_rt.linux import Argument, LastErrno, Linux


class StepFailed(Exception):
    """A step on the way to a queue failed. step: the name of its status, as `acquire_vm_failed`; errno: the kernel's
    answer, None when the kernel said nothing; what: the memory that it was about, "" for none. It never leaves
    the page `kfd`.
    """

    def __init__(self, step: str, errno: int | None = None) -> None:
        super().__init__(step, errno)
        self.step, self.errno, self.what = step, errno, ""


_last = LastErrno()


def last_errno() -> int | None:
    """errno of this thread's latest ioctl on /dev/kfd, None when it succeeded. Every ioctl clears it first."""
    return _last.errno


def call(linux: Linux, fd: int, request: Request, argument: Argument) -> None:
    """One ioctl. Raises `OSError`; `last_errno` keeps the errno."""
    with _last.noted():
        linux.ioctl(fd, request.value, argument)


@contextmanager
def step(name: str) -> Iterator[None]:
    """Whatever the system refuses inside is the failure of this step."""
    try:
        yield
    except OSError as error:
        raise StepFailed(name, error.errno) from error
    except ValueError as error:  # a path with a NUL in it
        raise StepFailed(name) from error
