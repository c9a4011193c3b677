"""Ioctls of /dev/kfd, the errno of the last one, and the steps that they belong to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from zinc_rt.amdgpu.abi.requests import Ioctl
from zinc_rt.amdgpu.errors import StepFailed
from zinc_rt.utils.linux import Argument, LastErrno, Linux

_last = LastErrno()


def last_errno() -> int | None:
    """errno of this thread's latest ioctl on /dev/kfd, None when it succeeded. Every ioctl clears it first."""
    return _last.errno


def call(linux: Linux, fd: int, request: Ioctl, argument: Argument) -> None:
    """One ioctl. Raises `OSError`; `last_errno` keeps the errno."""
    with _last.noted():
        linux.ioctl(fd, request.value, argument)


@contextmanager
def step(name: str) -> Iterator[None]:
    """A refusal of the system inside counts as a failure of this step, a word of `zinc_rt.amdgpu.advice.STEPS`."""
    try:
        yield
    except OSError as error:
        raise StepFailed(name, error.errno) from error
    except ValueError as error:  # a path with a NUL in it
        raise StepFailed(name) from error
