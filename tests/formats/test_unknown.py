"""A format that a tier does not know is refused there by name; one of known kinds is a record and no more."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import zinc_rt
from tests.formats.fakes import NAME, UNKNOWN
from tests.source import matching
from zinc_rt.formats.kinds import CodeLayout, Scale
from zinc_rt.formats.record import Format
from zinc_rt.formats.table import FORMATS
from zinc_rt.lang.diagnostics import KernelError
from zinc_rt.lang.frontend import Spec, emit_module
from zinc_rt.lang.target import TARGETS

ROOT = Path(__file__).parents[2]
PACKAGE = Path(zinc_rt.__file__).parent


def run(what: str, record: str = "", timeout: int = 250) -> dict[str, object]:
    """A table with one more record, in a process of its own: everything else is derived when it is imported."""
    command = [sys.executable, "-m", "tests.formats.fakes", what, record]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr
    out: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return out


SOON = (("kind", "refused"), ("codebook", "learned"))


@pytest.mark.parametrize(
    ("record", "what"),
    [
        pytest.param(record, what, marks=() if (record, what) in SOON else pytest.mark.slow)
        for record in UNKNOWN
        for what in ("refused", "learned")
    ],
)
def test_every_tier_refuses_by_name(record: str, what: str) -> None:
    said = run(what, record)
    assert len(said) >= 21
    if record == "codebook":
        # Tiles hold indices as well as numbers.
        assert said.pop("cpu layout", None) is None
    for attempt, message in said.items():
        assert isinstance(message, str), f"{attempt} takes a format with an unknown {record}"
        assert message.startswith(("UnknownFormat: ", "KernelError: "))
        assert f"format {NAME}" in message
        tier, kernel = attempt.split()
        if tier not in ("reference", "cpu"):
            assert f"(in kernel {kernel.removesuffix('_rows')})" in message


@pytest.mark.parametrize("record", ["scale behind", pytest.param("as Q4_0", marks=pytest.mark.slow)])
def test_a_format_of_known_kinds_is_one_record(record: str) -> None:
    """Q4_0 under another name, and with its parts elsewhere, has Q4_0's bits everywhere."""
    same = run("same", record)
    assert {"reference matmul", "gfx1201 matvec", "gfx1201 embed"} < set(same)
    assert set(same.values()) == {True}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_combinations_that_no_format_has_are_right_or_refused() -> None:
    """Nineteen records of known kinds: every tier gives the reference's bits or names what it does not know."""
    said = run("compared", timeout=1100)
    refused = {attempt: message for attempt, message in said.items() if message not in ("same", "differs")}
    assert [attempt for attempt, message in said.items() if message == "differs"] == []
    assert len(said) - len(refused) >= 60
    for attempt, message in refused.items():
        assert f"format {attempt.split()[2]}" in str(message)


def test_what_has_no_record_is_refused() -> None:
    from zinc_rt.kernels.gpu.catalogue import matvec_rows

    with pytest.raises(KernelError, match=r"format Q8_K has no record in zinc_rt/formats/table\.py") as caught:
        emit_module("m", [matvec_rows("Q8_K", 1).spec], TARGETS["gfx1201"])
    assert caught.value.kernel == "matvec"


def test_an_offset_that_packs_have_no_sum_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from zinc_rt.kernels.cpu import layout
    from zinc_rt.kernels.cpu.matmul import matmul
    from zinc_rt.kernels.cpu.tiles import Ahead

    monkeypatch.setitem(FORMATS, NAME, Format(NAME, 32, 18, CodeLayout.NIBBLES, Scale.BLOCK, q=2, offset=7))
    monkeypatch.setitem(layout.TILES, NAME, layout.TILES["Q4_0"])
    constants = {"FMT": NAME, "W": 8, "BLOCKS": (1,), "AHEAD": Ahead(64, 64), "TILES": "", "FEW": 0, "MANY": 0}
    with pytest.raises(KernelError, match=rf"format {NAME}: packs have no sums for offset 7, but for \(128, 8"):
        emit_module("m", [Spec(matmul, constants)], TARGETS["avx2"])


@pytest.mark.parametrize(
    ("kind", "scale", "fields", "why"),
    [
        (
            CodeLayout.NIBBLES,
            Scale.SIX_BIT,
            {"block": 32, "scales": 2, "minimum": 16},
            "small scales are those of 8 groups",
        ),
        (CodeLayout.NIBBLES, Scale.NONE, {}, "integers have scales"),
        (CodeLayout.F16, Scale.BLOCK, {}, "plain numbers have none"),
        (CodeLayout.NIBBLES, Scale.BLOCK, {"high": 2}, "belong together"),
        (CodeLayout.BYTES, Scale.BLOCK, {"high": 2, "high_bits": 1}, "bytes have no high bits"),
        (CodeLayout.PAIRS, Scale.SIX_BIT, {"scales": 4}, "six bit come with minima"),
        (CodeLayout.HALVES, Scale.INT8_HALVES, {"scales": 4, "minimum": 2}, "int8 halves come without minima"),
        (CodeLayout.HALVES, Scale.INT8_HALVES, {}, "goes with their kind, not int8 halves"),
        (CodeLayout.NIBBLES, Scale.BLOCK, {"scales": 4}, "goes with their kind, not block"),
        (CodeLayout.BYTES, Scale.BLOCK, {"offset": 8}, "integers from -136 to 119 do not fit"),
    ],
)
def test_records_that_no_block_can_have(kind: CodeLayout, scale: Scale, fields: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=f"the record of X: .*{why}"):
        Format("X", block_bytes=144, kind=kind, scale=scale, **{"block": 256, **fields})


# -- no silent branch -------------------------------------------------------------------------------------------------

FOLDERS = ("kernels/cpu/*.py", "kernels/gpu/*.py", "kernels/amd/*.py", "formats/decode*.py")
BRANCHED = ("kind", "scale", "high_bits")
"""Fields of a record that kernels choose code by."""
SAID = re.compile(rf"\.({'|'.join(BRANCHED)})\b")
KERNELS = sorted(path for folder in FOLDERS for path in PACKAGE.glob(folder) if SAID.search(path.read_text("utf-8")))
"""Those that read one."""


@cache
def functions(path: Path) -> list[ast.FunctionDef]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def compared(node: ast.AST) -> set[str]:
    """Fields of records that tests of `if` and of conditional expressions compare."""
    tests = [n.test for n in ast.walk(node) if isinstance(n, ast.If | ast.IfExp)]
    sides = [s for t in tests for c in ast.walk(t) if isinstance(c, ast.Compare) for s in (c.left, *c.comparators)]
    return {s.attr for s in sides if isinstance(s, ast.Attribute) and s.attr in BRANCHED}


def has_assert(node: ast.AST) -> bool:
    """Whether a function refuses what it does not know, at compile time or, where it is plain Python, with an error."""
    if any(isinstance(n, ast.Raise) for n in ast.walk(node)):
        return True
    calls = (n.func for n in ast.walk(node) if isinstance(n, ast.Call))
    return any(isinstance(f, ast.Name) and f.id == "static_assert" for f in calls)


TWO_WAYS = {
    # Functions that treat one kind apart, all others alike, and read no bits of a block themselves.
    ("cpu/matmul_float.py", "add_group"),
}


@pytest.mark.parametrize("path", KERNELS, ids=lambda p: "/".join(p.parts[-2:]))
def test_branches_on_a_record_end_in_an_assertion(path: Path) -> None:
    name = "/".join(path.parts[-2:])
    for function in functions(path):
        fields = compared(function)
        if fields and (name, function.name) not in TWO_WAYS:
            assert has_assert(function), f"{name}: {function.name} branches on {fields} and takes whatever is left"


def test_the_exceptions_exist() -> None:
    everything = [("/".join(p.parts[-2:]), f) for p in KERNELS for f in functions(p)]
    found = {(name, f.name) for name, f in everything if compared(f) and not has_assert(f)}
    assert found >= TWO_WAYS


def test_no_code_but_the_tables_compares_names_of_formats() -> None:
    """Kinds decide, so that a format of known kinds works everywhere."""
    names_of_formats = "|".join(name for name, record in FORMATS.items() if record.quantized)
    for path, tree in matching(rf"\b({names_of_formats})\b", "zinc_rt"):
        for node in ast.walk(tree):
            if not isinstance(node, ast.Compare):
                continue
            parts = [c for side in (node.left, *node.comparators) for c in ast.walk(side)]
            names = {c.value for c in parts if isinstance(c, ast.Constant)} | {
                c.attr for c in parts if isinstance(c, ast.Attribute)
            }
            quantised = {n for n in names if n in FORMATS and FORMATS[n].quantized}
            assert not quantised, f"{path.relative_to(PACKAGE)}:{node.lineno} compares with {quantised}"
