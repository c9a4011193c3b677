"""docs/how/dependencies.md names what an install brings, and the extra for tests has what the tests import."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from tests.source import ROOT, imports, texts

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAGE = (ROOT / "docs" / "how" / "dependencies.md").read_text()
TOOLS = {"ruff", "mypy", "pytest-timeout", "setuptools"}  # of the extra; programs, what pytest and pip load
TRACES = {"opentelemetry", "opentelemetry-api"}  # a namespace of the extra `otel`, and the first of its owners

PYTHON = {"extra": "", "python_version": "3.11", "python_full_version": "3.11.0"}
TABLES: dict[str, list[list[str]]] = {}
"""The page's tables by the heading of their first column: rows of cells."""
for block in re.findall(r"(?:^\|.*\|\n)+", PAGE, re.MULTILINE):
    header, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in block.splitlines())
    TABLES[header[0]] = rows


def asked_for(lines: list[str]) -> dict[str, SpecifierSet]:
    """The requirements that hold without extras on the Python that the page speaks of, by name; of others than this."""
    found = {}
    for line in lines:
        requirement = Requirement(line)
        own = requirement.name == PROJECT["name"]  # with some of its extras
        if not own and (requirement.marker is None or requirement.marker.evaluate(PYTHON)):
            found[str(canonicalize_name(requirement.name))] = requirement.specifier
    return found


def tree() -> dict[str, set[str]]:
    """Every distribution that the project needs, and which ones ask for it; for the project itself, `you`."""
    found = {str(canonicalize_name(PROJECT["name"])): {"you"}}
    waiting = [(name, PROJECT["name"]) for name in asked_for(PROJECT["dependencies"])]
    while waiting:
        name, by = waiting.pop()
        if name not in found:
            waiting += [(needed, name) for needed in asked_for(requires(name) or [])]
        found.setdefault(name, set()).add(by)
    return found


def test_the_page_names_what_an_install_brings_and_for_whom() -> None:
    named = {row[0]: set(row[1].split(", ")) for row in TABLES["distribution"]}
    assert len(named) == len(TABLES["distribution"])
    assert named == tree()


def test_the_sizes_add_up() -> None:
    sizes = {row[0]: float(row[3]) for row in TABLES["distribution"]}
    total = re.search(r"Together ([\d.]+) MB, of which llvmlite and numpy are seven tenths", PAGE)
    assert total is not None
    assert float(total[1]) == pytest.approx(sum(sizes.values()), abs=1e-6)
    assert 0.65 < (sizes["llvmlite"] + sizes["numpy"]) / sum(sizes.values()) < 0.75
    found = tree()
    below = {"huggingface-hub"}
    while more := {name for name, by in found.items() if by & below} - below:
        below |= more
    said = re.search(r"`huggingface-hub`, and so for (\d+)\ndistributions of ([\d.]+) MB", PAGE)
    assert said is not None
    assert (int(said[1]), float(said[2])) == (len(below), pytest.approx(sum(sizes[name] for name in below), abs=1e-6))


def test_the_page_has_the_ranges_of_the_project() -> None:
    named = {row[0]: SpecifierSet(row[1].replace("≥", ">=").replace(" ", "")) for row in TABLES["package"]}
    assert named == asked_for(PROJECT["dependencies"])


def test_the_page_names_what_the_tests_ask_for() -> None:
    named = [name for row in TABLES["for tests"] for name in row[0].split(", ")]
    assert sorted(named) == sorted(asked_for(PROJECT["optional-dependencies"]["test"]))


@cache
def owners() -> Mapping[str, list[str]]:
    """The distributions by what they are imported as; to read them takes a second."""
    return packages_distributions()


def imported(paths: Iterable[Path]) -> set[str]:
    """The distributions that modules import, the project's own apart."""
    modules: set[str] = set()
    for path in paths:
        for node in imports(path):
            if isinstance(node, ast.Import):
                modules |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                modules.add(node.module.partition(".")[0])
    outside = modules - sys.stdlib_module_names - {p.name for p in ROOT.iterdir() if p.is_dir()}
    return {str(canonicalize_name(min(owners().get(name, [name])))) for name in outside}


def test_what_runs_imports_what_is_declared_alone() -> None:
    """`httpx` beside `httpx2`, or what only the tests' extra brings, would fail with users first."""
    declared = set(asked_for(PROJECT["dependencies"]))
    extras = {"ray": {"ray"}, "opencl": {"pyopencl"}, "serving": {"cryptography", *TRACES}}
    folders: dict[str, list[Path]] = {}
    for path in (*texts("zinc_rt"), *texts("amdgpu_emu")):
        folders.setdefault(path.relative_to(ROOT).parts[1], []).append(path)
    for folder, paths in folders.items():
        assert imported(paths) <= declared | extras.get(folder, set())


def test_the_extra_has_what_the_tests_import() -> None:
    found, extra = imported(texts("tests")), set(asked_for(PROJECT["optional-dependencies"]["test"]))
    found -= {*asked_for(PROJECT["optional-dependencies"]["opencl"]), *TRACES}  # tests without these are skipped
    assert found - extra - set(asked_for(PROJECT["dependencies"])) == set()
    assert extra - found == TOOLS
