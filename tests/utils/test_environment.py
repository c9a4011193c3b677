"""Environment variables: the table has every one that is read, the page shows the table, `zinc env` what is set."""

from __future__ import annotations

import ast
import json
import logging
import re
from pathlib import Path

import pytest

import zinc_rt
from tests.source import matching
from zinc_rt.cli.env import variables
from zinc_rt.cli.main import main
from zinc_rt.utils.environment import HUB, OTHERS, OURS, TRACES, VARIABLES
from zinc_rt.utils.installation import COMMIT_FILE, commit, software, version_line
from zinc_rt.utils.isolated import child

ROOT = Path(zinc_rt.__file__).parent
PAGE = (ROOT.parent / "docs/use/environment.md").read_text(encoding="utf-8")


def is_environ(node: ast.AST) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "environ" for n in ast.walk(node))


def read_in(tree: ast.AST) -> list[ast.expr]:
    """What stands where a variable is named: an index, an argument, the left side of `in`."""
    found: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and is_environ(node.value):
            found.append(node.slice)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            called = node.func
            if (called.attr in ("get", "setdefault", "pop") and is_environ(called.value)) or called.attr == "getenv":
                found.append(node.args[0])
        elif isinstance(node, ast.Compare) and any(is_environ(c) for c in node.comparators):
            found.append(node.left)
    return found


def test_every_variable_that_is_read_stands_in_the_table() -> None:
    names, indirect = set(), set()
    for _, tree in matching(r"environ|getenv", "zinc_rt"):
        for expression in read_in(tree):
            if isinstance(expression, ast.Constant):
                names.add(expression.value)
            else:
                indirect.add(ast.unparse(expression))
    names |= set(child._PASSED_ON)
    assert indirect == {"DEVICE.name", "CACHE_DIR.name", "MATRIX_ROWS.name", "name", "v.name"}
    assert names == {v.name for v in OTHERS}


@pytest.mark.parametrize(
    ("title", "table"),
    [
        ("ZINC_RT", OURS),
        ("the system", OTHERS),
        ("the library that downloads", HUB),
        ("the library that sends", TRACES),
    ],
)
def test_the_page_shows_the_table(title: str, table: tuple[object, ...]) -> None:
    section = re.search(rf"## Variables of {title}.*?\n(.*?)\n## ", PAGE, re.DOTALL)
    assert section
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in section[1].splitlines() if "`" in line[:4]
    ]
    own = [[f"`{v.name}`", v.meaning, f"`{v.flag}`" if v.flag else ""] for v in table]  # type: ignore[attr-defined]
    assert rows == [row[: len(rows[0])] for row in own]


def test_env_shows_what_is_set_and_no_secret(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for variable in VARIABLES:
        if variable.name not in ("HOME", "ZINC_RT_CACHE_DIR"):
            monkeypatch.delenv(variable.name, raising=False)
    monkeypatch.setenv("HF_TOKEN", "hf_verysecret")
    monkeypatch.setenv("ZINC_RT_TIER", "cpu")
    (tmp_path / "one").write_bytes(bytes(1000))
    assert variables()["HF_TOKEN"] == "(set)"
    for arguments in (["env"], ["env", "--json"]):
        assert main([*arguments, "--cache-dir", str(tmp_path)]) == 0
        out = capsys.readouterr().out
        assert "verysecret" not in out
        assert "ZINC_RT_TIER" in out
        assert "NO_COLOR" not in out
    tree = json.loads(out)
    assert tree["software"] == software()
    assert tree["places"][0] == {"what": "compiled kernels", "path": str(tmp_path), "bytes": 1000}


def test_the_commit_comes_from_the_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("zinc_rt.utils.installation.__file__", str(tmp_path / "zinc_rt" / "utils" / "installation.py"))
    (tmp_path / "zinc_rt").mkdir()
    (tmp_path / "zinc_rt" / COMMIT_FILE).write_text("0123456789abcdef\n")
    assert commit() == "0123456789abcdef"
    assert "(commit 0123456789)" in version_line()
    (tmp_path / ".git").mkdir()
    (tmp_path / ".git" / "HEAD").write_text("feed\n")
    assert commit() == "feed"


def test_a_load_speaks_through_logging(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ZINC_RT_TIER", raising=False)
    with caplog.at_level(logging.INFO, "zinc_rt"):
        zinc_rt.load(device="auto").close()
    assert [r.name for r in caplog.records if "device cpu" in r.getMessage()] == ["zinc_rt"]
