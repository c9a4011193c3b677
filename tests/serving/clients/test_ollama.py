"""Clients of Ollama against `zinc serve`: its own for Python, LangChain's, `llm` with its plugin (extra `clients`)."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

import zinc_rt
from tests.serving.clients.caller import write_coder
from tests.serving.clients.test_frameworks import Weather
from tests.serving.command import Command, started

pytestmark = pytest.mark.slow

ASK = [{"role": "user", "content": "Tell me a story."}]


def client(server: Command) -> Any:
    return pytest.importorskip("ollama").Client(host=server.url)


@pytest.fixture(scope="module")
def said() -> str:
    """What the model says to ASK with seed 5, without a server."""
    with zinc_rt.load() as model:
        return model.chat(ASK, seed=5, max_tokens=24).text


def test_chat(story: Command, said: str) -> None:
    c = client(story)
    options = {"seed": 5, "num_predict": 24, "num_ctx": 4096, "num_thread": 2}
    whole = c.chat("story", ASK, options=options, keep_alive="5m")
    assert whole.message.content == said
    assert (whole.done, whole.done_reason, whole.eval_count) == (True, "length", 24)
    times = (whole.prompt_eval_duration, whole.eval_duration)
    assert all(0 < time < whole.total_duration for time in times)
    assert sum(times) <= whole.total_duration
    parts = list(c.chat("story:latest", ASK, options=options, stream=True))
    assert "".join(part.message.content for part in parts) == said
    assert [part.done for part in parts] == [False] * (len(parts) - 1) + [True]
    told = c.chat("story", ASK, options=options, logprobs=True, top_logprobs=2)
    assert len(told.logprobs) == 24
    assert all(len(one.top_logprobs) == 2 and one.logprob <= 0 for one in told.logprobs)

    async def stream() -> str:
        more = pytest.importorskip("ollama").AsyncClient(host=story.url)
        return "".join(
            [part.message.content async for part in await more.chat("story", ASK, options=options, stream=True)]
        )

    assert asyncio.run(stream()) == said
    assert c.chat("story", []).done_reason == "load"


def test_forms(story: Command) -> None:
    class Animal(BaseModel):
        name: str
        small: bool

    c = client(story)
    whole = c.chat("story", ASK, format=Animal.model_json_schema(), options={"seed": 1})
    Animal.model_validate_json(whole.message.content)
    raw = c.generate("story", "An owl: ", raw=True, format=Animal.model_json_schema(), options={"seed": 1})
    Animal.model_validate_json(raw.response)
    assert c.generate("story", "Hi", format="json", options={"num_predict": 40, "seed": 2}).response.lstrip()[0] == "{"


def test_generate(story: Command, said: str) -> None:
    c = client(story)
    options = {"seed": 5, "num_predict": 24}
    whole = c.generate("story", ASK[0]["content"], options=options)
    assert whole.response == said
    parts = list(c.generate("story", ASK[0]["content"], options=options, stream=True))
    assert "".join(part.response for part in parts) == said
    assert parts[-1].context == whole.context
    more = c.generate("story", "Go on.", context=whole.context, options=options)
    assert more.prompt_eval_count > whole.prompt_eval_count + 24
    with zinc_rt.load() as model:
        text = model.generate("A small fox", max_tokens=9, seed=5, stop=".").text
    assert (
        c.generate("story", "A small fox", raw=True, options={**options, "num_predict": 9, "stop": ["."]}).response
        == text
    )


def test_tools(caller: Command) -> None:
    c = client(caller)
    tool = {"type": "function", "function": {"name": "weather", "parameters": Weather.model_json_schema()}}
    found = None
    for seed in range(20):
        found = c.chat("caller", ASK, tools=[tool], options={"seed": seed, "num_predict": 60})
        if found.message.tool_calls:
            break
    assert found is not None
    talk = [
        *ASK,
        {"role": "assistant", "tool_calls": [{"function": {"name": "weather", "arguments": {"town": "Rome"}}}]},
    ]
    talk.append({"role": "tool", "tool_name": "weather", "content": "sunny"})
    assert c.chat("caller", talk, tools=[tool], options={"num_predict": 4}).eval_count == 4


def test_models(story: Command) -> None:
    c, ollama = client(story), pytest.importorskip("ollama")
    assert [model.model for model in c.list().models] == ["story:latest", "alias:latest"]
    (first, _) = c.ps().models
    assert first.expires_at.year > 2100
    shown = c.show("story")
    assert "completion" in shown.capabilities
    assert shown.modelinfo["qwen3.context_length"] == first.context_length
    assert c.pull("story").status == "success"
    assert [step.status for step in c.pull("story", stream=True)] == ["success"]
    for call, status in (
        (lambda: c.pull("qwen3:0.6b"), 403),
        (lambda: c.delete("story"), 403),
        (lambda: c.chat("other", ASK), 404),
        (lambda: c.create("new", from_="story"), 404),
        (lambda: c.generate("story", "def f(", suffix="return"), 400),
    ):
        with pytest.raises(ollama.ResponseError) as caught:
            call()
        assert caught.value.status_code == status, caught.value.error


def test_embeddings(embedder: Command) -> None:
    c = client(embedder)
    with zinc_rt.load(embeddings=True, pooling="mean") as model:
        want = model.embed(["a dog", "an owl"]).tolist()
    assert c.embed("embedder", ["a dog", "an owl"]).embeddings == want
    assert c.embeddings("embedder", "a dog").embedding == want[0]


def test_langchain(story: Command, caller: Command, embedder: Command, said: str) -> None:
    made = pytest.importorskip("langchain_ollama")
    llm = made.ChatOllama(model="story", base_url=story.url, seed=5, num_predict=24)
    whole = llm.invoke(ASK[0]["content"])
    assert whole.content == said
    assert whole.usage_metadata["output_tokens"] == 24
    assert "".join(part.content for part in llm.stream(ASK[0]["content"])) == said
    formed = made.ChatOllama(model="story", base_url=story.url, seed=1).with_structured_output(Weather)
    assert isinstance(formed.invoke("What is the weather?"), Weather)
    assert made.OllamaLLM(model="story", base_url=story.url, seed=5, num_predict=24).invoke(ASK[0]["content"]) == said
    bound = made.ChatOllama(model="caller", base_url=caller.url, num_predict=8).bind_tools([Weather])
    assert bound.invoke("Hi").usage_metadata["output_tokens"] <= 8
    vectors = made.OllamaEmbeddings(model="embedder", base_url=embedder.url)
    assert len(vectors.embed_query("a dog")) == len(vectors.embed_documents(["a dog", "an owl"])[1])


def test_llm(story: Command, tmp_path: Path, said: str) -> None:
    pytest.importorskip("llm_ollama")
    environment = {**os.environ, "OLLAMA_HOST": story.url, "LLM_USER_PATH": str(tmp_path), "HOME": str(tmp_path)}

    def run(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "llm", *words],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            input="",
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "story:latest" in run("models", "list")
    told = run("-m", "ollama/story:latest", "-o", "seed", "5", "-o", "num_predict", "24", ASK[0]["content"])
    assert told.strip() == said.strip()


def test_a_suffix(tmp_path: Path) -> None:
    with started(tmp_path, "-m", write_coder(tmp_path / "coder.gguf"), "--alias", "coder") as server:
        c = client(server)
        assert "insert" in c.show("coder").capabilities
        assert c.generate("coder", "Once", suffix=" end", options={"num_predict": 3}).eval_count == 3
