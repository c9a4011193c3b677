"""docs/how/emulator.md and the example: they run and print what is shown."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from amdgpu_emu.machine import Machine
from zinc_rt.cli.main import main

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "how" / "emulator.md").read_text(encoding="utf-8")


def test_examples_print_what_is_shown() -> None:
    shown = re.findall(r"```python\n(.*?)```\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert len(shown) == 4
    for code, wanted in shown:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(code, {})
        assert out.getvalue() == wanted


def test_commands(capsys) -> None:
    lines = re.findall(r"^zinc (emu .*?)(?: +#.*)?$", PAGE, re.MULTILINE)
    assert len(lines) == 7
    for line in lines:
        words = [str(ROOT / word) if word.startswith("examples/") else word for word in line.split()]
        assert main(words) == 0, line
        assert "finding" not in capsys.readouterr().out


def test_the_page_about_gpus(capsys) -> None:
    page = (ROOT / "docs" / "how" / "amd.md").read_text(encoding="utf-8")
    code = re.search(r"```python\n(.*?)```", page, re.DOTALL)
    assert code is not None
    with Machine() as machine:
        text = code[1].replace('KfdInterface("/dev/dri/renderD128")', "KfdInterface(linux=linux)")
        exec(text, {"linux": machine.process()})
    assert capsys.readouterr().out == "True\n"
