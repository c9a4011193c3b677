"""Ollama's interface: the texts of OpenAI's endpoints, as lines of JSON."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from time import time
from typing import Any

import httpx
import pytest

import zinc_rt
from tests.serving.api.conftest import N_CTX, SAYS, Bench, MakeBench
from tests.serving.api.fake import LOGPROB
from tests.serving.api.test_llamacpp import coding, shown
from tests.serving.api.test_text import PAGE
from tests.serving.api.test_tools import ARGUMENTS, TOOLS, MakeCaller, caller, calls
from tests.serving.api.test_tools import SAYS as CALLING
from zinc_rt.hub.cached import CachedModel
from zinc_rt.hub.errors import HubError
from zinc_rt.scheduler.messages import Failed, Fault
from zinc_rt.serving.api import ollama
from zinc_rt.serving.api.config import ServerConfig
from zinc_rt.serving.api.embedder import EmbeddingClient
from zinc_rt.serving.api.fields import FieldRule, table
from zinc_rt.serving.api.keys import ApiKeys, digest, new_key
from zinc_rt.serving.api.logs import make_logger
from zinc_rt.serving.api.ollama_models import VERSION
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.service import Service

__all__ = ["caller", "calls"]

ASK = [{"role": "user", "content": "Hi"}]
CALLS = json.loads((Path(__file__).parent / "ollama_calls.json").read_text())
"""Requests of front ends, and the members that they read of each line of the answers, with their types."""


def lines(answer: httpx.Response) -> list[dict[str, Any]]:
    """A stream's lines; all but the last one are pieces."""
    assert answer.headers["content-type"] == "application/x-ndjson"
    found = [json.loads(line) for line in answer.text.splitlines()]
    assert [line["done"] for line in found] == [False] * (len(found) - 1) + [True]
    return found


async def post(b: Bench, path: str, **body: Any) -> httpx.Response:
    return await b.http.post(path, json={"model": "story", **body})


def test_chats_as_lines_and_as_a_whole(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        options = {"seed": 4, "temperature": 0.5, "num_predict": 30, "repeat_penalty": 1.5, "num_ctx": 9, "top_k": 7}
        answer = await post(b, "/api/chat", messages=ASK, options=options, keep_alive="5m")
        found = lines(answer)
        assert "".join(line["message"]["content"] for line in found) == SAYS
        assert {line["message"]["role"] for line in found} == {"assistant"}
        assert answer.headers["x-zinc-ignored"] == "options.num_ctx"
        last = found[-1]
        assert (last["done_reason"], last["eval_count"]) == ("length", 30) or last["eval_count"] < 30
        assert last["prompt_eval_count"] == len(b.client.submitted[0].prompt)
        assert (last["prompt_eval_duration"], last["eval_duration"]) == (500_000_000, 1_000_000_000)
        params, seed = b.client.submitted[0].params, b.client.submitted[0].seed
        assert (params.temperature, params.top_k, params.max_tokens, seed) == (0.5, 7, 30, 4)
        assert params.repetition_penalty == 1.5
        whole = (await post(b, "/api/chat", messages=ASK, options=options, stream=False)).json()
        assert whole["message"] == {"role": "assistant", "content": SAYS}
        assert (whole["done"], whole["model"]) == (True, "story")
        same = await b.chat(seed=4, temperature=0.5, repetition_penalty=1.5, top_k=7, max_tokens=30)
        assert same.status_code == 200
        assert b.client.submitted[1].prompt == b.client.submitted[2].prompt
        assert b.client.submitted[1].params == b.client.submitted[2].params
        await post(b, "/api/chat", messages=ASK, options={"num_predict": -1})
        assert b.client.submitted[-1].params.max_tokens is None
        stopped = await post(b, "/api/chat", messages=ASK, options={"stop": ["grey owl"]}, stream=False)
        assert stopped.json()["message"]["content"] == "Once there was a small "
        assert stopped.json()["done_reason"] == "stop"

    asyncio.run(go())


def test_prompts_and_raw_prompts(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        found = lines(await post(b, "/api/generate", prompt="Hi", options={"num_predict": 40}))
        assert "".join(line["response"] for line in found) == SAYS
        await post(b, "/api/chat", messages=ASK)
        assert b.client.submitted[0].prompt == b.client.submitted[1].prompt
        await post(b, "/api/generate", prompt="Hi", system="Be brief.")
        both = [{"role": "system", "content": "Be brief."}, *ASK]
        await post(b, "/api/chat", messages=both)
        assert b.client.submitted[2].prompt == b.client.submitted[3].prompt
        raw = (await post(b, "/api/generate", prompt="Hi", raw=True, stream=False)).json()
        assert raw["response"] == SAYS
        assert b.client.submitted[-1].prompt == tuple(b.service.model.tokenizer.encode("Hi"))
        assert b.client.submitted[-1].grammar is None
        for field, value in (("raw", True), ("template", "")):
            await post(b, "/api/generate", prompt="Hi", format="json", **{field: value})
            assert b.client.submitted[-1].grammar is not None
        for more, named in (
            ({"suffix": "x"}, "filling in"),
            ({"template": "x"}, "template"),
            ({"raw": True, "system": "x"}, "system"),
            ({"raw": True, "images": ["x"]}, "images"),
            ({"raw": True, "context": [1]}, "context"),
            ({"context": [1 << 20]}, "context"),
        ):
            refused = await post(b, "/api/generate", prompt="Hi", **more)
            assert (refused.status_code, named in refused.json()["error"]) == (400, True), refused.text

    asyncio.run(go())


def test_an_answer_goes_on_from_its_context(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        first = (await post(b, "/api/generate", prompt="Hi", stream=False, options={"num_predict": 5})).json()
        prompt = b.client.submitted[-1].prompt
        assert tuple(first["context"][: len(prompt)]) == prompt
        assert len(first["context"]) == len(prompt) + 5
        found = lines(await post(b, "/api/generate", prompt="Hi", context=first["context"]))
        assert b.client.submitted[-1].prompt == (*first["context"], *prompt)
        assert found[-1]["context"][: len(prompt)] == list(prompt)
        assert "context" not in (await post(b, "/api/generate", prompt="Hi", raw=True, stream=False)).json()
        b.service.model = dataclasses.replace(b.service.model, chat=None)
        plain = (await post(b, "/api/generate", prompt="Hi", stream=False)).json()
        await post(b, "/api/generate", prompt=" Ho", context=plain["context"])
        more = b.service.model.tokenizer.encode(" Ho", add_special=False)
        assert b.client.submitted[-1].prompt == (*plain["context"], *more)

    asyncio.run(go())


def test_log_probabilities(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        ask = {"messages": ASK, "logprobs": True, "top_logprobs": 2}
        whole = (await post(b, "/api/chat", **ask, stream=False)).json()
        assert len(whole["logprobs"]) == whole["eval_count"]
        assert [sorted(one) for one in whole["logprobs"][0]["top_logprobs"]] == [["bytes", "logprob", "token"]] * 2
        found = lines(await post(b, "/api/chat", **ask))
        assert [one for line in found for one in line.get("logprobs", ())] == whole["logprobs"]
        raw = (await post(b, "/api/generate", prompt="Hi", raw=True, logprobs=True, stream=False)).json()
        assert [one["logprob"] for one in raw["logprobs"]] == [LOGPROB] * raw["eval_count"]

    asyncio.run(go())


def test_a_suffix_is_filled_in(bench: MakeBench) -> None:
    async def go() -> None:
        b = coding(bench())
        await post(b, "/api/generate", prompt="def f(", suffix="  return x\n", options={"num_predict": 3})
        assert shown(b) == "<|fim_prefix|>def f(<|fim_suffix|>  return x\n<|fim_middle|>"
        told = (await b.http.post("/api/show", json={"name": "story"})).json()
        assert "insert" in told["capabilities"]
        assert ".Suffix" in told["template"]

    asyncio.run(go())


def test_thinking_and_calls(calls: MakeCaller) -> None:
    async def go() -> None:
        b = calls()
        found = lines(await post(b, "/api/chat", messages=ASK, tools=TOOLS, think=True, options={"seed": 1}))
        assert "".join(line["message"].get("thinking", "") for line in found).strip() == "The user wants weather."
        made = [call for line in found for call in line["message"].get("tool_calls", [])]
        assert [(c["function"]["name"], c["function"]["arguments"]) for c in made] == [
            ("weather", ARGUMENTS),
            ("time", {}),
        ]
        assert found[-1]["done_reason"] == "stop"
        prompt = b.service.model.tokenizer.decode(b.client.submitted[0].prompt)
        assert prompt.endswith("True")
        await post(b, "/api/chat", messages=ASK, think=False)
        assert b.service.model.tokenizer.decode(b.client.submitted[1].prompt).endswith("False")
        await post(b, "/api/chat", messages=ASK, think="low")
        assert "low" in b.service.model.tokenizer.decode(b.client.submitted[2].prompt)
        asked = {"messages": ASK, "tools": TOOLS, "think": True, "options": {"seed": 1}}
        whole = (await post(b, "/api/chat", **asked, stream=False)).json()
        assert whole["message"]["tool_calls"] == made
        talk = [
            *ASK,
            {**whole["message"], "content": None},
            {"role": "tool", "tool_name": "time", "content": "noon"},
            {"role": "tool", "content": "rain"},
        ]
        answer = await post(b, "/api/chat", messages=talk, tools=TOOLS)
        assert answer.status_code == 200, answer.text
        said = b.service.model.tokenizer.decode(b.client.submitted[-1].prompt)
        assert "tool: noon" in said
        assert '"city"' in said
        cut = calls(says=CALLING[: CALLING.index("rich")])
        rest = (await post(cut, "/api/chat", messages=ASK, tools=TOOLS, stream=False)).json()
        assert "tool_calls" not in rest["message"]

    asyncio.run(go())


def test_formats(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
        for form in ("json", schema):
            assert (await post(b, "/api/chat", messages=ASK, format=form)).status_code == 200
            assert b.client.submitted[-1].grammar is not None
        await post(b, "/api/chat", messages=ASK, format="")
        assert b.client.submitted[-1].grammar is None
        assert (await post(b, "/api/chat", messages=ASK, format="xml")).status_code == 400

    asyncio.run(go())


def read(answer: Any, path: str) -> Any:
    """A member of an answer by its path."""
    for name in path.split("/"):
        answer = answer[int(name)] if name.isdigit() else answer[name]
    return answer


@pytest.mark.parametrize("client", CALLS)
def test_calls_of_clients_are_answered(bench: MakeBench, client: str) -> None:
    async def go() -> None:
        b = bench()
        for call in CALLS[client]:
            body = call.get("body")
            answer = await (b.http.get(call["path"]) if body is None else b.http.post(call["path"], json=body))
            assert answer.status_code == 200, answer.text
            parts = [json.loads(line) for line in answer.text.splitlines()]
            assert all(
                type(read(part, path)).__name__ == kind for part in parts for path, kind in call["reads"].items()
            )
            for path, kind in call.get("last", {}).items():
                assert type(read(parts[-1], path)).__name__ == kind
            if body and body.get("stream"):
                assert len(parts) > 2

    asyncio.run(go())


def test_open_webui_finds_the_model_that_it_asks_for(bench: MakeBench) -> None:
    """It puts `:latest` behind a name and looks for it in the list, and for what is loaded by the same name."""

    async def go() -> None:
        http = bench().http
        listed, loaded = [(await http.get(path)).json()["models"] for path in ("/api/tags", "/api/ps")]
        assert "story:latest" in {model["model"] for model in listed} & {model["name"] for model in loaded}
        assert all(datetime.fromisoformat(model["expires_at"]).timestamp() > time() for model in loaded)

    asyncio.run(go())


def test_what_there_is(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        listed = (await b.http.get("/api/tags")).json()["models"]
        assert [m["name"] for m in listed] == ["story:latest", "alias:latest"]
        assert listed[0]["details"]["format"] == "gguf"
        assert listed[0]["size"] > 10**5
        assert (await b.http.get("/api/ps")).json()["models"][0]["context_length"] == N_CTX
        assert (await b.http.get("/api/version")).json() == {"version": VERSION}
        told = (await post(b, "/api/show")).json()
        assert told["capabilities"] == ["completion"]
        family = listed[0]["details"]["family"]
        assert told["model_info"]["general.architecture"] == family
        assert told["model_info"][f"{family}.context_length"] == N_CTX
        assert told["parameters"].split()[:2] == ["num_ctx", str(N_CTX)]
        assert "messages" in told["template"]
        assert ".Suffix" not in told["template"]
        for name in ("story:latest", "alias"):
            loaded = (await b.http.post("/api/generate", json={"model": name})).json()
            assert (loaded["done_reason"], loaded["done"], loaded["response"]) == ("load", True, "")
            assert loaded["model"] == name
        for path, body in (
            ("/api/chat", {"model": "qwen3", "messages": ASK}),
            ("/api/show", {"model": "qwen3"}),
            ("/api/generate", {"model": "qwen3:latest", "prompt": "Hi"}),
        ):
            missing = await b.http.post(path, json=body)
            assert missing.status_code == 404
            assert set(missing.json()) == {"error"}
        b.service.loading = "loading"
        assert (await b.http.get("/api/ps")).json() == {"models": []}

    asyncio.run(go())


def test_models_come_and_go_where_that_is_allowed(
    bench: MakeBench, served: ServedModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    removed: list[CachedModel] = []

    def model(name: str, path: Path) -> CachedModel:
        return CachedModel(name, "a/b", "", path.parent, [path], 1)

    def pull(name: str, *, progress: Callable[[int, int], None]) -> None:
        if name != "qwen3:0.6b":
            raise HubError(f"there is no {name}")
        progress(5, 10)
        progress(10, 10)

    async def go() -> None:
        b = bench()
        assert (await post(b, "/api/pull", stream=False)).json() == {"status": "success"}
        found = await b.http.post("/api/pull", json={"name": "alias:latest"})
        assert [json.loads(line) for line in found.text.splitlines()] == [{"status": "success"}]
        for method, path in (("POST", "/api/pull"), ("DELETE", "/api/delete")):
            refused = await b.http.request(method, path, json={"model": "qwen3:0.6b"})
            assert (refused.status_code, "--allow-" in refused.json()["error"]) == (403, True)
        opened = bench(config=ServerConfig(pulls=True, deletes=True))
        answer = await opened.http.post("/api/pull", json={"model": "qwen3:0.6b"})
        told = [json.loads(line) for line in answer.text.splitlines()]
        assert [step.get("completed") for step in told] == [None, 5, 10, None]
        assert (told[0]["status"], told[-1]["status"]) == ("pulling manifest", "success")
        wrong = await opened.http.post("/api/pull", json={"model": "nothing", "stream": False})
        assert (wrong.status_code, wrong.json()) == (400, {"error": "there is no nothing"})
        missing = await opened.http.request("DELETE", "/api/delete", json={"model": "qwen3:0.6b"})
        assert (missing.status_code, "not downloaded" in missing.json()["error"]) == (404, True)
        for known, status in ((model("mine", served.file.path), 409), (model("other", tmp_path / "x.gguf"), 200)):
            monkeypatch.setattr("zinc_rt.hub.cached.find_one", lambda _, known=known: known)
            gone = await opened.http.request("DELETE", "/api/delete", json={"model": "qwen3:0.6b"})
            assert (gone.status_code, removed) == (status, [known] if status == 200 else [])
        assert (await opened.http.request("DELETE", "/api/delete", json={"model": "story"})).status_code == 409
        key = new_key("acme")
        locked = bench(config=ServerConfig(pulls=True), keys=ApiKeys({"acme": (digest(key),)}))
        forbidden = await locked.http.post("/api/pull", json={"model": "qwen3:0.6b"}, headers={"x-api-key": key})
        assert "administrator" in forbidden.text

    monkeypatch.setattr("zinc_rt.hub.pull.pull", pull)
    monkeypatch.setattr("zinc_rt.hub.cached.cached_models", list)
    monkeypatch.setattr("zinc_rt.hub.cached.remove", removed.append)
    asyncio.run(go())


def test_an_error_in_a_stream_is_a_line(bench: MakeBench) -> None:
    async def go() -> None:
        b = bench()
        b.client.fail, b.client.fail_after = Failed("x", Fault.engine_error, "it broke"), 3
        answer = await post(b, "/api/chat", messages=ASK)
        assert answer.status_code == 200
        assert json.loads(answer.text.splitlines()[-1]) == {"error": "the engine failed: it broke"}
        bad = await post(b, "/api/chat", messages=ASK, options={"temperature": 9})
        assert bad.status_code == 400
        assert "options.temperature" in bad.json()["error"]
        strict = bench(config=ServerConfig(strict=True))
        refused = await post(strict, "/api/chat", messages=ASK, options={"num_ctx": 4096})
        assert (refused.status_code, "num_ctx" in refused.json()["error"]) == (400, True)

    asyncio.run(go())


def test_embed(served: ServedModel) -> None:
    async def go() -> None:
        client = EmbeddingClient(lambda: zinc_rt.load(device="cpu", n_ctx=N_CTX, embeddings=True, kernels="reference"))
        service = Service(ServerConfig(), client, served, make_logger())
        b: Any = Bench(service, client, None)  # type: ignore[arg-type]
        service.loaded(await client.start())
        try:
            made = (await post(b, "/api/embed", input=["A fox", "Two hens"])).json()
            other = (await b.http.post("/v1/embeddings", json={"input": ["A fox", "Two hens"]})).json()
            assert made["embeddings"] == [entry["embedding"] for entry in other["data"]]
            assert made["prompt_eval_count"] == other["usage"]["prompt_tokens"]
            assert (await post(b, "/api/embed", input="")).json()["embeddings"] == []
            (old,) = (await post(b, "/api/embed", input="A fox")).json()["embeddings"]
            assert (await post(b, "/api/embeddings", prompt="A fox")).json() == {"embedding": old}
            assert (await post(b, "/api/embed", input=["A fox", ""])).status_code == 400  # which would be which
            long = "a fox " * 200
            assert (await post(b, "/api/embed", input=long)).json()["prompt_eval_count"] == N_CTX
            assert (await post(b, "/api/embed", input=long, truncate=False)).status_code == 400
            assert (await post(b, "/api/show")).json()["capabilities"] == ["embedding"]
        finally:
            await client.close()

    asyncio.run(go())


@pytest.mark.parametrize(
    ("records", "kind"),
    [
        (ollama.CHAT, ollama.OllamaChat),
        (ollama.GENERATE, ollama.OllamaGenerate),
        (ollama.EMBED, ollama.OllamaEmbed),
        (ollama.EMBEDDINGS, ollama.OllamaEmbeddings),
        (ollama.OPTIONS, ollama.OllamaOptions),
    ],
)
def test_the_fields_that_are_obeyed_are_those_that_are_read(records: Any, kind: Any) -> None:
    assert {field.name for field in records if field.rule is FieldRule.obeyed} == set(kind.__struct_fields__)
    assert table(records) in PAGE.with_name("ollama.md").read_text(encoding="utf-8")
