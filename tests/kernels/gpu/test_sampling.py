"""Sampling on the emulated shader core: the tokens of `Sampler`, always."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.compiled import gpu_kernel
from tests.kernels.gpu.sampling_kernels import parts, uniforms
from tests.kernels.gpu.stage import Block, Stage, kernel_of, stage
from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.backends.amdgpu.resident import ResidentPrograms
from zinc_rt.backends.gpu.work import StepDispatch
from zinc_rt.kernels.amd.catalogue import KERNELS
from zinc_rt.kernels.gpu.sampling import GpuSampleArgs
from zinc_rt.kernels.gpu.sampling_draw import CHOSEN, DEGENERATE, NO_TOKEN, UNFINISHED
from zinc_rt.kernels.gpu.sampling_plan import (
    INPUTS,
    OUTPUTS,
    ROW,
    TOUCHED,
    SamplingPlan,
    SamplingShape,
    plan,
    resident_plan,
)
from zinc_rt.kernels.sampling_math import KEY_OF_NOTHING
from zinc_rt.lang import Spec
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.kernel import Function
from zinc_rt.sampling.arithmetic import exp, first_above, largest, total, uniform
from zinc_rt.sampling.gpu import accept, exp_table, fill, shape_of
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.sampler import DegenerateLogits, Sampled, Sampler

INF, NAN = math.inf, math.nan
PLAIN = SamplingParams(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, seed=0)


def params(**overrides: Any) -> SamplingParams:
    return SamplingParams.with_overrides(PLAIN, **overrides)


class OnGpu:
    """A plan on a ring, recorded once."""

    def __init__(self, gpu: Stage, made: SamplingPlan) -> None:
        self.plan, self.ring = made, gpu.ring
        self.memory = {name: self.ring.alloc(t.itemsize * n) for name, (t, n) in made.memory.items()}
        self.ring.write(self.memory["table"], exp_table())
        self.ring.write(self.memory["args"], made.arguments({name: m.va for name, m in self.memory.items()}))
        self.batch = CommandList("sample")
        programs = {
            step.kernel: self.ring.load_kernel(kernel_of(KERNELS[step.kernel], self.ring.gfx.kernel_target))
            for step in made.steps
        }
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


class InProgram(OnGpu):
    """The same as one resident program."""

    def __init__(self, gpu: Stage, made: SamplingPlan) -> None:
        super().__init__(gpu, made)
        phases = []
        for step in made.steps:
            spec = KERNELS[step.kernel].spec
            program = self.ring.load_kernel(kernel_of(KERNELS[step.kernel], self.ring.gfx.kernel_target))
            arguments = tuple(self.memory[a].va if isinstance(a, str) else a for a in step.arguments)
            phases.append([StepDispatch(spec, program, step.groups, arguments, 1)])
        self.batch = CommandList("sample in a program")
        programs = ResidentPrograms(self.ring, CompileCache(default_cache_dir()), None, "always")
        assert programs.record(self.batch, phases, []) is not None


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


def compare(
    gpu: Stage,
    rows: list[np.ndarray],
    settings: list[SamplingParams],
    histories: list[list[int]],
    tokens: int = 2,
    within: bool = False,
) -> None:
    """Each row of logits with each parameters: `Sampler`'s first tokens of each text."""
    n = len(rows[0])
    pairs = [(row, p, h) for row in rows for p, h in zip(settings, histories, strict=True)]
    shape = SamplingShape()
    for p in settings:
        needs = shape_of(p, n, 64)
        assert needs is not None
        shape |= needs
    inside = resident_plan(n, len(pairs), shape)
    assert inside is not None or not within
    runner = InProgram(gpu, inside) if within and inside is not None else OnGpu(gpu, plan(n, len(pairs), shape))
    ours, theirs = ([Sampler(p, n) for _, p, _ in pairs] for _ in range(2))
    logits = np.stack([row for row, _, _ in pairs])
    unfinished = 0
    for _ in range(tokens):
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
    assert unfinished <= sum(p.top_k == 0 and p.top_p < 1 for p in settings) * tokens * len(rows)


@pytest.mark.parametrize("n", [1, 2, 37, *(pytest.param(n, marks=pytest.mark.slow) for n in (300, 1024))])
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
    rows = adversarial(rng, n)[:: {37: 2, 300: 1}.get(n, 4)]
    compare(gpu, rows, settings, [[]] * len(settings), 2 if n == 37 else 1)


@pytest.mark.slow
def test_in_a_resident_program(gpu: Stage, rng: np.random.Generator) -> None:
    """Three rounds of sorting, of smaller blocks; every kernel but those of whole vocabularies."""
    settings = [
        params(temperature=0.0, logit_bias={7: 1.5}),
        params(top_k=150, top_p=0.9, min_p=0.01, temperature=0.8, repetition_penalty=1.2, repeat_last_n=-1),
        params(top_k=3, seed=4),
    ]
    compare(gpu, adversarial(rng, 4500)[:4:2], settings, [[7, 9, 7], [1, 2, 1], []], within=True)


def test_what_no_resident_program_samples() -> None:
    assert resident_plan(5000, 1, SamplingShape(512)) is None
    assert resident_plan(5000, 1, SamplingShape(1, whole=True)) is None


@pytest.mark.slow  # `test_matvec.py` runs a kernel through every interface
@pytest.mark.parametrize("interface", ["kfd", "umq"])
def test_other_interfaces(rng: np.random.Generator, interface: str) -> None:
    settings = [params(top_k=5, top_p=0.9, presence_penalty=0.5), params(temperature=0.7), params(top_p=0.4)]
    with stage(interface) as gpu:
        compare(gpu, adversarial(rng, 1100)[:2], settings, [[1, 2, 1]] * 3)


PENALTIES = [
    params(temperature=0.0, repetition_penalty=1.3, logit_bias={0: INF, 1: -INF}, repeat_last_n=-1),
    params(repetition_penalty=0.5, presence_penalty=0.7, frequency_penalty=-0.3, repeat_last_n=5),
    params(repetition_penalty=5e-324, logit_bias={0: -INF, 2: 1e-17, 5: 3.25}, min_p=0.01),
    params(frequency_penalty=1e308, presence_penalty=1e308, logit_bias={4: INF, 1: 1e308}, top_k=9),
    params(frequency_penalty=-1e-16, logit_bias={9: -0.0}, top_p=0.9),
    params(logit_bias={3: 4.5, 7: -INF}),
    params(logit_bias=dict.fromkeys(range(37), -INF), presence_penalty=1.0),
]


@pytest.mark.parametrize("n", [37, pytest.param(300, marks=pytest.mark.slow)])
def test_bias_and_penalties(gpu: Stage, rng: np.random.Generator, n: int) -> None:
    histories = [rng.integers(0, 12, size).tolist() for size in (20, 20, 7, 3, 40, 9, 1)]
    compare(gpu, adversarial(rng, n)[:: 1 if n == 300 else 2], PENALTIES, histories, 1)


def test_scores_to_the_bit(gpu: Stage, rng: np.random.Generator) -> None:
    """What bias and penalties leave, as `Sampler` has it."""
    n, history = 1500, [5, *rng.integers(0, 90, 64).tolist(), 5]
    rows = adversarial(rng, n)[:8]
    p = params(repetition_penalty=1.1, presence_penalty=0.3, frequency_penalty=0.7, logit_bias={5: 0.1, 1499: -INF})
    shape = shape_of(p, n, 64)
    assert shape is not None
    runner = OnGpu(gpu, plan(n, len(rows), shape))
    samplers = [Sampler(p, n) for _ in rows]
    runner.step(np.stack(rows), samplers, [history] * len(rows))
    for row, got in zip(rows, runner.read("scores").reshape(len(rows), n), strict=True):
        want = np.where(np.isnan(row), -INF, row.astype(np.float64))
        samplers[0]._adjust(want, history)
        assert got.tobytes() == want.tobytes()


WHOLE = [
    params(),
    params(temperature=0.3, min_p=0.02, seed=9),
    params(temperature=1e3, seed=3),
    params(top_p=0.9, min_p=0.05),
    params(top_p=0.3, temperature=5.0),
    params(top_p=0.99999, seed=8),
    params(top_k=1000, top_p=0.999),
    params(top_k=5, frequency_penalty=0.1),
    params(temperature=0.0),
    params(top_p=0.95, min_p=1e-300),
]


@pytest.mark.parametrize(
    "n", [1025, pytest.param(3000, marks=pytest.mark.slow), pytest.param(5121, marks=pytest.mark.slow)]
)
def test_whole_vocabularies(gpu: Stage, rng: np.random.Generator, n: int) -> None:
    """Blocks that are full and not; candidates that suffice and do not; rows of one batch that want all of it."""
    rows = adversarial(rng, n)
    rows, settings = (rows[:5], WHOLE) if n > 1025 else (rows[:1], WHOLE[::2])
    compare(gpu, rows, settings, [[3, 3, 4]] * len(settings), 1)


@pytest.mark.slow
@pytest.mark.parametrize("n", [1, 3, 700, 1023, 1025, 2048, 4097, 9000])
def test_any_parameters(gpu: Stage, rng: np.random.Generator, n: int) -> None:
    settings, histories = [], []
    for _ in range(24):
        settings.append(
            SamplingParams(
                temperature=float(rng.choice([0.0, 1e-9, 0.3, 0.8, 1.0, 1.7, 50.0])),
                top_k=int(rng.choice([0, 0, 1, 2, 40, 64, 65, 1000, 1024])),
                top_p=float(rng.choice([0.0, 0.2, 0.9, 0.95, 0.9999, 1.0, 1.0])),
                min_p=float(rng.choice([0.0, 0.0, 1e-12, 0.05, 0.3, 1.0])),
                repetition_penalty=float(rng.choice([1.0, 1.0, 1.1, 0.7])),
                presence_penalty=float(rng.choice([0.0, 0.4, -0.3])),
                frequency_penalty=float(rng.choice([0.0, 0.0, 1e-3])),
                repeat_last_n=int(rng.choice([-1, 0, 5, 64])),
                logit_bias={int(t): float(rng.normal()) for t in rng.integers(0, n, rng.integers(0, 4))},
                seed=int(rng.integers(0, 2**63)),
            )
        )
        histories.append(rng.integers(0, n, rng.integers(0, 64)).tolist())
    compare(gpu, adversarial(rng, n)[:8], settings, histories, 1)


def test_draws_over_whole_vocabularies_without_candidates(gpu: Stage, rng: np.random.Generator) -> None:
    """One candidate is enough: the best. Its sums decide among all tokens, so every token of many draws is compared."""
    n = 2500
    rows = [np.zeros(n, np.float32), adversarial(rng, n)[0]]
    settings = [params(seed=seed, temperature=t) for seed in range(4) for t in (0.7, 3.0)]
    assert shape_of(settings[0], n, 64) == SamplingShape(1, True)
    compare(gpu, rows, settings, [[]] * len(settings), 1)


def test_blocks_show_where_rounding_does(gpu: Stage) -> None:
    """A draw on the edge: added to what is before them one by one, the thousand weights of the second block would
    vanish; added to each other first they do not, and move the edge past the first token.
    """
    n, seed = 2030, next(seed for seed in range(9) if 0.1 < uniform(seed, 0) < 0.45)
    u = uniform(seed, 0)
    logits = np.full(n, -INF, np.float32)
    logits[:2], logits[1024:2024] = 0.0, -37.43
    edge = {0: math.log(u * (1 + 2.5e-14) / (1 - u))}
    w = exp(np.append(np.float64([edge[0], 0.0]), logits[1024:2024].astype(np.float64)))
    assert w[2] < 2**-53
    assert w[0] > u * float(np.add.accumulate(w)[-1]), "from left to right it is the first token"
    for p in (params(logit_bias=edge, seed=seed), params(logit_bias=edge, seed=seed, top_p=1 - 2**-53, min_p=1e-20)):
        assert Sampler(p, n).sample(logits, []).token_id == 1
        shape = shape_of(p, n, 0)
        assert shape is not None
        assert shape.whole
        assert OnGpu(gpu, plan(n, 1, shape)).step(logits, [Sampler(p, n)], [[]]) == [(1, CHOSEN)]


def test_a_sum_must_be_above_the_target(gpu: Stage) -> None:
    """A draw where the first token's sum is the target itself: the second one's turn."""
    seed, at = 0, 0.0
    while not at:
        seed += 1
        u = uniform(seed, 0)
        around = math.log(u / (1 - u)) if 0.1 < u < 0.45 else 0.0
        tries = around + np.arange(-200, 200) * 2.0**-53
        w = exp(np.minimum(tries, 0.0))
        found = tries[(w < 1) & (u * (w + 1.0) == w)]
        at = float(found[0]) if len(found) else 0.0
    p, logits = params(logit_bias={0: at}, seed=seed), np.zeros(2, np.float32)
    assert Sampler(p, 2).sample(logits, []).token_id == 1
    assert OnGpu(gpu, plan(2, 1, SamplingShape(2, touched=1))).step(logits, [Sampler(p, 2)], [[]]) == [(1, CHOSEN)]


@pytest.mark.parametrize(
    ("rows", "p", "want"),
    [
        pytest.param("peaked", params(top_p=0.9), CHOSEN, marks=pytest.mark.slow),
        pytest.param("flat", params(top_p=0.5), CHOSEN, marks=pytest.mark.slow),  # 1000 of 2000
        ("flat", params(top_p=0.513), UNFINISHED),  # 1026
        pytest.param("steps", params(top_p=0.99, min_p=0.5), CHOSEN, marks=pytest.mark.slow),  # 693 are above 0.5
        ("steps", params(top_p=0.99, min_p=0.36), CHOSEN),  # 1022
        ("steps", params(top_p=0.99, min_p=0.3594), UNFINISHED),  # all 1024, and perhaps more
    ],
)
def test_what_the_candidates_prove(
    gpu: Stage, rng: np.random.Generator, rows: str, p: SamplingParams, want: int
) -> None:
    """Top-p over a whole vocabulary: enough weight in 1024 tokens, or min-p ends before; else the host finishes."""
    n = 2000
    logits = np.zeros(n, np.float32)
    if rows == "peaked":
        logits[rng.permutation(n)[:30]] = 20
    elif rows == "steps":
        logits = np.float32(-0.001 * rng.permutation(n))
    shape = shape_of(p, n, 0)
    assert shape == SamplingShape(1024, True)
    mine, other = Sampler(p, n), Sampler(p, n)
    ((token, status),) = OnGpu(gpu, plan(n, 1, shape)).step(logits, [mine], [[]])
    assert status == want
    assert accept(mine, token, status, lambda: logits, []) == other.sample(logits, [])


def test_rows_that_are_beyond_the_plan_say_so(gpu: Stage) -> None:
    """A top-k above the candidates that is not everything, written by hand."""
    n = 1500
    runner = OnGpu(gpu, plan(n, 1, SamplingShape(64)))
    sampler = Sampler(params(top_k=50), n)
    rows, touched = np.zeros(1, ROW), np.zeros((1, 1), TOUCHED)
    fill(SamplingShape(64), rows, touched, 0, sampler, [])
    rows["top_k"] = 65
    for name, value in zip(INPUTS, (np.zeros(n, np.float32), rows, touched), strict=False):
        runner.ring.write(runner.memory[name], value)
    runner.ring.wait(runner.ring.submit(runner.batch), 30.0)
    assert runner.read("status").tolist() == [UNFINISHED]
    assert runner.read("tokens").tolist() == [NO_TOKEN]


def totals_of(gpu: Stage, scores: np.ndarray, p: SamplingParams) -> np.ndarray:
    """The kernel alone, on scores up to 0, one of which is 0."""
    n = len(scores)
    blocks = -(-n // 1024)
    rows = np.zeros(1, ROW)
    rows["temperature"], rows["top_p"], rows["min_p"], rows["top_k"] = p.temperature, p.top_p, p.min_p, n
    totals, best = np.full(blocks + 1, 7.0), np.array([1 << 63], np.uint64)
    values = {
        "rows": rows,
        "scores": scores,
        "keys": best,
        "totals": totals,
        "table": exp_table(),
        "n": n,
        "k": 1,
        "n_blocks": blocks,
    }
    gpu.run(KERNELS["sample_totals"], (blocks, 1), Block(GpuSampleArgs, values))
    assert totals[-1] == 7.0
    return totals[:-1]


def test_totals_of_blocks(gpu: Stage, rng: np.random.Generator) -> None:
    scores = -np.abs(rng.standard_normal(2500)) * 9
    scores[7] = 0.0
    for p in (params(top_p=0.5), params(temperature=0.37, min_p=0.01), params(temperature=2.5)):
        w = exp(scores)
        if p.top_p == 1.0:
            w = np.where(w >= p.min_p, exp(scores / p.temperature), 0.0)
        want = []
        for start in range(0, 2500, 1024):
            run = 0.0
            for x in w[start : start + 1024].tolist():
                run += x
            want.append(run)
        assert totals_of(gpu, scores, p).tolist() == want


def run_parts(gpu: Stage, function: Function, *arrays: np.ndarray) -> list[np.ndarray]:
    """A kernel of `sampling_kernels` over arrays of one length, a multiple of 256."""
    memory = [gpu.ring.alloc(a.nbytes) for a in arrays]
    for m, a in zip(memory, arrays, strict=True):
        gpu.ring.write(m, a)
    program = gpu.ring.load_kernel(gpu_kernel(Spec(function), gpu.ring.gfx.kernel_target))
    gpu.ring.wait(gpu.ring.submit(CommandList("parts").dispatch(program, len(arrays[0]) // 256, *memory)), 30.0)
    return [np.frombuffer(gpu.ring.read(m, a.nbytes), a.dtype) for m, a in zip(memory, arrays, strict=True)]


def test_exp_and_order_have_the_hosts_bits(gpu: Stage, rng: np.random.Generator) -> None:
    """From the least subnormal to beyond the end, and where the steps of the table meet."""
    n = 40 * 256
    x = np.concatenate(
        [
            [-0.0, 0.0, -708.0, np.nextafter(-708.0, -709), np.nextafter(-708.0, 0), -INF, -5e-324, -1e300, -1.7e308],
            -np.arange(1, 3000) * math.log(2) / 256,
            -np.abs(rng.standard_normal(n)) * 10.0 ** rng.integers(-320, 3, n),
            -rng.random(n) * 709,
        ]
    )[:n]
    _, powers, _, _, _ = run_parts(
        gpu, parts, x, *(np.zeros(n, kind) for kind in (float, np.uint64, float)), exp_table()
    )
    assert powers.tobytes() == exp(x).tobytes()
    x[n // 2 :] *= -1
    _, _, keys, back, _ = run_parts(
        gpu, parts, x, *(np.zeros(n, kind) for kind in (float, np.uint64, float)), exp_table()
    )
    assert np.array_equal(back, x)
    order = np.argsort(x, kind="stable")
    rises = x[order][1:] > x[order][:-1]
    assert np.array_equal(keys[order][1:] > keys[order][:-1], rises)
    assert np.array_equal(keys[order][1:] == keys[order][:-1], ~rises)
    assert keys[x == -INF].tolist() == [KEY_OF_NOTHING]


def test_random_numbers(gpu: Stage, rng: np.random.Generator) -> None:
    seeds, steps = (rng.integers(0, 2**64, 512, dtype=np.uint64) for _ in range(2))
    seeds[:3], steps[:4] = [0, 2**64 - 1, 2**32], [0, 2**64 - 1, 2**32, 2**32 - 1]
    *_, u = run_parts(gpu, uniforms, seeds, steps, np.zeros(512))
    assert u.tolist() == [uniform(*pair) for pair in zip(seeds.tolist(), steps.tolist(), strict=True)]


def test_rounds_of_many_blocks() -> None:
    made = plan(16_500, 1, SamplingShape(1024))
    assert [s.kernel for s in made.steps] == ["sample_scores", "sample_top_scores", *["sample_top"] * 2, "sample_draw"]


@pytest.mark.slow  # whole vocabularies have two rounds by default
def test_sorting_many_blocks(gpu: Stage, rng: np.random.Generator) -> None:
    """Three rounds; the best of all is anywhere, and ties go to the lowest token."""
    n, k = 16_500, 1024
    scores = np.round(rng.standard_normal((1, n)), 2)
    made = plan(n, 1, SamplingShape(k))
    arrays = {name: np.zeros(count, kind) for name, (kind, count) in made.memory.items()}
    arrays["scores"][:] = scores.reshape(-1)
    for step in made.steps[1:-1]:
        gpu.run(
            KERNELS[step.kernel], step.groups[:2], *(arrays[a] if isinstance(a, str) else a for a in step.arguments)
        )
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    assert np.array_equal(arrays[f"ids{made.rounds - 1}"].reshape(1, k), best)


# ---- the definition, and what the host checks


def test_sums_in_blocks_against_loops(rng: np.random.Generator) -> None:
    """`first_above` and `total` as docs/how/sampling.md writes them."""
    for n in (1, 1023, 1024, 1025, 5000):
        w = rng.random(n) * 10.0 ** rng.integers(-12, 3, n)
        kept = np.sort(rng.choice(n, max(1, n // 50), replace=False))
        for places in (None, kept, np.arange(n)):
            full = w if places is None else np.zeros(n)
            if places is not None:
                full[places] = w[places]
            sums, base = [], 0.0
            for start in range(0, n, 1024):
                run = 0.0
                for x in full[start : start + 1024].tolist():
                    run += x
                    sums.append(base + run)
                base += run
            if places is None:
                assert total(w.copy()) == sums[-1]
            for share in (0.0, 0.25, uniform(1, n), 1 - 2**-53):
                want = next(i for i, s in enumerate(sums) if s > share * sums[-1])
                values = w.copy() if places is None else w[places]
                got = first_above(values, share, places)
                assert (got if places is None else places[got]) == want


def test_top_p_ranks_by_score_where_weights_are_equal() -> None:
    """Scores that differ by less than the weights show: the highest stays, not the first."""
    logits = np.float32([0.0, 1e-30, 2e-30, -1e-30])
    assert len(set(exp(logits.astype(np.float64) - 2e-30).tolist())) == 1
    sampler = Sampler(params(top_p=0.25), 4)
    assert {sampler.sample(logits, []).token_id for _ in range(20)} == {2}
    assert largest(logits.astype(np.float64), 1).tolist() == [2]


def test_shapes() -> None:
    n = 5000
    assert shape_of(SamplingParams(), n, 100) == SamplingShape(64)
    assert shape_of(params(top_k=1024), n, 100) == SamplingShape(1024)
    assert shape_of(params(top_k=1025), n, 100) is None
    assert shape_of(params(top_k=n), n, 100) == SamplingShape(1, True)
    assert shape_of(params(top_p=0.9), n, 100) == SamplingShape(1024, True)
    assert shape_of(params(), 600, 100) == SamplingShape(1024)
    assert shape_of(params(logprobs=0), n, 100) is None
    assert shape_of(params(), 2**20 + 1, 100) is None
    greedy = params(temperature=0.0, logit_bias={1: 1.0}, presence_penalty=1.0)
    assert shape_of(greedy, n, 100) == SamplingShape(1, False, 65)
    assert shape_of(params(presence_penalty=1.0, repeat_last_n=-1), n, 100) == SamplingShape(1, True, 100)
    assert SamplingShape(64, False, 3) | SamplingShape(1, True, 9) == SamplingShape(64, True, 9)


def test_what_a_plan_refuses() -> None:
    for n, rows, shape in [
        (0, 1, SamplingShape()),
        (2**20 + 1, 1, SamplingShape()),
        (5, 0, SamplingShape()),
        (5, 1, SamplingShape(3)),
        (5, 1, SamplingShape(2048)),
        (5, 1, SamplingShape(touched=-1)),
    ]:
        with pytest.raises(ValueError, match=r"they must|the kernels take|rows are"):
            plan(n, rows, shape)
    rows, touched = np.zeros(1, ROW), np.zeros((1, 1), TOUCHED)
    for p in (params(top_k=65), params(logprobs=1), params(top_k=3, logit_bias={1: 1.0, 2: 1.0})):
        with pytest.raises(ValueError, match="this one is of"):
            fill(SamplingShape(64, False, 1), rows, touched, 0, Sampler(p, 5000), [])
    assert plan(5000, 3, SamplingShape(64)).scratch_bytes > 3 * 5000 * 8


def test_the_pages_example_prints_what_it_shows(capsys: pytest.CaptureFixture[str]) -> None:
    page = (Path(__file__).parents[3] / "docs" / "how" / "sampling.md").read_text(encoding="utf-8")
    ((code, said),) = re.findall(r"^```python\n(.*?)^```\n```text\n(.*?)^```$", page, re.M | re.S)
    exec(compile(code, "docs/how/sampling.md", "exec"), {})
    assert capsys.readouterr().out == said
