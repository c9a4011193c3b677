"""Functions that change logits: what they get, what their answers do, and what becomes of wrong ones."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import zinc_rt
from zinc_rt.engine.engine import EngineError
from zinc_rt.errors import UsageError
from zinc_rt.sampling.gpu import common_shape
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler

PROMPT = "Once upon a time"
DRAWN: dict[str, Any] = {"temperature": 1.0, "seed": 4, "max_tokens": 8, "repetition_penalty": 1.2}


def same(token_ids: list[int], logits: np.ndarray) -> np.ndarray:
    return logits


def test_a_function_gets_the_text_and_the_models_logits(model: zinc_rt.Model) -> None:
    seen: list[tuple[list[int], np.ndarray]] = []

    def look(token_ids: list[int], logits: np.ndarray) -> np.ndarray:
        seen.append((list(token_ids), logits.copy()))
        token_ids.clear()
        return logits

    text = model.generate(PROMPT, logits_processors=[look], **DRAWN)
    ids = [*model.tokenize(PROMPT), *text.token_ids]
    start = len(ids) - len(text.token_ids)
    assert text.token_ids == model.generate(PROMPT, **DRAWN).token_ids
    assert [history for history, _ in seen] == [ids[:n] for n in range(start, len(ids))]
    truth = model.logits(ids[:-1])[start - 1 :]
    assert b"".join(row.tobytes() for _, row in seen) == truth[:, : model.tokenizer.n_vocab].tobytes()


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_what_a_function_adds_is_a_bias(model: zinc_rt.Model, temperature: float) -> None:
    bias = {65: 9.5, 14: -3.0, 451: 2.25}

    def add(token_ids: list[int], logits: np.ndarray) -> list[float]:
        wide = logits.astype(np.float64)
        for token, more in bias.items():
            wide[token] += more
        return list(wide)

    params = {**DRAWN, "temperature": temperature, "repetition_penalty": 1.0}
    added = model.generate(PROMPT, logits_processors=[add], **params)
    assert added.token_ids == model.generate(PROMPT, logit_bias=bias, **params).token_ids
    assert added.token_ids != model.generate(PROMPT, **params).token_ids


def test_functions_run_each_after_the_other_before_bias_and_grammar(model: zinc_rt.Model) -> None:
    def only(token: int) -> Any:
        return lambda ids, logits: np.where(np.arange(len(logits)) == token, 0, -np.inf)

    texts = model.generate(PROMPT, logits_processors=[only(65), lambda ids, logits: np.roll(logits, 1)], max_tokens=2)
    assert texts.token_ids == (66, 66)
    with pytest.raises(zinc_rt.ZincError, match="no token can be chosen"):
        model.generate(PROMPT, logits_processors=[only(65)], logit_bias={65: -np.inf})
    form = {"type": "json_schema", "json_schema": {"schema": {"enum": ["yes", "no"]}}}
    kind = model.chat("?", response_format=form, logits_processors=[lambda ids, logits: -logits], max_tokens=20)
    assert json.loads(kind.text) in ("yes", "no")


def test_log_probabilities_stay_the_models(model: zinc_rt.Model) -> None:
    def flat(token_ids: list[int], logits: np.ndarray) -> np.ndarray:
        return np.where(np.arange(len(logits)) == 65, 1.0, 0.0)

    text = model.generate(PROMPT, logits_processors=[flat], temperature=0, max_tokens=2, logprobs=2)
    assert text.token_ids == (65, 65)
    ids = [*model.tokenize(PROMPT), 65]
    rows = model.logits(ids)[-2:].astype(np.float64)
    truth = rows - np.log(np.exp(rows).sum(axis=1, keepdims=True))
    assert text.logprobs == pytest.approx(truth[:, 65], abs=1e-9)
    assert text.top_logprobs is not None
    assert [[top.id for top in tops] for tops in text.top_logprobs] == np.argsort(-truth, axis=1)[:, :2].tolist()


def test_an_exception_ends_its_text_alone_and_comes_out(model: zinc_rt.Model) -> None:
    class Broken(Exception):
        pass

    def late(token_ids: list[int], logits: np.ndarray) -> np.ndarray:
        if len(token_ids) > 6:
            raise Broken(len(token_ids))
        return logits

    expected = model.generate(PROMPT, **DRAWN).token_ids
    running = model.stream(PROMPT, **DRAWN)
    first = next(running).token_id
    with pytest.raises(Broken, match="7"):
        model.generate(PROMPT, logits_processors=[late], **DRAWN)
    assert (first, *(chunk.token_id for chunk in running))[:-1] == expected
    assert model.client.core.idle
    model.engine.cache.check_integrity()


@pytest.mark.parametrize(
    ("value", "says"),
    [(None, "returned None; return the logits"), ([1.0], r"of shape \(1,\)"), ("x", "returned <U1"), (True, "bool")],
)
def test_answers_that_are_no_logits(model: zinc_rt.Model, value: Any, says: str) -> None:
    def wrong(token_ids: list[int], logits: np.ndarray) -> Any:
        return value

    with pytest.raises(UsageError, match=f"logits processor wrong returned.*{says}|{says}"):
        model.generate(PROMPT, logits_processors=[wrong])


@pytest.mark.parametrize("value", [3, same, [3], "f", None])
def test_what_is_no_list_of_functions(model: zinc_rt.Model, value: Any) -> None:
    for call in (model.stream, model.chat_stream):
        with pytest.raises(UsageError, match="logits_processors"):
            call(PROMPT, logits_processors=value)


def test_a_function_cannot_use_the_model(model: zinc_rt.Model) -> None:
    uses: list[Any] = [
        lambda: model.generate("a"),
        lambda: model.logits([65]),
        lambda: model.cached_tokens([65]),
        model.close,
    ]
    for use in uses:
        with pytest.raises(EngineError, match="a step is running on this thread"):
            model.generate(PROMPT, logits_processors=[lambda ids, logits, use=use: use()])
    assert model.generate(PROMPT, max_tokens=1).token_ids


def test_gpus_leave_such_rows_to_the_host() -> None:
    sampler = Sampler(SamplingParams(), 32)
    assert common_shape([SamplingRequest(sampler, [])], 64, 32) is not None
    assert common_shape([SamplingRequest(sampler, []), SamplingRequest(sampler, [], None, (same,))], 64, 32) is None
