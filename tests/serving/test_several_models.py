"""Several models behind one `zinc serve`, with real engines: the same bytes alone and in company, kills, unloads."""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.serving.command import started
from tests.serving.real import SECONDS
from zinc_rt.llm.load import built_in_model

pytestmark = pytest.mark.slow

NAMES = ("alpha", "beta", "gamma")


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
