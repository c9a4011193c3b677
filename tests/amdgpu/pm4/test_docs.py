"""docs/how/pm4.md: its examples run and print what it shows, and its table is the table."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from zinc_rt.amdgpu.pm4 import opcodes as op
from zinc_rt.cli.main import main

PAGE = (Path(__file__).parents[3] / "docs" / "how" / "pm4.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)


def test_python():
    names: dict[str, object] = {}
    wanted = []
    out = io.StringIO()
    for kind, text in BLOCKS:
        if kind == "python":
            with contextlib.redirect_stdout(out):
                exec(text, names)
        elif kind == "text":
            wanted.append(text)
    assert len(wanted) == 2
    assert out.getvalue() == "".join(wanted)


def test_commands(capsys):
    shown = [text for kind, text in BLOCKS if kind == "console"]
    assert len(shown) == 2
    for text in shown:
        command, output = text.split("\n", 1)
        assert command.startswith("$ zinc ")
        assert main(command.split()[2:]) == 0
        assert capsys.readouterr().out == output


def test_table():
    rows = dict(re.findall(r"^\| ([A-Z_]+) \| ([0-9A-F]{2}) \|", PAGE, re.MULTILINE))
    assert {name: int(number, 16) for name, number in rows.items()} == {p.name: n for n, p in op.PACKETS.items()}
