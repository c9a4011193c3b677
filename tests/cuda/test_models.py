"""Models on CUDA's driver: every call of it, kernels on OpenCL's CPU driver, the bits of the reference.

OpenCL's driver takes minutes for a model's kernels, so those with whole models are slow tests; what it built is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.backends.cpu.both import assert_same
from tests.backends.cpu.test_whole_models import SPECS
from tests.cuda.fake import FakeCuda
from tests.cuda.opencl_cpu import device
from tests.cuda.stage import cuda_backend, kept
from tests.helpers import engine_for, random_tokens, run_tokens, write_model
from zinc_rt.backends.gpu.selftest import SelfTest, check_arithmetic
from zinc_rt.engine import engine as engine_module
from zinc_rt.engine.engine import Device, Engine, SequenceChunk
from zinc_rt.sampling.gpu import DeviceSampled
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler

pytestmark = pytest.mark.usefixtures("processor")
LENGTH = 9


@pytest.fixture(scope="module")
def processor() -> None:
    """Skips where kernels cannot run."""
    device()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = replace(SPECS["qwen3-q8_0"], n_layers=1)
    return write_model(tmp_path_factory.mktemp("models") / "model.gguf", spec).path


@contextmanager
def cuda_engine(path: Path, made: FakeCuda | None = None, **options: object) -> Iterator[tuple[Engine, FakeCuda]]:
    """An engine with the model on a fake card."""
    with cuda_backend(made) as (backend, fake), pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "open_backend", lambda *args, **how: (Device.cpu, backend))
        with engine_for(path, **{"n_ctx": 32, "n_batch": LENGTH, **options}) as engine:
            yield engine, fake


@pytest.mark.parametrize("seed", range(3))
def test_the_self_test(seed: int) -> None:
    """A graph is launched from the second step on, with its nodes in any order that its edges allow."""
    with cuda_backend(FakeCuda(seed=seed)) as (backend, fake):
        test = SelfTest(backend)
        for _ in range(4):
            test.run()
        assert fake.graphs_launched == 3
        check_arithmetic(backend.gpu, kept())
        backend.start_profile(test._lowered)
        test.run()
        profile = backend.finish_profile()
        assert (fake.graphs_launched, profile.n_events) == (3, len(json.loads(profile.chrome_trace())["traceEvents"]))
        head, _, *rows = profile.lines()
        assert head.startswith("measured on Fake 4090: ")
        assert len(rows) == len({row.split("  ")[1] for row in rows}) > 9


@pytest.mark.slow
def test_a_model(small: Path) -> None:
    """Prompt, then token by token: the reference's logits."""
    tokens = random_tokens(1, LENGTH, 61)
    with engine_for(small, n_ctx=32, n_batch=LENGTH, kernels="reference") as engine:
        want = run_tokens(engine, engine.open_sequence(), tokens, LENGTH)
    with cuda_engine(small) as (engine, fake):
        slot = engine.open_sequence()
        got = np.concatenate([run_tokens(engine, slot, tokens[:5], 5), run_tokens(engine, slot, tokens[5:], 1, 5)])
        assert fake.graphs_launched >= 3
    assert_same(got.view(np.uint32), want.view(np.uint32), "cuda")


@pytest.mark.slow
def test_sampled_tokens(small: Path) -> None:
    """The device chooses the token that the host would."""
    how = SamplingParams(temperature=0.9, top_k=0, top_p=0.9, seed=10, repetition_penalty=1.3)
    chosen = []
    for context in (engine_for(small, n_ctx=32, n_batch=LENGTH, kernels="reference"), cuda_engine(small)):
        with context as entered:
            engine = entered[0] if isinstance(entered, tuple) else entered
            sampler, slot, tokens = Sampler(how, 61), engine.open_sequence(), [5]
            for at in range(5):
                step = engine.step(
                    [SequenceChunk(slot, at, [tokens[-1]], (0,))], [SamplingRequest(sampler, list(tokens))]
                )
                assert isinstance(step, DeviceSampled) == isinstance(entered, tuple)
                tokens.append(step.token().token_id)
            chosen.append(tokens)
    assert chosen[0] == chosen[1]
