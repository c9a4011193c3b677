"""A ring's life over each door with one call failing, whichever: a typed error or none, books in order, no leak."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from tests.ring.cs.machines import Before
from tests.ring.door.stage import DOORS, affine, install, machine, opened, pointers
from zinc_rt.emu.faults import Fault, ioctl_name
from zinc_rt.emu.process import Process
from zinc_rt.errors import ZincError
from zinc_rt.linux import Argument, Linux
from zinc_rt.ring.door.batch import Batch


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


def life(door: str, process: Process, linux: Linux, before_close: Callable[[], object] = lambda: None) -> None:
    """All that a ring does. before_close: called when nothing but giving back is left."""
    ring = opened(door, linux)
    try:
        kernel = install(ring, process, "affine", affine)
        a, b = ring.alloc(4096), ring.alloc(40 << 20)
        staged = ring.alloc(4096, heap="gtt")
        ring.write(staged, bytes(range(64)))
        batch = Batch().copy(staged, a, 64).barrier().dispatch(kernel, 1, user_data=(*pointers(a.va, b.va), 0))
        ring.wait(ring.submit(batch))
        ring.free(b)
        ring.wait(ring.submit(Batch().write(a, [1])))
        ring.alloc(50 << 20)
        ring.check_integrity()
    finally:
        before_close()
        ring.close()


def noting(fault: Fault, hit: list[bool]) -> Callable[[], object]:
    """Says when it is called whether the fault has come already."""
    return lambda: hit.append(fault.seen > fault.skip)


@pytest.mark.parametrize("door", DOORS)
def test_every_call_may_fail(door: str) -> None:
    with machine() as made:
        process = made.process()
        counting = Counting(process)
        life(door, process, counting)
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
                    life(door, process, process, noting(fault, hit))
                except ZincError as error:
                    errors += 1
                    text = str(error)
                assert "\n" not in text, (call, skip)
                if hit == [False]:
                    # What a failing call did not take back is there until its file is closed.
                    made.findings[:] = [f for f in made.findings if "was released with" not in f.text]
    assert errors > 20
