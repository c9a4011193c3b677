"""docs/extending.md, "An architecture", and docs/models.md say which files there are."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import zinc_rt
from tests.models.families import CASES
from zinc_rt.models import supported
from zinc_rt.models.architectures import architecture_for

PACKAGE = Path(zinc_rt.__file__).parent
ROOT = PACKAGE.parent
EXTENDING = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
SECTION = re.split(r"\n## ", EXTENDING.split("## An architecture\n")[1])[0]
FILES = re.findall(r"^\| `([^`]+)` \|", SECTION.partition("A program can")[0], re.MULTILINE)


def mentions(path: Path, name: str) -> bool:
    """Whether a module's code has the architecture's name: as a string, or as an imported module."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and node.value == name:
            return True
        if isinstance(node, ast.Import | ast.ImportFrom) and any(a.name.split(".")[-1] == name for a in node.names):
            return True
    return False


def file_of(name: str) -> str:
    """The architecture's file, which may build several names."""
    return str(Path(str(architecture_for(name).__file__)).relative_to(ROOT))  # type: ignore[attr-defined]


def test_the_list_has_the_files_that_exist() -> None:
    assert len(FILES) == 4
    assert FILES[0] == "zinc_rt/models/NAME.py"
    assert [p for p in FILES[1:] if not (ROOT / p).exists()] == []
    assert {Path(file_of(name)).parent.as_posix() for name in supported()} == {"zinc_rt/models"}
    # A file is called as one of the names that it builds.
    assert {Path(file_of(name)).stem for name in supported()} <= {name.replace("-", "_") for name in supported()}


@pytest.mark.parametrize("name", supported())
def test_no_other_file_of_the_package_knows_an_architecture(name: str) -> None:
    """The names of tokenizers, which are partly the same words, are the business of `text`."""
    listed = {file_of(name)} | ({FILES[1]} if Path(file_of(name)).stem == name else set())
    modules = [p for p in PACKAGE.rglob("*.py") if p.relative_to(PACKAGE).parts[0] != "text"]
    assert {str(p.relative_to(ROOT)) for p in modules if mentions(p, name)} == listed


@pytest.mark.parametrize("name", supported())
def test_each_is_tested_and_documented(name: str) -> None:
    assert name in {case.architecture for case in CASES.values()}
    assert f"| `{name}` |" in (ROOT / "docs" / "models.md").read_text(encoding="utf-8")


def test_the_example_is_the_file() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", SECTION, re.DOTALL)
    assert (PACKAGE / "models" / "qwen3.py").read_text(encoding="utf-8").endswith(f"\n{example}")


def test_names_of_the_section_exist() -> None:
    """What it calls by name stands in the package's models."""
    source = "".join(p.read_text(encoding="utf-8") for p in (PACKAGE / "models").glob("*.py"))
    source += "".join((PACKAGE / part / "errors.py").read_text(encoding="utf-8") for part in ("gguf", "ir"))
    prose = re.sub(r"```.*?```", "", SECTION, flags=re.DOTALL)
    names = set(re.findall(r"`([A-Za-z_.]+)`", prose)) - {"qwen3", "h", "architecture", "flash_attn"}
    names = {n.rsplit(".", 1)[-1] for n in names if "/" not in n and not n.endswith((".py", "*"))}
    assert len(names) > 20
    assert {n for n in names if not re.search(rf"\b(def|class) {n}\b|^\s*{n}\b", source, re.MULTILINE)} == set()
