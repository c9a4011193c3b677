"""Tokens that native code chooses on the CPU are those of `Sampler`, and so are their log-probabilities, to the bit."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zinc_rt.backends.cpu import sampling as cpu_sampling
from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.backends.cpu.program import CpuProgram, Runner, plain_step
from zinc_rt.backends.cpu.sampling import CpuSampling
from zinc_rt.kernels.cpu.sampling import CHOSEN, HOST
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import host_target
from zinc_rt.sampling.arithmetic import exp, total
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
@settings(max_examples=20, deadline=None)
def test_rows_of_any_parameters(native: Native, data: st.DataObject) -> None:
    n = data.draw(st.sampled_from([1, 2, 7, 33, 70]))
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


SHAPES = {
    "flat": lambda rng, n: rng.standard_normal(n),
    "peaked": lambda rng, n: rng.standard_normal(n) * 2.5 + 14 * (rng.random(n) < 3 / n),
    "ties": lambda rng, n: np.round(rng.standard_normal(n) * 2),
    "one value": lambda rng, n: np.full(n, 2.5),
    "far apart": lambda rng, n: rng.standard_normal(n) * np.where(rng.random(n) < 0.001, 1e30, 1),
    "with infinities": lambda rng, n: np.where(rng.random(n) < 0.4, -INF, np.where(rng.random(n) < 0.3, INF, 0)),
}
WHOLE = SamplingParams(top_k=0, top_p=1.0, min_p=0.0, temperature=1.0, seed=11)
PARAMETERS = [
    SamplingParams(seed=1),
    WHOLE,
    SamplingParams.with_overrides(WHOLE, top_p=0.95, logprobs=5),
    SamplingParams.with_overrides(WHOLE, top_p=0.4, temperature=0.6),
    SamplingParams.with_overrides(WHOLE, top_p=0.9, min_p=0.02, logprobs=20),
    SamplingParams.with_overrides(WHOLE, min_p=0.3),
    SamplingParams.with_overrides(WHOLE, top_k=1025, top_p=0.99),
    SamplingParams.with_overrides(WHOLE, top_k=9000, logprobs=1),
    SamplingParams.with_overrides(WHOLE, top_k=12_000, top_p=0.7, temperature=2.0),
    SamplingParams(temperature=0, logprobs=3, repetition_penalty=1.3, repeat_last_n=-1),
    SamplingParams.with_overrides(WHOLE, top_p=0.8, frequency_penalty=0.5, logit_bias={3: 5.0, 14_000: -INF}),
]


@pytest.mark.parametrize("shape", SHAPES)
def test_large_vocabularies(native: Native, shape: str) -> None:
    """Every threshold on the way to more tokens than are sorted; half of the rows have masks. The host gets none."""
    rng = np.random.default_rng(len(shape))
    n = 14_031
    logits = np.array([SHAPES[shape](rng, n) for _ in PARAMETERS], np.float32)
    asked: list[Asked] = []
    for i, params in enumerate(PARAMETERS):
        mask = rng.integers(0, 2**32, -(-n // 32), dtype=np.uint32) if i % 2 else None
        asked.append((params, rng.integers(0, n, 300).tolist(), mask))
    assert check(native, logits, asked) == [CHOSEN] * len(asked)


def test_many_rows_of_one_step(native: Native) -> None:
    rng = np.random.default_rng(4)
    logits = rng.standard_normal((64, 700)).astype(np.float32) * 3
    asked: list[Asked] = [(PARAMETERS[i % len(PARAMETERS)], [i], None) for i in range(64)]
    asked = [(SamplingParams.with_overrides(p, logit_bias={}, seed=i), h, m) for i, (p, h, m) in enumerate(asked)]
    assert check(native, logits, asked) == [CHOSEN] * 64


def test_rows_with_more_logits_than_tokens(native: Native) -> None:
    """What pads the embedding is never chosen, whatever it holds."""
    logits = np.full((2, 96), 50, np.float32)
    logits[:, :90] = np.random.default_rng(2).standard_normal((2, 90))
    mask = np.full(3, 2**32 - 1, np.uint32)
    asked: list[Asked] = [(SamplingParams(temperature=0), [], mask), (PARAMETERS[2], [], mask)]
    assert check(native, logits, asked, 90) == [CHOSEN, CHOSEN]


def test_what_the_kernel_leaves_to_the_host(native: Native) -> None:
    """The likeliest token alone, more log-probabilities than it keeps, a top-p whose bound is met to the last bit."""
    n = 10_000
    logits = np.zeros((4, n), np.float32)
    logits[:, 5000:] = -0.7
    weights = exp(logits[0].astype(np.float64))
    share = 5000 / total(weights.copy())
    while share * total(weights.copy()) <= 5000:
        share = math.nextafter(share, 1)
    asked: list[Asked] = [
        (SamplingParams(temperature=0), [], None),
        (SamplingParams(temperature=0, logprobs=21), [], None),
        (SamplingParams.with_overrides(WHOLE, top_p=share), [], None),
        (SamplingParams.with_overrides(WHOLE, top_p=share - 1e-6), [], None),
    ]
    assert check(native, logits, asked) == [HOST, HOST, HOST, CHOSEN]


def test_no_token_is_possible_in_some_rows(native: Native) -> None:
    logits = np.zeros((4, 40), np.float32)
    logits[2] = NAN
    none = np.zeros(2, np.uint32)
    sampled = SamplingParams(seed=3)
    asked: list[Asked] = [(sampled, [], None), (sampled, [], none), (sampled, [], None), (sampled, [], ~none)]
    step, samplers, _ = native.step(logits, asked, 40)
    with pytest.raises(DegenerateLogits, match="all 40 logits are NaN, -inf or masked"):
        step.tokens()
    assert [isinstance(outcome(step, row), str) for row in range(4)] == [False, True, True, False]
    assert [sampler.step for sampler in samplers] == [1, 0, 0, 1]
    assert samplers[2].n_nan == 40


@pytest.mark.parametrize("last", [3, -1])
def test_a_growing_text_is_followed(native: Native, last: int) -> None:
    """Also where it turns out to be another text."""
    params = SamplingParams(temperature=0, frequency_penalty=1.0, repeat_last_n=last)
    logits = np.linspace(0, 3, 30, dtype=np.float32).reshape(1, 30)
    sampling = CpuSampling(1, native.kernel, 30, logits, logits.argmax(axis=1).astype(np.int32))
    program = CpuProgram.build([], plain_step(), native.library, native.runner.threads)
    program.end_with(sampling.operation, native.library)
    sampler, oracle, history = Sampler(params, 30), Sampler(params, 30), [1, 2]
    for turn in range(12):
        if turn == 6:
            history[:] = [29, 28, 27, 28]
        if turn == 9:
            history = [29]
        requests = [SamplingRequest(sampler, history)]
        sampling.write(requests)
        program.prepare(n_rows=0, n_logits=0, splits=0, attention=0, sampled=1)
        native.runner.run(program)
        got = sampling.sampled(requests, logits, np.zeros(1, np.int32), lambda: None).token()
        assert got == oracle.sample(logits[0], history)
        history.append(got.token_id)
    native.runner.drain()


def test_ticks_as_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the cycle counter, by how far the system's clock went beside it."""
    now = iter([1_000_000_000, 3_000_000_000])
    monkeypatch.setattr(cpu_sampling, "time", SimpleNamespace(perf_counter_ns=lambda: next(now)))
    clock = cpu_sampling.TickClock()
    assert clock.seconds(500, 1000) == 0.0
    assert clock.seconds(4000, 5000) == 0.5
