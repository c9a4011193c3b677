"""Answers against OpenAI's published description of its interface, whose file ZINC_OPENAI_SCHEMA names."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.serving.api.conftest import Bench, MakeBench, events
from tests.serving.api.test_endpoints import named_events
from tests.serving.api.test_tools import TOOLS, MakeCaller, caller, calls

__all__ = ["caller", "calls"]

FILE = os.environ.get("ZINC_OPENAI_SCHEMA", "")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not FILE, reason="ZINC_OPENAI_SCHEMA names no file"),
]


class Schemas:
    """The file's schemas, with references that a validator of JSON Schema can follow."""

    def __init__(self, path: str) -> None:
        self._tree = json.loads(Path(path).read_text())

    def event(self, value: dict[str, Any]) -> None:
        """Fails where an event is not of the schema of its type."""
        schemas = self._tree["components"]["schemas"].items()
        (name,) = [n for n, s in schemas if s.get("properties", {}).get("type", {}).get("enum") == [value["type"]]]
        self.check(name, value)

    def check(self, name: str, value: object) -> None:
        """Fails where a value is not of a schema; `nullable` of OpenAPI 3.0 means what it says."""
        schema = {"$ref": f"#/components/schemas/{name}", "components": _plain(self._tree["components"])}
        errors = sorted(jsonschema.Draft202012Validator(schema).iter_errors(value), key=str)
        assert not errors, f"{name}: {errors[0].json_path}: {errors[0].message[:600]}"


def _plain(tree: Any) -> Any:
    """The tree with `nullable` as a type."""
    if isinstance(tree, list):
        return [_plain(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    made = {key: _plain(value) for key, value in tree.items() if key != "nullable"}
    return {"anyOf": [made, {"type": "null"}]} if tree.get("nullable") is True else made


@pytest.fixture(scope="module")
def schemas() -> Schemas:
    return Schemas(FILE)


def test_chat_completions(bench: MakeBench, calls: MakeCaller, schemas: Schemas) -> None:
    async def go() -> None:
        b = bench()
        ways: list[tuple[Bench, dict[str, Any]]] = [
            (b, {}),
            (b, {"n": 2}),
            (b, {"logprobs": True, "top_logprobs": 2}),
            (b, {"stop": "owl"}),
            (calls(), {"tools": TOOLS}),
        ]
        for server, fields in ways:
            answer = await server.chat(**fields)
            schemas.check("CreateChatCompletionResponse", answer.json())
            usage = {"stream_options": {"include_usage": True}, "stream": True}
            for chunk in events((await server.chat(**fields, **usage)).text):
                schemas.check("CreateChatCompletionStreamResponse", chunk)
        schemas.check("ErrorResponse", (await b.chat(n=99)).json())

    asyncio.run(go())


def test_completions_models_embeddings(bench: MakeBench, schemas: Schemas) -> None:
    async def go() -> None:
        b = bench()
        for fields in ({}, {"logprobs": 2}, {"n": 2, "echo": True}):
            body = {"model": "story", "prompt": "A fox", "max_tokens": 5, **fields}
            schemas.check("CreateCompletionResponse", (await b.http.post("/v1/completions", json=body)).json())
            chunks = events((await b.http.post("/v1/completions", json={**body, "stream": True})).text)
            for chunk in chunks:
                for choice in chunk["choices"]:
                    choice["finish_reason"] = choice["finish_reason"] or "stop"  # null in streams, which it leaves out
                schemas.check("CreateCompletionResponse", chunk)
        schemas.check("ListModelsResponse", (await b.http.get("/v1/models")).json())
        schemas.check("Model", (await b.http.get("/v1/models/story")).json())

    asyncio.run(go())


def test_responses(bench: MakeBench, calls: MakeCaller, schemas: Schemas) -> None:
    async def go() -> None:
        tools = [{"type": "function", "strict": True, **tool["function"]} for tool in TOOLS]
        logprobs = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
        ways: list[tuple[Bench, dict[str, Any]]] = [(bench(), {}), (bench(), logprobs), (calls(), {"tools": tools})]
        for server, fields in ways:
            body = {"model": "story", "input": "Hi", **fields}
            schemas.check("Response", (await server.http.post("/v1/responses", json=body)).json())
            for _, event in named_events((await server.http.post("/v1/responses", json={**body, "stream": True})).text):
                schemas.event(event)

    asyncio.run(go())
