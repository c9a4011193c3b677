"""Sampling on the emulated shader core: the tokens of `Sampler`, always."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.rdna.stage import Block, Stage, kernel_of
from zinc_rt.kernels.rdna.catalogue import KERNELS
from zinc_rt.kernels.rdna.sampling import SampleArgs
from zinc_rt.kernels.rdna.sampling_draw import CHOSEN, DEGENERATE, NO_TOKEN, UNFINISHED
from zinc_rt.kernels.rdna.sampling_plan import INPUTS, OUTPUTS, ROW, TOUCHED, Plan, Shape, plan
from zinc_rt.ring.door.batch import Batch
from zinc_rt.sampler import DegenerateLogits, Sampled, Sampler
from zinc_rt.sampling import SamplingParams
from zinc_rt.sampling_gpu import accept, exp_table, fill, shape_of
from zinc_rt.sampling_math import exp, first_above, largest, total, uniform

INF, NAN = math.inf, math.nan
PLAIN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)


def params(**overrides: Any) -> SamplingParams:
    return SamplingParams.with_overrides(PLAIN, **overrides)


class OnGpu:
    """A plan on a ring, recorded once."""

    def __init__(self, gpu: Stage, made: Plan) -> None:
        self.plan, self.ring = made, gpu.ring
        self.memory = {name: self.ring.alloc(t.itemsize * n) for name, (t, n) in made.memory.items()}
        self.ring.write(self.memory["table"], exp_table())
        self.ring.write(self.memory["args"], made.arguments({name: m.va for name, m in self.memory.items()}))
        self.batch = Batch("sample")
        programs = {step.kernel: self.ring.load_kernel(kernel_of(KERNELS[step.kernel])) for step in made.steps}
        made.record(self.batch, programs, self.memory)

    def read(self, name: str) -> np.ndarray:
        kind, n = self.plan.memory[name]
        return np.frombuffer(self.ring.read(self.memory[name], kind.itemsize * n), kind)

    def step(self, logits: np.ndarray, samplers: list[Sampler], histories: list[list[int]]) -> list[tuple[int, int]]:
        """Token and status of each row."""
        rows = np.zeros(self.plan.rows, ROW)
        touched = np.zeros((self.plan.rows, max(self.plan.shape.touched, 1)), TOUCHED)
        for row, (sampler, history) in enumerate(zip(samplers, histories, strict=True)):
            fill(self.plan.shape, rows, touched, row, sampler, history)
        for name, value in zip(INPUTS, (logits, rows, touched), strict=False):
            self.ring.write(self.memory[name], value)
        for name in OUTPUTS:
            self.ring.write(self.memory[name], np.full(self.plan.rows, 77, np.int32))
        self.ring.wait(self.ring.submit(self.batch), 30.0)
        return list(zip(*(self.read(name).tolist() for name in OUTPUTS), strict=True))


def adversarial(rng: np.random.Generator, n: int) -> list[np.ndarray]:
    """Rows of logits: ties, NaN, infinities, the zeros, subnormals, numbers that only float64 tells apart."""
    ordinary = (rng.standard_normal(n) * 3).astype(np.float32)
    wild = np.float32([0, -0.0, 1, 1, -1, NAN, -INF, 3.4e38, -3.4e38, 1e-40, -1e-45, 5.5, 5.5])
    forced = ordinary.copy()
    forced[rng.integers(0, n, 3)] = INF
    sparse = np.where(rng.random(n) < 0.97, NAN, ordinary).astype(np.float32)
    sparse[n // 2] = 0
    return [
        ordinary,
        np.round(ordinary),
        rng.choice(wild, n).astype(np.float32),
        rng.choice(np.float32([0, -0.0, 1e-45, 1e-40, -1e-38]), n).astype(np.float32),
        forced,
        sparse,
        np.full(n, 2.5, np.float32),
        (ordinary * 300).astype(np.float32),
        np.full(n, NAN, np.float32),
        np.full(n, -INF, np.float32),
    ]


def compare(gpu: Stage, rows: list[np.ndarray], settings: list[SamplingParams], histories: list[list[int]]) -> None:
    """Each row of logits with each parameters: `Sampler`'s token, several tokens of each text."""
    n = len(rows[0])
    pairs = [(row, p, h) for row in rows for p, h in zip(settings, histories, strict=True)]
    shape = Shape()
    for p in settings:
        needs = shape_of(p, n, 64)
        assert needs is not None
        shape |= needs
    runner = OnGpu(gpu, plan(n, len(pairs), shape))
    ours, theirs = ([Sampler(p, n) for _, p, _ in pairs] for _ in range(2))
    logits = np.stack([row for row, _, _ in pairs])
    unfinished = 0
    for _ in range(2):
        results = runner.step(logits, ours, [h for *_, h in pairs])
        for (row, p, h), (token, status), mine, other in zip(pairs, results, ours, theirs, strict=True):
            unfinished += status == UNFINISHED
            try:
                want = other.sample(row, h)
            except DegenerateLogits:
                assert (token, status) == (NO_TOKEN, DEGENERATE)
                continue
            if status == CHOSEN:
                assert want == Sampled(token), (p, token)
            assert accept(mine, token, status, lambda row=row: row, h) == want, p
            assert mine.step == other.step
    assert unfinished <= sum(p.top_k == 0 and p.top_p < 1 for p in settings) * 2 * len(rows)


@pytest.mark.parametrize("n", [1, 2, 37, 300, 1024])
def test_small_vocabularies(gpu: Stage, rng: np.random.Generator, n: int) -> None:
    settings = [
        params(temperature=0.0),
        params(),
        params(top_k=7, top_p=0.9, min_p=0.05, temperature=0.8),
        params(top_p=0.5, temperature=5e-324),
        params(top_p=0.0, temperature=1e308),
        params(min_p=1.0, temperature=2.0, seed=2**64 - 1),
        params(top_k=40, top_p=0.999999, temperature=30.0, seed=5),
        params(top_k=33, min_p=0.3),
    ]
    compare(gpu, adversarial(rng, n), settings, [[]] * len(settings))
