"""Meetings of a resident program whose workgroups come late: all of them end at the same one, or none does."""

from __future__ import annotations

import numpy as np
import pytest

from tests.amdgpu_emu.core.stage import Stage
from tests.compiled import gpu_kernel
from zinc_rt.kernels.amd import resident
from zinc_rt.kernels.amd.resident import TASK_WORDS, arrive, leave, meet
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import pause, shared, workgroup_id, workitem_id
from zinc_rt.lang.types import Space, ptr, u32

N, MEETINGS = 5, 8


@kernel(workgroup=64)
def late(
    table: ptr[u32, Space.CONSTANT],
    counters: ptr[u32],
    n: u32,
    notice: ptr[u32],
    patience: u32,
    delays: ptr[u32],
    passed: ptr[u32],
    MEETINGS: int,
):
    """Meet again and again; before each meeting a workgroup pauses as often as it is told to."""
    me = workgroup_id(0)
    word = shared(u32, 1)
    arrivals: u32 = 0
    ended: u32 = 0
    t: u32 = 0
    while t < MEETINGS:
        for _ in range(delays[t * n + me]):
            pause()
        t += 1
        arrivals += n
        if meet(counters, arrivals, table, n, patience, word):
            ended = arrivals
            t = MEETINGS
        elif workitem_id() == 0:
            passed[me] = t
    leave(counters, n, ended, notice)


@pytest.fixture(scope="module")
def made() -> GpuKernel:
    return gpu_kernel(Spec(late, {"MEETINGS": MEETINGS}))


@kernel(workgroup=32)
def one(counters: ptr[u32], arrivals: u32, patience: u32, ends: ptr[u32]):
    """A workgroup arrives."""
    if workitem_id() == 0:
        ends[0] = arrive(counters, arrivals, patience)


def test_who_ends() -> None:
    """With the mark: those who wait for the meeting whose count is not full, and for no earlier one."""
    kernel, ended = gpu_kernel(Spec(one)), resident.ENDED
    for before, ends, after in (
        (2, 0, 3),
        (7, 0, 8),  # all are here, and some at the next meeting already
        (ended | 0, 1, ended | 1),
        (ended | 2, 1, ended | 3),  # somebody has marked this meeting
        (ended | 3, 0, ended | 4),
        (ended | 5, 0, ended | 6),  # the next one
        (0, 1, ended | 1),
        (1, 1, ended | 2),  # nobody else comes
    ):
        stage = Stage()
        counters, result = stage.buffer(np.uint32([before])), stage.buffer(4)
        stage.launch(kernel, 1, counters, 3, 2, result)
        assert stage.read(result, np.uint32, 1)[0] == ends
        assert stage.read(counters, np.uint32, 1)[0] == after


@pytest.mark.parametrize("seed", range(4))
def test_all_end_at_the_same_meeting(made: GpuKernel, seed: int) -> None:
    rng = np.random.default_rng(seed)
    ends = set()
    for patience in (0, 4, 12, 1000):
        stage = Stage()
        counters, notice, passed = stage.buffer(4 * resident.COUNTER_WORDS), stage.buffer(4), stage.buffer(4 * N)
        delays = stage.buffer(rng.integers(0, 20, (MEETINGS, N)).astype(np.uint32))
        stage.launch(
            made,
            N,
            stage.buffer(4 * TASK_WORDS * (1 + resident.ROWS_AHEAD)),
            counters,
            N,
            notice,
            patience,
            delays,
            passed,
        )
        (end,) = stage.read(notice, np.uint32, 1).tolist()
        assert set(stage.read(passed, np.uint32, N).tolist()) == {end - 1 if end else MEETINGS}
        assert not stage.read(counters, np.uint32, resident.COUNTER_WORDS).any()
        ends.add(end)
    assert 0 in ends
    assert len(ends) > 1
