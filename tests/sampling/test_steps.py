"""Steps of an engine that end with tokens on the CPU: the same as `Sampler` gives from the step's logits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import QWEN3, write_model
from zinc_rt.backends.base import check_step
from zinc_rt.backends.cpu.sampling import CpuSampled
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import HostSampled, SamplingRequest
from zinc_rt.sampling.sampler import DegenerateLogits, Mask, Sampler

ASKED = [
    SamplingParams(temperature=0),
    SamplingParams(seed=4, top_k=0, top_p=0.8, logprobs=3),
    SamplingParams(seed=5, top_k=9, repetition_penalty=1.4),
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(write_model(tmp_path_factory.mktemp("steps") / "model.gguf", QWEN3).path)


@pytest.fixture(scope="module", params=["native", "reference"])
def engine(path: Path, request: pytest.FixtureRequest) -> Iterator[Engine]:
    options = Options(Device.cpu, n_ctx=32, n_slots=3, threads=2, kernels=request.param)
    with GGUFFile.open(path) as file, Engine(options) as made:
        made.load(file, define(file))
        for _ in range(3):
            made.open_sequence()
        yield made


def rows(start: int = 0) -> list[SequenceChunk]:
    return [SequenceChunk(slot, start, [3 + slot, 7], logits_indices=(1,)) for slot in range(3)]


def requests(n_vocab: int, masks: list[Mask | None], asked: list[SamplingParams] = ASKED) -> list[SamplingRequest]:
    return [SamplingRequest(Sampler(p, n_vocab), [3 + i, 7], mask) for i, (p, mask) in enumerate(zip(asked, masks))]


def back(engine: Engine) -> None:
    for slot in range(3):
        engine.truncate(slot, 0)


def test_rows_of_a_step(engine: Engine) -> None:
    """With and without masks, with steps without tokens between them, and among fewer tokens than there are logits."""
    back(engine)
    logits = engine.step(rows()).logits.copy()
    width = logits.shape[1]
    rng = np.random.default_rng(1)
    words = -(-width // 32)
    for n_vocab in (width, width - 3, width):
        for masks in ([None] * 3, [rng.integers(0, 2**32, words, dtype=np.uint32) for _ in ASKED]):
            back(engine)
            made = requests(n_vocab, masks)
            step = engine.step(rows(), made)
            assert isinstance(step, CpuSampled) is engine.features.samples
            assert (step.logits == logits).all()
            want = [
                Sampler(p, n_vocab).sample(logits[i, :n_vocab], [3 + i, 7], mask=masks[i]) for i, p in enumerate(ASKED)
            ]
            assert step.tokens() == want
            assert [r.sampler.step for r in made] == [1] * 3
        back(engine)
        assert (engine.step(rows()).logits == logits).all()


def test_a_row_without_tokens_fails_alone(engine: Engine) -> None:
    back(engine)
    width = engine.step(rows()).logits.shape[1]
    back(engine)
    full = np.full(-(-width // 32), 2**32 - 1, np.uint32)
    step = engine.step(rows(), requests(width, [full, np.zeros_like(full), full]))
    with pytest.raises(DegenerateLogits):
        step.token(1)
    tokens = [step.token(row) for row in (0, 2)]
    back(engine)
    free = engine.step(rows(), requests(width, [None] * 3))
    assert [free.token(row) for row in (0, 2)] == tokens


def test_the_likeliest_tokens_need_no_kernel(engine: Engine) -> None:
    back(engine)
    width = engine.step(rows()).logits.shape[1]
    back(engine)
    greedy = [SamplingParams(temperature=0)] * 3
    step = engine.step(rows(), requests(width, [None] * 3, greedy))
    assert type(step) is HostSampled
    assert [t.token_id for t in step.tokens()] == step.logits.argmax(axis=1).tolist()


@pytest.mark.parametrize("engine", ["native"], indirect=True)
def test_sampling_of_another_step_is_refused(engine: Engine) -> None:
    back(engine)
    backend, lowered = engine._backend, engine._lowered
    assert lowered is not None
    width = engine.step(rows()).logits.shape[1]
    made = requests(width, [None] * 3)
    sampling = backend.sampling_for(lowered, made, 32)
    assert sampling is not None
    assert backend.sampling_for(lowered, made, 32) is sampling
    sampling.write(made)
    lowered.counts[1] = 1
    with pytest.raises(BackendError, match="1 rows of logits, sampled as 3"):
        backend.submit(check_step(lowered), sampling)
    with pytest.raises(BackendError, match="chosen by something else"):
        backend.submit(check_step(lowered), object())  # type: ignore[arg-type]
    with_other_sizes = [*made[:2], SamplingRequest(Sampler(ASKED[1], width - 1), [1])]
    assert backend.sampling_for(lowered, with_other_sizes, 32) is None


@pytest.mark.parametrize("engine", ["native"], indirect=True)
def test_a_profile_has_the_sampling(engine: Engine) -> None:
    back(engine)
    width = engine.step(rows()).logits.shape[1]
    back(engine)
    engine.start_profile()
    engine.step(rows(), requests(width, [None] * 3)).tokens()
    assert any(line.split()[:1] == ["sample"] for line in engine.finish_profile().lines())
