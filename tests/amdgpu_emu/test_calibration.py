"""The cost model against published measurements: they lie within its intervals.

They were published by users of other runtimes (llama.cpp over Vulkan and HIP, and others), not measured here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from amdgpu_emu.constants import INTERVALS, LIKELY, CardConstants, Interval, rates, spread
from amdgpu_emu.cost import bandwidth_of, predict, step_seconds
from amdgpu_emu.models import R9700, RX7900XTX, RX9070XT, STRIX_HALO, STRIX_POINT, GpuModel
from amdgpu_emu.residency import L2, MEMORY, OWN
from amdgpu_emu.work import Work

Phases = list[tuple[list[Work], bool]]


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


def decode(layers: int, n_bytes: float, head: float, chosen: int = 0) -> Phases:
    """A step of a model: of each layer attention's products and small kernels, and the rest of its bytes; head: of all
    bytes, those of the logits; chosen: experts of each layer, three matrices each, None for a dense one.
    """
    layer = n_bytes * (1 - head) / layers
    parts = [product(int(layer * share)) for share in (0.08, 0.02, 0.02, 0.08, 0.27, 0.27, 0.26)]
    parts[4:] = [replace(part, pieces=chosen) for part in parts[4:]]
    phases: Phases = [
        ([SMALL], False),
        (parts[:3], False),
        ([SMALL] * 2, False),
        ([SMALL], False),
        ([parts[3]], False),
        ([SMALL], False),
        (parts[4:6], False),
        ([parts[6]], False),
    ]
    return [*phases * layers, ([product(int(n_bytes * head))], False)]


DENSE = decode(32, 4.63e9, 0.08)
"""An 8B model as Q4_K_M."""
MORE_EXPERTS = decode(48, 1.95e9, 0.13, 8)
"""Qwen3-30B-A3B as Q4_K_M."""
EXPERTS = decode(40, 1.97e9, 0.21, 8)
"""Qwen3.6-35B-A3B as Q4_K_M."""


@pytest.mark.parametrize(
    ("phases", "model", "best", "others"),
    [
        (DENSE, RX9070XT, 119.6, (115.0,)),
        (DENSE, RX7900XTX, 105.8, ()),
        (EXPERTS, R9700, 166.8, (104.5, 117.1)),
        (EXPERTS, STRIX_HALO, 64.9, ()),
        (MORE_EXPERTS, STRIX_HALO, 87.1, ()),
    ],
)
def test_what_users_of_other_runtimes_publish(
    phases: Phases, model: GpuModel, best: float, others: Sequence[float]
) -> None:
    """Tokens a second at a short depth. The best lies in the interval, which is wide enough for what nobody has run;
    slower ones are of runtimes with more dispatches, and none passes it.
    """
    speed = rates(spread(lambda constants: step_seconds(phases, 1, model, constants)))
    assert best in speed
    assert all(other < speed.high for other in others)
    assert speed.low < 0.9 * speed.likely
    assert speed.high < 1.6 * best


def test_experts_cost_the_way_to_each_matrix() -> None:
    """So that many small matrices are read at a smaller share of the bandwidth than few large ones."""
    large, small = product(24 << 20), replace(product(24 << 20), pieces=48)
    assert predict(small).seconds == pytest.approx(predict(large).seconds + 48 * LIKELY.piece, rel=0.01)
    assert LIKELY.piece == pytest.approx(3 * LIKELY.memory_idle)
    assert small.scaled(3).pieces == 48


def test_each_generation_has_a_share_of_its_pins() -> None:
    shares = {model.name: bandwidth_of(model) / model.pins for model in (R9700, RX7900XTX, STRIX_HALO, STRIX_POINT)}
    assert list(shares.values()) == pytest.approx(
        [LIKELY.bandwidth, LIKELY.bandwidth_gfx11, LIKELY.bandwidth_gfx11_5, LIKELY.bandwidth_gfx11_5]
    )
    assert [model.pins for model in (R9700, RX7900XTX, STRIX_HALO, STRIX_POINT)] == [640e9, 960e9, 256e9, 120e9]


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


def test_constants_are_wrong_together() -> None:
    def seconds(c: CardConstants) -> float:
        return 100 * c.barrier + 10 * c.submission + 1e-3 / c.bandwidth

    found, of = spread(seconds), INTERVALS
    assert found.likely == seconds(LIKELY)
    low, high = (100 * getattr(of["barrier"], end) + 10 * getattr(of["submission"], end) for end in ("low", "high"))
    assert found.low == pytest.approx(low + 1e-3 / of["bandwidth"].high)
    assert found.high == pytest.approx(high + 1e-3 / of["bandwidth"].low)
    assert rates(Interval(0.5, 1, 2), 10) == Interval(5, 10, 20, "tokens/s")
