"""Each endpoint's answers, whole and as streams, over an engine that says what it is told."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.serving.api.conftest import N_CTX, SAYS, MakeBench, events, without_ids
from tests.serving.api.fake import LOGPROB
from zinc_rt.scheduler.messages import CancelReason
from zinc_rt.text import TokenizerError


def named_events(text: str) -> list[tuple[str, dict[str, Any]]]:
    """Names and data of a stream whose events are named."""
    found = []
    for block in without_ids(text).split("\n\n"):
        if block and not block.startswith(":"):
            name, body = block.split("\n")
            found.append((name.removeprefix("event: "), json.loads(body.removeprefix("data: "))))
    return found


def test_completions_of_texts_and_token_ids(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        ids = b.service.model.tokenizer.encode("A fox", add_special=True)
        post = b.http.post
        for prompt, count in (("A fox", 1), (["A fox", "A hen"], 2), (ids, 1), ([ids, ids, ids], 3)):
            answer = await post("/v1/completions", json={"prompt": prompt, "max_tokens": 40})
            assert answer.status_code == 200, answer.text
            body = answer.json()
            assert [c["text"] for c in body["choices"]] == [SAYS] * count
            assert [c["index"] for c in body["choices"]] == list(range(count))
            assert body["object"] == "text_completion"
        assert b.client.submitted[0].prompt == tuple(ids)
        whole = await post("/v1/completions", json={"prompt": "A fox", "echo": True, "max_tokens": 3})
        first = b.service.model.tokenizer.encode(SAYS, add_special=False)[:3]
        assert whole.json()["choices"][0]["text"] == "A fox" + b.service.model.tokenizer.decode(first)
        streamed = await post(
            "/v1/completions", json={"prompt": "A fox", "max_tokens": 40, "stream": True, "echo": True}
        )
        chunks = events(streamed.text)
        assert "".join(c["choices"][0]["text"] for c in chunks) == "A fox" + SAYS
        assert chunks[-1]["choices"][0]["finish_reason"] == "length"

    asyncio.run(go())


def test_completions_stop_at_sixteen_tokens_by_themselves(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        answer = await b.http.post("/v1/completions", json={"prompt": "A fox"})
        assert answer.json()["usage"]["completion_tokens"] == 16

    asyncio.run(go())


def test_several_choices_use_the_seeds_that_follow(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        answer = await b.chat(n=3, seed=2**64 - 2)
        assert [r.seed for r in b.client.submitted] == [2**64 - 2, 2**64 - 1, 0]
        assert [c["index"] for c in answer.json()["choices"]] == [0, 1, 2]
        assert len({r.id for r in b.client.submitted}) == 3
        one = await b.chat()
        assert answer.json()["usage"]["prompt_tokens"] == one.json()["usage"]["prompt_tokens"]
        assert answer.json()["usage"]["completion_tokens"] == 3 * one.json()["usage"]["completion_tokens"]
        streamed = events((await b.chat(n=2, stream=True)).text)
        turns = [c["choices"][0]["index"] for c in streamed if c["choices"][0]["finish_reason"] is None]
        assert turns[:20] == [0, 1] * 10
        for index in (0, 1):
            mine = [c["choices"][0] for c in streamed if c["choices"][0]["index"] == index]
            assert mine[0]["delta"]["role"] == "assistant"
            assert "".join(c["delta"].get("content", "") for c in mine) == SAYS
            assert [c["finish_reason"] for c in mine] == [None] * (len(mine) - 1) + ["length"]

    asyncio.run(go())


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_end_the_text_and_the_request(bench: MakeBench, stream: bool) -> None:
    async def go() -> None:
        b = bench()
        answer = await b.chat(stop=["grey owl", "nothing"], stream=stream)
        if stream:
            chunks = events(answer.text)
            text = "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
            finish = chunks[-1]["choices"][0]["finish_reason"]
        else:
            (choice,) = answer.json()["choices"]
            text, finish = choice["message"]["content"], choice["finish_reason"]
        assert (text, finish) == ("Once there was a small ", "stop")
        assert b.client.cancelled == [(b.client.submitted[0].id, CancelReason.stop_string)]

    asyncio.run(go())


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_cover_the_text_and_have_its_bytes(bench: MakeBench, stream: bool) -> None:
    async def go() -> None:
        b = bench()
        answer = await b.chat(logprobs=True, top_logprobs=2, stream=stream)
        if stream:
            parts = [c["choices"][0]["logprobs"] for c in events(answer.text)]
            content = [entry for part in parts if part for entry in part["content"]]
        else:
            content = answer.json()["choices"][0]["logprobs"]["content"]
        assert bytes(byte for entry in content for byte in entry["bytes"]) == SAYS.encode()
        assert {entry["logprob"] for entry in content} == {LOGPROB}
        assert all([t["logprob"] for t in entry["top_logprobs"]] == [LOGPROB, LOGPROB - 1] for entry in content)

    asyncio.run(go())


def test_logprobs_leave_out_what_a_stop_string_cuts(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        answer = await b.chat(logprobs=True, stop=" small")
        content = answer.json()["choices"][0]["logprobs"]["content"]
        assert b"".join(bytes(entry["bytes"]) for entry in content) == b"Once there was a"

    asyncio.run(go())


def test_a_logprob_that_is_not_a_number_is_an_error_with_a_name(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        monkeypatch.setattr("tests.serving.api.fake.LOGPROB", float("nan"))
        answer = await bench().chat(logprobs=True)
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "nan_logprob"
        monkeypatch.setattr("tests.serving.api.fake.LOGPROB", float("-inf"))
        answer = await bench().chat(logprobs=True)
        assert answer.json()["choices"][0]["logprobs"]["content"][0]["logprob"] == -9999.0

    asyncio.run(go())


def test_responses(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        ask = {"model": "story", "input": "Hi", "instructions": "Be brief."}
        body = (await b.http.post("/v1/responses", json=ask)).json()
        assert body["status"] == "incomplete"
        assert body["incomplete_details"] == {"reason": "max_output_tokens"}
        (item,) = body["output"]
        assert item["content"][0]["text"] == SAYS
        streamed = named_events((await b.http.post("/v1/responses", json={**ask, "stream": True})).text)
        assert [data["sequence_number"] for _, data in streamed] == list(range(len(streamed)))
        assert all(name == data["type"] for name, data in streamed)
        names = [name for name, _ in streamed]
        assert names[:4] == [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
        ]
        assert names[-4:] == [
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.incomplete",
        ]
        assert "".join(d["delta"] for name, d in streamed if name == "response.output_text.delta") == SAYS
        assert streamed[-1][1]["response"]["output"][0]["content"] == item["content"]
        items = [
            {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "call_id": "c1", "output": "2"},
        ]
        assert (await b.http.post("/v1/responses", json={"input": items})).status_code == 200
        for field, value in (("conversation", "c"), ("background", True)):
            refused = await b.http.post("/v1/responses", json={"input": "Hi", field: value})
            assert refused.status_code == 400
            assert refused.json()["error"]["code"] == "unsupported_parameter"
            assert refused.json()["error"]["param"] == field

    asyncio.run(go())


def test_messages_of_anthropic(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        ask = {"model": "story", "max_tokens": 50, "messages": [{"role": "user", "content": "Hi"}]}
        answer = await b.http.post("/v1/messages", json=ask)
        body = answer.json()
        assert body["content"] == [{"type": "text", "text": SAYS}]
        assert (body["stop_reason"], body["stop_sequence"]) == ("max_tokens", None)
        stopped = (await b.http.post("/v1/messages", json={**ask, "stop_sequences": ["grey"]})).json()
        assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", "grey")
        streamed = named_events((await b.http.post("/v1/messages", json={**ask, "stream": True})).text)
        names = [name for name, _ in streamed]
        assert names[:2] == ["message_start", "content_block_start"]
        assert names[-3:] == ["content_block_stop", "message_delta", "message_stop"]
        text = "".join(d["delta"]["text"] for name, d in streamed if name == "content_block_delta")
        assert text == SAYS
        counted = await b.http.post("/v1/messages/count_tokens", json={k: ask[k] for k in ("model", "messages")})
        assert counted.json() == {"input_tokens": body["usage"]["input_tokens"]}
        refused = await b.http.post("/v1/messages", json={**ask, "max_tokens": 0})
        assert refused.status_code == 400
        assert refused.json()["type"] == "error"
        assert refused.json()["error"]["type"] == "invalid_request_error"

    asyncio.run(go())


def test_the_changing_line_about_billing_is_dropped_and_told(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        ask: dict[str, Any] = {"max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
        prompts = []
        for line in ("x-anthropic-billing-header: a=1;", "x-anthropic-billing-header: a=2;"):
            system = [{"type": "text", "text": line}, {"type": "text", "text": "Be brief."}]
            answer = await b.http.post("/v1/messages", json={**ask, "system": system})
            assert answer.headers["x-zinc-dropped"] == "billing-header"
            prompts.append(b.client.submitted[-1].prompt)
        assert prompts[0] == prompts[1]
        plain = await b.http.post("/v1/messages", json={**ask, "system": "Be brief."})
        assert "x-zinc-dropped" not in plain.headers
        assert b.client.submitted[-1].prompt == prompts[0]

    asyncio.run(go())


def test_tokenize_and_back(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        found = (await b.http.post("/tokenize", json={"content": SAYS})).json()
        assert found["tokens"] == b.service.model.tokenizer.encode(SAYS, add_special=False)
        assert found["count"] == len(found["tokens"])
        back = await b.http.post("/detokenize", json={"tokens": found["tokens"]})
        assert back.json()["content"] == SAYS
        pieces = (await b.http.post("/tokenize", json={"content": "A fox", "with_pieces": True})).json()["tokens"]
        assert "".join(p["piece"] for p in pieces) == "A fox"
        long = await b.http.post("/tokenize", json={"content": "a " * (256 << 10)})
        assert (long.status_code, long.json()["error"]["code"]) == (413, "request_too_large")
        most = await b.http.post("/tokenize", json={"content": "a " * (255 << 10)})
        assert most.json()["count"] > 255 << 9
        outside = await b.http.post("/detokenize", json={"tokens": [10**9]})
        assert (outside.status_code, outside.json()["error"]["param"]) == (400, "tokens")

    asyncio.run(go())


def test_models_are_listed_under_all_of_their_names(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        listed = (await b.http.get("/v1/models")).json()
        assert [(m["id"], m["root"]) for m in listed["data"]] == [("story", "story"), ("alias", "story")]
        one = (await b.http.get("/v1/models/alias")).json()
        assert one["meta"]["n_ctx"] == N_CTX
        assert one["meta"]["defaults"] == {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
        missing = await b.http.get("/v1/models/gpt-4")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "model_not_found")
        assert (await b.chat(model="alias")).status_code == 200
        assert (await b.chat(model="gpt-4")).status_code == 404

    asyncio.run(go())


def test_a_text_that_no_tokens_can_express_is_refused(bench: MakeBench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        b = bench()

        def encode(*_: object, **__: object) -> list[int]:
            raise TokenizerError("the vocabulary has no token for '🦉'")

        monkeypatch.setattr(type(b.service.model.tokenizer), "encode", encode)
        answer = await b.http.post("/tokenize", json={"content": "🦉"})
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "content")

    asyncio.run(go())


@pytest.mark.parametrize(
    ("path", "ask", "name"),
    [
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}, "stop"),
        ("/v1/completions", {"prompt": "Hi", "max_tokens": 40}, "stop"),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 40}, "stop_sequences"),
    ],
)
def test_sixteen_stop_strings_are_taken(bench: MakeBench, path: str, ask: dict[str, Any], name: str) -> None:
    async def go() -> None:
        stops = [f"none {i}" for i in range(15)]
        answer = await bench().http.post(path, json={**ask, name: [*stops, "grey owl"]})
        assert answer.status_code == 200
        assert "grey owl. " not in answer.text
        many = await bench().http.post(path, json={**ask, name: [*stops, "a", "b"]})
        assert (many.status_code, f"{name} has 17 strings; at most 16" in many.text) == (400, True)

    asyncio.run(go())


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("max_tokens", [0, 1, 5])
def test_a_prompt_is_told_of_with_its_logprobs(bench: MakeBench, stream: bool, max_tokens: int) -> None:
    async def go() -> None:
        b = bench()
        tokenizer = b.service.model.tokenizer
        ids = tokenizer.encode("A small fox", add_special=False)
        said = tokenizer.encode(SAYS, add_special=False)[:max_tokens]
        ask = {"prompt": ids, "echo": True, "logprobs": 2, "max_tokens": max_tokens, "stream": stream}
        answer = await b.http.post("/v1/completions", json=ask)
        assert answer.status_code == 200, answer.text
        choices = [c["choices"][0] for c in events(answer.text)] if stream else answer.json()["choices"]
        assert "".join(c["text"] for c in choices) == "A small fox" + tokenizer.decode(said)
        found = {key: [one for c in choices for one in c["logprobs"][key]] for key in choices[0]["logprobs"]}
        assert found["token_logprobs"] == [None, *(-i for i in range(1, len(ids))), *[LOGPROB] * len(said)]
        assert "".join(found["tokens"]) == "A small fox" + tokenizer.decode(said)
        ends = [sum(map(len, found["tokens"][:i])) for i in range(len(found["tokens"]))]
        assert found["text_offset"] == ends
        assert found["top_logprobs"][0] is None
        assert [len(top) for top in found["top_logprobs"][1:]] == [2] * (len(ids) + len(said) - 1)
        assert choices[-1]["finish_reason"] == "length"
        if not stream:
            usage = answer.json()["usage"]
            assert (usage["prompt_tokens"], usage["completion_tokens"]) == (len(ids), max_tokens)
        for wrong in ({**ask, "echo": False, "max_tokens": 0}, {**ask, "max_tokens": -1}):
            assert (await b.http.post("/v1/completions", json=wrong)).json()["error"]["param"] == "max_tokens"

    asyncio.run(go())
