"""`zinc ps`, on a proc file system of its own."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from zinc_rt.cli import ps
from zinc_rt.cli.main import main
from zinc_rt.mem.plan import format_bytes


def process(proc: Path, pid: int, *words: str, started: float = 0.0, pages: int = 0) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    ticks = int(started * os.sysconf("SC_CLK_TCK"))
    fields = ["S", *["0"] * 18, str(ticks), "0"]
    (folder / "cmdline").write_bytes("\0".join(words).encode() + b"\0")
    (folder / "stat").write_text(f"{pid} (zinc (a) b) {' '.join(fields)}\n")
    (folder / "statm").write_text(f"999 {pages} 0 0 0 0 0\n")


def test_what_runs_is_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "uptime").write_text("1000.5 2000.0\n")
    process(
        tmp_path,
        30,
        "/usr/bin/python3",
        "/home/me/bin/zinc",
        "serve",
        "--port",
        "1",
        "-m",
        "a.gguf",
        started=400.5,
        pages=1000,
    )
    process(tmp_path, 31, "python", "-m", "zinc_rt", "run", "Once", "--model=b.gguf", started=999.5)
    process(tmp_path, 32, "zinc", "chat")
    process(tmp_path, 33, "zinc", "list")
    process(tmp_path, 34, "zinc", "check")
    process(tmp_path, 35, "vim", "zinc", "run")
    process(tmp_path, 36, "")
    (tmp_path / "37").mkdir()  # gone meanwhile
    monkeypatch.setattr(ps, "_PROC", tmp_path)
    assert main(["ps", "--json"]) == 0
    page = os.sysconf("SC_PAGE_SIZE")
    told = json.loads(capsys.readouterr().out)
    assert not any(one.pop("pictures") for one in told)
    assert told == [
        {"pid": 30, "verb": "serve", "model": "a.gguf", "seconds": 600.0, "bytes": 1000 * page},
        {"pid": 31, "verb": "run", "model": "b.gguf", "seconds": 1.0, "bytes": 0},
        {"pid": 32, "verb": "chat", "model": "the model in the package", "seconds": 1000.5, "bytes": 0},
    ]
    assert main(["ps"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "pid  verb    memory       for  model",
        f" 30  serve  {format_bytes(1000 * page)}  00:10:00  a.gguf",
        " 31  run        0 B  00:00:01  b.gguf",
        " 32  chat       0 B  00:16:40  the model in the package",
    ]


def test_servers_that_read_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that was given a projector, one whose engine has found it beside the model, and one without."""
    (tmp_path / "uptime").write_text("1000.5 2000.0\n")
    for pid, more in ((30, ["--mmproj", "p.gguf"]), (31, []), (32, [])):
        process(tmp_path, pid, "zinc", "serve", "-m", "a.gguf", *more)
        child = tmp_path / str(pid) / "task" / str(pid)
        child.mkdir(parents=True)
        (child / "children").write_text(f"{pid + 10} ")
        (tmp_path / str(pid + 10)).mkdir()
        (tmp_path / str(pid) / "maps").write_text("")
        file = "/models/mmproj-a.gguf" if pid == 31 else "/mmproj.d/a.gguf"
        (tmp_path / str(pid + 10) / "maps").write_text(f"7f00-7f10 r--s 00000000 fd:00 12   {file}\n")
    monkeypatch.setattr(ps, "_PROC", tmp_path)
    assert main(["ps"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("00:16:40  ")[1] for line in lines[1:]] == ["a.gguf, pictures", "a.gguf, pictures", "a.gguf"]


def test_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "uptime").write_text("1.0 1.0\n")
    monkeypatch.setattr(ps, "_PROC", tmp_path)
    assert main(["ps"]) == 0
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "zinc: no zinc command of yours is running\n")
