"""Texts of real models are the same, to the byte, with and without guesses."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zinc_rt
from tests.helpers import QWEN3, T, engine_for, random_tokens, write_model
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, write_case
from tests.speculation.oracle import Oracle, lengths
from tests.text.vocabularies import bpe_metadata, recorded
from zinc_rt.engine.engine import Engine, Options
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.models import define
from zinc_rt.models.cache_format import CacheFormat
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.messages import Failed, Submit, Token
from zinc_rt.scheduler.options import CoreVocabulary
from zinc_rt.speculation.draft_model import ModelDrafter, check_vocabulary
from zinc_rt.speculation.pace import Pace
from zinc_rt.text import Tokenizer

WIDE = replace(QWEN3, weights=T.Q8_0, head_dim=32, n_vocab=N_VOCAB)  # heads that blocks of a cache divide
BEGINNINGS = (
    "Once upon a time",
    "The fox said:",
    "A robot and a dragon",
    "One, two, three, one, two, three, one,",
    "The door was red. The house was red. The",
    '"Hello," said the owl. "Hello," said',
    "In the winter",
    "Write a story about a boat.",
)


def prompts(n: int) -> tuple[list[str], list[SamplingParams]]:
    """Mixed prompts and parameters, each with a seed."""
    draw = random.Random(7)
    texts, params = [], []
    for i in range(n):
        texts.append(" ".join(draw.sample(BEGINNINGS, draw.choice([1, 1, 2, 3]))))
        params.append(
            SamplingParams(
                temperature=draw.choice([0.0, 0.0, 0.8, 1.2]),
                top_k=draw.choice([0, 40]),
                repetition_penalty=draw.choice([1.0, 1.0, 1.2]),
                presence_penalty=draw.choice([0.0, 0.3]),
                repeat_last_n=draw.choice([-1, 16, 64]),
                logprobs=draw.choice([None, None, 0, 2]),
                stop=draw.choice([(), (), (), ("\n\n",), (" boat", "!")]),
                max_tokens=draw.choice([24, 48]),
                ignore_eos=draw.random() < 0.6,
                seed=i,
            )
        )
    return texts, params


def told(model: zinc_rt.Model, n: int) -> list[tuple[Any, ...]]:
    """All that a caller sees of so many texts, but for times."""
    texts, params = prompts(n)
    found = [g for i in range(0, n, 8) for g in model.generate(texts[i : i + 8], params[i : i + 8])]
    return [
        (g.text, g.token_ids, g.logprobs, g.top_logprobs, g.finish_reason, g.stats.completion_tokens) for g in found
    ]


def guessing(**options: Any) -> zinc_rt.Model:
    return zinc_rt.load(device="cpu", n_ctx=256, n_slots=8, kv_tokens=2048, **options)


@pytest.mark.parametrize(
    ("n", "options"),
    [(24, {"spec": "ngram"}), (10, {"draft_model": built_in_model(), "draft_max": 5})],
    ids=["24 ngram", "10 draft"],
)
def test_prompts(model: zinc_rt.Model, n: int, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pace, "lengths", lengths([16, 3, 0, 7]))
    with guessing(**options) as other:
        assert told(other, n) == told(model, n)
        status = other.client.core.status
        assert status.drafted_tokens >= status.accepted_tokens > 20
        other.engine.cache.check_integrity()


@pytest.mark.slow
def test_many_prompts(model: zinc_rt.Model) -> None:
    want = told(model, 200)
    for options in ({"spec": "ngram"}, {"draft_model": built_in_model()}, {"spec": "ngram", "kernels": "reference"}):
        with guessing(**options) as other:
            assert told(other, 200) == want


def test_answers_of_a_form(model: zinc_rt.Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guesses go along with the grammar, which the draft model knows nothing of."""
    monkeypatch.setattr(Pace, "lengths", lengths([5, 2, 3]))
    kinds = {"kind": {"enum": ["fox", "owl"]}, "said": {"type": "string", "minLength": 40}}
    schema = {"type": "object", "properties": kinds, "required": ["kind", "said"]}
    form = {"type": "json_schema", "json_schema": {"name": "animal", "schema": schema}}
    asked = [{"role": "user", "content": "An animal, please."}]
    with guessing(draft_model=built_in_model()) as other:
        one, again = (m.chat(asked, response_format=form, seed=3, max_tokens=60) for m in (model, other))
        drafted, right = other.client.core.status.drafted_tokens, other.client.core.status.accepted_tokens
        assert drafted >= right > 10
        calls: list[int] = []

        def counting(ids: list[int], logits: np.ndarray) -> np.ndarray:
            calls.append(len(ids))
            return logits

        other.generate("A fox", max_tokens=9, ignore_eos=True, logits_processors=[counting])
        assert calls == list(range(calls[0], calls[0] + 9))  # it is not asked about guesses
        assert other.client.core.status.drafted_tokens == drafted
    assert one.content == again.content
    assert one.content.startswith("{")


@pytest.fixture(
    params=[
        ("qwen35", CacheFormat.F16),
        pytest.param(("gemma3", CacheFormat.F16), marks=pytest.mark.slow),
        ("wide", CacheFormat.Q8_0),
    ],
    ids=lambda given: f"{given[0]}-{given[1].value}",
)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    """Recurrent layers; windows; a cache of Q8_0."""
    name, kv = request.param
    file = tmp_path / "model.gguf"
    path = write_model(file, WIDE).path if name == "wide" else write_case(file, CASES[name], T.Q8_0).path
    with engine_for(path, n_batch=16, n_slots=3, n_ctx=128, kv=kv, drafts=True, kernels="reference") as made:
        yield made


def test_a_draft_model_of_another_mind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has recurrent layers, so it goes back to copies of its state; the weights of both are nearly the same."""
    monkeypatch.setattr(Pace, "lengths", lengths([5, 2, 0, 7]))
    vocabulary, n_vocab = CoreVocabulary(24), 24
    params = SamplingParams(temperature=1.5, top_k=0, max_tokens=12, frequency_penalty=0.2, logprobs=1)
    asked = [Submit(f"{i}", tuple(random_tokens(i, 4 + 20 * i, n_vocab)), params, seed=i) for i in range(2)]
    paths = [write_case(tmp_path / f"{kind}.gguf", CASES["qwen35"], kind).path for kind in (T.Q8_0, T.Q4_0)]
    sizes: dict[str, Any] = {"n_batch": 16, "n_slots": 3, "n_ctx": 128, "kernels": "reference"}
    with engine_for(paths[0], drafts=True, **sizes) as engine, GGUFFile.open(paths[1]) as file:
        plain = EngineCore(engine, vocabulary)
        want = answers(plain, asked)
        forget_texts(plain)
        own = Engine(Options(**sizes), shares_device_of=engine)
        assert own.load(file, define(file)).main_model == engine.plan.total  # type: ignore[union-attr]
        drafter = ModelDrafter(own, file, n_vocab, 8, 0)
        core = EngineCore(engine, vocabulary, drafter=drafter)
        assert answers(core, asked) == want
        assert 0 < core.status.accepted_tokens < core.status.drafted_tokens
        own.cache.check_integrity()
        assert own.cache.stats().used == 0
        drafter.close()
        engine.cache.check_integrity()


def test_vocabularies() -> None:
    """Those of one family differ by what fills up the embedding; others are refused, with the first difference."""
    tokens = recorded()["bpe"]["tokens"]

    def made(changed: list[str]) -> Tokenizer:
        return Tokenizer.from_metadata(bpe_metadata(tokens=changed, token_type=np.ones(len(changed), np.int32)))

    check_vocabulary(made(tokens), made([*tokens, "[PAD1]"]))
    check_vocabulary(made([*tokens, "[PAD1]"]), made(tokens))
    with pytest.raises(UsageError, match="token 300 is 'other' there and"):
        check_vocabulary(made([*tokens[:300], "other", *tokens[301:]]), made(tokens))
    with pytest.raises(UsageError, match=f"{len(tokens) + 2000} tokens, the model has {len(tokens)}"):
        check_vocabulary(made([*tokens, *(f"[FILL{i}]" for i in range(2000))]), made(tokens))


def forget_texts(core: EngineCore) -> None:
    """Give back the sequences of finished requests, which the scheduler keeps for the next turns."""
    pool = core.scheduler.pool
    while pool._kept:
        pool._forget_oldest()


def answers(core: EngineCore, asked: Sequence[Submit]) -> dict[str, list[Token]]:
    for request in asked:
        core.submit(request)
    found: dict[str, list[Token]] = {request.id: [] for request in asked}
    while not core.idle:
        for event in core.turn().events:
            assert not isinstance(event, Failed)
            if isinstance(event, Token):
                found[event.id].append(event)
        core.check_integrity()
    return found


def test_kinds_of_models(engine: Engine) -> None:
    """Of every three guesses one is wrong; texts are long enough to leave a window."""
    vocabulary = CoreVocabulary(N_VOCAB)
    asked = [
        Submit(
            f"{temperature}-{i}",
            tuple(random_tokens(i, 8 * i, N_VOCAB)),
            SamplingParams(temperature=temperature, max_tokens=16, logprobs=1, repetition_penalty=1.1),
            seed=i,
        )
        for i in range(1, 3)
        for temperature in (0.0, 1.0)
    ]
    plain = EngineCore(engine, vocabulary)
    want = answers(plain, asked)
    forget_texts(plain)  # the next core takes all sequences
    texts = [[*request.prompt, *(token.token_id for token in want[request.id])] for request in asked]
    core = EngineCore(engine, vocabulary, drafter=Oracle(texts, lambda i: i % 3 == 0, N_VOCAB, free=True))
    assert answers(core, asked) == want
    assert core.status.accepted_tokens
    engine.cache.check_integrity()
