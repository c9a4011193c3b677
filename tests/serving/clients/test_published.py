"""A running server against OpenAI's published description of its interface, whose file ZINC_OPENAI_SCHEMA names.

Needs the extra `clients` for requests that schemathesis makes up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.serving.api.conftest import events
from tests.serving.api.test_endpoints import named_events
from tests.serving.api.test_schema import FILE, Schemas, pytestmark, schemas
from tests.serving.clients.test_openai import WEATHER
from tests.serving.command import Command

__all__ = ["pytestmark", "schemas"]

ASK = [{"role": "user", "content": "Tell me a story."}]
SCHEMA = WEATHER["function"]["parameters"]
FORM = {
    "type": "json_schema",
    "json_schema": {"name": "w", "strict": True, "schema": WEATHER["function"]["parameters"]},
}
CHATS: list[dict[str, Any]] = [
    {}, {"n": 3}, {"stop": ["a", "b"]}, {"logprobs": True}, {"logprobs": True, "top_logprobs": 20}, {"max_tokens": 1},
    {"temperature": 0}, {"response_format": {"type": "json_object"}}, {"response_format": FORM, "max_tokens": 60},
    {"tools": [WEATHER], "max_tokens": 120}, {"tools": [WEATHER], "tool_choice": "required", "max_tokens": 120},
    {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "weather"}}, "max_tokens": 120},
    {"tools": [WEATHER], "tool_choice": "required", "logprobs": True, "top_logprobs": 2, "max_tokens": 120},
    {"messages": [{"role": "developer", "content": "Be kind."}, *ASK]}, {"reasoning_effort": "low", "user": "me"},
]  # fmt: skip
TEXTS: list[dict[str, Any]] = [
    {},
    {"prompt": ["A fox", "An owl"]},
    {"logprobs": 5},
    {"echo": True, "n": 2},
    {"prompt": [5, 6, 7]},
    {"stop": "."},
]
RESPONSES: list[dict[str, Any]] = [
    {},
    {"instructions": "Be kind.", "metadata": {"a": "b"}},
    {"max_output_tokens": 400},
    {"include": ["message.output_text.logprobs"], "top_logprobs": 2},
    {"tools": [{"type": "function", **WEATHER["function"]}], "tool_choice": "required", "max_output_tokens": 120},
    {"text": {"format": {"type": "json_schema", "name": "w", "schema": SCHEMA}}},
    {"input": [{"role": "user", "content": [{"type": "input_text", "text": "Hi"}]}]},
]


@pytest.fixture(scope="module")
def http(caller: Command) -> httpx.Client:
    return httpx.Client(base_url=caller.v1, timeout=60)


def ask(http: httpx.Client, path: str, body: dict[str, Any]) -> httpx.Response:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer


@pytest.mark.parametrize("fields", CHATS, ids=str)
def test_chat_completions(http: httpx.Client, schemas: Schemas, fields: dict[str, Any]) -> None:
    body = {"model": "caller", "messages": ASK, "max_tokens": 12, **fields}
    schemas.check("CreateChatCompletionResponse", ask(http, "/chat/completions", body).json())
    streamed = ask(http, "/chat/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
    for chunk in events(streamed.text):
        schemas.check("CreateChatCompletionStreamResponse", chunk)


@pytest.mark.parametrize("fields", TEXTS, ids=str)
def test_completions(http: httpx.Client, schemas: Schemas, fields: dict[str, Any]) -> None:
    body = {"model": "caller", "prompt": "A fox", "max_tokens": 12, **fields}
    schemas.check("CreateCompletionResponse", ask(http, "/completions", body).json())
    for chunk in events(ask(http, "/completions", {**body, "stream": True}).text):
        for choice in chunk["choices"]:
            choice["finish_reason"] = choice["finish_reason"] or "stop"  # null in streams, which it leaves out
        schemas.check("CreateCompletionResponse", chunk)


@pytest.mark.parametrize("fields", RESPONSES, ids=str)
def test_responses(http: httpx.Client, schemas: Schemas, fields: dict[str, Any]) -> None:
    body = {"model": "caller", "input": "Hi", "max_output_tokens": 40, **fields}
    schemas.check("Response", ask(http, "/responses", body).json())
    for _, event in named_events(ask(http, "/responses", {**body, "stream": True}).text):
        schemas.event(event)


def test_models_embeddings_errors(http: httpx.Client, embedder: Command, schemas: Schemas) -> None:
    schemas.check("ListModelsResponse", http.get("/models").json())
    schemas.check("Model", http.get("/models/caller").json())
    for fields in ({}, {"input": ["a", "b"]}, {"input": [5, 6]}):
        body = {"model": "embedder", "input": "a dog", **fields}
        schemas.check("CreateEmbeddingResponse", httpx.post(f"{embedder.v1}/embeddings", json=body).json())
    for path, body, status in (
        ("/chat/completions", {"model": "caller"}, 400),
        ("/chat/completions", {"model": "x", "messages": ASK}, 404),
        ("/completions", {"model": "caller", "prompt": "a fox " * 2000}, 400),
        ("/responses", {"input": 5}, 400),
        ("/embeddings", {"input": "a"}, 400),
        ("/nothing", {}, 404),
    ):
        answer = http.post(path, json=body)
        assert answer.status_code == status
        schemas.check("ErrorResponse", answer.json())


@pytest.mark.timeout(1200)
def test_requests_that_schemathesis_makes_up(story: Command, embedder: Command, tmp_path: Path) -> None:
    """No 5xx, no hang, every answer of its schema, and the server is well afterwards."""
    pytest.importorskip("schemathesis")
    program = Path(sys.executable).with_name("st")
    published = json.loads(Path(FILE).read_text())
    for operations in published["paths"].values():
        for operation in operations.values():
            for answer in operation.get("responses", {}).values() if isinstance(operation, dict) else ():
                # The tool compares the event around a chunk with the chunk's schema; other tests read streams.
                answer.get("content", {}).pop("text/event-stream", None)
    # Vectors in base64 are what clients ask for, and no answer that it describes.
    published["components"]["schemas"]["CreateEmbeddingRequest"]["properties"]["encoding_format"]["enum"] = ["float"]
    described = tmp_path / "openapi.json"
    described.write_text(json.dumps(published))
    for server, which in ((story, "--exclude-path=/embeddings"), (embedder, "--include-path=/embeddings")):
        done = subprocess.run(
            [
                program, "run", described, "--url", server.v1, which, "--exclude-method=DELETE",
                "--checks=not_a_server_error,response_schema_conformance", "--phases=examples,coverage,fuzzing",
                "--max-examples=300", "--max-time=300", "--request-timeout=30", "--continue-on-failure", "--no-shrink",
                "--suppress-health-check=all", "--seed=1",
            ], cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-5000:]
        assert httpx.get(f"{server.url}/health").status_code == 200
        assert httpx.get(f"{server.url}/health/progress").json()["running"] == 0
        assert "internal error" not in server.log
