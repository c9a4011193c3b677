"""The cost model against published measurements of cards of this generation: they lie within its intervals."""

from __future__ import annotations

import pytest

from amdgpu_emu.constants import INTERVALS, LIKELY, CardConstants, Interval, rates, spread
from amdgpu_emu.cost import bandwidth_of, predict, step_seconds
from amdgpu_emu.models import R9700, RX9070XT
from amdgpu_emu.residency import L2, MEMORY, OWN
from amdgpu_emu.work import Work


def product(n_bytes: int, columns: int = 4096, row_bytes: int = 2304) -> Work:
    """A matrix-vector product as our kernels do it: a wave a row, two rounds of loads, 200 instructions for each."""
    rows = max(4, n_bytes // row_bytes)
    names = {"global_load_b128": 12 * rows, "v_dot4_i32_iu8": 300 * rows, "s_wait_loadcnt": 8 * rows}
    return Work(
        rows, rows // 4, 32, 48, 0, False, names, unique_read=n_bytes + columns, unique_written=4 * rows,
        read_lines=(n_bytes + columns) // 128, written_halves=rows // 16, rounds=2 * rows, levels={MEMORY: 2 * rows},
        asked_lines=(n_bytes + rows // 4 * columns) // 128,
    )  # fmt: skip


SMALL = Work(256, 32, 32, 48, 0, False, {"v_add_f32": 256 * 100}, rounds=512, levels={L2: 512})
"""A norm, a rotation, a merge: some rounds on what the L2 holds."""


def test_retained_dispatches() -> None:
    """733 dispatches with a barrier each take 4.94 ms, in which 2.94 ms of bytes come at 576 GB/s."""
    # Assumed of them: 400 are products, the others small.
    phases = [([product(int(2.94e-3 * 576e9 / 400))], False)] * 400 + [([SMALL], False)] * 333
    seconds = spread(lambda constants: step_seconds(phases, 1, R9700, constants))
    assert 4.94e-3 in seconds
    assert seconds.likely == pytest.approx(4.94e-3, rel=0.1)


def test_a_barrier_with_what_it_keeps_waiting() -> None:
    """2 to 2.7 us for the drain, the flush, the launch and the first latency, whatever the dispatch does."""
    one = predict(product(1 << 20))
    own = one.seconds - one.parts["memory"] + LIKELY.barrier
    assert 2e-6 <= own <= 2.7e-6


def test_an_8b_model_on_another_runtime() -> None:
    """llama.cpp decodes an 8B Q4_K_M of 4.63 GB at 115 to 120 tokens/s on an RX 9070 XT.

    Assumed of it: 32 layers of seven products and four small dispatches, eight barriers among them.
    """
    layer = int(4.63e9 * 0.92 / 32)
    parts = [product(int(layer * share)) for share in (0.08, 0.02, 0.02, 0.08, 0.27, 0.27, 0.26)]
    phases = [
        ([SMALL], False),
        (parts[:3], False),
        ([SMALL] * 2, False),
        ([SMALL], False),
        ([parts[3]], False),
        ([SMALL], False),
        (parts[4:6], False),
        ([parts[6]], False),
    ] * 32
    phases.append(([product(int(4.63e9 * 0.08))], False))
    speed = rates(spread(lambda constants: step_seconds(phases, 1, RX9070XT, constants)))
    assert speed.low < 115
    assert speed.high > 115


@pytest.mark.parametrize("rows", [4096, 6144, 8192])
def test_products_of_large_matrices(rows: int) -> None:
    """They reach 90 to 97 % of 576 GB/s, which is 96 % from end to end with an 8B model."""
    assert 0.90 <= predict(product(rows * 4096 * 9 // 16)).bandwidth <= 0.975


def test_eight_rows_that_are_loaded_one_by_one() -> None:
    """35 latencies of the near caches in a row and two of memory, twice: about 60 % of the bandwidth."""
    rows = 4096
    names = {
        "global_load_b128": 40 * 2 * rows,
        "global_load_b32": 14 * 2 * rows,
        "v_dot4_i32_iu8": 419 * 2 * rows,
        "s_wait_loadcnt": 80 * rows,
    }
    read = rows * 2304 + 8 * 4608
    work = Work(
        rows, rows // 4, 32, 112, 0, False, names, unique_read=read, read_lines=read // 128, rounds=2 * 37 * rows,
        levels={MEMORY: 2 * 2 * rows, OWN: 50 * rows, L2: 20 * rows},
        asked_lines=(rows * 2304 + rows // 4 * 8 * 4608) // 128,
    )  # fmt: skip
    cost = predict(work)
    assert cost.bound == "latency"
    assert cost.bandwidth == pytest.approx(0.6, rel=0.15)


def test_constants_lie_in_their_intervals() -> None:
    for name, limits in INTERVALS.items():
        assert limits.low <= limits.likely <= limits.high, name
        assert getattr(LIKELY, name) == limits.likely
        assert limits.source, name
    assert bandwidth_of(R9700) == 576e9


def test_errors_add_as_squares() -> None:
    def seconds(c: CardConstants) -> float:
        return 100 * c.barrier + 10 * c.submission

    found = spread(seconds)
    barrier, submission = INTERVALS["barrier"], INTERVALS["submission"]
    assert found.likely == seconds(LIKELY)
    more = ((100 * (barrier.high - barrier.likely)) ** 2 + (10 * (submission.high - submission.likely)) ** 2) ** 0.5
    less = ((100 * (barrier.likely - barrier.low)) ** 2 + (10 * (submission.likely - submission.low)) ** 2) ** 0.5
    assert found.high == pytest.approx(found.likely + more)
    assert found.low == pytest.approx(found.likely - less)
    assert rates(Interval(0.5, 1, 2), 10) == Interval(5, 10, 20, "tokens/s")
