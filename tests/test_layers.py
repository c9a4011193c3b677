"""Imports only point down the layers of docs/how/architecture.md, and importing the package costs nothing."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import zinc_rt
from tests.source import imports, texts

ROOT = Path(zinc_rt.__file__).parent

PAGE = ROOT.parent / "docs/how/architecture.md"


def layers() -> list[list[str]]:
    """The modules of each row of the page's table of layers, from the bottom up."""
    table = PAGE.read_text(encoding="utf-8").split("| layer | what it is |\n")[1].split("\n\n")[0]
    return [re.findall(r"`([\w.]+)`", row.split("|")[1]) for row in table.splitlines()[:0:-1]]


LAYERS = layers()
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def place(module: str) -> str:
    """The entry of the table that a module belongs to; empty for none."""
    parts = module.split(".")
    return next((name for n in range(len(parts), 0, -1) if (name := ".".join(parts[:n])) in RANK), "")


def name_of(path: Path) -> str:
    """A module's name below the package."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def is_module(name: str) -> bool:
    """Whether a name below the package is a module."""
    path = ROOT / name.replace(".", "/")
    return path.is_dir() or path.with_name(path.name + ".py").exists()


@cache
def imported(path: Path) -> frozenset[str]:
    """Modules below zinc_rt that a file imports, and the emulator as "amdgpu_emu"."""
    names: set[str] = set()
    for node in imports(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            top, _, rest = node.module.partition(".")
            if top == "zinc_rt":
                members = [f"{rest}.{a.name}".lstrip(".") for a in node.names]
                names |= {name if is_module(name) else rest for name in members}
            elif top == "amdgpu_emu":
                names.add(top)
        elif isinstance(node, ast.Import):
            names |= {a.name.partition(".")[2] for a in node.names if a.name.startswith("zinc_rt.")}
            names |= {"amdgpu_emu" for a in node.names if a.name.partition(".")[0] == "amdgpu_emu"}
    return frozenset(names - {""})


MODULES = [path for path in texts("zinc_rt") if path != ROOT / "__init__.py"]
EMULATED = list(texts("amdgpu_emu"))


def test_each_module_has_a_layer() -> None:
    assert [name_of(path) for path in MODULES if not place(name_of(path))] == []


def test_imports_point_down() -> None:
    for path in MODULES:
        own = RANK[place(name_of(path))]
        above = [name for name in imported(path) - {"amdgpu_emu"} if RANK[place(name)] > own]
        assert not above, f"{name_of(path)} imports {above}, above it"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Imports inside functions and those for types alone count, too."""
    names = {name_of(path): path for path in MODULES}
    graph = {name: (imported(path) & names.keys()) - {name} for name, path in names.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError with the circle


def test_the_emulator_stands_apart() -> None:
    """It is a second implementation: of the runtime it knows the driver's and the packets' layouts, no driver code."""
    below = {"utils", "amdgpu.abi", "amdgpu.pm4", "errors"}
    above = {"backends.amdgpu.emulated", "perf_model", "cli"}
    for path in EMULATED:
        names = {place(name) for name in imported(path) - {"amdgpu_emu"}}
        assert names <= below, f"{path.name} imports {names - below}"
    for path in MODULES:
        if "amdgpu_emu" in imported(path):
            assert place(name_of(path)) in above, f"{name_of(path)} imports the emulator"


# Parts of one kind that do not know each other: a module of one imports none of another.
APART = (
    ("amdgpu.cs", "amdgpu.kfd", "amdgpu.umq"),
    ("backends.reference", "backends.cpu", "backends.gpu"),
    ("backends.reference", "backends.cpu", "backends.amdgpu"),
    ("kernels.reference", "kernels.cpu", "kernels.gpu"),
    ("kernels.reference", "kernels.cpu", "kernels.amd"),
    ("seed.cs", "seed.kfd", "seed.umq", "seed.kernels"),
)
# A module that compares two of them.
COMPARES = {"backends.gpu.selftest": "backends.reference"}


def part_of(module: str, parts: tuple[str, ...]) -> str:
    """Which of the parts a module belongs to; empty for none."""
    return next((part for part in parts if module == part or module.startswith(part + ".")), "")


@pytest.mark.parametrize("parts", APART, ids=lambda parts: parts[0])
def test_parts_of_one_kind_do_not_know_each_other(parts: tuple[str, ...]) -> None:
    for path in MODULES:
        module = name_of(path)
        own = part_of(module, parts)
        for name in imported(path):
            other = part_of(name, parts)
            allowed = {"", own, COMPARES.get(module, "")}
            assert not own or other in allowed, f"{module} imports {name}: {own} and {other} stand apart"


@pytest.mark.parametrize("general", ["backends.gpu", "kernels.gpu"])
def test_what_all_gpus_share_knows_no_driver_and_no_instruction_set(general: str) -> None:
    own = ("amdgpu", "backends.amdgpu", "backends.diagnostics", "kernels.amd", "utils.linux")
    for path in MODULES:
        if part_of(name_of(path), (general,)):
            names = {name for name in imported(path) if part_of(name, own)}
            assert not names, f"{name_of(path)} imports {names}"


def test_each_part_exists() -> None:
    for part in (name for parts in APART for name in parts):
        assert (ROOT / part.replace(".", "/")).is_dir()
    for module, part in COMPARES.items():
        names = imported(ROOT / (module.replace(".", "/") + ".py"))
        assert any(part_of(name, (part,)) for name in names), f"{module} no longer compares with {part}"


def test_nothing_in_the_runtime_imports_the_seed_api() -> None:
    for path in MODULES:
        if place(name_of(path)) not in {"seed", "cli"}:
            names = {place(name) for name in imported(path) - {"amdgpu_emu"}}
            assert "seed" not in names, f"{name_of(path)} imports the seed API"


def test_few_modules_stand_beside_the_packages() -> None:
    assert len(list(ROOT.glob("*.py"))) <= 6


def test_importing_the_package_loads_no_array_library() -> None:
    code = "import sys, zinc_rt; print([m for m in ('numpy', 'tokenizers', 'jinja2', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_every_public_name_exists() -> None:
    for name in zinc_rt.__all__:
        assert getattr(zinc_rt, name) is not None
    with pytest.raises(AttributeError):
        _ = zinc_rt.no_such_name
