"""The modules of `benchmarks/`, for tests of them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"


class Modules(dict[str, ModuleType]):
    """Scripts of the folder by name, imported when they are first asked for."""

    def __missing__(self, name: str) -> ModuleType:
        return self.setdefault(name, importlib.import_module(name))


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Modules]:
    """The benchmark's modules, which find each other as scripts in one folder do."""
    monkeypatch.syspath_prepend(str(FOLDER))
    yield Modules()
    for path in FOLDER.glob("*.py"):
        sys.modules.pop(path.stem, None)
