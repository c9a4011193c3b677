"""`zinc serve` beside llama-server on the same file, where ZINC_LLAMA_SERVER names the program."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.serving.api.test_llamacpp import ABSENT, TYPES, types
from tests.serving.clients.caller import write_coder
from tests.serving.command import started
from tests.serving.real import SECONDS

SERVER = os.environ.get("ZINC_LLAMA_SERVER", "")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not SERVER, reason="ZINC_LLAMA_SERVER names no llama-server")]
PORT = "18097"


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Clients of both: ours, llama.cpp's."""
    folder: Path = tmp_path_factory.mktemp("both")
    path = write_coder(folder / "coder.gguf")
    options = ["-m", path, "--port", PORT, "-np", "2", "-c", "512", "-t", "2", "--slots", "--jinja"]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([SERVER, *options], stdout=log, stderr=log)
    try:
        with (
            started(folder, "-m", path, "--alias", "coder", "-np", "2") as own,
            httpx.Client(base_url=own.url, timeout=SECONDS) as ours,
            httpx.Client(base_url=f"http://127.0.0.1:{PORT}", timeout=SECONDS) as theirs,
        ):
            until = time.monotonic() + SECONDS
            while not _answers(theirs):
                assert time.monotonic() < until, (folder / "log").read_text()
                time.sleep(0.1)
            yield ours, theirs
    finally:
        process.kill()
        process.wait()


def _answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("path", TYPES["requests"])
def test_answers_have_the_same_members_and_types(servers: tuple[httpx.Client, httpx.Client], path: str) -> None:
    body = TYPES["requests"][path]
    ours, theirs = [types((c.get(path) if body is None else c.post(path, json=body)).json()) for c in servers]
    expected = {name: kind for name, kind in theirs.items() if not ABSENT & set(name.split("/"))}
    assert {name: ours.get(name) for name in expected} == expected


def test_answers_are_the_same(servers: tuple[httpx.Client, httpx.Client]) -> None:
    """Greedy texts, why they end, prompts of conversations, tokens and counts."""
    greedy = {"temperature": 0, "n_predict": 8, "return_tokens": True, "n_probs": 1}
    for path, body, members in (
        ("/completion", {"prompt": "Once upon", **greedy}, ("content", "tokens", "stop_type", "tokens_predicted")),
        ("/completion", {"prompt": [646, " upon"], **greedy}, ("content", "tokens", "tokens_evaluated", "prompt")),
        ("/completion", {"prompt": "Once", **greedy, "stop": ["time"]}, ("content", "stop_type", "stopping_word")),
        (
            "/infill",
            {"input_prefix": "Once", "input_suffix": " end", **greedy},
            ("content", "tokens_evaluated", "tokens"),
        ),
        ("/apply-template", {"messages": [{"role": "user", "content": "Hi"}]}, ("prompt",)),
        ("/tokenize", {"content": "A fox, Zoë 🦉", "with_pieces": True}, ("tokens",)),
        ("/tokenize", {"content": "A fox", "add_special": True}, ("tokens",)),
        ("/detokenize", {"tokens": [646, 674, 261]}, ("content",)),
    ):
        ours, theirs = [client.post(path, json=body).json() for client in servers]
        assert {name: ours[name] for name in members} == {name: theirs[name] for name in members}, path
    ours, theirs = [client.post("/completion", json={"prompt": "Once upon", **greedy}).json() for client in servers]
    for own, other in zip(ours["completion_probabilities"], theirs["completion_probabilities"], strict=True):
        assert own["logprob"] == pytest.approx(other["logprob"], abs=2e-2)
        assert {**own, "logprob": 0, "top_logprobs": []} == {**other, "logprob": 0, "top_logprobs": []}
