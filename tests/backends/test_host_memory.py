"""Memory as the system sees it: aligned, zero, huge pages where they are wanted and only there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from zinc_rt.backends.host_memory import HUGE, huge_bytes
from zinc_rt.mem.errors import MemoryPlanError


def wants_huge(array: np.ndarray, at: int) -> bool:
    """Whether the mapping around a byte was asked to have huge pages (`hg` among its flags)."""
    address, inside = array.ctypes.data + at, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if span := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(span[1], 16) <= address < int(span[2], 16)
        elif inside and line.startswith("VmFlags:"):
            return "hg" in line.split()
    raise AssertionError("no mapping")


@pytest.mark.parametrize("n_bytes", [0, 1, 100, HUGE - 1, HUGE, 3 * HUGE + 5])
def test_memory_is_zero_and_aligned(n_bytes: int) -> None:
    memory = huge_bytes(n_bytes)
    assert memory.shape == (n_bytes,)
    assert not memory.any()
    assert memory.flags.writeable
    assert n_bytes == 0 or memory.ctypes.data % (HUGE if n_bytes >= HUGE else 64) == 0


def test_huge_pages_begin_behind_the_plain_part() -> None:
    assert wants_huge(huge_bytes(2 * HUGE), 0)
    part = huge_bytes(3 * HUGE, plain=HUGE)
    assert [wants_huge(part, at) for at in (0, HUGE - 1, HUGE, 3 * HUGE - 1)] == [False, False, True, True]
    assert not wants_huge(huge_bytes(HUGE, plain=HUGE), 0)
    assert not wants_huge(huge_bytes(1000), 0)


def test_memory_that_is_not_there_is_refused_in_one_line() -> None:
    with pytest.raises(MemoryPlanError, match=r"the system refused 1048576.00 GiB of memory: .*smaller") as caught:
        huge_bytes(1 << 50)
    assert "\n" not in str(caught.value)
