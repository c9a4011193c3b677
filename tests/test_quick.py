"""The table of the inner loop names modules that exist, and leaves no area of the tests out."""

from __future__ import annotations

from pathlib import Path

from tests.quick import QUICK

TESTS = Path(__file__).parent


def test_every_named_module_exists_once() -> None:
    assert [name for name in QUICK if not (TESTS / name).is_file()] == []
    assert len(set(QUICK)) == len(QUICK)


def test_every_area_has_a_module() -> None:
    areas = {path.relative_to(TESTS).parts[0] for path in TESTS.glob("*/**/test_*.py")}
    assert areas - {name.partition("/")[0] for name in QUICK} == set()
