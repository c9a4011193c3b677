"""`zinc serve --device A,B`: a server on each device, and the router before them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

import zinc_rt
from tests.serving.command import Command
from tests.serving.real import SECONDS
from zinc_rt.cli.main import main
from zinc_rt.cli.several import devices_of
from zinc_rt.errors import UsageError

ASKED: dict[str, Any] = {"messages": [{"role": "user", "content": "Tell me of a fox."}], "max_tokens": 9, "seed": 4}


def test_lists_of_devices() -> None:
    assert devices_of(None) == devices_of("cpu") == devices_of("gpu:kfd,cs") == []
    assert devices_of("cuda:0, cuda:1,opencl") == ["cuda:0", "cuda:1", "opencl"]
    with pytest.raises(UsageError, match=r"--device cpu,nine: unknown device 'nine'"):
        devices_of("cpu,nine")


def test_two_engines_answer_as_one(model: zinc_rt.Model, tmp_path: Path) -> None:
    several = Command(tmp_path, "-c", "256", "-np", "2", "--one-process", "--device", "cpu,cpu")
    try:
        answer = httpx.post(f"{several.url}/v1/chat/completions", json=ASKED, timeout=SECONDS).json()
        assert answer["choices"][0]["message"]["content"] == model.chat(ASKED["messages"], max_tokens=9, seed=4).text
        backends = httpx.get(f"{several.url}/health").json()["backends"]
        assert [b["status"] for b in backends] == ["ok", "ok"]
        assert several.log.count('"n_ctx":256') == 2
        several.process.terminate()
        assert several.wait() == 0
        for backend in backends:
            with pytest.raises(httpx.ConnectError):
                httpx.get(f"{backend['url']}/health")
    finally:
        several.end()


@pytest.mark.parametrize("executable", ["/bin/false", pytest.param(sys.executable, marks=pytest.mark.slow)])
def test_what_cannot_be_started_says_why(
    executable: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", executable)
    assert main(["serve", "--port", "0", "--one-process", "--device", "cuda:7,cuda:8"]) == 1
    said = "zinc: error: the server on cuda:7 did not start: it ended with code 1"
    assert capsys.readouterr().err.splitlines()[-1] == said
    assert main(["serve", "--port", "0", "--device", "cpu,cpu", "--records", "x"]) in (1, 2)
    assert "--records is the folder of one server" in capsys.readouterr().err
