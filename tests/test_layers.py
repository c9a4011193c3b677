"""Imports only point down the layers of docs/architecture.md, and importing the package costs nothing."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import zinc_rt

ROOT = Path(zinc_rt.__file__).parent

# From the bottom up; modules of one layer may import each other.
LAYERS = (
    ("errors",),
    ("numerics",),
    ("lang",),
    ("formats",),
    ("linux", "uapi"),
    ("pm4",),
    ("kmd",),
    ("gguf", "text"),
    ("mem", "sched"),
    ("ir",),
    ("kernels",),
    ("cores", "fast_pool"),
    ("ring",),
    ("models",),
    ("emu",),
    ("gpus",),
    ("tiers", "emulated", "rings", "engine"),
    ("sampling", "sampling_math", "sampler", "sampling_gpu", "choosing", "stopping", "generation"),
    ("model",),
    ("cli", "__main__"),
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def parts(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("zinc_rt"):
            rest = node.module.split(".")[1:]
            names |= {rest[0]} if rest else {a.name for a in node.names}
        elif isinstance(node, ast.Import):
            names |= {a.name.split(".")[1] for a in node.names if a.name.startswith("zinc_rt.")}
    return names - {"__version__"}


MODULES = sorted(p for p in ROOT.rglob("*.py") if p != ROOT / "__init__.py")


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    layer = parts(path)
    assert layer in RANK, f"{path.name} has no layer: give it one in docs/architecture.md and here"
    for name in imported(ast.parse(path.read_text(encoding="utf-8"))):
        assert RANK[name] <= RANK[layer], f"{layer} imports {name}, which is above it"


def test_the_emulator_stands_apart() -> None:
    """It is a second implementation: of the runtime it knows the driver's and the packets' layouts, no driver code."""
    below, above = {"emu", "linux", "uapi", "pm4", "errors"}, {"emu", "emulated", "cli"}
    for path in MODULES:
        names = imported(ast.parse(path.read_text(encoding="utf-8")))
        if parts(path) == "emu":
            assert names <= below, f"{path.name} imports {names - below}"
        if "emu" in names:
            assert parts(path) in above, f"{parts(path)} imports the emulator"


def test_modules_hold_one_idea() -> None:
    sizes = {str(p.relative_to(ROOT)): len(p.read_text(encoding="utf-8").splitlines()) for p in MODULES}
    assert {name: n for name, n in sizes.items() if n > 500} == {}


def test_importing_the_package_loads_no_array_library() -> None:
    code = "import sys, zinc_rt; print([m for m in ('numpy', 'tokenizers', 'jinja2', 'rich') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_every_public_name_exists() -> None:
    for name in zinc_rt.__all__:
        assert getattr(zinc_rt, name) is not None
    with pytest.raises(AttributeError):
        _ = zinc_rt.no_such_name
