"""A public class's name means one thing, in the runtime and in the emulator of the GPU, and parameters are nouns."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from tests.source import ROOT, matching, texts

PACKAGES = ("zinc_rt", "amdgpu_emu")
VAGUE = {"beside", "how", "many", "few", "there", "made", "said", "ours", "theirs", "most", "least"}
"""Names that do not say what a parameter holds."""
VAGUE_IN_RUNTIME = VAGUE | {"what"}
"""The same of the runtime's parameters; the emulator has some of this name."""


def test_no_two_public_classes_have_one_name() -> None:
    found = defaultdict(list)
    for path, text in (entry for package in PACKAGES for entry in texts(package).items()):
        for name in re.findall(r"^class ([A-Za-z]\w*)", text, re.MULTILINE):
            found[name].append(str(path.relative_to(ROOT)))
    assert len(found) > 900
    assert {name: sorted(paths) for name, paths in found.items() if len(paths) > 1} == {}


def vague(names: set[str], package: str) -> list[str]:
    """Parameters with one of these names. One has its type behind it, except that of a lambda."""
    name = f"({'|'.join(sorted(names))})"
    return [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.arg}"
        for path, tree in matching(rf"\b{name}: ?[^\s]|\blambda [^:]*\b{name}\b", package)
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) and node.arg in names
    ]


def test_parameters_say_what_they_hold() -> None:
    assert vague(VAGUE_IN_RUNTIME, "zinc_rt") == []
    assert vague(VAGUE, "amdgpu_emu") == []
