"""docs/use/serving.md: its commands are answered, its answer is the model's, its examples and options are real."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path
from typing import Any

import httpx
from typer.main import get_command

from tests.serving.command import Command
from zinc_rt.cli.main import application
from zinc_rt.serving.api.config import read_tenants

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "use" / "serving.md").read_text(encoding="utf-8")
ADDRESS = "http://127.0.0.1:8080"
CURLS = re.findall(r"```sh\n(curl .*?)```", PAGE, re.DOTALL)


def curl(server: Command, command: str) -> httpx.Response:
    """What a curl command of the page does: -N, -d and an address."""
    _, *words = shlex.split(command)
    if words[0] == "-N":
        words = words[1:]
    address = words[0].replace(ADDRESS, server.url)
    assert address != words[0]
    if len(words) == 1:
        return httpx.get(address, timeout=60)
    assert (words[1], len(words)) == ("-d", 3)
    return httpx.post(address, content=words[2], timeout=60)


def test_the_commands_are_answered(story: Command) -> None:
    answers = []
    name = ""
    for command in CURLS:
        answer = curl(story, command.replace("ID", name) if re.search(r"\bID\b", command) else command)
        assert answer.status_code == 200, (command, answer.text)
        answers.append(answer)
        if answer.headers["content-type"] == "application/json" and answer.json().get("id", "").startswith("chatcmpl-"):
            name = answer.json()["id"]
    whole, streamed, _, formed, *_, replayed, receipt, told = (a for a in answers)
    (shown,) = re.findall(r"<!-- answer -->\n\n((?:(?:    .*)?\n)+?)\n(?=\S)", PAGE)
    said = re.sub(r"^    ", "", shown, flags=re.MULTILINE).strip()
    assert whole.json()["choices"][0]["message"]["content"] == said
    deltas = [json.loads(d)["choices"][0]["delta"] for d in re.findall(r"^data: (\{.*)$", streamed.text, re.MULTILINE)]
    assert "".join(delta.get("content", "") for delta in deltas) == said
    animal = json.loads(formed.json()["choices"][0]["message"]["content"])
    assert set(animal) == {"kind", "small"}
    assert replayed.json()["equal"] is True
    assert receipt.json()["manifest"]["model"]["digest"].startswith("sha256:")
    assert told.json()["outcome"] == "ok"
    assert told.json()["id"] == name


def test_the_python_example_runs(story: Command) -> None:
    (code,) = [code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if ADDRESS in code]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code.replace(ADDRESS, story.url), "serving.md", "exec", dont_inherit=True), {})
    assert len(out.getvalue().split()) > 3


def test_a_broken_stream_goes_on(story: Command) -> None:
    (command,) = [c for c in CURLS if "-N" in c]
    whole = curl(story, command).text
    blocks = whole.split("\n\n")
    (last,) = re.findall(r"^id: (.*)$", blocks[4], re.MULTILINE)
    body = shlex.split(command)[-1]
    rest = httpx.post(f"{story.v1}/chat/completions", content=body, headers={"Last-Event-ID": last}, timeout=60).text
    assert rest == "\n\n".join(blocks[5:])


def test_the_options_are_there() -> None:
    verbs: Any = get_command(application(["serve", "route", "keys", "replay"])).commands  # type: ignore[attr-defined]
    lines = re.findall(r"^    zinc (\w+)(.*)$", PAGE, re.MULTILINE)
    assert {verb for verb, _ in lines} == set(verbs)
    for verb, rest in lines:
        known = {name for parameter in verbs[verb].params for name in (*parameter.opts, *parameter.secondary_opts)}
        assert set(re.findall(r"(?<!\S)--?[a-z][\w-]*", rest)) <= known, (verb, rest)


def test_the_example_of_tenants_is_read(tmp_path: Path) -> None:
    file = tmp_path / "tenants.toml"
    file.write_text("\n".join(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)))
    assert read_tenants(file).get("ops").admin
