"""One answer on all machines: the CPU, an emulated AMD card, an OpenCL and a CUDA driver give the reference's bits, and
so one another's.

Slow tests: OpenCL's CPU driver builds the kernels of a model for half a minute, and keeps them. By default the
self-test's small model runs there, in `test_card.py`, and through CUDA, in `tests/cuda/test_self_test.py`.
`pytest --gpu` runs all on a card.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zinc_rt
from tests import hardware
from tests.backends.drivers.machines import MACHINES
from tests.helpers import QWEN3, T, engine_for, random_tokens, run_tokens, write_model
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, write_case
from tests.models.families.embedders import EMBEDDERS
from zinc_rt.engine.engine import Engine, SequenceChunk, parse_device
from zinc_rt.gguf import GGMLType
from zinc_rt.models.cache_format import CacheFormat
from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler

KINDS = {
    "dense": "qwen3",
    "experts": "qwen3moe",
    "delta net": "qwen35",
    "gemma": "gemma3",
    "gpt-oss": "gpt-oss",
    "latent attention": "deepseek2-lite",
}
SIZES = {"n_ctx": 64, "n_slots": 2}
PROMPT, OTHER = [3, 17, 5], [9, 8]
ROWS = len(PROMPT)
WAYS = (SamplingParams(temperature=0.0), SamplingParams(temperature=0.9, top_k=0, top_p=0.9, repetition_penalty=1.3))
LATER = () if hardware.state["device"] else pytest.mark.slow
on_all = pytest.mark.parametrize("machine", [pytest.param(m, marks=LATER) for m in MACHINES])


def on(device: str) -> dict[str, Any]:
    """Options of an engine."""
    choice = parse_device(device)
    return {"device": choice.device, "card": choice.card}


def answers(engine: Engine) -> tuple[np.ndarray, list[list[int]]]:
    """Bits of the logits of steps with 3, 2 and 1 rows, u32[6, N_VOCAB], and tokens chosen in each way of `WAYS`."""
    slot, other = engine.open_sequence(), engine.open_sequence()
    steps = (
        [SequenceChunk(slot, 0, PROMPT, range(ROWS))],
        [SequenceChunk(slot, ROWS, [40], (0,)), SequenceChunk(other, 0, OTHER[:1], (0,))],
        [SequenceChunk(other, 1, OTHER[1:], (0,))],
    )
    logits = np.concatenate([engine.step(step).logits.copy() for step in steps])
    texts = []
    for way in WAYS:
        sampler, text, done = Sampler(replace(way, seed=10), N_VOCAB), list(PROMPT), 0
        engine.close_sequence(slot)
        slot = engine.open_sequence()
        for _ in range(4):
            chunk = SequenceChunk(slot, done, text[done:], (len(text) - done - 1,))
            done = len(text)
            text.append(engine.step([chunk], [SamplingRequest(sampler, list(text))]).token().token_id)
        texts.append(text)
    return logits.view(np.uint32), texts


@cache
def model(folder: Path, kind: str) -> Path:
    return write_case(folder / f"{kind}.gguf", CASES[KINDS[kind]], GGMLType.Q8_0).path


@cache
def wanted(path: Path) -> Any:
    with engine_for(path, **SIZES, n_batch=ROWS, kernels="reference") as engine:
        return answers(engine)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@on_all
@pytest.mark.parametrize("kind", KINDS)
def test_one_answer(kind: str, machine: str, folder: Path) -> None:
    """Logits to the bit, greedy tokens and sampled ones."""
    path = model(folder, kind)
    logits, texts = wanted(path)
    with MACHINES[machine]() as device, engine_for(path, **SIZES, n_batch=ROWS, **on(device)) as engine:
        got, chosen = answers(engine)
    np.testing.assert_array_equal(got, logits)
    assert chosen == texts


@on_all
@pytest.mark.parametrize("kv", CacheFormat)
def test_a_text_that_goes_on_from_kept_pages(kv: CacheFormat, machine: str, folder: Path) -> None:
    """With each form of the cache."""
    spec = replace(QWEN3, weights=T.Q8_0, n_layers=1, n_heads=2, n_kv_heads=1, head_dim=32, n_embd=64)
    path = write_model(folder / "one layer.gguf", spec).path
    tokens = random_tokens(3, PAGE_TOKENS + 3, spec.n_vocab)
    texts = tokens, [*tokens[:PAGE_TOKENS], 7, 8]

    def run(**options: Any) -> np.ndarray:
        rows = []
        with engine_for(path, n_ctx=64, n_batch=4, kv=kv, **options) as engine:
            for text in texts:
                slot = engine.open_sequence(text)
                start = engine.cache.length(slot)
                assert start == (PAGE_TOKENS if text is texts[1] else 0)
                rows.append(run_tokens(engine, slot, text[start:], 4, start).view(np.uint32))
                engine.close_sequence(slot)
        return np.concatenate(rows)

    with MACHINES[machine]() as device:
        got = run(**on(device))
    np.testing.assert_array_equal(got, run(kernels="reference"))


@on_all
def test_embeddings(machine: str, folder: Path) -> None:
    made = write_case(folder / "embedder.gguf", EMBEDDERS["bert-mean"])
    texts = [random_tokens(5, 9, N_VOCAB - 2), random_tokens(6, 3, N_VOCAB - 2)]
    with zinc_rt.load(made.path, device="cpu", kernels="reference") as model:
        want = model.embed(texts)
    with MACHINES[machine]() as device, zinc_rt.load(made.path, device=device) as model:
        assert (model.embed(texts) == want).all()


@on_all
def test_the_same_text(machine: str) -> None:
    """The model in the package, greedy and sampled, several texts at once."""
    prompts = ["Once upon a time", "The moon"]
    ways = (
        {"temperature": 0.0},
        {"temperature": 0.9, "seed": 5},
        {"temperature": 1.3, "top_k": 0, "top_p": 0.9, "seed": 6},
    )

    def texts(**options: Any) -> list[list[str]]:
        with zinc_rt.load(n_ctx=128, **options) as model:
            return [[c.text for c in model.generate(prompts, max_tokens=6, **way)] for way in ways]

    with MACHINES[machine]() as device:
        got = texts(device=device)
    assert got == texts(device="cpu", kernels="reference")
