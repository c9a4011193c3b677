"""The README's commands and code do what it says."""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path

import pytest

from zinc_rt.models import supported

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def block(marker: str) -> str:
    found = re.search(rf"<!-- {marker} -->\n```\w*\n(.*?)```", README, re.DOTALL)
    assert found, f"README.md has no block behind <!-- {marker} -->"
    return found[1].strip()


def zinc(*args: str, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "zinc_rt", *args], input=stdin, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_run_command_is_one_line_that_ends_in_zinc_run() -> None:
    line = block("run command")
    assert "\n" not in line
    args = re.fullmatch(r'.* && \.venv/bin/zinc run "(.+)"', line)
    assert args
    done = zinc("run", args[1], "-n", "16", "--seed", "1")
    assert done.returncode == 0
    assert len(done.stdout.split()) > 5


def test_the_test_command_is_one_line_that_runs_pytest() -> None:
    line = block("test command")
    assert "\n" not in line
    assert line.endswith(".venv/bin/python -m pytest --jobs auto")
    assert '".[test]"' in line


def test_the_python_example_runs() -> None:
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(code[1], "README.md", "exec", dont_inherit=True), {"__name__": "__main__"})
    assert len(out.getvalue().split()) > 10


def test_the_transcript_is_real() -> None:
    shown = block("transcript").splitlines()
    command = re.fullmatch(r"\$ zinc run (.*)", shown[0])
    assert command
    prompt, *options = re.findall(r'"[^"]*"|\S+', command[1])
    done = zinc("run", prompt.strip('"'), "--display-prompt", *options)
    assert done.stdout.split() == " ".join(shown[1:]).split()


def test_every_architecture_is_named() -> None:
    table = README.split("## What works")[1].split("\n## ")[0]
    assert set(supported()) <= set(re.findall(r"[\w-]+", table))


@pytest.mark.parametrize("link", sorted(set(re.findall(r"\]\(([^)#]+)\)", README))))
def test_links_lead_somewhere(link: str) -> None:
    assert (ROOT / link).exists()
