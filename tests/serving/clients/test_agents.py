"""Codex CLI and Claude Code, as npm has them, in their default configuration: each finishes a turn."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.clients.caller import LONG, write_reader
from tests.serving.clients.listener import Listener, listening
from tests.serving.command import started

CODEX, CLAUDE = "@openai/codex@0.169.0", "@anthropic-ai/claude-code@2.1.332"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm, which the agents come with, is not installed"),
]


@pytest.fixture(scope="module")
def programs(folder: Path) -> Path:
    """Where the agents are."""
    made = subprocess.run(
        ["npm", "install", "--prefix", folder / "npm", "--no-audit", "--no-fund", CODEX, CLAUDE],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        pytest.skip(f"npm cannot install the agents: {made.stderr[-300:]}")
    return folder / "npm" / "node_modules" / ".bin"


@pytest.fixture(scope="module")
def listener(folder: Path) -> Iterator[Listener]:
    """A server that takes any name of a model, behind what keeps the requests."""
    model = write_reader(folder / "reader.gguf")
    with started(folder, "-m", model, "-c", str(LONG), "--alias", "*") as server, listening(server.url) as found:
        yield found


def run(command: list[str | Path], home: Path, **keys: str) -> str:
    """What a program says in an empty folder, without settings of its own."""
    (home / "work").mkdir(parents=True)
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], **keys}
    done = subprocess.run(
        command,
        cwd=home / "work",
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def test_codex(programs: Path, listener: Listener, tmp_path: Path) -> None:
    before = len(listener.heard)
    address = f'openai_base_url="{listener.url}/v1"'
    command = [programs / "codex", "exec", "--skip-git-repo-check", "-c", address, "Say hello."]
    said = run(command, tmp_path / "home", CODEX_API_KEY="-")
    heard = listener.heard[before:]
    # It asks for a WebSocket first, and takes 426 as the word to go on without one.
    assert [one.line for one in heard if one.status >= 400] == ["GET /v1/responses: 426"], heard
    (asked,) = [one for one in heard if one.method == "POST"]
    kinds = [item["type"] for item in json.loads(asked.body)["input"]]
    assert "additional_tools" in kinds
    assert said in asked.answer.decode().replace("\\n", "\n")
    assert b"response.completed" in asked.answer


def test_claude_code(programs: Path, listener: Listener, tmp_path: Path) -> None:
    before = len(listener.heard)
    keys = {"ANTHROPIC_BASE_URL": listener.url, "ANTHROPIC_API_KEY": "-"}
    run([programs / "claude", "-p", "Say hello."], tmp_path / "home", **keys)
    heard = listener.heard[before:]
    # It looks whether there is a server at all; any answer will do.
    assert [one.line for one in heard if one.status >= 400] in ([], ["HEAD /api/hello: 404"]), heard
    asked = [one for one in heard if one.path.startswith("/v1/messages") and b'"stream":true' in one.body]
    assert asked
    assert {message["role"] for message in json.loads(asked[-1].body)["messages"]} == {"user", "system"}
    assert b"message_stop" in asked[-1].answer
