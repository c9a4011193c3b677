"""Devices, options and the step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import zinc_rt
from tests.helpers import engine_for
from zinc_rt.backends.devices import BY_DRIVER
from zinc_rt.backends.select import select_device
from zinc_rt.engine.engine import (
    Device,
    DeviceChoice,
    DeviceUnavailable,
    Engine,
    EngineError,
    Options,
    SequenceChunk,
    UnknownDevice,
    device_from_env,
    parse_device,
    probe_devices,
)
from zinc_rt.engine.options import LARGE_BATCH
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.models import define
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler


@pytest.mark.parametrize(
    ("text", "device"),
    [
        *((device.value, device) for device in Device),
        ("t_cpu", Device.cpu),
        ("t1", Device.gpu_kernel),
        ("t1_pm4", Device.gpu_kernel),
        ("t2", Device.gpu_umq),
        ("t2_umq", Device.gpu_umq),
    ],
)
def test_parse_device(text: str, device: Device) -> None:
    assert parse_device(text) == device_from_env({"ZINC_RT_TIER": text}) == DeviceChoice(device)
    assert Options(tier=text).device is device
    assert Options(text).device is device  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["", "CPU", "t3", "auto ", "gpu:", "gpu:cs,kfd"])
def test_unknown_devices(text: str) -> None:
    with pytest.raises(UnknownDevice, match=r"use one of auto, cpu, gpu, gpu:umq, gpu:kfd, gpu:cs, cuda, opencl, emu$"):
        parse_device(text)


def test_device_from_env() -> None:
    assert device_from_env({}) == device_from_env({"ZINC_RT_TIER": ""}) == DeviceChoice(Device.auto)
    with pytest.raises(UnknownDevice, match=r"^ZINC_RT_TIER: unknown device 'tpu'"):
        device_from_env({"ZINC_RT_TIER": "tpu"})
    with pytest.raises(DeviceUnavailable, match=r"^ZINC_RT_TIER: device t_metal cannot run: not built"):
        device_from_env({"ZINC_RT_TIER": "t_metal"})


def test_a_card_is_part_of_a_device() -> None:
    options = Options("gpu:cs@03:00.0")  # type: ignore[arg-type]
    assert (options.device, options.card) == (Device.gpu_cs, "0000:03:00.0")
    assert replace(options, n_batch=8).card == options.card
    with pytest.raises(UsageError, match="name one card"):
        replace(options, device="gpu@renderD129")  # type: ignore[arg-type]
    with pytest.raises(UnknownDevice, match="runs on none"):
        replace(options, device=Device.cpu)
    with pytest.raises(DeviceUnavailable, match=r"no AMD GPU 0000:03:00\.0 here; none is in sight"):
        zinc_rt.load(device="gpu@03:00.0")


def test_a_device_is_named_once() -> None:
    with pytest.raises(UsageError, match="give device only"):
        Options(Device.emu, tier="t_cpu")
    with pytest.raises(UsageError, match="give device only"):
        zinc_rt.load(device="cpu", tier="t_cpu")


def test_auto_finds_no_gpu_and_says_so() -> None:
    lines: list[str] = []
    assert select_device(Device.auto, lines.append) is Device.cpu
    assert lines == ["device cpu; skipped gpu: no AMD GPU is in sight"]


def test_every_device_is_reported_once() -> None:
    assert [r.device.value for r in probe_devices()] == ["gpu:cs", "gpu:kfd", "gpu:umq", *BY_DRIVER, "cpu", "emu"]
    assert all(r.reason for r in probe_devices())


@pytest.mark.parametrize("device", [Device.gpu, Device.gpu_kfd, Device.gpu_umq, Device.gpu_cs, Device.gpu_kernel])
def test_an_explicit_device_is_obeyed_or_refused(device: Device) -> None:
    with pytest.raises(DeviceUnavailable, match=rf"^device {device.value} cannot run: no AMD GPU is in sight"):
        Engine(Options(device))


@pytest.mark.parametrize("bad", [{"n_batch": 0}, {"n_slots": -1}, {"n_ctx": 0}, {"threads": 0}])
def test_options_are_checked(bad: dict[str, int]) -> None:
    with pytest.raises(UsageError, match=next(iter(bad))):
        Options(**bad)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def story() -> Iterator[GGUFFile]:
    with GGUFFile.open(built_in_model()) as file:
        yield file


@pytest.fixture
def engine(story: GGUFFile) -> Iterator[Engine]:
    with Engine(Options(n_ctx=64, n_batch=24, n_slots=3)) as made:
        made.load(story, define(story))
        yield made


def test_before_a_model_is_loaded() -> None:
    with Engine() as empty:
        with pytest.raises(EngineError, match="no model"):
            empty.open_sequence()
        with pytest.raises(EngineError, match="no model"):
            empty.step([])


def test_a_second_model_is_refused(engine: Engine, story: GGUFFile) -> None:
    with pytest.raises(EngineError, match="already"):
        engine.load(story, define(story))


def test_mixed_steps_give_the_bits_of_lonely_ones(engine: Engine) -> None:
    rng = np.random.default_rng(5)
    texts = [rng.integers(0, 256, n).tolist() for n in (9, 17, 30)]
    alone = []
    for tokens in texts:
        slot = engine.open_sequence()
        rows = [
            engine.step([SequenceChunk(slot, i, tokens[i : i + 1], (0,))]).logits.copy() for i in range(len(tokens))
        ]
        alone.append(np.concatenate(rows))
        engine.close_sequence(slot)
    slots = [engine.open_sequence() for _ in texts]
    done = [0, 0, 0]
    mixed: list[list[np.ndarray]] = [[], [], []]
    while any(d < len(t) for d, t in zip(done, texts, strict=True)):
        parts, owners = [], []
        for i in rng.permutation(3):
            n = min(int(rng.integers(0, 9)), len(texts[i]) - done[i])
            if n:
                parts.append(SequenceChunk(slots[i], done[i], texts[i][done[i] : done[i] + n], logits_indices=range(n)))
                owners += [i] * n
                done[i] += n
        if parts:
            for owner, row in zip(owners, engine.step(parts).logits, strict=True):
                mixed[owner].append(row.copy())
        engine.cache.check_integrity()
    for one, rows in zip(alone, mixed, strict=True):
        assert (one.view(np.uint32) == np.array(rows).view(np.uint32)).all()


def test_sequences_run_out_and_come_back(engine: Engine) -> None:
    slots = [engine.open_sequence() for _ in range(3)]
    with pytest.raises(EngineError, match="all 3 sequences"):
        engine.open_sequence()
    engine.close_sequence(slots[1])
    for closed in (slots[1], -1, 3):
        with pytest.raises(EngineError, match="not open"):
            engine.close_sequence(closed)
        with pytest.raises(EngineError, match="not open"):
            engine.truncate(closed, 0)
    assert engine.open_sequence() == slots[1]


def test_rows_follow_what_the_sequence_holds(engine: Engine) -> None:
    slot = engine.open_sequence()
    with pytest.raises(EngineError, match="holds 0 positions, rows cannot start at 1"):
        engine.step([SequenceChunk(slot, 1, [1])])
    first = engine.step([SequenceChunk(slot, 0, [5, 6, 7]), SequenceChunk(slot, 3, [8], (0,))]).logits.copy()
    with pytest.raises(EngineError, match="holds 6 positions, rows cannot start at 5"):
        engine.step([SequenceChunk(slot, 4, [1, 2]), SequenceChunk(slot, 5, [3])])
    engine.truncate(slot, 3)
    with pytest.raises(EngineError, match="holds 3 positions"):
        engine.step([SequenceChunk(slot, 4, [1])])
    again = engine.step([SequenceChunk(slot, 3, [8], (0,))]).logits
    assert (first.view(np.uint32) == again.view(np.uint32)).all()


def test_bad_rows(engine: Engine) -> None:
    slot = engine.open_sequence()
    with pytest.raises(EngineError, match="at least one row"):
        engine.step([])
    with pytest.raises(EngineError, match="not open"):
        engine.step([SequenceChunk(slot + 1, 0, [1])])
    with pytest.raises(EngineError, match="n_batch is 24"):
        engine.step([SequenceChunk(slot, 0, [1] * 25)])
    with pytest.raises(EngineError, match="context of 64"):
        engine.step([SequenceChunk(slot, 60, [1] * 5)])
    for wanted in ((2,), (-1,), (0, 0)):
        with pytest.raises(EngineError, match="logits_indices"):
            engine.step([SequenceChunk(slot, 0, [1, 2], logits_indices=wanted)])
    with pytest.raises(zinc_rt.ZincError, match="vocabulary"):
        engine.step([SequenceChunk(slot, 0, [1 << 20])])
    for token in (-1, 1 << 40):
        with pytest.raises(zinc_rt.ZincError, match="vocabulary"):
            engine.step([SequenceChunk(slot, 0, [token])])
    for tokens in ([1, 1 << 40], np.array([1, 1 << 40]), [1, -(1 << 31) - 1]):
        with pytest.raises(zinc_rt.ZincError, match="vocabulary"):
            engine.step([SequenceChunk(slot, 0, tokens)])
    engine.step([SequenceChunk(slot, 0, [1])])  # nothing had run
    engine.cache.check_integrity()


def test_sampled_steps_give_the_tokens_of_the_logits(engine: Engine) -> None:
    """Rows of one step, each with its own sampler, against what the parameters say of the logits."""
    asked = [SamplingParams(temperature=0), SamplingParams(seed=4, top_k=3), SamplingParams(seed=5, logprobs=2)]
    slots = [engine.open_sequence() for _ in asked]
    rows = [SequenceChunk(slot, 0, [3 + slot, 7], logits_indices=(1,)) for slot in slots]
    logits = engine.step(rows).logits.copy()
    n_vocab = logits.shape[1]
    requests = [SamplingRequest(Sampler(p, n_vocab - i), [3, 7]) for i, p in enumerate(asked)]
    step = engine.step(rows, requests)
    greedy, among, told = (step.token(i) for i in range(3))
    assert greedy.token_id == logits[0].argmax()
    assert among.token_id in np.argsort(logits[1, : n_vocab - 1])[-3:]
    row = logits[2, : n_vocab - 2].astype(np.float64)
    chances = row - row.max() - np.log(np.exp(row - row.max()).sum())
    assert told.logprob == pytest.approx(chances[told.token_id], abs=1e-5)
    assert told.top_logprobs is not None
    assert [token for token, _ in told.top_logprobs] == np.argsort(-row)[:2].tolist()
    again = engine.step(rows, [SamplingRequest(Sampler(p, n_vocab - i), [3, 7]) for i, p in enumerate(asked)])
    assert [again.token(i) for i in range(3)] == [greedy, among, told]
    with pytest.raises(EngineError, match="3 wanted rows and 2 sampling requests"):
        engine.step(rows, requests[:2])


def test_a_plan_that_does_not_fit_is_refused_before_loading(story: GGUFFile) -> None:
    engine = Engine(Options(n_ctx=1 << 23, n_slots=4096))
    with pytest.raises(MemoryPlanError, match=r"KV cache .* GiB.*are available"):
        engine.load(story, define(story))


def test_no_more_logits_than_there_is_room_for() -> None:
    with engine_for(built_in_model(), n_ctx=32, n_batch=8, n_logits=2) as engine:
        slot = engine.open_sequence()
        with pytest.raises(EngineError, match="n_logits is 2"):
            engine.step([SequenceChunk(slot, 0, [1, 2, 3, 4], logits_indices=(0, 1, 3))])
        few = engine.step([SequenceChunk(slot, 0, [1, 2, 3, 4], logits_indices=(0, 3))]).logits.copy()
    with engine_for(built_in_model(), n_ctx=32, n_batch=8) as engine:
        all_rows = engine.step([SequenceChunk(engine.open_sequence(), 0, [1, 2, 3, 4], logits_indices=range(4))]).logits
        assert np.array_equal(few, all_rows[[0, 3]])


def test_touching_the_memory_of_states_changes_none_of_it() -> None:
    prompt = [5, 6, 7, 8]
    with engine_for(built_in_model(), n_batch=8, n_slots=2) as engine:
        found = []
        for touched in (False, True):
            slot = engine.open_sequence()
            engine.step([SequenceChunk(slot, 0, prompt, logits_indices=(3,))])
            if touched:
                assert sum(1 for _ in engine.touch_states()) > 0
            found.append(engine.step([SequenceChunk(slot, 4, [9], logits_indices=(0,))]).logits.tobytes())
        assert found[0] == found[1]


def test_every_sequence_has_room_for_its_logits() -> None:
    with engine_for(built_in_model(), n_ctx=32, n_batch=8, n_logits=2, n_slots=3) as engine:
        slots = [engine.open_sequence() for _ in range(3)]
        assert engine.step([SequenceChunk(slot, 0, [1], logits_indices=(0,)) for slot in slots]).logits.shape[0] == 3


def test_logits_of_a_long_text_are_the_same_for_every_batch() -> None:
    """More rows than a step has room for logits, more than it has rows, and fewer than both."""
    tokens = [1, *(2 + i * i % 97 for i in range(149))]
    with zinc_rt.load(n_ctx=160) as model:
        assert model.engine.sizes is not None
        assert (model.engine.sizes.n_rows, model.engine.sizes.n_logits) == (LARGE_BATCH, Options().n_batch)
        want = model.logits(tokens)
    for n_batch in (7, 64, 149):
        with zinc_rt.load(n_ctx=160, n_batch=n_batch) as model:
            assert np.array_equal(model.logits(tokens).view(np.uint32), want.view(np.uint32))
