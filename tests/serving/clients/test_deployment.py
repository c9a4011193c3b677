"""The files in deploy/ against a server as a process: metrics of the dashboard, commands of unit and container."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.main import get_command

from tests.serving.command import Command
from zinc_rt.cli.main import application

ROOT = Path(__file__).parents[3]
DEPLOY = ROOT / "deploy"
PAGE = (ROOT / "docs" / "use" / "serving.md").read_text()
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text())
UNIT = (DEPLOY / "zinc.service").read_text()
CONTAINER = (DEPLOY / "Containerfile").read_text()


def metrics_of(server: Command) -> dict[str, set[str]]:
    """The names of all series that the server tells of, with their labels."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(httpx.get(f"{server.url}/metrics").text):
        for name in {"gauge": [""], "counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}[family.type]:
            found.setdefault(family.name + name, set())
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return {name: labels for name, labels in found.items() if not name.endswith("_created")}


def test_the_dashboard_asks_for_metrics_that_there_are(story: Command) -> None:
    httpx.post(f"{story.v1}/completions", json={"prompt": "A fox", "max_tokens": 3}).raise_for_status()
    httpx.post(f"{story.v1}/completions", json={"prompt": "A fox", "max_tokens": 0})
    known = metrics_of(story)
    asked = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
    asked += [v["query"]["query"] for v in DASHBOARD["templating"]["list"] if v["type"] == "query"]
    used: set[str] = set()
    for text in asked:
        names = set(re.findall(r"\bzinc_\w+", text))
        assert names <= set(known), text
        used |= names
        labels = set(re.findall(r"\bby \(([^)]*)\)", text))
        for label in (label.strip() for group in labels for label in group.split(",")):
            assert any(label in known[name] or not known[name] for name in names), text
    bare = {re.sub(r"_(bucket|sum|count)$", "", name) for name in known}
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in used} == bare
    assert set(re.findall(r"`(zinc_\w+)`", PAGE.split("## Metrics")[1].split("\n## ")[0])) == bare
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert ids == sorted(set(ids))


def options_of(command: str) -> set[str]:
    return set(re.findall(r"(?<!\S)--[\w-]+", command))


def test_the_commands_have_options_that_there_are() -> None:
    serve = get_command(application(["serve"])).commands["serve"]  # type: ignore[attr-defined]
    known = {name for parameter in serve.params for name in (*parameter.opts, *parameter.secondary_opts)}
    (start,) = re.findall(r"^ExecStart=(.*(?:\\\n.*)*)", UNIT, re.MULTILINE)
    (entry,) = re.findall(r"^ENTRYPOINT (.*)", CONTAINER, re.MULTILINE)
    (extra,) = re.findall(r"^CMD (.*)", CONTAINER, re.MULTILINE)
    assert start.split()[:2] == ["/opt/zinc/bin/zinc", "serve"]
    assert json.loads(entry)[:2] == ["zinc", "serve"]
    for options in (options_of(start), options_of(" ".join([*json.loads(entry), *json.loads(extra)]))):
        assert options
        assert options <= known


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_the_unit_is_one(tmp_path: Path) -> None:
    unit = tmp_path / "zinc.service"
    unit.write_text(UNIT.replace("/opt/zinc/bin/zinc", "/bin/true"))
    done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_container_copies_what_the_package_is_built_of() -> None:
    copied = {name for line in re.findall(r"^COPY (?!--)(.*) \S+$", CONTAINER, re.MULTILINE) for name in line.split()}
    assert all((ROOT / name).exists() for name in copied)
    project = (ROOT / "pyproject.toml").read_text()
    packages = re.findall(r"include = \[(.*)\]", project)[0]
    assert {name.strip('" *') for name in packages.split(",")} <= copied
    assert {"pyproject.toml", *re.findall(r'"(LICENSE|README.md)"', project)} <= copied
    assert re.findall(r"^USER (.*)$", CONTAINER, re.MULTILINE) == ["zinc"]


def test_the_container_is_well_while_the_server_is(story: Command) -> None:
    (check,) = re.findall(r"^\s+CMD (\[.*\])$", CONTAINER, re.MULTILINE)
    command = [part.replace("http://127.0.0.1:8080", story.url) for part in json.loads(check)]
    assert subprocess.run(["python3", *command[1:]], check=False).returncode == 0
    broken = [part.replace("/health", "/nothing") for part in command]
    assert subprocess.run(["python3", *broken[1:]], capture_output=True, check=False).returncode == 1


def test_restarts_are_counted(story: Command) -> None:
    def restarts() -> float:
        text = httpx.get(f"{story.url}/metrics").text
        return float(re.findall(r"(?m)^zinc_engine_restarts_total (.*)$", text)[0])

    before = restarts()
    os.kill(story.engine(), signal.SIGKILL)
    body = {"prompt": "A fox", "max_tokens": 5, "seed": 1}
    while (after := httpx.post(f"{story.v1}/completions", json=body, timeout=60)).status_code == 503:
        time.sleep(float(after.headers["retry-after"]) / 10)
    assert after.status_code == 200, after.text
    assert after.json()["usage"]["completion_tokens"] == 5
    assert restarts() == before + 1
