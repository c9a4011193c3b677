"""`/openapi.json` describes every endpoint, and each request that it allows is decoded."""

from __future__ import annotations

import asyncio
import json
import re

import jsonschema
import msgspec
import pytest

import zinc_rt
from tests.serving.api.conftest import MakeBench
from zinc_rt.serving.api.app import ENDPOINTS
from zinc_rt.serving.api.openapi import document

BODIES = [e for e in ENDPOINTS if e.body is not None]


def test_every_endpoint_is_described(bench: MakeBench) -> None:
    async def go() -> None:
        http = bench().http
        described = (await http.get("/openapi.json")).json()
        found = {(m.upper(), p) for p, methods in described["paths"].items() for m in methods}
        assert found == {(e.method, e.path.replace(":path", "")) for e in ENDPOINTS}
        schemas = described["components"]["schemas"]
        for ref in re.findall(r'"#/components/schemas/(\w+)"', json.dumps(described)):
            assert ref in schemas
        chat = schemas["ChatRequest"]["properties"]
        assert "strings of up to" in chat["stop"]["description"]
        assert "required" in described["paths"]["/v1/chat/completions"]["post"]["requestBody"]
        streams = described["paths"]["/v1/messages"]["post"]["responses"]["200"]["content"]
        assert set(streams) == {"application/json", "text/event-stream"}
        assert described["paths"]["/health"]["get"]["security"] == []
        (id_,) = described["paths"]["/v1/zinc/requests/{id}"]["get"]["parameters"]
        assert id_["name"] == "id"
        assert (await http.get("/version")).json() == {"version": zinc_rt.__version__}

    asyncio.run(go())


def test_requests_with_a_body_have_a_schema() -> None:
    posted = {e.path for e in ENDPOINTS if e.method == "POST"}
    assert posted - {e.path for e in BODIES} == {
        "/lora-adapters",  # an array, as llama.cpp has it
        "/v1/models/{id:path}/load",
        "/v1/models/{id:path}/unload",
    }


@pytest.mark.parametrize("value", [None, -1, 2**70, 1.5, "text", [], {}, [1], ["a"], True])
def test_the_schemas_say_what_is_decoded(value: object) -> None:
    """One field of each request with a value of any kind: the schema and the decoder agree."""
    described = document(ENDPOINTS)
    components = {"components": described["components"]}
    for endpoint in BODIES:
        assert endpoint.body is not None
        name = endpoint.body.__name__
        needed = {"messages": [], "prompt": "Hi", "input": "Hi", "max_tokens": 3, "tokens": [], "id": "x"}
        needed |= {"model": "x", "query": "x", "documents": ["x"], "input_prefix": "x", "input_suffix": "x"}
        needed |= {"lora_name": "x", "lora_path": "x"}
        required = described["components"]["schemas"][name].get("required", [])
        base = {key: needed[key] for key in required}
        validator = jsonschema.Draft202012Validator({"$ref": f"#/components/schemas/{name}", **components})
        for field in described["components"]["schemas"][name]["properties"]:
            body = {**base, field: value}
            try:
                msgspec.convert(body, endpoint.body)
                taken = True
            except msgspec.ValidationError:
                taken = False
            assert taken == validator.is_valid(body), (name, field)
