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


@pytest.mark.parametrize("path", WAYS)
def test_no_body_is_a_fault_of_the_server(bench: MakeBench, path: str) -> None:
    records, base = WAYS[path]
    names = sorted({*(field.name for field in records), *base})
    b: Bench = bench()

    async def ask(body: dict[str, Any]) -> None:
        answer = await b.http.post(path, content=json.dumps(body).encode())
        assert answer.status_code in (200, 400, 404), (body, answer.text)
        if answer.status_code != 200:
            assert answer.json()["error"]["message"]
        assert b.service.admission.inside == 0
        assert b.service.running == {}

    @settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
    @given(changes=st.dictionaries(st.sampled_from(names), ANY, min_size=1, max_size=3))
    def run(changes: dict[str, Any]) -> None:
        loop.run_until_complete(ask({**base, **changes}))

    loop = asyncio.new_event_loop()
    try:
        run()
    finally:
        loop.close()
