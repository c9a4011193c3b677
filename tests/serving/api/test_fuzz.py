"""Requests of any shape: refused or answered, never a fault of the server, and nothing is left behind."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.serving.api.conftest import Bench, MakeBench
from zinc_rt.serving.api import fields

ANY = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=8)
    | st.sampled_from(["user", "text", "function", "json_schema", "auto", "required", "tool", "assistant", "system"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "name", "function", "parameters", "format", "schema"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
WAYS: dict[str, tuple[tuple[fields.Field, ...], dict[str, Any]]] = {
    "/v1/chat/completions": (fields.CHAT, {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}),
    "/v1/completions": (fields.COMPLETIONS, {"prompt": "Hi", "max_tokens": 4}),
    "/v1/responses": (fields.RESPONSES, {"input": "Hi", "max_output_tokens": 16}),
    "/v1/messages": (fields.ANTHROPIC, {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}),
    "/v1/messages/count_tokens": (fields.ANTHROPIC, {"messages": [{"role": "user", "content": "Hi"}]}),
    "/tokenize": ((), {"content": "Hi", "messages": None, "add_special": True}),
    "/detokenize": ((), {"tokens": [1, 2]}),
}

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Bern"]}, "n": {"anyOf": [{"type": "integer"}, {"const": 1}]}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION = {"name": "look", "description": "Looks.", "parameters": SCHEMA, "strict": True}
TOOL = {"type": "function", "function": FUNCTION}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"city": "Bern"}'}}
PARTS = [{"type": "text", "text": "Hi"}]
FORM: dict[str, Any] = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True}}
RICH: list[tuple[str, dict[str, Any]]] = [
    (
        "/v1/chat/completions",
        {
            "messages": [
                {"role": "user", "content": PARTS},
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "Sun"},
            ],
            "tools": [TOOL],
            "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [TOOL]}},
            "stop": ["x"],
            "logit_bias": {"3": 1},
            "reasoning_effort": "low",
            "max_tokens": 2,
        },
    ),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": "Hi"}], "response_format": FORM, "max_tokens": 2},
    ),
    (
        "/v1/responses",
        {
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
                {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm"}]},
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "Sun"},
            ],
            "tools": [{"type": "function", **FUNCTION}],
            "tool_choice": {"type": "function", "name": "look"},
            "reasoning": {"effort": "low"},
            "max_output_tokens": 16,
        },
    ),
    (
        "/v1/responses",
        {"input": "Hi", "text": {"format": {"type": "json_schema", **FORM["json_schema"]}}, "max_output_tokens": 16},
    ),
    (
        "/v1/messages",
        {
            "system": PARTS,
            "messages": [
                {"role": "user", "content": PARTS},
                {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {"a": 1}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": PARTS}]},
            ],
            "tools": [{"name": "look", "description": "Looks.", "input_schema": SCHEMA}],
            "tool_choice": {"type": "tool", "name": "look", "disable_parallel_tool_use": True},
            "output_config": {"effort": "low"},
            "max_tokens": 2,
        },
    ),
]


def places(tree: Any) -> list[tuple[Any, ...]]:
    """The path to each value inside."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    return [(key, *rest) for key, value in items for rest in [(), *places(value)]]


def changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The tree with another value at a path."""
    if not path:
        return value
    copy = tree.copy()
    copy[path[0]] = changed(tree[path[0]], path[1:], value)
    return copy


@pytest.mark.parametrize(("path", "base"), RICH, ids=[f"{path}-{i}" for i, (path, _) in enumerate(RICH)])
def test_no_value_inside_a_body_is_a_fault_of_the_server(bench: MakeBench, path: str, base: dict[str, Any]) -> None:
    fuzz(bench, path, st.builds(changed, st.just(base), st.sampled_from(places(base)), ANY), 20)


@pytest.mark.parametrize("path", WAYS)
def test_no_body_is_a_fault_of_the_server(bench: MakeBench, path: str) -> None:
    records, base = WAYS[path]
    names = sorted({*(field.name for field in records), *base})
    changes = st.dictionaries(st.sampled_from(names), ANY, min_size=1, max_size=3)
    fuzz(bench, path, changes.map(lambda values: {**base, **values}), 15)


def fuzz(bench: MakeBench, path: str, bodies: st.SearchStrategy[dict[str, Any]], n: int) -> None:
    """Ask with each of these bodies: an answer or a refusal, and nothing is left behind."""
    b: Bench = bench()

    async def ask(body: dict[str, Any]) -> None:
        answer = await b.http.post(path, content=json.dumps(body).encode())
        assert answer.status_code in (200, 400, 404), (body, answer.text)
        if answer.status_code != 200:
            assert answer.json()["error"]["message"]
        assert b.service.admission.inside == 0
        assert b.service.running == {}

    @settings(max_examples=n, deadline=None, suppress_health_check=list(HealthCheck))
    @given(body=bodies)
    def run(body: dict[str, Any]) -> None:
        loop.run_until_complete(ask(body))

    loop = asyncio.new_event_loop()
    try:
        run()
    finally:
        loop.close()
