"""Emulated machines for these tests: quick hangs, and everything that a correct program leaves behind is a failure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from amdgpu_emu.machine import Machine
from amdgpu_emu.process import Process
from zinc_rt.utils.linux import Argument, Linux

NODE = "/dev/dri/renderD128"


def machine(**how: Any) -> Machine:
    """One R9700 unless `how` says otherwise; a hang is noticed a hundred times sooner than on a real machine."""
    return Machine(**{"time_scale": 0.01, **how})


@contextmanager
def process(**how: Any) -> Iterator[Process]:
    """A process of a machine of its own; leaks and broken rules raise at the end."""
    with machine(**how) as made:
        yield made.process()


class Before(Linux):
    """Another system with something to do before an ioctl: what hardware would do wrong, say."""

    def __init__(self, inner: Linux, request: int, act: Callable[[Argument], None]) -> None:
        self._inner, self._request, self._act = inner, request, act

    def __getattribute__(self, name: str) -> Any:
        if name in ("ioctl", "_inner", "_request", "_act"):
            return super().__getattribute__(name)
        return getattr(self._inner, name)

    def ioctl(self, fd: int, request: int, argument: Argument) -> int:
        if request == self._request:
            self._act(argument)
        return self._inner.ioctl(fd, request, argument)


CLOSING = ("AMDGPU_BO_LIST", "AMDGPU_CTX", "AMDGPU_GEM_VA", "DRM_GEM_CLOSE")
"""Calls that also give something back: the second half of them, all of the last."""


def gives_back(call: str, skip: int, n: int) -> bool:
    """Whether call number `skip` of `n` gives something back: a failure is not the program's then."""
    return call == "DRM_GEM_CLOSE" or (call in CLOSING and skip >= n // 2)


@contextmanager
def failing(call: str, code: int, skip: int, *, lenient: bool, **how: Any) -> Iterator[Process]:
    """A process of which one call fails; leaks raise at the end. lenient: a GEM handle that the failing call did not
    give back may still be there when its file is closed.
    """
    with machine(**how) as made:
        made.inject(call, code, skip=skip)
        yield made.process()
        if lenient:
            made.findings[:] = [f for f in made.findings if "was released with" not in f.text]


def calls_of(run: Callable[[Process], object], **how: Any) -> dict[str, int]:
    """How often `run` opens, maps and asks for each ioctl when nothing fails."""
    counted: dict[str, int] = {}

    class Counting(Before):
        def __init__(self, inner: Linux) -> None:
            super().__init__(inner, -1, lambda argument: None)

        def __getattribute__(self, name: str) -> Any:
            if name in ("open", "mmap"):
                counted[name] = counted.get(name, 0) + 1
            return super().__getattribute__(name)

        def ioctl(self, fd: int, request: int, argument: Argument) -> int:
            from amdgpu_emu.faults import ioctl_name

            name = ioctl_name(request)
            counted[name] = counted.get(name, 0) + 1
            return super().ioctl(fd, request, argument)

    with process(**how) as linux:
        run(Counting(linux))  # type: ignore[arg-type]
    return counted
