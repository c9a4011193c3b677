"""Endpoints of llama.cpp's server: what the model is, prompts of conversations, texts with a gap."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.models import tokenizer
from tests.serving.api.conftest import N_CTX, SAYS, Bench, MakeBench, without_ids
from tests.serving.api.test_text import PAGE
from zinc_rt.serving.api.fields import FieldRule, table
from zinc_rt.serving.api.keys import ApiKeys, digest, new_key
from zinc_rt.serving.api.llamacpp import COMPLETION, INFILL, InfillRequest, LlamaCompletion

MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")


def coding(made: Bench) -> Bench:
    """A server whose model fills in now; it always says the same."""
    tokens = tokenizer(MARKS)
    made.service.model = dataclasses.replace(made.service.model, tokenizer=tokens, n_ctx=4096)
    made.client.script = lambda request: tokens.encode(SAYS, add_special=False)
    return made


@pytest.fixture
def coder(bench: MakeBench) -> Bench:
    """A server of a model that fills in."""
    return coding(bench())


def shown(b: Bench) -> str:
    """The last prompt as text, with its marks."""
    tokens = b.service.model.tokenizer
    return b"".join(map(tokens.token_bytes, b.client.submitted[-1].prompt)).decode()


def test_a_gap_is_filled_in(coder: Bench) -> None:
    async def go() -> None:
        ask: dict[str, Any] = {"input_prefix": "def f(", "input_suffix": "  return x\n", "n_predict": 200, "seed": 3}
        whole = (await coder.http.post("/infill", json=ask)).json()
        assert (whole["content"], whole["stop"], whole["stop_type"]) == (SAYS, True, "limit")
        prompt = coder.client.submitted[0].prompt
        assert whole["tokens_evaluated"] == len(prompt)
        assert shown(coder) == "<|fim_prefix|>def f(<|fim_suffix|>  return x\n<|fim_middle|>"
        fim = coder.service.model.tokenizer.fim
        assert [i for i in prompt if i in fim.values()] == [fim["pre"], fim["suf"], fim["mid"]]
        extra = [{"filename": "a.py", "text": "A = 1<|fim_middle|>\n"}]
        streamed = await coder.http.post("/infill", json={**ask, "input_extra": extra, "prompt": "x", "stream": True})
        found = [json.loads(line[6:]) for line in without_ids(streamed.text).split("\n\n") if line]
        assert "".join(event["content"] for event in found) == SAYS
        assert [event["stop"] for event in found] == [False] * (len(found) - 1) + [True]
        assert shown(coder) == (
            "<|repo_name|>myproject\n<|file_sep|>a.py\nA = 1<|fim_middle|>\n<|file_sep|>filename\n"
            "<|fim_prefix|>def f(<|fim_suffix|>  return x\n<|fim_middle|>x"
        )
        assert coder.client.submitted[-1].prompt.count(fim["mid"]) == 1  # a file's text makes no marks
        fields = {
            "response_fields": ["content", "timings/predicted_n", "truncated", "tokens_cached"],
            "samplers": ["top_k"],
        }
        vim = {**ask, **fields, "top_k": 40, "cache_prompt": True, "t_max_predict_ms": 500, "n_predict": 9}
        short = (await coder.http.post("/infill", json=vim)).json()
        assert set(short) == set(fields["response_fields"])
        warm = (await coder.http.post("/infill", json={**vim, "n_predict": 0, "response_fields": [""]})).json()
        assert warm == {}  # it only wants the prompt in the cache
        stopped = (await coder.http.post("/infill", json={**ask, "stop": "grey", "n_indent": 4})).json()
        assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", "grey")

    asyncio.run(go())


def test_a_model_without_marks_fills_in_nothing(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        answer = await b.http.post("/infill", json={"input_prefix": "a", "input_suffix": "b"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_infill")
        for path in ("/rerank", "/v1/rerank"):
            answer = await b.http.post(path, json={"query": "a", "documents": ["b"]})
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "wrong_kind_of_model")
            assert "rerankers of architecture bert" in answer.json()["error"]["message"]
        assert b.client.submitted == []
        assert b.service.admission.inside == 0

    asyncio.run(go())


def test_what_the_server_is(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        found = (await b.http.get("/props")).json()
        assert found["default_generation_settings"]["n_ctx"] == N_CTX
        assert found["default_generation_settings"]["params"]["temperature"] == 0.8
        assert (found["total_slots"], found["model_alias"]) == (4, "story")
        assert "messages" in found["chat_template"]
        b.client.decoding = 1
        busy = (await b.http.get("/slots")).json()
        assert [slot["is_processing"] for slot in busy] == [True, False, False, False]
        key = new_key("acme")
        locked = bench(keys=ApiKeys({"acme": (digest(key),)}))
        assert (await locked.http.get("/props")).status_code == 401
        assert (await locked.http.get("/slots", headers={"x-api-key": key})).status_code == 403

    asyncio.run(go())


def test_the_prompt_of_a_conversation(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        ask = {"messages": [{"role": "user", "content": "Hi"}]}
        prompt = (await b.http.post("/apply-template", json=ask)).json()["prompt"]
        await b.chat("Hi")
        assert b.client.submitted[-1].prompt == tuple(b.service.model.tokenizer.encode(prompt, add_special=False))
        refused = await b.http.post("/apply-template", json={"messages": [{"role": "nobody", "content": "Hi"}]})
        assert refused.status_code == 400

    asyncio.run(go())


def test_prompts_are_continued(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        ids = b.service.model.tokenizer.encode("Hi")
        ask = {"prompt": "Hi", "n_predict": 4, "n_probs": 2, "seed": 3, "repeat_penalty": 1.5, "return_tokens": True}
        whole = (await b.http.post("/completion", json=ask)).json()
        submit = b.client.submitted[0]
        assert (submit.prompt, submit.seed, submit.params.repetition_penalty) == (tuple(ids), 3, 1.5)
        assert len(whole["tokens"]) == len(whole["completion_probabilities"]) == whole["tokens_predicted"] == 4
        assert (whole["generation_settings"]["seed"], whole["generation_settings"]["n_predict"]) == (3, 4)
        assert (whole["prompt"], whole["tokens_evaluated"], whole["tokens_cached"]) == ("Hi", len(ids), len(ids) + 3)
        streamed = await b.http.post("/completion", json={**ask, "stream": True})
        found = [json.loads(line[6:]) for line in without_ids(streamed.text).split("\n\n") if line]
        assert "".join(event["content"] for event in found) == whole["content"]
        assert [token for event in found for token in event["tokens"]] == whole["tokens"]
        likely = [one for event in found for one in event.get("completion_probabilities", ())]
        assert likely == whole["completion_probabilities"]
        few = {**ask, "response_fields": ["content", "timings/predicted_n", "nothing/here"], "seed": -1}
        assert (await b.http.post("/completion", json=few)).json() == {
            "content": whole["content"],
            "timings/predicted_n": 4,
        }
        assert b.client.submitted[-1].seed >= 0
        several = (await b.http.post("/completions", json={"prompt": ["Hi", ids, [*ids, "Hi"]], "n_predict": 0})).json()
        assert [one["content"] for one in several] == [""] * 3
        prompts = [one.prompt for one in b.client.submitted[-3:]]
        assert prompts == [tuple(ids), tuple(ids), (*ids, *b.service.model.tokenizer.encode("Hi", add_special=False))]
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        await b.http.post("/completion", json={"prompt": "Hi", "json_schema": schema})
        same = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        await b.http.post("/v1/completions", json={"prompt": "Hi", "response_format": same})
        assert b.client.submitted[-1].grammar == b.client.submitted[-2].grammar is not None
        for wrong in ({"prompt": [1.5]}, {"prompt": "Hi", "grammar": "root ::= x"}, {"prompt": []}, {}):
            assert (await b.http.post("/completion", json=wrong)).status_code == 400

    asyncio.run(go())


TYPES = json.loads((Path(__file__).parent / "llama_server.json").read_text())
"""Requests to llama-server, the members of its answers with their types, and those that are absent here, and why."""
ABSENT = {name for names in TYPES["absent"].values() for name in names}


def types(value: Any, at: str = "") -> dict[str, str]:
    """The type of each member, and of the members of its members."""
    if isinstance(value, dict):
        return {k: t for name, one in value.items() for k, t in types(one, f"{at}/{name}".lstrip("/")).items()}
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return types(value[0], f"{at}/0".lstrip("/"))
    return {at: {int: "number", float: "number"}.get(type(value), type(value).__name__)}


def test_answers_have_the_members_of_llama_server(coder: Bench) -> None:
    async def go() -> None:
        for path, body in TYPES["requests"].items():
            answer = await (coder.http.post(path, json=body) if body is not None else coder.http.get(path))
            ours, theirs = types(answer.json()), TYPES["answers"][path]
            expected = {name: kind for name, kind in theirs.items() if not ABSENT & set(name.split("/"))}
            assert {name: ours.get(name) for name in expected} == expected, path

    asyncio.run(go())


@pytest.mark.parametrize(("records", "kind"), [(INFILL, InfillRequest), (COMPLETION, LlamaCompletion)])
def test_the_fields_that_are_obeyed_are_those_that_are_read(records: Any, kind: Any) -> None:
    assert {field.name for field in records if field.rule is FieldRule.obeyed} == set(kind.__struct_fields__)
    assert table(records) in PAGE.with_name("llamacpp.md").read_text(encoding="utf-8")
