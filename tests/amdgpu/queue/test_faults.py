"""A queue's life over each interface with one call failing, whichever: a typed error or none, books in order, no
leak.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from amdgpu_emu.faults import InjectedFault, ioctl_name
from amdgpu_emu.process import Process
from tests.amdgpu.cs.machines import Before
from tests.amdgpu.queue.stage import INTERFACES, affine, install, machine, opened, pointers
from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.errors import ZincError
from zinc_rt.utils.linux import Argument, Linux


class Counting(Before):
    """Notes what is asked for: name, and how many of that name came before; whether `close` has begun."""

    def __init__(self, inner: Linux) -> None:
        super().__init__(inner, -1, lambda argument: None)
        self.__dict__["seen"] = {}

    def __getattribute__(self, name: str) -> Any:
        if name in ("seen", "count", "__dict__"):
            return object.__getattribute__(self, name)
        if name in ("open", "mmap"):
            self.count(name)
        return super().__getattribute__(name)

    def count(self, name: str) -> None:
        self.seen[name] = self.seen.get(name, 0) + 1

    def ioctl(self, fd: int, request: int, argument: Argument) -> int:
        self.count(ioctl_name(request))
        return super().ioctl(fd, request, argument)


def life(interface: str, process: Process, linux: Linux, before_close: Callable[[], object] = lambda: None) -> None:
    """All that a queue does. before_close: called when nothing but giving back is left."""
    queue = opened(interface, linux)
    try:
        kernel = install(queue, process, "affine", affine)
        a, b = queue.alloc(4096), queue.alloc(40 << 20)
        staged = queue.alloc(4096, heap="gtt")
        queue.write(staged, bytes(range(64)))
        batch = CommandList().copy(staged, a, 64).barrier().dispatch(kernel, 1, user_data=(*pointers(a.va, b.va), 0))
        queue.wait(queue.submit(batch))
        queue.free(b)
        queue.wait(queue.submit(CommandList().write(a, [1])))
        queue.alloc(50 << 20)
        queue.check_integrity()
    finally:
        before_close()
        queue.close()


def noting(fault: InjectedFault, hit: list[bool]) -> Callable[[], object]:
    """Says when it is called whether the fault has come already."""
    return lambda: hit.append(fault.seen > fault.skip)


# `kfd/test_faults.py` has each call of KFD fail.
@pytest.mark.parametrize(
    "interface", [n if n != "kfd" else pytest.param(n, marks=pytest.mark.slow) for n in INTERFACES]
)
def test_every_call_may_fail(interface: str) -> None:
    with machine() as made:
        process = made.process()
        counting = Counting(process)
        life(interface, process, counting)
        counted = dict(counting.seen)
    assert sum(counted.values()) > 25
    errors = 0
    for call, n in counted.items():
        for skip in range(n):
            with machine() as made:  # raises for what leaks
                process = made.process()
                fault = made.inject(call, (errno.ENOMEM, errno.EINVAL)[skip % 2], skip=skip)
                hit: list[bool] = []
                text = ""
                try:
                    life(interface, process, process, noting(fault, hit))
                except ZincError as error:
                    errors += 1
                    text = str(error)
                assert "\n" not in text, (call, skip)
                if hit == [False]:
                    # What a failing call did not take back is there until its file is closed.
                    made.findings[:] = [f for f in made.findings if "was released with" not in f.text]
    assert errors > 20
