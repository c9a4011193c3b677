"""The model of what dispatches cost, against figures worked out by hand, and the profiler that feeds it."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from amdgpu_emu.constants import LIKELY
from amdgpu_emu.cost import PredictedTime, bandwidth_of, phase_seconds, predict, resident_seconds, step_seconds
from amdgpu_emu.models import R9700, RX9060XT, RX9070
from amdgpu_emu.profiler import Profiler, table
from amdgpu_emu.rates import moved_bytes, vector_cycles
from amdgpu_emu.residency import INFINITY, L2, MEMORY, OWN
from amdgpu_emu.work import Work
from benchmarks import rdna_kernels
from tests.amdgpu_emu.core.stage import Stage
from tests.compiled import gpu_kernel
from tests.helpers import soon
from tests.kernels.material import FEW, by_kind
from zinc_rt.formats.table import FORMATS
from zinc_rt.kernels.amd.catalogue import KERNELS
from zinc_rt.kernels.gpu.catalogue import FLOATS, QUANTIZED, matvec_rows
from zinc_rt.lang import fma, kernel, lane_id, ptr, u32, workgroup_id
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.occupancy import waves_per_simd
from zinc_rt.lang.types import f32

CLOCK = 2.35e9
PACKET = LIKELY.packet
IDLE, LOADED = LIKELY.memory_idle, LIKELY.memory_loaded


def work(waves: int = 4096, workgroups: int = 1024, **how: object) -> Work:
    """Waves of 32 lanes that do nothing, four a workgroup."""
    return replace(Work(waves, workgroups, 32, 32, 0, False, {}), **how)  # type: ignore[arg-type]


@pytest.mark.parametrize("lanes", [32, 64])
def test_occupancy_is_the_compiler_s(lanes: int) -> None:
    sizes = itertools.product(
        (8, 24, 96, 104, 128, 192, 256), (0, 512, 16 << 10, 40 << 10), (32, 256, 1024), (True, False)
    )
    for vgprs, lds, threads, paired in sizes:
        each = threads // lanes if threads >= lanes else 1
        got = work(each * 7, 7, lanes=lanes, vgprs=vgprs, lds_bytes=lds, paired=paired).occupancy
        want = waves_per_simd(wave=lanes, vgprs=vgprs, lds_bytes=lds, workgroup=threads, wgp=paired)
        assert got == want, (vgprs, lds, threads, paired)


@pytest.mark.parametrize(
    ("name", "cycles"),
    [
        ("v_add_f32", 1), ("v_dual_mul_f32", 1), ("v_dot4_i32_iu8", 1), ("v_mul_u32_u24", 1), ("v_cvt_f32_f16", 1),
        ("v_exp_f32", 4), ("v_rcp_iflag_f32", 4), ("v_s_rsq_f32", 4), ("v_mul_lo_u32", 4), ("v_mul_hi_i32", 4),
        ("v_mad_co_u64_u32", 4), ("v_fma_f64", 32), ("v_rcp_f64", 128), ("v_sub_nc_u32", 1), ("v_log_f32", 4),
    ],
)  # fmt: skip
def test_cycles_of_vector_instructions(name: str, cycles: int) -> None:
    assert vector_cycles(name) == cycles
    assert vector_cycles(name, 64) == 2 * cycles


@pytest.mark.parametrize(
    ("name", "k", "operations"),
    [
        ("v_wmma_f32_16x16x16_f16", 16, 512),
        ("v_wmma_f32_16x16x16_bf16", 16, 512),
        ("v_wmma_i32_16x16x16_iu8", 16, 1024),
        ("v_wmma_f32_16x16x16_fp8_bf8", 16, 1024),
        ("v_wmma_i32_16x16x16_iu4", 16, 2048),
        ("v_wmma_i32_16x16x32_iu4", 32, 2048),
        ("v_swmmac_f32_16x16x32_f16", 32, 1024),
        ("v_swmmac_i32_16x16x32_iu8", 32, 2048),
    ],
)
def test_cycles_of_matrix_products(name: str, k: int, operations: int) -> None:
    assert vector_cycles(name) == vector_cycles(name, 64) == 2 * 16 * 16 * k // operations


@pytest.mark.parametrize(
    ("name", "n"),
    [
        ("global_load_b128", 512),
        ("global_load_u16", 64),
        ("global_load_d16_hi_u8", 32),
        ("ds_load_2addr_b64", 512),
        ("ds_bpermute_b32", 128),
        ("global_atomic_add_u32", 128),
        ("global_inv", 0),
        ("global_prefetch_b8", 0),
    ],
)
def test_bytes_of_an_instruction(name: str, n: int) -> None:
    assert moved_bytes(name) == n
    assert moved_bytes(name, 64) == 2 * n


def bound(cost: PredictedTime, name: str, seconds: float) -> None:
    assert cost.bound == name
    assert cost.seconds == pytest.approx(seconds)


def test_a_dispatch_that_does_nothing_costs_its_launch() -> None:
    # Four waves of one workgroup end on two SIMDs.
    bound(predict(work(4, 1, names={"s_endpgm": 4})), "launch", PACKET + (2 + 1) / CLOCK)
    bound(predict(work(1 << 20, 1 << 18)), "launch", PACKET + (1 << 18) * LIKELY.wave_cycles / CLOCK)


def test_bound_by_memory() -> None:
    cost = predict(work(unique_read=500_000_000, unique_written=76_000_000, bytes_read=900_000_000, rounds=4096))
    # The first way to memory, all bytes, and half a wave's time, in which the last ones end.
    bound(cost, "memory", 1e-3 + IDLE + LIKELY.drain * cost.parts["latency"] / 2 + PACKET)
    assert cost.parts["latency"] == pytest.approx(2 * LOADED, rel=1e-3)  # memory is as busy as can be
    assert cost.bandwidth == pytest.approx(1e-3 / cost.seconds)
    slow = predict(work(unique_read=576_000_000), RX9060XT)
    bound(slow, "memory", 2e-3 + PACKET)  # half as many pins
    assert bandwidth_of(RX9070) == bandwidth_of(R9700) == 576e9


def test_what_lies_in_caches_costs_no_memory() -> None:
    read = {"unique_read": 128 << 20, "read_lines": 1 << 20}
    cost = predict(work(**read, infinity_lines=1 << 18, l2_lines=1 << 19))
    assert cost.parts["memory"] == pytest.approx((32 << 20) / 576e9)
    assert cost.parts["infinity"] == pytest.approx((64 << 20) / (64 * 16 * 1258e6))
    assert predict(work(**read, asked_lines=1 << 22)).parts["l2"] == pytest.approx((512 << 20) / (24 * 64 * CLOCK))
    assert predict(work(**read)).parts["memory"] == pytest.approx((128 << 20) / 576e9)


def test_lines_cost_more_than_the_bytes_that_are_wanted_of_them() -> None:
    # 2**20 dwords, each in a line of its own; results of a dword in every other half line.
    sparse = {"unique_read": 4 << 20, "read_lines": 1 << 20, "unique_written": 4 << 10, "written_halves": 1 << 10}
    cost = predict(work(**sparse))
    seconds = (128 * (1 << 20) + 64 * (1 << 10)) / 576e9
    bound(cost, "memory", seconds + PACKET)
    assert cost.bandwidth == pytest.approx(((4 << 20) + (4 << 10)) / 576e9 / cost.seconds)
    # Loads of a dword that touch 32 half lines where two would do: 32 cycles each, and not two.
    strided = work(names={"global_load_b32": 4096 * 1000}, stray=4096 * 1000 * 30)
    bound(predict(strided), "cache", 4096 / 64 * 1000 * 32 / CLOCK + 500 / CLOCK + PACKET)


@kernel
def strided(x: ptr[f32], y: ptr[f32], step: u32):
    """Lanes `step` numbers apart."""
    at = workgroup_id(0) * 32 + lane_id()
    y[at] = x[at * step]


@pytest.mark.parametrize(
    ("step", "lines", "stray", "distinct"),
    [(1, 1, 0, 2), (2, 2, 2, 4), (8, 8, 14, 16), (32, 32, 30, 64), (64, 32, 30, 64)],
)
def test_lines_of_a_strided_load(step: int, lines: int, stray: int, distinct: int) -> None:
    """Two waves of 32 dwords: lines of each wave, half lines beyond two, and lines of both."""
    x = np.zeros(64 * step, np.float32)
    done, _ = profiled(gpu_kernel(Spec(strided)), 2, x, np.zeros(64, np.float32), step)
    assert (done.unique_read, done.bytes_read) == (256, 256)
    assert done.lines == 2 * lines + 2  # and those of the stores
    assert (done.stray, done.read_lines, done.written_halves) == (2 * stray, distinct, 4)
    assert done.memory_bytes == 128 * distinct + 256
    assert done.asked_lines == distinct
    assert predict(done.scaled(4096)).bound == "memory"


def test_what_the_last_workgroup_does_alone() -> None:
    """It comes on top: four waves of it side by side, each 100 instructions and two rounds in the L2."""
    names = {"v_add_f32": 4096 * 3000 + 400, "s_wait_loadcnt": 4096 + 8}
    late = {"v_add_f32": 400, "s_wait_loadcnt": 8}
    tail = work(names=names, late=late, rounds=4096 + 8, late_rounds=8)
    cost, without = predict(tail), predict(work(names=names, rounds=4096 + 8))
    assert cost.parts["alone"] == pytest.approx(102 / CLOCK + 2 * LIKELY.l2)
    assert cost.seconds == pytest.approx(without.seconds + cost.parts["alone"], rel=1e-3)
    assert predict(tail.scaled(3)).parts["alone"] == cost.parts["alone"]
    # The same of two workgroups, the last ones of a counter each: they do it at once.
    two = work(names=names, late=late, rounds=4096 + 8, late_rounds=8, late_waves=8.0)
    assert predict(two).parts["alone"] == pytest.approx(cost.parts["alone"] / 2)


def test_bound_by_the_vector_units() -> None:
    names = {"v_add_f32": 4096 * 3000, "v_exp_f32": 4096 * 500}
    each = 3000 + 4 * 500
    all_of_them, last = 4096 / 128 * each / CLOCK, LIKELY.drain * each / CLOCK
    bound(predict(work(names=names)), "valu", all_of_them + last + PACKET)
    bound(predict(work(names=names, lanes=64)), "valu", 2 * (all_of_them + last) + PACKET)
    # 56 compute units instead of 64.
    bound(predict(work(names=names), RX9070), "valu", all_of_them * 64 / 56 + last + PACKET)
    # Two workgroups are on two compute units, or on two pairs of them; eight waves on four SIMDs, or on eight.
    few = {"v_add_f32": 8 * 5000}
    cost = predict(work(8, 2, names=few))
    assert cost.parts["valu"] == pytest.approx(8 * 5000 / 4 / CLOCK)
    assert cost.shares["valu"] == pytest.approx(8 * 5000 / 128 / CLOCK)
    assert predict(work(8, 2, names=few, paired=True)).parts["valu"] == pytest.approx(5000 / CLOCK)


def test_bound_by_local_memory_and_by_caches() -> None:
    last = LIKELY.drain * 1000 / CLOCK + PACKET
    bound(predict(work(names={"ds_load_b128": 4096 * 1000})), "lds", 4096 / 64 * 1000 * 4 / CLOCK + last)
    bound(predict(work(names={"ds_load_u8": 4096 * 1000})), "lds", 4096 / 64 * 1000 / CLOCK + last)
    bound(predict(work(names={"global_load_b128": 4096 * 1000})), "cache", 4096 / 64 * 1000 * 8 / CLOCK + last)


def test_bound_by_issue() -> None:
    names = {
        "s_add_co_i32": 4096 * 600,
        "s_cbranch_scc0": 4096 * 100,
        "s_wait_loadcnt": 4096 * 500,
        "s_nop": 4096 * 400,
    }
    bound(predict(work(names=names)), "issue", (4096 / 128 * 900 + LIKELY.drain * 1600) / CLOCK + PACKET)


def test_bound_by_latency() -> None:
    # One wave: ten rounds, 1000 cycles of instructions, 100 of them for results that the next one needs.
    names = {"v_add_f32": 700, "v_exp_f32": 50, "s_add_co_i32": 75, "s_delay_alu": 25}
    cost = predict(work(1, 1, names=names, rounds=10, lds_rounds=4))
    start = LIKELY.wave_cycles / 4
    bound(cost, "latency", (700 + 200 + 75 + 25 + 100 + 80 + start) / CLOCK + 10 * IDLE + PACKET)
    # Waiting for the first data is most of it, and no wave comes before it is started.
    bound(predict(work(64, 16, rounds=64)), "latency", 64 * start / CLOCK + IDLE + PACKET)


def test_waves_come_in_generations() -> None:
    # A SIMD's 1536 registers, in steps of 24, suffice for five waves of 256: one more, and it runs behind the others.
    wave = 20 * IDLE
    for waves, turns in ((5 * 128 + 1, 2), (10 * 128, 2), (10 * 128 + 1, 3)):
        bound(predict(work(waves, waves, vgprs=256, rounds=20 * waves)), "latency", wave * turns + PACKET)


def test_a_round_takes_as_long_as_the_way_to_its_level() -> None:
    levels = {OWN: 5, L2: 4, INFINITY: 3, MEMORY: 2}
    own, l2, infinity = LIKELY.first_level, LIKELY.l2, LIKELY.infinity
    cost = predict(work(1, 1, rounds=14, levels=levels))
    assert cost.parts["latency"] == pytest.approx(
        5 * own + 4 * l2 + 3 * infinity + 2 * IDLE + LIKELY.wave_cycles / 4 / CLOCK
    )
    assert own < l2 < infinity < IDLE < LOADED


def test_dispatches_of_a_phase_share_the_card() -> None:
    first = work(names={"v_add_f32": 4096 * 3000}, unique_read=1 << 20)
    second = work(unique_read=64 << 20, rounds=4096)
    costs = [predict(first), predict(second)]
    assert phase_seconds(costs[:1]) == costs[0].seconds
    # The second has most of the bytes: memory waits for its first loads, and the last ones are followed by a drain.
    assert costs[1].lead == PACKET + IDLE
    ends = min(cost.ends for cost in costs)
    assert phase_seconds(costs) == pytest.approx(PACKET + IDLE + (65 << 20) / 576e9 + ends)
    assert phase_seconds([costs[0]] * 5) == costs[0].lead + 5 * costs[0].shares["valu"] + costs[0].ends


def test_barriers_and_submissions_cost() -> None:
    one = work(names={"v_add_f32": 4096 * 3000})
    alone = predict(one).seconds
    step = step_seconds([([one], False)] * 10, 1, R9700)
    assert step == pytest.approx(10 * alone + 9 * LIKELY.barrier + LIKELY.submission)
    full = step_seconds([([one], False), ([one], True)], 1, R9700)
    assert full == pytest.approx(2 * alone + LIKELY.barrier + LIKELY.full_barrier + LIKELY.submission)
    assert step_seconds([], 0, R9700) == 0


def test_a_resident_program_is_launched_once() -> None:
    one = work(names={"v_add_f32": 4096 * 3000}, vgprs=96)
    within = replace(LIKELY, packet=0.0, wave_cycles=0.0)
    alone = predict(replace(one, vgprs=256), R9700, within).seconds
    start = PACKET + 6 * 128 * LIKELY.wave_cycles / R9700.shader_engines / CLOCK
    step = resident_seconds([([one], False)] * 10, 6, R9700)
    assert step == pytest.approx(10 * alone + 9 * LIKELY.meeting + start + LIKELY.submission)
    with pytest.raises(ValueError, match="no part of a resident program"):
        resident_seconds([([one], True)], 6, R9700)


def test_what_fits_nowhere() -> None:
    with pytest.raises(ValueError, match="70000 bytes of LDS"):
        predict(work(lds_bytes=70_000))


def test_a_sample_goes_on() -> None:
    """Counts have a part that is there once and one for each workgroup."""
    samples = [
        work(4 * k, k, names={"v_add_f32": 7 + 5 * k, "s_nop": k}, rounds=3 * k, levels={MEMORY: k, L2: 2 * k},
             unique_read=1000 + 30 * k, late={"v_add_f32": 7}, late_rounds=2)
        for k in (16, 32, 1024)
    ]  # fmt: skip
    assert samples[0].extended(samples[1], (1024 - 16) / 16) == samples[2]
    assert samples[0].extended(samples[1], 1) == samples[1]


def test_what_the_last_of_a_sample_does_counts_once_for_each_counter() -> None:
    found = work(1024, 128, names={"v_add_f32": 9000}, rounds=2048, levels={MEMORY: 2048}, unique_read=1 << 20)
    without = work(32, 4, names={"v_add_f32": 280}, rounds=64, levels={MEMORY: 64}, unique_read=1 << 15)
    last = work(
        32,
        4,
        names={"v_add_f32": 300, "v_sqrt_f32": 8},
        rounds=88,
        levels={MEMORY: 64, L2: 24},
        unique_read=(1 << 15) + 500,
    )
    made = found.with_last(without, last, 3, 2)
    assert made.names == {"v_add_f32": 9040, "v_sqrt_f32": 16}
    assert made.late == {"v_add_f32": 40, "v_sqrt_f32": 16}
    assert (made.rounds, made.late_rounds, made.late_waves) == (2096, 48, 16.0)  # 8 waves of each wait three times
    assert made.levels == found.levels
    assert made.unique_read == (1 << 20) + 1000
    assert predict(made).parts["alone"] == pytest.approx((40 + 4 * 16) / 16 / CLOCK + 3 * LIKELY.l2)


def test_what_was_brought_before_lies_in_the_l2() -> None:
    far = work(read_lines=1 << 14, unique_read=1 << 21, rounds=4096, levels={MEMORY: 4096})
    near = far.nearer(1 << 20)
    assert (near.l2_lines, near.levels) == (1 << 13, {MEMORY: 2048, L2: 2048})
    assert predict(near).parts["memory"] == pytest.approx(predict(far).parts["memory"] / 2)
    assert far.nearer(1 << 30).l2_lines == 1 << 14


def test_scaled_work_shares_what_is_shared() -> None:
    part = work(8, 2, names={"v_add_f32": 80}, unique_read=1000, bytes_read=1400, rounds=16, unique_written=32,
                lines=30, stray=3, read_lines=12, written_halves=1)  # fmt: skip
    whole = part.scaled(10, 200)
    assert (whole.waves, whole.workgroups, whole.names["v_add_f32"], whole.rounds) == (80, 20, 800, 160)
    assert (whole.unique_read, whole.bytes_read, whole.unique_written) == (8200, 14000, 320)
    assert (whole.lines, whole.stray, whole.read_lines, whole.written_halves) == (300, 30, 102, 10)


@kernel
def chase(x: ptr[u32], y: ptr[u32], n: u32):
    """Each load needs the one before; two others come together."""
    i = lane_id()
    for _k in range(n):
        i = x[i]
    a = x[i]
    b = x[i + 32]
    y[workgroup_id(0) * 32 + lane_id()] = a + b


@kernel
def chains(x: ptr[f32], n: u32):
    """Nothing but arithmetic."""
    v = x[lane_id()]
    for _k in range(n):
        v = fma(v, v, v)
    x[lane_id()] = v


def profiled(made: GpuKernel, groups: int, *arguments: np.ndarray | int) -> tuple[Work, Stage]:
    stage = Stage()
    stage.core = Profiler()
    values = [a if isinstance(a, int) else stage.buffer(a) for a in arguments]
    stage.launch(made, groups, *values)
    return stage.core.records[-1].work, stage


@pytest.mark.parametrize("n", [0, 5, 6])
def test_rounds_of_loads(n: int) -> None:
    x = np.concatenate([np.random.default_rng(3).permutation(32), np.arange(32)]).astype(np.uint32)
    done, _ = profiled(gpu_kernel(Spec(chase)), 3, x, np.zeros(96, np.uint32), n)
    assert (done.waves, done.workgroups, done.lanes) == (3, 3, 32)
    assert done.rounds == 3 * (n + 1)  # the last two loads are one round
    assert done.lds_rounds == 0
    assert (done.unique_read, done.unique_written) == (256, 3 * 128)
    assert done.bytes_read == 3 * 128 * (n + 2)
    assert done.bytes_written == 3 * 128


def test_a_row_of_the_table_is_a_kernel() -> None:
    made = gpu_kernel(Spec(chains))
    stage = Stage()
    core = stage.core = Profiler([RX9060XT, R9700])
    x = stage.buffer(np.zeros(32, np.float32))
    code = stage.code(made.code)
    core.names[code] = "chains"
    for n in (100, 300):
        stage.dispatch(code, user_data=made.user_data(x, n), rsrc1=made.rsrc1, n_user=made.dwords)
    first, second = core.records
    (row,) = table(core.records)
    assert (row["kernel"], row["calls"], row["waves"]) == ("chains", 2, 2)
    assert row["occupancy"] == made.occupancy
    fused = [sum(n for name, n in r.work.names.items() if "fma" in name) for r in (first, second)]
    assert fused == [100, 300]
    assert row["microseconds"] == pytest.approx(1e6 * (first.cost.seconds + second.cost.seconds))
    assert row["instructions"] == {
        kind: first.work.instructions.get(kind, 0) + second.work.instructions.get(kind, 0)
        for kind in first.work.instructions
    }
    # Of the machine's cards, the one of the dispatch's generation counts.
    assert first.cost == predict(first.work, R9700)
    assert stage.read(x, np.float32, 1)[0] == 0


def test_profiling_changes_nothing() -> None:
    made, x = gpu_kernel(Spec(chase)), np.arange(64, dtype=np.uint32)[::-1] % 32
    plain, other = Stage(), Stage()
    other.core = Profiler()
    for stage in (plain, other):
        stage.launch(made, 2, stage.buffer(x.astype(np.uint32)), stage.buffer(256), 4)
    assert other.core.counters[-1].names == plain.core.counters[-1].names


# A row of 4096 is two turns of two groups a lane, or four of one. All of a turn is asked for before the first of it is
# needed, but indices are read before what they point to.
ROUNDS = dict.fromkeys(("IQ3_XXS", "IQ3_S", "IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ1_M", "IQ1_S", *FLOATS), 4)
WAITED_ONCE = ("Q4_0",)
"""All loads of a turn by one wait."""
# Formats of 1 and 2 bits with a table fetch a line of the cache for nearly each vector of it, and few bytes from memory
# beside it; Q1_0 fetches more activations than weights.
CACHE_BOUND = {"IQ2_XXS": 0.80, "IQ2_XS": 0.72, "IQ2_S": 0.66, "Q1_0": 0.80, "IQ1_M": 0.40, "IQ1_S": 0.37}
BOUNDS = {**dict.fromkeys(CACHE_BOUND, "cache"), "TQ1_0": "valu"}
"""What takes the longest, where it is not memory."""
SHARES = {**CACHE_BOUND, "TQ1_0": 0.74, "TQ2_0": 0.94}
"""Of the bandwidth, while weights stream."""
AGAIN = {"TQ1_0": 12 * 4096 // 256}
"""Bytes of a row that are loaded twice: the last digits of a block of TQ1_0 lie within words of others."""
BYTES = 60
"""Weights are random bytes below this one."""


def table_bytes(kind: str) -> int:
    """Bytes of a format's table that its indices name when their low bytes are all of those below `BYTES`."""
    grid = FORMATS[kind].grid
    return 0 if grid is None else len(grid.words) * 4 * BYTES // 256


@pytest.mark.parametrize("kind", by_kind((*QUANTIZED, *FLOATS), FEW))
def test_matrix_vector_kernels_read_their_weights_once(kind: str) -> None:
    made, columns = gpu_kernel(KERNELS[f"matvec_{kind.lower()}"].spec), 4096
    part, shared = rdna_kernels.measured(made, kind, 16, columns)
    weights, table = rdna_kernels.row_bytes(kind, columns), table_bytes(kind)
    activations = shared - table
    # Random weights may miss a vector of a table.
    counted = activations + (8 if kind == "IQ1_M" else 0)
    assert counted in ({4 * columns} if kind in FLOATS else {columns * 36 // 32, columns * 40 // 32})
    assert part.unique_read == 16 * weights + shared
    # A group's four or eight vectors have 32 bytes; lanes of one wave that want the same vector read it once.
    looked_up = part.bytes_read - 16 * (weights + activations)
    assert looked_up == 16 * AGAIN.get(kind, 0) if table == 0 else 16 * table <= looked_up <= 16 * columns
    # Loads that are asked for together and waited for one by one are one round.
    assert part.rounds == part.waves * ROUNDS.get(kind, 2)
    assert (part.rounds == part.names["s_wait_loadcnt"]) is (kind in WAITED_ONCE)
    assert part.rounds <= part.names["s_wait_loadcnt"]
    whole = part.scaled(256, shared)
    assert whole.unique_read == 4096 * weights + shared
    cost = predict(whole)
    assert cost.bound == BOUNDS.get(kind, "memory")
    # All but the drain of the last waves, which is longer where a wave waits more often.
    streaming = max(cost.shares.values()) + IDLE + PACKET
    assert (whole.unique_read + whole.unique_written) / streaming / 576e9 > SHARES.get(kind, 0.95)
    if part.rounds == part.waves * 2 and kind not in BOUNDS:
        least = 0.86 if weights < 1200 else 0.88 if weights < 1500 else 0.9
        assert cost.bandwidth > least, "what a dispatch begins and ends with weighs more"


@pytest.mark.parametrize("kind", soon(("Q4_0",), ("Q8_0", "Q4_0", "Q4_K", "Q6_K")))
def test_eight_rows_of_activations_keep_memory_busy(kind: str) -> None:
    part, shared = rdna_kernels.measured(gpu_kernel(matvec_rows(kind, 8).spec), kind, 16, 4096, 8)
    assert part.rounds == part.waves * 4, "one for each of four turns"
    cost = predict(part.scaled(256, shared))
    assert (cost.bound, cost.bandwidth > 0.85) == ("memory", True)


def test_counts_of_a_part_scaled_are_those_of_the_whole() -> None:
    made = gpu_kernel(KERNELS["matvec_q4_0"].spec)
    part, shared = rdna_kernels.measured(made, "Q4_0", 16, 1024)  # its results fill 64 bytes
    whole, _ = rdna_kernels.measured(made, "Q4_0", 64, 1024)
    assert part.scaled(4, shared) == whole
