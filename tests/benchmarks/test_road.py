"""A token's road stays short: files and calls of a decode step, counted by `benchmarks/road.py`."""

from __future__ import annotations

from tests.benchmarks.conftest import Modules

FILES, CALLS = 20, 80
"""Most files and calls of `zinc_rt` that a token of one text may pass."""


def test_a_token_passes_few_files_and_calls(bench: Modules) -> None:
    found = bench["road"].road()
    assert found["files"] <= FILES
    assert found["calls"] <= CALLS
