"""Prompts that are edited between calls: a model that goes on with what it holds says what a fresh one says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import zinc_rt
from tests.helpers import T, soon
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, write_case
from zinc_rt.sampling.params import SamplingParams

N_CALLS = 8
N_CTX = 128


def edited(rng: random.Random, text: list[int]) -> list[int]:
    """A conversation goes on, is cut, changed in the middle, changed at its end, or is another one."""

    def some(most: int) -> list[int]:
        return [rng.randrange(N_VOCAB - 2) for _ in range(rng.randint(1, most))]

    at = rng.randrange(1, len(text) + 1)
    text = rng.choice(
        (
            text + some(20),
            text[:at],
            text[: at - 1] + some(1) + text[at:],
            text[:at] + some(3) + text[at:],
            text[:-1] + some(1),
            some(50),
        )
    )
    return text[: N_CTX - 20]


def said(model: zinc_rt.Model, prompt: list[int], params: SamplingParams, n_shown: int) -> list[tuple[int, float]]:
    """The first tokens of an answer with their logarithms; then the stream is closed."""
    out: list[tuple[int, float]] = []
    stream = model.stream(prompt, params)
    for chunk in stream:
        if chunk.token_id is not None:
            assert chunk.logprob is not None
            out.append((chunk.token_id, chunk.logprob))
        if len(out) == n_shown:
            stream.close()
            break
    return out


@pytest.mark.parametrize("name", soon(("qwen35",), ("qwen35", "qwen3next", "lfm2", "gemma3")))
def test_as_from_a_fresh_model(name: str, tmp_path: Path) -> None:
    path = write_case(tmp_path / "model.gguf", CASES[name], T.Q8_0).path
    rng = random.Random(f"edits of {name}")
    text, reused, params = [1, 2, 3], 0, SamplingParams(temperature=1.0, seed=5, logprobs=0, ignore_eos=True)
    with zinc_rt.load(path, device="cpu", n_ctx=N_CTX, n_batch=16) as model:
        for call in range(N_CALLS):
            n_tokens = rng.choice((1, 4, 18))
            wanted = SamplingParams.with_overrides(params, max_tokens=n_tokens)
            n_shown = rng.choice((n_tokens, 1))
            reused += model.cached_tokens(text) > 0
            got = said(model, text, wanted, n_shown)
            with zinc_rt.load(path, device="cpu", n_ctx=N_CTX, n_batch=7) as fresh:
                assert fresh.cached_tokens(text) == 0
                assert got == said(fresh, text, wanted, n_shown), (call, text)
            if rng.random() < 0.2:
                model.logits(text[: rng.randint(1, len(text))])
            text = edited(rng, text + [token for token, _ in got])
            model.engine.cache.check_integrity()
    assert reused > N_CALLS // 4
