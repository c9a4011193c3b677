"""Lengths of time as people and clients write them."""

from __future__ import annotations

import pytest

from zinc_rt.utils.durations import seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5m", 300), ("90s", 90), ("2h", 7200), ("1h30m", 5400), ("1.5h", 5400), ("250ms", 0.25), ("0", 0), ("-1", -1),
        ("-5m", -300), ("+3s", 3), ("7", 7), (".5s", 0.5), ("1h0.5s", 3600.5),
    ],
)  # fmt: skip
def test_times(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "-", "m", "5 m", "5d", "5m3", "1e3", "٣s", "--1", "inf", "nan", "9" * 99])
def test_other_texts(text: str) -> None:
    assert seconds_of(text) is None
