"""pyproject.toml lists the modules that mypy leaves to the compiler of the kernel language."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def has_kernels(path: Path) -> bool:
    """Whether a module defines something in the kernel language: a kernel, a function of kernels, a structure."""
    found = {
        decorator.func if isinstance(decorator, ast.Call) else decorator
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        for decorator in node.decorator_list
    }
    return any(isinstance(name, ast.Name) and name.id in {"kernel", "inline", "struct"} for name in found)


def test_each_module_of_kernels_is_listed_once() -> None:
    """The modules of `kernels` and `formats`; the few lines elsewhere pass mypy as Python."""
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mypy"]["overrides"]
    (listed,) = [entry["module"] for entry in overrides if entry.get("ignore_errors")]
    modules = [path for part in ("kernels", "formats") for path in (ROOT / "zinc_rt" / part).rglob("*.py")]
    assert listed == sorted(".".join(p.relative_to(ROOT).with_suffix("").parts) for p in modules if has_kernels(p))
