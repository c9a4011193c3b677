"""docs/how/extending.md, "An architecture", and docs/use/models.md say which files there are."""

from __future__ import annotations

import ast
import importlib
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

import zinc_rt
from tests.models.families import CASES
from tests.models.families.embedders import EMBEDDERS
from zinc_rt.models import supported
from zinc_rt.models.architectures import FILES as MODULES

PACKAGE = Path(zinc_rt.__file__).parent
ROOT = PACKAGE.parent
EXTENDING = (ROOT / "docs" / "how" / "extending.md").read_text(encoding="utf-8")
SECTION = re.split(r"\n## ", EXTENDING.split("## An architecture\n")[1])[0]
FILES = re.findall(r"^\| `([^`]+)` \|", SECTION.partition("A program can")[0], re.MULTILINE)


def names_of(path: Path) -> Sequence[str]:
    """The `NAMES` of an architecture file; none for other modules."""
    if not re.search(r"^NAMES\b", path.read_text(encoding="utf-8"), re.MULTILINE):
        return ()
    return tuple(importlib.import_module(f"zinc_rt.models.{path.stem}").NAMES)


FILE_OF = {
    name: f"zinc_rt/models/{path.stem}.py" for path in (PACKAGE / "models").glob("*.py") for name in names_of(path)
}
"""The file of each architecture: the module whose `NAMES` has it."""


@cache
def strings() -> dict[str, frozenset[str]]:
    """Those of the architectures' names that are strings in a module's code, by module."""
    found = {}
    for path in PACKAGE.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        if path.parent.name not in ("text", "towers", "converting", "dialects") and any(n in source for n in FILE_OF):
            constants = (n.value for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Constant))
            found[str(path.relative_to(ROOT))] = frozenset(c for c in constants if isinstance(c, str)) & FILE_OF.keys()
    return found


def test_the_list_has_the_files_that_exist() -> None:
    assert len(FILES) == 4
    assert sorted(FILE_OF) == sorted(supported())
    for file in FILES:
        assert "NAME" in file or (ROOT / file).is_file()


@pytest.mark.parametrize("name", supported())
def test_no_other_file_of_the_package_knows_an_architecture(name: str) -> None:
    """The names of tokenizers, dialects and projectors are partly the same words: those are the business of `text`,
    `converting`, `dialects` and `models/towers`. The table of architectures knows files, whose names are partly those
    of architectures.
    """
    tables = ["zinc_rt/models/architectures.py"] if name in MODULES else []
    assert {file for file, known in strings().items() if name in known} == {FILE_OF[name], *tables}


@pytest.mark.parametrize("name", supported())
def test_each_is_tested_and_documented(name: str) -> None:
    proven = {case.architecture for case in CASES.values()} | {case.architecture for case in EMBEDDERS.values()}
    assert name in proven, f"no formulas of {name} in tests/models/families"
    assert re.search(
        rf"^\| [^|]*`{name}`", (ROOT / "docs" / "use" / "models.md").read_text(encoding="utf-8"), re.MULTILINE
    )


def test_the_example_is_the_file() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    assert (PACKAGE / "models" / "phi3.py").read_text(encoding="utf-8").endswith(f"\n{example}")


def test_names_of_the_section_exist() -> None:
    """What it calls by name stands in the package's models."""
    source = "".join(p.read_text(encoding="utf-8") for p in (PACKAGE / "models").glob("*.py"))
    source += "".join((PACKAGE / part / "errors.py").read_text(encoding="utf-8") for part in ("gguf", "ir"))
    prose = re.sub(r"```.*?```", "", SECTION, flags=re.DOTALL)
    names = set(re.findall(r"`([A-Za-z_.]+)`", prose)) - {
        "phi3",
        "phimoe",
        "h",
        "architecture",
        "flash_attn",
        "attn_qkv",
        "ffn_gate",
        "ffn_up",
    }
    names = {n.rsplit(".", 1)[-1] for n in names if "/" not in n and not n.endswith((".py", "*"))}
    assert len(names) > 20
    assert {n for n in names if not re.search(rf"\b(def|class) {n}\b|^\s*{n}\b", source, re.MULTILINE)} == set()
