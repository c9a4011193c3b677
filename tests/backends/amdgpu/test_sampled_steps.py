"""A token chosen by the GPU is the one that the host chooses from the same logits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import zinc_rt
from tests.helpers import QWEN3, write_model
from zinc_rt.engine import Engine, Options, Rows, Tier
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGUFFile
from zinc_rt.kernels.rdna.sampling_draw import UNFINISHED
from zinc_rt.model import Model
from zinc_rt.models import define
from zinc_rt.sampling.dispatch import GpuChooser, HostChooser, chooser_for
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.sampler import DegenerateLogits, Sampler

PROMPT = "A little fox"


@pytest.fixture(scope="module")
def emulated() -> Iterator[Model]:
    with zinc_rt.load(tier="emu", n_ctx=64) as model:
        yield model


@pytest.fixture(scope="module")
def host() -> Iterator[Model]:
    with zinc_rt.load(tier="t_cpu", n_ctx=64) as model:
        yield model


@pytest.mark.parametrize(
    "how",
    [
        {"temperature": 0},
        {"temperature": 1.3, "top_k": 5, "seed": 8},
        {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "seed": 9},
        {"temperature": 0.9, "top_k": 0, "top_p": 0.9, "seed": 10, "repetition_penalty": 1.3, "repeat_last_n": 6},
        {"temperature": 0, "logit_bias": {11: -3.0, 300: 9.0}, "presence_penalty": 0.7, "repeat_last_n": -1},
        {"temperature": 0.5, "seed": 3, "logprobs": 2},
    ],
    ids=str,
)
def test_the_same_texts(emulated: Model, host: Model, how: dict) -> None:
    here, there = (model.generate(PROMPT, max_tokens=5, **how) for model in (host, emulated))
    assert here.token_ids == there.token_ids
    assert here.text == there.text
    assert here.logprobs == there.logprobs


def test_where_tokens_are_chosen(emulated: Model, host: Model) -> None:
    def kind(model: Model, **how: object) -> type:
        sampler = Sampler(SamplingParams(**how), model.tokenizer.n_vocab)
        return type(chooser_for(model.engine, sampler, model.n_ctx))

    assert kind(host) is HostChooser
    assert kind(emulated) is GpuChooser
    assert kind(emulated, logprobs=1) is HostChooser
    assert kind(emulated, top_k=1500) is HostChooser


def test_what_the_gpu_does_not_finish(emulated: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """The logits are fetched then, and the sampler's own choice counts."""
    want = emulated.generate(PROMPT, max_tokens=3, seed=5).token_ids
    real, fetched = Engine.step_sampled, []

    def unfinished(self, rows, sampling):
        result = real(self, rows, sampling)
        sampling.status[0], sampling.tokens[0] = UNFINISHED, -1
        fetched.append(1)
        return result

    monkeypatch.setattr(Engine, "step_sampled", unfinished)
    assert emulated.generate(PROMPT, max_tokens=3, seed=5).token_ids == want
    assert len(fetched) == 3


def test_no_token_is_possible(emulated: Model) -> None:
    bias = dict.fromkeys(range(emulated.tokenizer.n_vocab), float("-inf"))
    with pytest.raises(DegenerateLogits):
        emulated.generate(PROMPT, max_tokens=1, temperature=0, logit_bias=bias)


def test_several_sequences_with_their_own_parameters(tmp_path) -> None:
    """Rows of one step, each with its sampler, against the host's choice from the same step's logits."""
    from zinc_rt.sampling.gpu import accept, exp_table, fill, shape_of

    path = write_model(tmp_path / "model.gguf", QWEN3).path
    asked = [SamplingParams(temperature=0), SamplingParams(seed=4, top_k=3), SamplingParams(seed=5, top_k=9, min_p=0.2)]
    with GGUFFile.open(path) as file, Engine(Options(Tier.emu, n_ctx=32, n_slots=3)) as engine:
        definition = define(file)
        engine.load(file, definition)
        n_vocab = definition.config.n_vocab
        slots = [engine.open_sequence() for _ in asked]
        rows = [Rows(slot, 0, [3 + slot, 7], wanted=(1,)) for slot in slots]
        logits = engine.step(rows).logits.copy()
        for slot in slots:
            engine.truncate(slot, 0)
        shapes = [shape_of(p, n_vocab, 32) for p in asked]
        assert None not in shapes
        shape = shapes[0] | shapes[1] | shapes[2]  # type: ignore[operator]
        samplers = [Sampler(p, n_vocab) for p in asked]
        there = engine.open_sampling(n_vocab, 3, shape, exp_table())
        assert engine.open_sampling(n_vocab, 3, shape, exp_table()) is there
        for row, sampler in enumerate(samplers):
            fill(shape, there.rows, there.touched, row, sampler, [3 + row, 7])
        result = engine.step_sampled(rows, there)
        got = [
            accept(sampler, int(result.tokens[i]), int(result.status[i]), lambda: None, [3 + i, 7]).token_id  # type: ignore[arg-type,return-value]
            for i, sampler in enumerate(samplers)
        ]
        want = [Sampler(p, n_vocab).sample(logits[i], [3 + i, 7]).token_id for i, p in enumerate(asked)]
        assert got == want
        assert (result.logits() == logits).all()
        with pytest.raises(BackendError, match="1 rows of logits, sampled as 3"):
            engine.step_sampled([Rows(slots[0], 2, [1], wanted=(0,))], there)
        with pytest.raises(BackendError, match="3 rows sampled among 5"):
            engine.open_sampling(5, 3, shape, exp_table())
        for n in range(1, 6):  # older ones go
            last = engine.open_sampling(n, 1, shape, exp_table())
        with pytest.raises(BackendError, match="dropped since"):
            engine.step_sampled(rows, there)
        assert last.plan.n_vocab == 5


def test_a_cpu_samples_on_the_host(host: Model) -> None:
    with pytest.raises(BackendError, match="sampled by GPUs"):
        host.engine.open_sampling(5, 1, None, np.zeros(128, np.uint64))  # type: ignore[arg-type]
