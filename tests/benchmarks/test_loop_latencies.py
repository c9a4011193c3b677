"""The benchmark that reads latencies from machine code."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.benchmarks.conftest import Modules


def code(text: str) -> list[Any]:
    """Instructions of a program: names, with the number of a wait."""
    words = (part.split() for part in text.split(";"))
    return [SimpleNamespace(name=w[0], modifiers={"simm16": int(w[1]) if len(w) > 1 else 0}) for w in words]


@pytest.mark.parametrize(
    ("program", "latencies"),
    [
        ("global_load_b128; global_load_b32; s_wait_loadcnt 1; s_wait_loadcnt 0", 1),
        ("global_load_b128; s_wait_loadcnt 0; global_load_b32; s_wait_loadcnt 0", 2),
        # The second wait is for a load that was asked for before the first one ended.
        ("global_load_b128; global_load_b128; s_wait_loadcnt 1; global_load_b32; s_wait_loadcnt 1", 1),
        # Loads for the next turn.
        ("s_wait_loadcnt 0; global_load_b128", 1),
        ("global_load_b128; s_load_b64; s_wait_kmcnt 0; s_wait_loadcnt_dscnt 0; v_add_f32", 1),
        ("v_add_f32; s_wait_loadcnt 0", 0),
    ],
)
def test_latencies_of_a_turn(bench: Modules, program: str, latencies: int) -> None:
    assert bench["loop_latencies"].depth(code(program), "loadcnt") == latencies


@pytest.mark.slow
def test_a_table_of_loops(bench: Modules, capsys: pytest.CaptureFixture[str]) -> None:
    bench["loop_latencies"].main(["matvec_q8_0"])
    heads, *rows = capsys.readouterr().out.splitlines()
    assert heads.split() == ["kernel", "waits", "scalar", "loads", "cycles", "waves"]
    assert rows
    assert all(row.startswith("matvec_q8_0 ") and len(row.split()) == 6 for row in rows)
