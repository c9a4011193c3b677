"""A public class's name means one thing, in the runtime and in the emulator of the GPU."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import amdgpu_emu
import zinc_rt


def test_no_two_public_classes_have_one_name() -> None:
    modules = defaultdict(list)
    for package in (zinc_rt, amdgpu_emu):
        root = Path(package.__file__).parent
        for path in root.rglob("*.py"):
            for node in ast.parse(path.read_text(encoding="utf-8")).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    modules[node.name].append(str(path.relative_to(root.parent)))
    assert len(modules) > 900
    assert {name: sorted(paths) for name, paths in modules.items() if len(paths) > 1} == {}
