"""Where lines lie: what a workgroup, its dispatch and earlier dispatches touched before."""

from __future__ import annotations

import numpy as np
import pytest

from amdgpu_emu.profiler import Profiler
from amdgpu_emu.residency import INFINITY, L2, MEMORY, OWN, Residency
from tests.amdgpu_emu.core.stage import Stage
from tests.compiled import gpu_kernel
from zinc_rt.lang import kernel, lane_id, ptr, u32, workgroup_id
from zinc_rt.lang.frontend import Spec

LINES = np.arange(0, 64 * 128, 128, dtype=np.uint64)
ONE = np.zeros(64, np.int64)


@pytest.fixture
def there() -> Residency:
    """Caches of 64 KiB and 1 MiB."""
    made = Residency(64 << 10, 1 << 20)
    made.begin()
    made.batch(0, 4, 2)
    return made


def level(share: np.ndarray) -> int:
    """The one that all waves reach."""
    assert set(share.tolist()) <= {0.0, 1.0}
    return int(share.sum()) - 1


def test_a_line_comes_nearer(there: Residency) -> None:
    assert level(there.read(LINES, ONE, 4)) == MEMORY
    assert level(there.read(LINES, ONE, 4)) == OWN
    assert level(there.read(LINES, ONE + 1, 4)) == OWN  # the workgroup's other wave
    assert level(there.read(LINES, ONE + 2, 4)) == L2  # another workgroup
    assert there.sources.tolist() == [0, 0, 0, 64]
    assert there.asked == 128


def test_waves_that_ask_at_once_wait_for_the_same_line(there: Residency) -> None:
    both = np.repeat([0, 2], 64)
    assert level(there.read(np.tile(LINES, 2), both, 4)) == MEMORY
    assert there.sources.tolist() == [0, 0, 0, 64]


def test_waves_reach_differently_far(there: Residency) -> None:
    there.read(LINES[:32], ONE[:32], 4)
    share = there.read(LINES, np.repeat([0, 2], 32), 4)
    assert share.tolist() == [1.0, 0.5, 0.5, 0.5]


def test_accesses_that_cross_lines(there: Residency) -> None:
    there.read(LINES[:1] + np.uint64(120), ONE[:1], 16)
    assert there.sources.tolist() == [0, 0, 0, 2]


def test_caches_keep_what_came_last(there: Residency) -> None:
    def read(start: int, lines: int, dropped: bool = False) -> int:
        there.end()
        there.begin(dropped=dropped)
        there.batch(0, 4, 2)
        return level(
            there.read(np.uint64(start) + np.arange(0, 128 * lines, 128, dtype=np.uint64), np.zeros(lines, np.int64), 4)
        )

    assert read(0, 64) == MEMORY
    assert read(0, 64) == L2
    assert read(0, 64, dropped=True) == INFINITY
    assert read(0, 64) == L2
    assert read(1 << 22, 1024) == MEMORY  # 128 KiB, more than the L2
    assert read(0, 64) == INFINITY
    assert read(1 << 24, 8192) == MEMORY
    assert read(0, 64) == MEMORY


def test_what_was_written_lies_in_the_l2(there: Residency) -> None:
    there.write(LINES, 4)
    assert level(there.read(LINES, ONE, 4)) == L2
    there.held.append((1 << 30, (1 << 30) + 4096, L2))
    there.end()
    there.begin()
    there.batch(0, 4, 2)
    assert level(there.read(LINES[:32] + np.uint64(1 << 30), ONE[:32], 4)) == L2


@kernel
def twice(x: ptr[u32], y: ptr[u32], z: ptr[u32]):
    """A number, and one at the place that it names."""
    at = workgroup_id(0) * 32 + lane_id()
    z[at] = y[x[at]]


def test_rounds_by_level() -> None:
    """The second dispatch finds all in the L2; places within one line are in the workgroup's cache from then on."""
    stage = Stage()
    core = stage.core = Profiler()
    made = gpu_kernel(Spec(twice))
    x, z = stage.buffer(np.zeros(128, np.uint32)), stage.buffer(512)
    code = stage.code(made.code)
    for y in (stage.buffer(np.zeros(64, np.uint32)), x):
        stage.dispatch(code, user_data=made.user_data(x, y, z), rsrc1=made.rsrc1, n_user=made.dwords, groups=(4, 1, 1))
    first, second = (record.work for record in core.records)
    assert first.rounds == second.rounds == 8
    assert first.levels == {MEMORY: 8}
    assert second.levels == {L2: 4 + 3, OWN: 1}  # the first workgroup has asked for the line of number 0 before
    assert (second.l2_lines, second.read_lines, second.asked_lines) == (4, 4, 7)
