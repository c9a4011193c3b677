"""What the command line of a server says for all requests: parameters that they omit, keys, the form of the log."""

from __future__ import annotations

import asyncio
import io
import logging
from dataclasses import replace
from pathlib import Path

import pytest

from tests.serving.api.conftest import MakeBench, opened
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.serving.api.config import ServerConfig, TenantConfig, TenantConfigs
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.keys import ApiKeys, add_key, digest
from zinc_rt.serving.api.logs import make_logger, tell
from zinc_rt.serving.api.server import check_exposure, read_files

DEFAULTS = SamplingParams(temperature=0.1, top_k=3, seed=5, max_tokens=4)


def test_requests_that_do_not_say_get_the_servers_parameters(bench: MakeBench) -> None:
    made = bench()
    made.service.model = replace(made.service.model, defaults=DEFAULTS)

    async def go() -> dict[str, float]:
        async with opened(made):
            await made.chat()
            await made.chat(temperature=1.5, seed=9, max_tokens=2, top_p=0.5)
            await made.http.post("/v1/completions", json={"prompt": "a"})
            told: dict[str, float] = (await made.http.get("/v1/models")).json()["data"][0]["meta"]["defaults"]
            return told

    assert asyncio.run(go()) == {"temperature": 0.1, "top_k": 3, "top_p": 0.95, "min_p": 0.05}
    first, second, third = made.client.submitted
    assert (first.params.temperature, first.params.top_k, first.params.max_tokens, first.seed) == (0.1, 3, 4, 5)
    assert (second.params.temperature, second.params.top_k, second.params.max_tokens, second.seed) == (1.5, 3, 2, 9)
    assert (third.params.max_tokens, third.seed) == (4, 5)


def test_a_tenants_limit_bounds_the_default(bench: MakeBench) -> None:
    made = bench(tenants=TenantConfigs({"default": TenantConfig(max_tokens=3)}))
    made.service.model = replace(made.service.model, defaults=DEFAULTS)

    async def go() -> int:
        async with opened(made):
            await made.chat()
            return (await made.http.post("/v1/completions", json={"prompt": "a"})).status_code

    assert asyncio.run(go()) == 200
    assert [request.params.max_tokens for request in made.client.submitted] == [3, 3]


def test_keys_of_the_command_line(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = add_key(file, "team")
    keys = read_files(ServerConfig(keys=file, api_keys=("any text", "sk-2"))).keys
    assert keys is not None
    assert [keys.tenant(one) for one in (key, "any text", "sk-2")] == ["team", "default", "default"]
    for wrong in ("", "other", key[:-1]):
        with pytest.raises(ApiError):
            keys.tenant(wrong)
    assert ApiKeys(plain=frozenset([digest("a")])).tenant("a") == "default"
    check_exposure(ServerConfig(host="0.0.0.0", api_keys=("a",)))


def test_a_person_gets_text_and_a_program_json() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def logged(stream: io.StringIO, form: str | None = None) -> str:
        tell(make_logger(stream, form), "request", logging.WARNING, status=200, prompt="a\x1b[2J\nb", none=None)  # type: ignore[arg-type]
        return stream.getvalue()

    shown = logged(Terminal())
    assert shown[8:] == " WARNING: request  status 200  prompt a\\x1b[2J\\nb\n"
    assert logged(io.StringIO(), "text")[8:] == shown[8:]
    assert [text[0] for text in (logged(io.StringIO()), logged(Terminal(), "json"))] == ["{", "{"]
