"""The project's own source, read once a process.

A tree of all files takes seconds to parse, so tests of the whole source search its text, and parse what they find.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
_STRING = re.compile(r"""'"{3}'|"{3}(?:[^"\\]|\\.|"(?!""))*"{3}""", re.DOTALL)
_IMPORT = re.compile(r"^[ \t]*((?:from [\w.]+ )?import (?:\([^)]*\)|[^(\n]+))", re.MULTILINE)


@cache
def texts(folder: str) -> dict[Path, str]:
    """The text of each Python file below a folder of the project."""
    return {path: path.read_text(encoding="utf-8") for path in sorted((ROOT / folder).rglob("*.py"))}


def matching(pattern: str, *folders: str) -> Iterator[tuple[Path, ast.Module]]:
    """The files below these folders in which the pattern occurs, with their trees."""
    for folder in folders:
        for path, text in texts(folder).items():
            if re.search(pattern, text, re.MULTILINE):
                yield path, ast.parse(text)


@cache
def imports(path: Path) -> tuple[ast.Import | ast.ImportFrom, ...]:
    """All import statements of a file, those in functions and for types alone too."""
    text = _STRING.sub('""', texts(path.relative_to(ROOT).parts[0])[path])
    return tuple(map(_statement, _IMPORT.findall(text)))


@cache
def _statement(text: str) -> ast.Import | ast.ImportFrom:
    """Most files have the same ones."""
    (found,) = ast.parse(text).body
    assert isinstance(found, ast.Import | ast.ImportFrom)
    return found
