"""The guide's examples run and print what it says; the reference is current."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from zinc_rt.lang.ops import WORDS
from zinc_rt.lang.reference import _SECTIONS, reference

DOCS = Path(__file__).parents[2] / "docs" / "how"
GUIDE = (DOCS / "lang.md").read_text(encoding="utf-8")


def examples() -> list[tuple[str, str]]:
    """Each block of Python, and what it is said to print."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", GUIDE, re.M | re.S)
    out = []
    for i, (kind, code) in enumerate(blocks):
        if kind == "python":
            following = blocks[i + 1] if i + 1 < len(blocks) else ("", "")
            out.append((code, following[1] if following[0] == "text" else ""))
    return out


def test_the_guides_examples_print_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One file holds them all, as a reader who types along would have it."""
    monkeypatch.setenv("ZINC_RT_CACHE_DIR", str(tmp_path / "cache"))
    path = tmp_path / "guide.py"
    path.write_text("\nprint('---')\n".join(code for code, _ in examples()), encoding="utf-8")
    spec = importlib.util.spec_from_file_location("guide", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "guide", module)
    spec.loader.exec_module(module)
    printed = capsys.readouterr().out.split("---\n")
    for (code, said), did in zip(examples(), printed, strict=True):
        assert did == said, code
    assert len(list((tmp_path / "cache").iterdir())) > 10, "compiled kernels are kept"


def test_the_reference_is_current() -> None:
    written = (DOCS / "lang_reference.md").read_text(encoding="utf-8")
    assert written == reference(), "run: python -m zinc_rt.lang.reference > docs/how/lang_reference.md"


def test_every_word_is_in_the_reference_once() -> None:
    listed = " ".join(_SECTIONS.values()).split()
    assert sorted(listed) == sorted(WORDS), "name them in a section of zinc_rt/lang/reference.py"


def test_lines_of_the_guide_fit_a_screen() -> None:
    assert [line for line in GUIDE.splitlines() if len(line) > 120] == []
