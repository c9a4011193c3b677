"""What workgroups of one dispatch see of each other, and which of them run at once."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

from amdgpu_emu.errors import GpuHang
from amdgpu_emu.visibility import Hidden, StoreTags, Visibility
from tests.amdgpu_emu.core.stage import Stage
from tests.compiled import gpu_kernel
from zinc_rt.lang import Spec, kernel, ptr, u32
from zinc_rt.lang.ops import atomic_add, atomic_load, fence, pause, workgroup_id, workitem_id

ROOM = 64 * 32
"""Workgroups of one wave that 64 compute units hold at once."""


@kernel
def hand_over(x: ptr[u32], flag: ptr[u32], y: ptr[u32], RELEASE: bool, ACQUIRE: bool):
    """The second workgroup reads what the first one stores."""
    at = workitem_id()
    if workgroup_id(0) == 0:
        x[at] = at * 3 + 1
        if RELEASE:
            fence("release")
        if at == 0:
            atomic_add(flag, 1, order="relaxed")
    else:
        while atomic_load(flag, order="relaxed") == 0:
            pause()
        if ACQUIRE:
            fence("acquire")
        y[at] = x[at]


@kernel
def all_meet(counter: ptr[u32], n: u32):
    """No workgroup ends before all have come."""
    if workitem_id() == 0:
        atomic_add(counter, 1, order="relaxed")
    while atomic_load(counter, order="relaxed") < n:
        pause()


def handed(release: bool, acquire: bool, target: str) -> np.ndarray:
    stage = Stage(target)
    x, flag, y = stage.buffer(128), stage.buffer(4), stage.buffer(128)
    made = gpu_kernel(Spec(hand_over, {"RELEASE": release, "ACQUIRE": acquire}), target)
    stage.launch(made, 2, x, flag, y)
    return stage.read(y, np.uint32, 32)


@pytest.mark.parametrize("target", ["gfx1201", "gfx1100"])
def test_released_and_acquired(target: str) -> None:
    assert (handed(True, True, target) == np.arange(32) * 3 + 1).all()


@pytest.mark.parametrize("target", ["gfx1201", "gfx1100"])
@pytest.mark.parametrize(("release", "acquire"), [(False, True), (True, False), (False, False)])
def test_a_store_that_may_not_be_seen_yet(release: bool, acquire: bool, target: str) -> None:
    with pytest.raises(GpuHang, match=r"which workgroup 0 has stored in this dispatch.*wave 0 of workgroup 1, lane 0"):
        handed(release, acquire, target)


@pytest.mark.parametrize("order", ["gl1 gl0", "gl0 gl1", "gl0", "gl1"])
def test_both_caches_of_gfx11_in_their_order(order: str) -> None:
    """The smaller one reads the larger one, so it is invalidated behind it."""
    seen, tags, at = Visibility(), StoreTags(64), np.zeros(1, np.int64)
    writer, reader = np.array([0]), np.array([1])
    seen.stored(tags, at, 4, writer, known=True)
    seen.released(writer)
    for cache in order.split():
        (seen.acquired_gl1 if cache == "gl1" else seen.acquired_gl0)(reader)
    with nullcontext() if order == "gl1 gl0" else pytest.raises(Hidden):
        seen.check(tags, at, 4, reader)


def test_workgroups_that_wait_for_each_other_must_fit() -> None:
    stage, made = Stage(), gpu_kernel(Spec(all_meet))
    counter = stage.buffer(4)
    stage.launch(made, ROOM, counter, ROOM)
    assert stage.read(counter, np.uint32, 1)[0] == ROOM
    with pytest.raises(GpuHang, match=f"deadlock: {ROOM} workgroups wait, 1 never started; no more fit"):
        stage.launch(made, ROOM + 1, stage.buffer(4), ROOM + 1)


def test_a_wait_for_nobody() -> None:
    stage = Stage()
    with pytest.raises(GpuHang, match="deadlock: 3 workgroups wait, 0 never started;"):
        stage.launch(gpu_kernel(Spec(all_meet)), 3, stage.buffer(4), 4)
