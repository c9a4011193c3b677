"""Tokens that native code chooses on the CPU are those of `Sampler`, and so are their log-probabilities, to the bit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.backends.cpu.program import CpuProgram, Runner, plain_step
from zinc_rt.backends.cpu.sampling import CpuSampling
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import host_target
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import HostSampled, SamplingRequest
from zinc_rt.sampling.sampler import DegenerateLogits, Sampler

INF, NAN = math.inf, math.nan
Logits = npt.NDArray[np.float32]
Asked = tuple[SamplingParams, list[int], npt.NDArray[np.uint32] | None]


class Native:
    """A library and threads."""

    def __init__(self, threads: int, isa: str | None = None) -> None:
        self.library = Library(host_target(isa), CompileCache(default_cache_dir()))
        self.runner = Runner(self.library, threads)
        self.kernel = TargetTuning.of(self.library.target).sample()

    def step(self, logits: Logits, asked: list[Asked], n_vocab: int) -> tuple[HostSampled, list[Sampler], list[int]]:
        """Sample rows: the step, its samplers, and the status of each row."""
        likeliest = np.where(np.isnan(logits), -INF, logits).argmax(axis=1).astype(np.int32)
        sampling = CpuSampling(self.runner.threads, self.kernel, n_vocab, logits, likeliest)
        program = CpuProgram.build([], plain_step(), self.library, self.runner.threads)
        program.end_with(sampling.operation, self.library)
        requests = [SamplingRequest(Sampler(p, n_vocab), history, mask) for p, history, mask in asked]
        sampling.write(requests)
        program.prepare(n_rows=0, n_logits=0, splits=0, attention=0, sampled=len(asked))
        self.runner.run(program)
        self.runner.drain()
        status = sampling._status[: len(asked)].tolist()
        return sampling.sampled(requests, logits, likeliest, lambda: None), [r.sampler for r in requests], status


@pytest.fixture(scope="module")
def native() -> Iterator[Native]:
    made = Native(2)
    yield made
    made.runner.close()


def outcome(step: Any, row: int) -> object:
    """A row's token, or that it has none."""
    try:
        return step.token(row)
    except DegenerateLogits as error:
        return str(error)


def check(native: Native, logits: Logits, asked: list[Asked], n_vocab: int | None = None) -> list[int]:
    """Compare with `Sampler`, row by row; the status of each."""
    n = n_vocab or logits.shape[1]
    step, samplers, status = native.step(logits, asked, n)
    for row, (params, history, mask) in enumerate(asked):
        oracle = Sampler(params, n)
        try:
            want: object = oracle.sample(logits[row, :n], history, mask=mask)
        except DegenerateLogits as error:
            want = str(error)
        assert outcome(step, row) == want, (row, params, status[row])
        assert samplers[row].step == oracle.step
        if not (oracle.plain and mask is None):
            assert samplers[row].n_nan == oracle.n_nan
    return status


few = st.sampled_from([-INF, -20.0, -2.0, -1.0, -0.0, 0.0, 0.5, 0.5000001, 3.0, 3.0000002, 30.0, INF, NAN])
usual = st.floats(-30, 30, width=32)
wild = st.floats(width=32)


@st.composite
def parameters(draw: st.DrawFn, n: int) -> SamplingParams:
    return SamplingParams(
        temperature=draw(st.sampled_from([0.0, 1.0, 0.7, 0.01, 3.0, 1e-300, 1e300]) | st.floats(0, 5)),
        top_k=draw(st.sampled_from([0, 1, 2, 40, n - 1, n, n + 1]) | st.integers(0, n)),
        top_p=draw(st.sampled_from([1.0, 0.0, 0.5, 0.95, 0.999999, 1 - 2**-53]) | st.floats(0, 1)),
        min_p=draw(st.sampled_from([0.0, 0.05, 1.0, 1e-300, math.exp(-1)]) | st.floats(0, 1)),
        repetition_penalty=draw(st.sampled_from([1.0, 1.1, 0.5, 1e300])),
        presence_penalty=draw(st.sampled_from([0.0, 0.5, -1.0, 1e308])),
        frequency_penalty=draw(st.sampled_from([0.0, 0.25, -1e308])),
        repeat_last_n=draw(st.sampled_from([0, 1, 3, 64, -1])),
        logit_bias=draw(
            st.just({}) | st.dictionaries(st.integers(0, n - 1), st.sampled_from([-INF, INF, 1.5, -2.0]), max_size=4)
        ),
        seed=draw(st.integers(0, 2**64 - 1)),
        logprobs=draw(st.sampled_from([None, None, 0, 1, 5, 20])),
    )


@given(st.data())
@settings(max_examples=400, deadline=None)
def test_rows_of_any_parameters(native: Native, data: st.DataObject) -> None:
    n = data.draw(st.sampled_from([1, 2, 7, 31, 33, 70, 130]))
    kind = data.draw(st.sampled_from([few, usual, wild]))
    rows = data.draw(st.integers(1, 5))
    logits = np.array([data.draw(st.lists(kind, min_size=n, max_size=n)) for _ in range(rows)], np.float32)
    asked: list[Asked] = []
    for _ in range(rows):
        words = st.lists(st.integers(0, 2**32 - 1), min_size=-(-n // 32), max_size=-(-n // 32))
        mask = data.draw(st.none() | words.map(lambda given: np.array(given, np.uint32)))
        history = data.draw(st.lists(st.integers(0, n - 1), max_size=9))
        asked.append((data.draw(parameters(n)), history, mask))
    check(native, logits, asked)
