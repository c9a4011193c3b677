"""Several models behind one `zinc serve`, with real engines: the same bytes alone and in company, kills, unloads."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.adapters.files import story_adapters
from tests.serving.command import started
from tests.serving.pictures import base64_of, picture, write_projector
from tests.serving.real import SECONDS
from zinc_rt.llm.load import built_in_model

pytestmark = pytest.mark.slow

NAMES = ("alpha", "beta", "gamma")
CONTENT = [
    {"type": "text", "text": "What is it?"},
    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64_of(picture())}"}},
]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of models."""
    folder = tmp_path / "models"
    folder.mkdir()
    for name in NAMES:
        shutil.copy(built_in_model(), folder / f"{name}.gguf")
    return folder


def stream(url: str, name: str, seed: int, n: int = 60) -> str:
    """The data of a stream's events, without names, ids and times."""
    body = {"model": name, "prompt": "A little fox", "seed": seed, "max_tokens": n, "stream": True, "temperature": 1.0}
    answer = httpx.post(f"{url}/v1/completions", json=body, timeout=SECONDS)
    while answer.status_code == 503:  # it came while the engine was started again
        time.sleep(0.2)
        answer = httpx.post(f"{url}/v1/completions", json=body, timeout=SECONDS)
    text = answer.text
    assert text.endswith("data: [DONE]\n\n"), text
    events = re.findall(r"^data: (.*)$", text, re.MULTILINE)
    return re.sub(r'"(id|created|model)":("[^"]*"|\d+),', "", "\n".join(events))


def test_bytes_are_the_same_alone_in_company_and_beside_kills_and_unloads(models: Path, tmp_path: Path) -> None:
    with started(tmp_path, "-m", models / "alpha.gguf") as server:
        alone = [stream(server.url, "alpha", seed) for seed in range(8)]
    # Each plan takes 95 MiB: two of three models fit.
    with started(tmp_path, "-m", models, "--models-memory", "200M") as server, ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(stream, server.url, NAMES[i % 2], i // 2) for i in range(16)]
        assert [one.result() for one in asked] == [alone[i // 2] for i in range(16)]
        assert len(server.engines()) == 2
        asked = [pool.submit(stream, server.url, NAMES[i % 2], i // 2) for i in range(16)]
        os.kill(server.engines()[0], signal.SIGKILL)
        assert [one.result() for one in asked] == [alone[i // 2] for i in range(16)]
        assert [stream(server.url, "gamma", seed) for seed in range(8)] == alone
        states = httpx.get(f"{server.url}/health").json()["models"]
        assert sorted(states.values()) == ["loaded", "loaded", "unloaded"]
        assert states["gamma"] == "loaded"
        assert len(server.engines()) == 2
        assert httpx.post(f"{server.url}/v1/models/gamma/unload").json()["status"] == {"value": "unloaded"}
        assert len(server.engines()) == 1
        assert stream(server.url, "gamma", 3) == alone[3]


@pytest.fixture
def fitted(tmp_path: Path) -> Path:
    """A folder with `small`, and `large`, which is the same with more bytes; in `more` an adapter and a projector."""
    folder = tmp_path / "fitted"
    (folder / "more").mkdir(parents=True)
    shutil.copy(built_in_model(), folder / "small.gguf")
    (folder / "large.gguf").write_bytes(built_in_model().read_bytes() + bytes(1 << 16))
    story_adapters(folder / "more", "x")
    write_projector(folder / "more")
    return folder


def shown(url: str, name: str) -> str:
    """What a model says of a picture."""
    asked = {"model": name, "messages": [{"role": "user", "content": CONTENT}], "seed": 3, "max_tokens": 20}
    answer = httpx.post(f"{url}/v1/chat/completions", json=asked, timeout=SECONDS)
    assert answer.status_code == 200, answer.text
    return str(answer.json()["choices"][0]["message"]["content"])


def test_adapters_pictures_and_drafts_are_those_of_a_model_alone(fitted: Path, tmp_path: Path) -> None:
    more, seeds = fitted / "more", range(4)
    adapter, projector, records = more / "x.gguf", more / "mmproj.gguf", tmp_path / "r.sqlite"
    alone = ("-m", fitted / "large.gguf", "--lora-modules", f"mine={adapter}", "--mmproj", projector)
    with started(tmp_path, *alone) as server:
        expected = [[stream(server.url, name, seed) for seed in seeds] for name in ("large", "mine")]
        seen = shown(server.url, "large")
    files = ("--lora-modules", f"mine=large={adapter}", "--mmproj", projector, "-md", fitted / "small.gguf")
    with started(tmp_path, "-m", fitted, *files, "--records", records) as server, ThreadPoolExecutor(16) as pool:
        asked = [(name, seed) for name in ("large", "mine", "small") for seed in seeds]
        told = list(pool.map(lambda each: stream(server.url, *each), asked))
        assert [told[:4], told[4:8]] == expected
        assert list(map(without_fingerprint, told[8:])) == list(map(without_fingerprint, told[:4]))
        assert shown(server.url, "large") == shown(server.url, "small") == seen
        figures = httpx.get(f"{server.url}/metrics").text
        guesses = re.findall(r'zinc_guesses_total\{model="(\w+)",result="all"\} (\S+)', figures)
        assert {name: float(n) > 0 for name, n in guesses} == {"large": True, "small": False}
        os.kill(server.engines()[0], signal.SIGKILL)
        assert [stream(server.url, *each) for each in asked] == told
        tail = httpx.get(f"{server.url}/v1/worldline/tail?n=99").json()["entries"]
        answered = [one["manifest"]["computation"] for one in tail]
        adapted = next(one["request"] for one in answered if with_adapter(server.url, one["request"]))
        ids = {one["model_name"]: one["request"] for one in answered if not with_adapter(server.url, one["request"])}
        assert set(ids) == {"large", "small"}
        assert httpx.post(f"{server.url}/v1/models/small/unload").status_code == 200
        for name in (*ids.values(), adapted):
            found = httpx.post(f"{server.url}/v1/zinc/replay", json={"id": name}, timeout=SECONDS)
            assert found.json()["equal"] is True, found.text
    for model, name in ids.items():
        done = zinc("replay", name, "-m", fitted / f"{model}.gguf", "--records", records, "--device", "cpu")
        assert done.startswith("equal: "), done
    again = ("replay", adapted, "-m", fitted / "large.gguf", "--records", records, "--device", "cpu")
    assert zinc(*again) == ""
    assert zinc(*again, "--lora", adapter).startswith("equal: ")
    shutil.copy(adapter, fitted / "mine.gguf")
    assert zinc(*again).startswith("equal: ")
    assert "the chain holds: " in zinc("replay", "--chain", "--records", records)


def with_adapter(url: str, name: str) -> bool:
    """Whether a receipt is of an answer with an adapter."""
    return bool(httpx.get(f"{url}/v1/zinc/receipts/{name}").json()["meta"].get("adapters"))


def without_fingerprint(text: str) -> str:
    return re.sub(r'"system_fingerprint":"[^"]*"', "", text)


def zinc(*words: object) -> str:
    """What a command prints."""
    command = [sys.executable, "-m", "zinc_rt", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False).stdout


def test_emulated_gpus_give_the_same_bytes(models: Path, tmp_path: Path) -> None:
    options = ("-m", models, "-c", "64", "-np", "2")
    with started(tmp_path, *options) as server:
        expected = stream(server.url, "beta", 1, 3)
    with started(tmp_path, *options, "--device", "emu", "--idle-unload", "1h") as server:
        assert [stream(server.url, name, 1, 3) for name in ("alpha", "beta")] == [expected] * 2
        assert len(server.engines()) == 2
        assert httpx.post(f"{server.url}/v1/models/alpha/unload").status_code == 200
        assert len(server.engines()) == 1
        assert '"emu: GPU kernels' in server.log


def test_what_cannot_fit_is_refused_and_idle_models_are_unloaded(models: Path, tmp_path: Path) -> None:
    with started(tmp_path, "-m", models, "--models-memory", "50M") as server:
        answer = httpx.post(f"{server.url}/v1/completions", json={"model": "beta", "prompt": "A"}, timeout=SECONDS)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_room")
        assert server.engines() == []
    with started(tmp_path, "-m", models, "--idle-unload", "2s") as server:
        asked = stream(server.url, "beta", 1)
        for _ in range(200):
            if not server.engines():
                break
            time.sleep(0.1)
        assert server.engines() == []
        assert stream(server.url, "beta", 1) == asked
