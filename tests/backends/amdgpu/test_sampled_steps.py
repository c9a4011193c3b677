"""A token chosen by the GPU is the one that the host chooses from the same logits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from tests.backends.cpu.test_whole_models import SPECS
from tests.helpers import write_model
from zinc_rt.backends.base import check_step
from zinc_rt.backends.cpu.sampling import CpuSampled
from zinc_rt.backends.gpu import backend as gpu_backend
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGUFFile
from zinc_rt.kernels.gpu.sampling_draw import UNFINISHED
from zinc_rt.llm.model import Model
from zinc_rt.models import define
from zinc_rt.sampling.gpu import DeviceSampled, common_shape
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import HostSampled, SamplingRequest
from zinc_rt.sampling.sampler import DegenerateLogits, Sampler

PROMPT = "A"
"""One token: all steps are of one row, by the same kernels."""


@pytest.fixture(scope="module")
def emulated(shallow: Path) -> Iterator[Model]:
    with zinc_rt.load(shallow, device="emu", n_ctx=64) as model:
        yield model


@pytest.fixture(scope="module")
def host(shallow: Path) -> Iterator[Model]:
    with zinc_rt.load(shallow, device="cpu", n_ctx=64) as model:
        yield model


@pytest.mark.parametrize(
    "how",
    [
        pytest.param({"temperature": 0}, marks=pytest.mark.slow),
        pytest.param({"temperature": 1.3, "top_k": 5, "seed": 8}, marks=pytest.mark.slow),
        pytest.param({"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 9}, marks=pytest.mark.slow),
        {"temperature": 0.9, "top_k": 0, "top_p": 0.9, "seed": 10, "repetition_penalty": 1.3, "repeat_last_n": 6},
        pytest.param(
            {"temperature": 0, "logit_bias": {11: -3.0, 300: 9.0}, "presence_penalty": 0.7, "repeat_last_n": -1},
            marks=pytest.mark.slow,
        ),
        pytest.param({"temperature": 0.5, "seed": 3, "logprobs": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_the_same_texts(emulated: Model, host: Model, how: dict) -> None:
    here, there = (model.generate(PROMPT, max_tokens=3, **how) for model in (host, emulated))
    assert here.token_ids == there.token_ids
    assert here.text == there.text
    assert here.logprobs == there.logprobs


def test_where_tokens_are_chosen(emulated: Model, host: Model) -> None:
    def kind(model: Model, **how: object) -> type:
        sampler = Sampler(SamplingParams(**how), model.tokenizer.n_vocab)
        model.engine.truncate(0, 0)
        return type(model.engine.step([SequenceChunk(0, 0, [1], (0,))], [SamplingRequest(sampler, [1])]))

    assert kind(host) is CpuSampled
    assert kind(host, temperature=0) is HostSampled
    assert kind(host, logprobs=21) is HostSampled
    assert kind(emulated) is DeviceSampled
    assert kind(emulated, logprobs=1) is HostSampled
    assert kind(emulated, top_k=1500) is HostSampled


def test_what_the_gpu_does_not_finish(emulated: Model, host: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits are fetched then, and the sampler's own choice counts."""
    want = host.generate(PROMPT, max_tokens=2, seed=5).token_ids
    real, fetched = Engine.step, []

    def unfinished(self, rows, sampling=None):
        result = real(self, rows) if sampling is None else real(self, rows, sampling)
        if isinstance(result, DeviceSampled):
            result._device.status[0], result._device.tokens[0] = UNFINISHED, -1
            fetched.append(1)
        return result

    monkeypatch.setattr(Engine, "step", unfinished)
    assert emulated.generate(PROMPT, max_tokens=2, seed=5).token_ids == want
    assert len(fetched) == 2


def test_nan_is_looked_for_in_the_first_row(emulated: Model, host: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the others the host sees the token alone."""
    real, fetched, lines = DeviceSampled.logits.fget, [], []
    assert real is not None

    def spoiled(self):
        fetched.append(1)
        out = real(self).copy()
        out[0, [3, 4]] = np.nan
        return out

    want = host.generate(PROMPT, max_tokens=2, seed=5).token_ids
    monkeypatch.setattr(DeviceSampled, "logits", property(spoiled))
    monkeypatch.setattr(emulated, "_notify", lines.append)
    assert emulated.generate(PROMPT, max_tokens=2, seed=5).token_ids == want
    assert len(fetched) == len(lines) == 1
    assert lines[0].startswith(f"2 of {emulated.tokenizer.n_vocab} logits of token 1 are NaN")


def test_no_token_is_possible(emulated: Model) -> None:
    bias = dict.fromkeys(range(emulated.tokenizer.n_vocab), float("-inf"))
    with pytest.raises(DegenerateLogits):
        emulated.generate(PROMPT, max_tokens=1, temperature=0, logit_bias=bias)


def test_several_sequences_with_their_own_parameters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of one step, each with its sampler, against the host's choice from the same step's logits."""
    path = write_model(tmp_path / "model.gguf", replace(SPECS["qwen3-q8_0"], n_layers=1)).path
    asked = [SamplingParams(temperature=0), SamplingParams(seed=4, top_k=3), SamplingParams(seed=5, top_k=9, min_p=0.2)]
    with GGUFFile.open(path) as file, Engine(Options(Device.emu, n_ctx=32, n_slots=3)) as engine:
        definition = define(file)
        engine.load(file, definition)
        n_vocab = definition.info.n_vocab
        slots = [engine.open_sequence() for _ in asked]
        rows = [SequenceChunk(slot, 0, [3 + slot], logits_indices=(0,)) for slot in slots]
        logits = engine.step(rows).logits.copy()

        def requests() -> list[SamplingRequest]:
            return [SamplingRequest(Sampler(p, n_vocab), [3 + i]) for i, p in enumerate(asked)]

        result = engine.step(rows, requests())
        assert isinstance(result, DeviceSampled)
        want = [Sampler(p, n_vocab).sample(logits[i], [3 + i]).token_id for i, p in enumerate(asked)]
        assert [result.token(i).token_id for i in range(3)] == want
        assert (result.logits == logits).all()
        backend, lowered = engine._backend, engine._lowered
        assert lowered is not None
        found = common_shape(requests(), 32, n_vocab)
        assert found is not None
        there = backend.open_sampling(lowered, n_vocab, 3, found[1])
        assert backend.open_sampling(lowered, n_vocab, 3, found[1]) is there
        lowered.counts[1] = 1
        with pytest.raises(BackendError, match="1 rows of logits, sampled as 3"):
            backend.submit(check_step(lowered), there)
        with pytest.raises(BackendError, match="3 rows sampled among 5"):
            backend.open_sampling(lowered, 5, 3, found[1])
        several = [backend.open_sampling(lowered, n, 1, found[1]) for n in range(1, 6)]
        for n in range(1, 6):  # texts in turn
            assert backend.open_sampling(lowered, n, 1, found[1]) is several[n - 1]
        assert backend.open_sampling(lowered, n_vocab, 3, found[1]) is there
        for n in range(1, 11):  # of sixteen, those unused for longest go
            last = backend.open_sampling(lowered, 5 + n, 1, found[1])
        assert backend.open_sampling(lowered, n_vocab, 3, found[1]) is there
        monkeypatch.setattr(gpu_backend, "_SCRATCH", 0)
        for n in range(1, 6):  # where they take much memory, of four
            last = backend.open_sampling(lowered, 20 + n, 1, found[1])
        with pytest.raises(BackendError, match="dropped since"):
            backend.submit(check_step(lowered), there)
        assert last.tokens.shape == (1,)
        # Several rows are chosen from all of their logits, or on the host.
        fewer = [SamplingRequest(Sampler(p, n_vocab - 1), [3 + i]) for i, p in enumerate(asked)]
        assert isinstance(engine.step(rows, fewer), HostSampled)
        result = engine.step(rows, requests())
        assert [result.token(i).token_id for i in range(3)] == want
        del result, there, last, several  # their arrays look at memory of the machine
