"""docs/use/openai.md against a server: what a field that is not obeyed does; that the others have an effect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx
import pytest

from tests.serving.command import Command
from zinc_rt.serving.api import fields
from zinc_rt.serving.api.fields import ApiField, FieldRule

ASK = [{"role": "user", "content": "Tell me a story."}]
TABLES: dict[str, tuple[Sequence[ApiField], dict[str, Any]]] = {
    "/v1/chat/completions": (fields.CHAT, {"messages": ASK, "seed": 2, "max_tokens": 40}),
    "/v1/completions": (fields.COMPLETIONS, {"prompt": "A fox", "seed": 2, "max_tokens": 40}),
    "/v1/responses": (fields.RESPONSES, {"input": "Tell me a story.", "seed": 2, "max_output_tokens": 12}),
    "/v1/messages": (fields.ANTHROPIC, {"messages": ASK, "seed": 2, "max_tokens": 40, "model": "story"}),
}
ASKING: dict[str, Any] = {
    "audio": {"voice": "x", "format": "mp3"}, "function_call": {"name": "f"}, "functions": [{"name": "f"}],
    "modalities": ["text", "audio"], "web_search_options": {}, "best_of": 3, "suffix": "x", "background": True,
    "conversation": "c", "prompt": {"id": "p"}, "container": "c",
    "mcp_servers": [{"type": "url", "url": "http://x", "name": "x"}], "metadata": {"a": "b"}, "verbosity": "high",
    "store": True, "moderation": {}, "context_management": [{"type": "x"}], "max_tool_calls": 3, "user": "me",
    "service_tier": "auto", "prediction": {"type": "content", "content": "x"},
}  # fmt: skip
"""Values that ask for something; any text for other fields."""
EFFECTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {
        "frequency_penalty": 2, "logit_bias": {"5": 100}, "logprobs": True, "max_tokens": 3, "n": 2,
        "max_completion_tokens": 3, "presence_penalty": 2, "response_format": {"type": "json_object"}, "seed": 9,
        "stop": "e",
        "stream": True, "temperature": 0, "top_p": 0.01, "top_k": 1, "min_p": 1, "repetition_penalty": 10,
        "stop_token_ids": list(range(256, 1280)), "model": "alias",
    },
    "/v1/completions": {
        "frequency_penalty": 2, "logit_bias": {"5": 100}, "logprobs": 1, "max_tokens": 3, "n": 2, "echo": True,
        "seed": 9, "stop": "e", "stream": True, "temperature": 0, "top_p": 0.01, "top_k": 1, "min_p": 1,
        "prompt": "An owl",
    },
    "/v1/responses": {
        "instructions": "Be kind.", "max_output_tokens": 3, "metadata": {"a": "b"}, "stream": True, "temperature": 0,
        "text": {"format": {"type": "json_object"}}, "top_logprobs": 3, "top_p": 0.01, "seed": 9, "top_k": 1,
        "min_p": 1, "include": ["message.output_text.logprobs"],
    },
    "/v1/messages": {
        "max_tokens": 3, "stop_sequences": ["e"], "stream": True, "system": "Be kind.", "temperature": 0, "top_k": 1,
        "top_p": 0.01, "seed": 9, "min_p": 1,
    },
}  # fmt: skip


HTTP = httpx.Client(timeout=60)  # one for all: each loads certificates


def ask(server: Command, path: str, **changes: Any) -> httpx.Response:
    return HTTP.post(server.url + path, json={**TABLES[path][1], **changes})


def shown(answer: httpx.Response) -> Any:
    """What an answer says, without ids, times and the like."""
    if answer.headers["content-type"] != "application/json":
        return "stream"
    body = answer.json()
    said = [body[key] for key in ("choices", "output", "content", "metadata", "model") if key in body]
    for item in said[0]:
        item.pop("id", None)
    usage = body["usage"]
    prompt = ("prompt_tokens", "input_tokens", "cache_read_input_tokens")
    return [*said, sum(usage.get(key, 0) for key in prompt)]


@pytest.mark.parametrize("path", TABLES)
def test_fields_that_are_not_obeyed(story: Command, path: str) -> None:
    plain = shown(ask(story, path))
    for field in TABLES[path][0]:
        if field.rule is FieldRule.obeyed:
            continue
        answer = ask(story, path, **{field.name: ASKING.get(field.name, "x")})
        if field.rule is FieldRule.refused:
            assert answer.status_code == 400, field
            error = answer.json()["error"]
            assert path == "/v1/messages" or (error["code"], error["param"]) == ("unsupported_parameter", field.name)
            assert field.name in error["message"]
            continue
        assert (answer.status_code, shown(answer)) == (200, plain), (field, answer.text)
        assert answer.headers.get("x-zinc-ignored") == (field.name if field.rule is FieldRule.ignored else None), field


@pytest.mark.parametrize("path", TABLES)
def test_fields_that_are_obeyed_change_the_answer(story: Command, path: str) -> None:
    plain = shown(ask(story, path))
    assert shown(ask(story, path)) == plain
    obeyed = {field.name for field in TABLES[path][0] if field.rule is FieldRule.obeyed}
    for name, value in EFFECTS[path].items():
        assert name in obeyed
        answer = ask(story, path, **{name: value})
        assert answer.status_code == 200, (name, answer.text)
        assert shown(answer) != plain or name == "model", name


def test_what_nobody_knows_is_ignored_and_named(story: Command) -> None:
    answer = ask(story, "/v1/chat/completions", nothing=1, store=False, user=None)
    assert answer.headers["x-zinc-ignored"] == "nothing"
