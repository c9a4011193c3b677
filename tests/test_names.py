"""A public class's name means one thing, in the runtime and in the emulator of the GPU, and parameters are nouns."""

from __future__ import annotations

import ast
import re
from collections import defaultdict

from tests.source import ROOT, matching, texts

PACKAGES = ("zinc_rt", "amdgpu_emu")
VAGUE = {"beside", "how", "many", "few", "there", "made", "said", "ours", "theirs", "most", "least"}
"""Names that do not say what a parameter holds."""


def test_no_two_public_classes_have_one_name() -> None:
    found = defaultdict(list)
    for path, text in (entry for package in PACKAGES for entry in texts(package).items()):
        for name in re.findall(r"^class ([A-Za-z]\w*)", text, re.MULTILINE):
            found[name].append(str(path.relative_to(ROOT)))
    assert len(found) > 900
    assert {name: sorted(paths) for name, paths in found.items() if len(paths) > 1} == {}


def vague(pattern: str) -> list[str]:
    """Parameters whose names are vague, in the files where the pattern occurs."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.arg}"
        for path, tree in matching(pattern, *PACKAGES)
        for node in ast.walk(tree)
        if isinstance(node, ast.arg) and node.arg in VAGUE
    ]


def test_parameters_say_what_they_hold() -> None:
    """A parameter has its type behind it, except one of a lambda."""
    name = f"({'|'.join(VAGUE)})"
    assert vague(rf"\b{name}: ?[^\s]|\blambda [^:]*\b{name}\b") == []
