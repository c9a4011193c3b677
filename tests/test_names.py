"""A public class's name means one thing, in the runtime and in the emulator of the GPU, and parameters are nouns."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import amdgpu_emu
import zinc_rt

VAGUE = {"beside", "how", "many", "few", "there", "made", "said", "ours", "theirs", "most", "least"}
"""Names that do not say what a parameter holds."""
VAGUE_IN_RUNTIME = VAGUE | {"what"}
"""The same of the runtime's parameters; the emulator has some of this name."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Each file of both packages, with its tree."""
    for package in (zinc_rt, amdgpu_emu):
        root = Path(package.__file__).parent
        for path in root.rglob("*.py"):
            yield str(path.relative_to(root.parent)), ast.parse(path.read_text(encoding="utf-8"))


def test_no_two_public_classes_have_one_name() -> None:
    found = defaultdict(list)
    for path, tree in modules():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(path)
    assert len(found) > 900
    assert {name: sorted(paths) for name, paths in found.items() if len(paths) > 1} == {}


def test_parameters_say_what_they_hold() -> None:
    found = [(path, node) for path, tree in modules() for node in ast.walk(tree) if isinstance(node, ast.arg)]
    assert len(found) > 10_000
    refused = {path: VAGUE_IN_RUNTIME if Path(path).parts[0] == "zinc_rt" else VAGUE for path, _ in found}
    assert [f"{path}:{node.lineno}: {node.arg}" for path, node in found if node.arg in refused[path]] == []
