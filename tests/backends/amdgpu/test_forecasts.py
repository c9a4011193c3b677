"""Forecasts: samples of dispatches against all of them, and a model's steps against the emulated card's own."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from amdgpu_emu.cost import predict
from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, RX7900XTX, RX9070XT, GpuModel
from amdgpu_emu.profiler import Profiler
from amdgpu_emu.sampler import DispatchKind, DispatchSampler, _runs, _samples
from amdgpu_emu.work import Work
from tests.backends.cpu.test_whole_models import SPECS
from tests.compiled import gpu_kernel
from tests.helpers import write_model
from tests.models.families import CASES
from tests.models.families.build import write_case
from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.kfd.interface import KfdInterface
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.backends.amdgpu.emulated import Prediction, UsageError, gpu_model
from zinc_rt.backends.diagnostics.calibration import CARD, SMALL, measure
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
from zinc_rt.gguf import GGMLType, GGUFFile
from zinc_rt.kernels.gpu.ahead import BYTES
from zinc_rt.kernels.gpu.arrival import is_last
from zinc_rt.kernels.gpu.catalogue import DECODE, matvec_rows
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import workgroup_id, workitem_id
from zinc_rt.lang.types import ptr, u32
from zinc_rt.models import define
from zinc_rt.perf_model.backend import ForecastBackend, pieces_of
from zinc_rt.perf_model.forecast import _Engine, forecast


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = replace(SPECS["qwen3-q8_0"], n_layers=1)  # whose kernels other tests have compiled
    return write_model(tmp_path_factory.mktemp("models") / "model.gguf", spec).path


def test_samples_hold_both_ends() -> None:
    assert _samples(8, 4, 1) == [list(range(8))]
    few, more = _samples(1000, 4, 2)
    assert few == [*range(4), *range(996, 1000)]
    assert len(more) == 12
    assert set(few) < set(more)
    assert _samples(100, 1, 1) == [[0], [0, 99]]
    assert list(_runs([0, 1, 2, 7, 9, 10])) == [(0, 3), (7, 1), (9, 2)]


def product(profiler: Profiler, model: GpuModel = R9700, target: str = "gfx1201") -> Work:
    """The counts of 16 rows times a matrix [512, 512], eight at a time."""
    made = gpu_kernel(matvec_rows("Q8_0", 8).spec, target)
    with Machine(models=[model], shader=profiler) as machine, GpuQueue(KfdInterface(linux=machine.process())) as queue:
        program = queue.load_kernel(made)
        weights, q, d, s, y = (queue.alloc(n) for n in (512 * 544, 16 * 512, 16 * 64, 16 * 64, 16 * 2048))
        commands = CommandList("product").dispatch(program, (128, 2, 1), weights, q, d, s, y, 16, 512)
        queue.wait(queue.submit(commands))
    return profiler.records[-1].work


def test_samples_say_what_the_whole_does() -> None:
    sampler = DispatchSampler([R9700], lambda dispatch, memory: DispatchKind("product", even=True), lambda key: None)
    sampled, whole = product(sampler), product(Profiler())
    assert sampler.executed == 1
    assert sampled.waves == whole.waves == 256  # each does four rows of the matrix
    assert sampled.names == whole.names
    assert (sampled.unique_read, sampled.unique_written) == (whole.unique_read, whole.unique_written)
    assert (sampled.read_lines, sampled.bytes_read) == (whole.read_lines, whole.bytes_read)
    assert (sampled.rounds, sampled.asked_lines) == (whole.rounds, whole.asked_lines)


def test_code_of_gfx11_is_counted_as_such() -> None:
    """As many rounds of loads as on gfx12, by other waits; the same bytes."""
    sampler = DispatchSampler([RX7900XTX], lambda dispatch, memory: DispatchKind("p", even=True), lambda key: None)
    sampled, later = product(sampler, RX7900XTX, "gfx1100"), product(Profiler())
    assert sampled.names["s_waitcnt"] > 0
    assert sampled.rounds == later.rounds
    assert (sampled.unique_read, sampled.read_lines) == (later.unique_read, later.read_lines)


@pytest.mark.parametrize(
    ("name", "groups", "pieces"),
    [
        ("gated_experts GATE=Q4_K UP=Q4_K", (1, 8, 16), 16),
        ("expert_rows FMT=Q4_K", (2, 4, 64), 8),
        ("experts_down FMT=Q6_K K=8 N_IN=512", (512, 1, 1), 8),
        ("experts_down_norm FMT=Q6_K K=6 N_IN=512", (256, 2, 1), 12),
        ("choose_experts E=64 K=8", (1, 1, 1), 0),
        ("matvec Q4_K M=1", (64, 1, 1), 0),
    ],
)
def test_matrices_of_chosen_experts(name: str, groups: tuple[int, int, int], pieces: int) -> None:
    assert pieces_of(name, groups) == pieces


@pytest.mark.slow
def test_a_token_of_a_model_with_experts_has_pieces(tmp_path: Path) -> None:
    """By the kernels' true names: two matrices of each chosen expert, and one."""
    made = write_case(tmp_path / "experts.gguf", CASES["qwen3moe"], GGMLType.Q8_0)
    with GGUFFile.open(made.path) as file, _Engine(Options(Device.emu, n_ctx=64, n_logits=1)) as engine:
        definition = define(file)
        engine.load(file, definition)
        slot = engine.open_sequence()
        engine.start_profile()
        engine.step([SequenceChunk(slot, 0, [0], (0,))])
        found = engine.finish_profile()
        n_layers = sum(b.name.endswith("gate_exps.weight") for b in definition.graph.buffers)
    assert isinstance(found, Prediction)
    pieces = sum(record.work.pieces for record in found.records)
    assert pieces > 0
    assert pieces % (3 * n_layers) == 0


@kernel(workgroup=64)
def copied_and_summed(x: ptr[u32], y: ptr[u32], counters: ptr[u32], n: u32):
    """Copies; the last workgroup of each half of them adds up what lies at the begin of that half."""
    at = workgroup_id(0) * 64 + workitem_id()
    y[at] = x[at]
    half = workgroup_id(0) // (n // 2)
    if is_last(counters, half, n // 2):
        total: u32 = 0
        for i in range(workitem_id(), 512, 64):
            total += y[half * 512 + i]
        y[at] = total


def last_of_halves(profiler: Profiler) -> Work:
    """The counts of 128 workgroups of this."""
    made = gpu_kernel(Spec(copied_and_summed, {}))
    with Machine(shader=profiler) as machine, GpuQueue(KfdInterface(linux=machine.process())) as queue:
        program = queue.load_kernel(made)
        x, y, counters = (queue.alloc(n) for n in (1 << 15, 1 << 15, 64))
        queue.write(counters, bytes(64))
        queue.wait(queue.submit(CommandList("halves").dispatch(program, 128, x, y, counters, 128)))
    return profiler.records[-1].work


def test_samples_have_what_the_last_workgroups_do_alone() -> None:
    sampler = DispatchSampler(
        [R9700], lambda dispatch, memory: DispatchKind("halves", even=True, counters=2), lambda key: None
    )
    sampled, whole = last_of_halves(sampler), last_of_halves(Profiler())
    assert sampled.late_rounds == whole.late_rounds > 0
    assert sampled.late_waves == whole.late_waves
    assert sampled.names == whole.names
    assert sampled.late == whole.late
    assert predict(sampled).parts["alone"] == pytest.approx(predict(whole).parts["alone"])


def test_what_was_brought_before_lies_in_the_l2() -> None:
    """The kernel that brings weights reads all of its bytes, and a product behind it finds them."""
    profiler = Profiler()
    brings, reads = (gpu_kernel(entry.spec) for entry in (DECODE["ahead"], matvec_rows("Q8_0", 8)))
    with Machine(shader=profiler) as machine, GpuQueue(KfdInterface(linux=machine.process())) as queue:
        first, second = queue.load_kernel(brings), queue.load_kernel(reads)
        weights, q, d, s, y, z = (queue.alloc(n) for n in (512 * 544, 16 * 512, 16 * 64, 16 * 64, 4096, 16 * 2048))
        queue.write(y, bytes([7]) * 4096)
        commands = CommandList("ahead").dispatch(first, 4, weights, y).barrier(light=True)
        commands.dispatch(second, (16, 1, 1), weights, q, d, s, z, 16, 64)
        queue.wait(queue.submit(commands))
        assert bytes(queue.read(y, 4096)) == bytes([7]) * 4096
    ahead, product = (record.work for record in profiler.records)
    assert ahead.unique_read == 4 * BYTES
    assert product.l2_lines >= 64 * 544 // 128


def test_samples_of_workgroups_that_do_anything() -> None:
    """Of half of them: half of the waves and of the matrix, whatever the others do."""
    busy = [4 * i + k for i in range(0, 32, 2) for k in range(4)]
    sampler = DispatchSampler(
        [R9700], lambda dispatch, memory: DispatchKind("product", even=True), lambda key: None, lambda d, m: busy
    )
    sampled, whole = product(sampler), product(Profiler())
    assert (sampled.waves, sampled.names["v_dot4_i32_iu8"]) == (128, whole.names["v_dot4_i32_iu8"] // 2)
    assert sampled.read_lines < whole.read_lines * 0.6


@pytest.mark.slow
def test_rows_of_a_prompt_choose_experts_by_chance(tmp_path: Path) -> None:
    """Tiles of all experts, not of the same few."""
    made = write_case(tmp_path / "experts.gguf", CASES["qwen3moe"], GGMLType.Q8_0)
    options = Options(Device.emu, n_ctx=64, n_batch=40, n_logits=1, check_memory=False)
    with GGUFFile.open(made.path) as file, _Engine(options) as engine:
        definition = define(file)
        engine.load(file, definition)
        slot = engine.open_sequence()
        engine.start_profile()
        engine.step([SequenceChunk(slot, 0, [0] * 40, (39,))])
        found = engine.finish_profile()
        gates = [b for b in definition.graph.buffers if b.name.endswith("gate_exps.weight")]
    assert isinstance(found, Prediction)
    works = [r.work for r in found.records if r.name.startswith("block_expert_tiles")]
    assert len(works) == 3 * len(gates) > 0
    assert works[0].unique_read > int(np.prod(gates[0].shape)) // 32 * 34


@pytest.mark.slow  # `test_predictions.py` predicts a step that ran in each run
def test_steps_of_a_model(path: Path) -> None:
    """The same dispatches in the same phases as when the step is executed, and about the same time."""
    found = forecast(path, "r9700", [3], [3])
    again = forecast(path, "rx9070xt", [], [3])
    prompt, text = found.tests
    assert (prompt.tokens, text.depth, prompt.steps, text.steps) == (3, 3, 1, 1)
    assert (found.card, again.card, again.memory) == (R9700.name, RX9070XT.name, RX9070XT.vram)
    assert again.tests[0].seconds.likely == pytest.approx(text.seconds.likely, rel=0.01)  # the same chip
    with GGUFFile.open(path) as file, Engine(Options(Device.emu, n_ctx=32, n_logits=1)) as engine:
        engine.load(file, define(file))
        slot = engine.open_sequence()
        engine.step([SequenceChunk(slot, 0, [0, 0, 0])])
        engine.start_profile()
        engine.step([SequenceChunk(slot, 3, [0], (0,))])
        whole = engine.finish_profile()
    assert isinstance(whole, Prediction)
    # The forecast's step chooses a token, too, in two dispatches more, and copies no logits.
    names = Counter(record.name for record in whole.records)
    assert names["move"] <= text.dispatches - (len(whole.records) - names["move"] - names["argmax"]) + 2
    assert abs(text.barriers - whole.barriers) <= 3
    assert text.seconds.likely == pytest.approx(whole.total.likely, rel=0.1)
    assert text.seconds.low < text.seconds.likely < text.seconds.high
    assert text.speed.likely == 1 / text.seconds.likely
    assert prompt.resident is None
    assert text.resident is not None
    assert text.resident_speed is not None
    # A small model waits at barriers most of the time.
    assert text.resident.low < text.resident.likely < text.seconds.likely
    assert text.resident_speed.likely == 1 / text.resident.likely


def test_whether_it_fits(path: Path) -> None:
    found = forecast(path, "r9700", [], [1])
    assert found.fits
    assert found.plan.available == R9700.vram - R9700.vram // 10
    assert not replace(found, plan=replace(found.plan, available=found.plan.total - 1)).fits
    tree = found.as_dict()
    assert tree["plan"]["total"] == found.plan.total
    assert tree["tests"][0]["speed"]["likely"] == found.tests[0].speed.likely
    assert found.tests[0].resident_speed is not None
    assert tree["tests"][0]["resident_speed"]["likely"] == found.tests[0].resident_speed.likely


def test_a_part_of_the_processor_holds_models_in_system_memory(path: Path) -> None:
    card = gpu_model("strix-halo")
    with ForecastBackend(card) as backend:
        assert backend.memory_available == card.gtt - card.gtt // 10
        assert backend.gpu.default_heap == "gtt"


def test_cards_have_names(path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown GPU 'r9701'; these can be emulated: r9700, rx9070, rx9070xt"):
        forecast(path, "r9701", [], [1])
    with pytest.raises(UsageError, match="--gpu r9700 names a GPU to emulate; it cannot be used with --device cpu"):
        Engine(Options(Device.cpu, gpu="r9700"))
    with Engine(Options(Device.emu, gpu="rx9060xt")) as engine:
        assert engine.features.isa == "gfx1200"
        assert set(engine.card_constants()) == {
            "bandwidth",
            *CARD.levels,
            "dispatch",
            "barrier",
            "full_barrier",
            "submission",
        }


def test_a_chain_goes_through_all_its_lines() -> None:
    """What is measured as a latency loads each line once, in an order that no prefetch guesses."""
    profiler, extent = Profiler(), replace(SMALL, levels={"l2": 4 << 10}, stream=1 << 16)
    with Machine(shader=profiler) as machine, GpuQueue(KfdInterface(linux=machine.process())) as queue:
        measured = measure(queue, cache=CompileCache(default_cache_dir()), extent=extent)
    assert all(value >= 0 for value in measured.values())
    chases = [r.work for r in profiler.records if r.dispatch.groups == (1, 1, 1) and r.work.read_lines >= 16]
    assert chases
    assert max(work.read_lines for work in chases) == extent.levels["l2"] // 256
    assert all(work.rounds == work.names["global_load_b32"] for work in chases)
    streams = [r.work for r in profiler.records if r.dispatch.groups[0] > 1]
    assert max(work.unique_read for work in streams) >= extent.stream
    assert np.isfinite(measured["bandwidth"])
