"""Bad input of every kind: the right status, a body that names the field, and nothing left behind."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.serving.api.conftest import N_CTX, MakeBench
from zinc_rt.sampling.params import COUNT_LIMIT
from zinc_rt.serving.api.config import ServerConfig, TenantConfig, TenantConfigs
from zinc_rt.serving.api.limits import Limits
from zinc_rt.serving.wire import pack, unpack_to

CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Hi"}]}
DEEP = 10**5


def raw(**fields: Any) -> bytes:
    return json.dumps({**CHAT, **fields}).encode()


BAD: dict[str, tuple[bytes, int, str | None, str]] = {
    "empty": (b"", 400, None, "invalid_json"),
    "no JSON": (b"{", 400, None, "invalid_json"),
    "invalid UTF-8": (b'{"model": "\xff\xfe", "messages": []}', 400, None, "invalid_json"),
    "a list": (b"[]", 400, None, "invalid_type"),
    "deep lists": (b"[" * DEEP + b"]" * DEEP, 400, None, "json_too_deep"),
    "deep objects": (b'{"a":' * DEEP + b"1" + b"}" * DEEP, 400, None, "json_too_deep"),
    "deep and open": (b"[" * DEEP, 400, None, "json_too_deep"),
    "NaN": (b'{"messages": [], "temperature": NaN}', 400, None, "invalid_json"),
    "temperature": (raw(temperature=1e308), 400, "temperature", "invalid_type"),
    "negative temperature": (raw(temperature=-1), 400, "temperature", "invalid_type"),
    "top_p": (raw(top_p=1.5), 400, "top_p", "invalid_type"),
    "penalty": (raw(presence_penalty=3), 400, "presence_penalty", "invalid_type"),
    "text for a number": (raw(max_tokens="many"), 400, "max_tokens", "invalid_type"),
    "no tokens": (raw(max_tokens=0), 400, "max_tokens", "invalid_type"),
    "many stops": (raw(stop=["a"] * 500_000), 400, "stop", "invalid_value"),
    "long stop": (raw(stop="a" * 257), 400, "stop", "invalid_value"),
    "empty stop": (raw(stop=[""]), 400, "stop", "invalid_value"),
    "n": (raw(n=128), 400, "n", "invalid_value"),
    "n of 0": (raw(n=0), 400, "n", "invalid_value"),
    "seed": (raw(seed=2**64), 400, "seed", "invalid_value"),
    "no messages": (b"{}", 400, "messages", "missing_required_parameter"),
    "empty messages": (raw(messages=[]), 400, "messages", "invalid_value"),
    "role": (raw(messages=[{"role": "wizard", "content": "Hi"}]), 400, "messages[0].role", "invalid_value"),
    "no content": (raw(messages=[{"role": "user"}]), 400, "messages[0].content", "invalid_value"),
    "image": (
        raw(messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]),
        400,
        "messages[0].content[0]",
        "unsupported_value",
    ),
    "model": (raw(model="gpt-4"), 404, "model", "model_not_found"),
    "audio": (raw(audio={"voice": "x"}), 400, "audio", "unsupported_parameter"),
    "web search": (raw(web_search_options={}), 400, "web_search_options", "unsupported_parameter"),
    "bias token": (raw(logit_bias={"1000000": 1}), 400, "logit_bias", "invalid_value"),
    "bias name": (raw(logit_bias={"the": 1}), 400, "logit_bias", "invalid_value"),
    "biases": (raw(logit_bias={str(i): 1 for i in range(1025)}), 400, "logit_bias", "invalid_value"),
    "top_logprobs": (raw(logprobs=True, top_logprobs=21), 400, "top_logprobs", "invalid_type"),
    "top_logprobs alone": (raw(top_logprobs=2), 400, "top_logprobs", "invalid_value"),
    "stream_options": (raw(stream_options={}), 400, "stream_options", "invalid_value"),
    "stop id": (raw(stop_token_ids=[10**9]), 400, "stop_token_ids", "invalid_value"),
    "tools": (raw(tools=[{"type": "function", "function": {"name": "f"}}] * 129), 400, "tools", "invalid_value"),
    "schema": (
        raw(response_format={"type": "json_schema", "json_schema": {"schema": {"enum": ["a" * 70_000]}}}),
        400,
        "response_format",
        "invalid_value",
    ),
    "format": (raw(response_format={"type": "xml"}), 400, "response_format", "invalid_value"),
    "template variable": (raw(chat_template_kwargs={"messages": []}), 400, "chat_template_kwargs", "invalid_value"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_requests_are_refused_and_leave_nothing_behind(bench: MakeBench, name: str) -> None:
    body, status, param, code = BAD[name]

    async def go() -> None:
        b = bench()
        answer = await b.http.post("/v1/chat/completions", content=body)
        error = answer.json()["error"]
        assert (answer.status_code, error["param"], error["code"]) == (status, param, code), error
        assert set(error) == {"message", "type", "param", "code"}
        assert answer.headers["x-should-retry"] == "false"
        assert b.client.submitted == []
        assert b.service.admission.inside == 0
        assert b.service.running == {}

    asyncio.run(go())


@pytest.mark.parametrize("size", [N_CTX - 1, N_CTX, N_CTX + 1, 10 * N_CTX])
def test_a_prompt_as_long_as_the_context_is_refused_with_both_numbers(bench: MakeBench, size: int) -> None:
    async def go() -> None:
        b = bench()
        answer = await b.http.post("/v1/completions", json={"prompt": [5] * size, "max_tokens": 5})
        if size < N_CTX:
            assert answer.status_code == 200
            return
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
        assert f" {size} " in error["message"]
        assert f" {N_CTX} " in error["message"]

    asyncio.run(go())


def test_a_text_that_cannot_fit_is_refused_before_it_is_tokenized(
    bench: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def go() -> None:
        b = bench()

        def encode(*args: object, **kwargs: object) -> list[int]:
            raise AssertionError("tokenized")

        monkeypatch.setattr(b.service.model.tokenizer, "encode", encode)
        answer = await b.http.post("/v1/completions", json={"prompt": "a" * 100_000})
        assert answer.json()["error"]["code"] == "context_length_exceeded"

    asyncio.run(go())


@pytest.mark.parametrize(
    ("prompt", "status"),
    [
        ([], 400),
        ("", 400),
        ([[]], 400),
        ([1.5], 400),
        ([-1], 400),
        ([10**9], 400),
        ([[1], ""], 400),
        (["a"] * 65, 400),
    ],
)
def test_bad_prompts(bench: MakeBench, prompt: Any, status: int) -> None:
    async def go() -> None:
        b = bench()
        answer = await b.http.post("/v1/completions", json={"prompt": prompt})
        assert (answer.status_code, answer.json()["error"]["param"][:6]) == (status, "prompt")
        refused = await b.http.post("/v1/completions", json={"prompt": "a", "suffix": "b"})
        assert refused.json()["error"]["param"] == "suffix"

    asyncio.run(go())


def test_unknown_paths_and_methods(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        missing = await b.http.get("/v2/chat")
        assert (missing.status_code, missing.json()["error"]["code"]) == (404, "not_found")
        wrong = await b.http.get("/v1/chat/completions")
        assert (wrong.status_code, wrong.json()["error"]["code"]) == (405, "method_not_allowed")

    asyncio.run(go())


def test_fields_that_are_ignored_are_named(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        answer = await b.chat(store=True, verbosity="high", frobnicate=1, user="me", metadata={"a": "b"})
        assert answer.headers["x-zinc-ignored"] == "store, verbosity, frobnicate"
        assert b.log[-1]["ignored"] == ["store", "verbosity", "frobnicate"]
        assert "x-zinc-ignored" not in (await b.chat(store=False, verbosity=None)).headers
        strict = bench(config=ServerConfig(strict=True))
        refused = await strict.chat(frobnicate=1)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "frobnicate")
        assert (await strict.chat(user="me")).status_code == 200
        evil = await b.chat(**{"a\r\nx-evil: 1": 1})
        assert evil.headers["x-zinc-ignored"] == "a??x-evil??1"
        assert "x-evil" not in evil.headers

    asyncio.run(go())


def test_the_queue_is_bounded(bench: MakeBench) -> None:
    async def go() -> None:
        gate = asyncio.Semaphore(0)
        b = bench(gate=gate, slots=1, tenants=TenantConfigs(limits=Limits(queue=2)))
        waiting = [asyncio.create_task(b.chat()) for _ in range(3)]
        while len(b.client.submitted) < 3:
            await asyncio.sleep(0.01)
        refused = await b.chat()
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_busy")
        assert int(refused.headers["retry-after"]) >= 1
        assert refused.headers["x-should-retry"] == "true"
        assert (await b.http.get("/health/ready")).status_code == 503
        assert (await b.http.get("/health")).status_code == 200
        for _ in range(200):
            gate.release()
        assert [answer.status_code for answer in await asyncio.gather(*waiting)] == [200] * 3
        assert (await b.chat()).status_code == 200
        assert b.service.admission.inside == 0

    asyncio.run(go())


def test_a_burst_cannot_pass_the_limits_of_a_tenant(bench: MakeBench) -> None:
    async def go() -> None:
        tenants = TenantConfigs({"default": TenantConfig(requests_per_minute=3)})
        b = bench(tenants=tenants)
        answers = await asyncio.gather(*(b.chat() for _ in range(8)))
        assert sorted(a.status_code for a in answers) == [200] * 3 + [429] * 5
        refused = next(a for a in answers if a.status_code == 429)
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert 1 <= int(refused.headers["retry-after"]) <= 21

    asyncio.run(go())


def test_limits_of_a_tenant(bench: MakeBench) -> None:
    async def go() -> None:
        few = bench(tenants=TenantConfigs({"default": TenantConfig(tokens_per_minute=20)}))
        assert (await few.chat(max_tokens=5)).status_code == 200
        refused = await few.chat(max_tokens=5)
        assert refused.status_code == 429
        assert refused.headers["x-should-retry"] == "true"
        large = await bench(tenants=TenantConfigs({"default": TenantConfig(tokens_per_minute=5)})).chat()
        assert (large.status_code, large.headers["x-should-retry"]) == (429, "false")
        short = bench(tenants=TenantConfigs({"default": TenantConfig(max_tokens=4)}))
        assert (await short.chat(max_tokens=5)).json()["error"]["param"] == "max_completion_tokens"
        assert (await short.chat()).json()["usage"]["completion_tokens"] == 4
        narrow = bench(tenants=TenantConfigs({"default": TenantConfig(max_context=12)}))
        usage = (await narrow.chat()).json()["usage"]
        assert usage["total_tokens"] == 12
        longer = await narrow.chat("A long question about foxes and hens")
        assert longer.json()["error"]["code"] == "context_length_exceeded"

    asyncio.run(go())


def test_deadlines_go_to_the_engine(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench(tenants=TenantConfigs({"default": TenantConfig(seconds=9.0)}))
        await b.chat()
        assert b.client.submitted[-1].seconds == 9.0
        body = {**CHAT}
        await b.http.post("/v1/chat/completions", json=body, headers={"x-request-timeout": "2.5"})
        assert b.client.submitted[-1].seconds == 2.5
        bad = await b.http.post("/v1/chat/completions", json=body, headers={"x-request-timeout": "soon"})
        assert bad.status_code == 400

    asyncio.run(go())


WIDE = [("top_k", 0), ("repeat_last_n", -1), ("max_tokens", 1), ("max_completion_tokens", 1)]
ASKS: list[tuple[str, dict[str, Any], list[tuple[str, int]]]] = [
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]}, WIDE),
    ("/v1/completions", {"prompt": "Hi"}, WIDE[:3]),
    ("/v1/responses", {"input": "Hi"}, [("top_k", 0), ("max_output_tokens", 1)]),
    ("/v1/messages", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3}, [("top_k", 0)]),
]


@pytest.mark.parametrize(("path", "ask", "counts"), ASKS)
def test_counts_are_bounded_by_what_the_engine_can_be_sent(
    bench: MakeBench, path: str, ask: dict[str, Any], counts: list[tuple[str, int]]
) -> None:
    async def go() -> None:
        b = bench()
        for name, least in counts:
            for value in (COUNT_LIMIT + 1, 2**64, 2**70, 10**400, least - 1):
                answer = await b.http.post(path, json={**ask, name: value})
                assert answer.status_code == 400, (name, value, answer.text)
                assert name in answer.text or "max_tokens" in answer.text or value == 10**400, answer.text
            for value in (COUNT_LIMIT, least):
                answer = await b.http.post(path, json={**ask, name: value})
                assert answer.status_code == 200, (name, value, answer.text)
        assert len(b.client.submitted) == 2 * len(counts)
        for request in b.client.submitted:
            assert unpack_to(pack(request)[4:]) == request

    asyncio.run(go())
