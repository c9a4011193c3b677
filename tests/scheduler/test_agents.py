"""Two agents in turns on hybrid models: how much of their texts is computed again, with the tokens of a fresh model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random

import pytest

import zinc_rt
from tests.helpers import T, soon
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, write_case
from zinc_rt.engine.recurrent_state import CHECKPOINT_TOKENS, TAIL_TOKENS, copies, wanted_copies
from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.sampling.params import SamplingParams

FAMILIES = ("qwen35", "qwen3next", "lfm2", "gemma4", "qwen3", "mamba2", "falcon-h1", "nemotron_h_moe")
TURNS, EDIT = 8, 6
N_CTX = 2048
PARAMS = SamplingParams(temperature=1.0, seed=5, max_tokens=9, ignore_eos=True)


def write(folder: Path, name: str) -> Path:
    """A model of a family for texts of N_CTX tokens."""
    case = CASES[name]
    longer = replace(case, keys={**case.keys, "context_length": N_CTX})
    return write_case(folder / "model.gguf", longer, T.Q8_0).path


def random_ids(rng: Random, n: int) -> list[int]:
    return [rng.randrange(N_VOCAB - 2) for _ in range(n)]


def said(model: zinc_rt.Model, prompt: list[int], params: SamplingParams = PARAMS) -> list[int]:
    return [chunk.token_id for chunk in model.stream(prompt, params) if chunk.token_id is not None]


@pytest.mark.parametrize("kernels", ["native", pytest.param("reference", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", soon(("qwen35",), FAMILIES))
def test_two_agents(name: str, kernels: str, tmp_path: Path) -> None:
    """An appended turn goes on within a page of where the last one ended, an edited one 512 tokens before the edit at
    most, however many turns there were, and whatever the other agent did.
    """
    path = write(tmp_path, name)
    rng = Random(f"agents of {name}")
    texts = [random_ids(rng, 600), random_ids(rng, 600)]
    load = partial(zinc_rt.load, path, device="cpu", kernels=kernels, n_ctx=N_CTX)
    compared = []
    with load(n_slots=2) as model:
        for turn in range(TURNS):
            for agent, text in enumerate(texts):
                held = len(text) - 1 if turn else 0
                if turn == EDIT and agent == 0:
                    held = 2 * CHECKPOINT_TOKENS - 1
                    text[held] = (text[held] + 1) % (N_VOCAB - 2)
                text += random_ids(rng, 100)
                again = held - model.cached_tokens(text)
                assert again <= (CHECKPOINT_TOKENS if turn == EDIT and agent == 0 else PAGE_TOKENS), (turn, agent)
                answer = said(model, text)
                if turn >= EDIT:
                    compared.append((list(text), answer))
                text += answer
        model.engine.cache.check_integrity()
    for text, answer in compared[:1] + compared[-2:]:
        with load() as fresh:
            assert said(fresh, text) == answer


def test_a_prompt_whose_end_is_rendered_otherwise(tmp_path: Path) -> None:
    """A template that leaves out the empty thought at the end of the last prompt, once the answer is there: a page and
    that end are read again, wherever the pages' edges lie.
    """
    path, rng = write(tmp_path, "qwen35"), Random(7)
    params = SamplingParams.with_overrides(PARAMS, max_tokens=2)
    with zinc_rt.load(path, device="cpu", n_ctx=N_CTX, n_slots=1) as model:
        for n in range(40, 40 + PAGE_TOKENS):
            prompt = random_ids(rng, n)
            kept = prompt[: 1 - TAIL_TOKENS] + said(model, prompt, params)
            assert n - TAIL_TOKENS - model.cached_tokens([*kept, 1, 2]) < PAGE_TOKENS


def test_drafts_leave_the_snapshots_of_an_answer(tmp_path: Path) -> None:
    """A draft stops before a position that has a snapshot; drafts and edits change no token."""
    path = write(tmp_path, "qwen35")
    prompt = random_ids(Random(4), 20)
    params = SamplingParams.with_overrides(PARAMS, max_tokens=CHECKPOINT_TOKENS + 30)
    load = partial(zinc_rt.load, path, device="cpu", n_ctx=N_CTX, n_slots=1)
    with load(draft_model=path, draft_max=4) as model, load() as plain:
        chunks = list(model.stream(prompt, params))
        answer = said(plain, prompt, params)
        assert [chunk.token_id for chunk in chunks if chunk.token_id is not None] == answer
        assert chunks[-1].stats is not None
        assert chunks[-1].stats.accepted_tokens > 25
        edited = [*prompt, *answer][: CHECKPOINT_TOKENS + 20] + prompt
        assert model.cached_tokens(edited) == plain.cached_tokens(edited) == CHECKPOINT_TOKENS


def test_an_edit_within_a_long_answer(tmp_path: Path) -> None:
    """Answers have snapshots as prompts do."""
    path = write(tmp_path, "qwen35")
    prompt = random_ids(Random(3), 20)
    params = SamplingParams.with_overrides(PARAMS, max_tokens=CHECKPOINT_TOKENS + 240)
    with zinc_rt.load(path, device="cpu", n_ctx=N_CTX, n_slots=1) as model:
        answer = said(model, prompt, params)
        edited = prompt + answer[:-200] + prompt
        assert model.cached_tokens(edited) == CHECKPOINT_TOKENS
        got = said(model, edited)
    with zinc_rt.load(path, device="cpu", n_ctx=N_CTX) as fresh:
        assert said(fresh, edited) == got


def test_snapshots_are_planned(tmp_path: Path) -> None:
    """One for every 512 positions, and a few; a memory that is given bounds them."""
    path = write(tmp_path, "qwen35")
    with zinc_rt.load(path, device="cpu", n_ctx=N_CTX, n_slots=2) as model:
        plan = model.engine.plan
        assert plan is not None
        assert plan.snapshots * 2 == plan.recurrent * wanted_copies(2, 2 * N_CTX)
        one_copy = plan.recurrent // 2
        assert wanted_copies(2, 2 * N_CTX) == copies(2) + 2 * N_CTX // CHECKPOINT_TOKENS == 12
    with zinc_rt.load(path, device="cpu", n_ctx=N_CTX, n_slots=2, state_memory=3 * one_copy) as model:
        assert model.engine.plan is not None
        assert model.engine.plan.snapshots == 3 * one_copy
