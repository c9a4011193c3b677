"""Pictures: well-formed SVG in which every value stands where its axis says."""

from __future__ import annotations

import json
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.charts.recording import Piece, Written, recording, screen
from zinc_rt.charts.scale import label, ticks
from zinc_rt.charts.speeds import SpeedPanel, SpeedPoint, speed_chart
from zinc_rt.charts.timeline import timeline

NAME = "{http://www.w3.org/2000/svg}"


def parts(svg: str, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(NAME + tag))


@given(st.floats(1e-9, 1e12), st.integers(2, 10))
def test_ticks_are_round_and_reach_the_largest(largest: float, about: int) -> None:
    values = ticks(largest, about)
    assert values[0] == 0
    assert values[-1] >= largest * (1 - 1e-6)
    assert values[-2] < largest
    assert len(values) <= 2 * about + 2
    assert re.match(r"(1|2|2\.5|5)e", f"{values[1]:.4g}".replace(".0", "") + "e") or f"{values[1]:e}"[0] in "125"


@pytest.mark.parametrize(("value", "text"), [(0, "0"), (2.5, "2.5"), (12345, "12,345"), (7e6, "7,000,000")])
def test_labels(value: float, text: str) -> None:
    assert label(value) == text


def test_speeds_stand_at_their_heights() -> None:
    points = [SpeedPoint("32", 100, 90, 110), SpeedPoint("128", 50, 40, 60)]
    svg = speed_chart("<model> & others", [SpeedPanel("prompt", "tokens", points)])
    assert "<model> & others" in [t.text for t in parts(svg, "text")]
    axis = {t.text: float(t.get("y", "")) - 4 for t in parts(svg, "text") if t.get("text-anchor") == "end"}
    (first, second) = (float(c.get("cy", "")) for c in parts(svg, "circle"))
    assert first == pytest.approx(axis["100"], abs=0.02)
    assert second == pytest.approx(axis["50"] if "50" in axis else (axis["40"] + axis["60"]) / 2, abs=0.02)
    assert "100.00 tokens/s (90.00 to 110.00)" in (parts(svg, "title")[0].text or "")


def trace(*spans: tuple[str, str, int, float, float]) -> str:
    names = [{"name": "thread_name", "ph": "M", "tid": i, "args": {"name": f"thread {i}"}} for i in (0, 1)]
    events = [{"name": n, "cat": k, "ph": "X", "tid": t, "ts": b, "dur": d} for n, k, t, b, d in spans]
    return json.dumps({"traceEvents": [*names, *events]})


def test_a_profile_shows_shares_and_the_last_step() -> None:
    svg = timeline(
        trace(
            ("embed", "embed", 0, 0, 10),
            ("q", "matmul", 0, 10, 70),
            ("q", "matmul", 1, 10, 20),
            ("embed", "embed", 0, 1000, 10),
            ("q", "matmul", 1, 1010, 90),
        ),
        "cpu",
    )
    texts = [t.text for t in parts(svg, "text")]
    assert "90.0%, 0.18 ms" in texts
    assert "10.0%, 0.02 ms" in texts
    assert texts.index("matmul") < texts.index("embed")
    assert "the last step, 0.100 ms" in texts
    about = [t.text for t in parts(svg, "title")]
    assert about == ["embed: 10.0 us", "q: 90.0 us"]
    shown = [r for r in parts(svg, "rect") if len(r)]
    assert float(shown[1].get("width", "")) == pytest.approx(9 * float(shown[0].get("width", "")), rel=0.01)
    assert float(shown[1].get("y", "")) > float(shown[0].get("y", ""))  # on the line of the other thread


def test_a_profile_of_nothing() -> None:
    assert "no step was recorded" in timeline(trace(), "cpu")


def test_a_terminal_wraps_and_keeps_its_colours() -> None:
    pieces = screen([Written(0.0, "ab\x1b[2mcdef\x1b[0mg\r\n"), Written(1.5, "10 %\r\x1b[K\x1b[1mdone")], 4)
    assert pieces == [
        Piece(0.0, 0, 0, "ab", ""),
        Piece(0.0, 0, 2, "cd", 'opacity="0.55"'),
        Piece(0.0, 1, 0, "ef", 'opacity="0.55"'),
        Piece(0.0, 1, 2, "g", ""),
        Piece(1.5, 2, 0, "done", 'font-weight="bold"'),
    ]


@given(st.lists(st.text(st.characters(blacklist_categories=["Cc", "Cs"]), min_size=1), max_size=5), st.integers(1, 30))
def test_a_recording_shows_all_of_the_text(texts: list[str], columns: int) -> None:
    svg = recording([Written(0.1 * i, text) for i, text in enumerate(texts)], columns)
    assert "".join(t.text or "" for t in parts(svg, "text")) == "".join(texts)


def test_a_recording_is_whole_before_and_without_its_animation() -> None:
    """Only an animation, of readers who want motion, may hide text: for a time that ends when the text was written."""
    svg = recording([Written(0.25, "early"), Written(1.5, "late")])
    (rules,) = (style.text or "" for style in parts(svg, "style"))
    moving = re.search(r"@media \(prefers-reduced-motion:no-preference\)\{(.*?\})\}", rules)
    frames = re.search(r"@keyframes hide\{.*\}", rules)
    assert moving is not None
    assert frames is not None
    assert "animation-name:hide;animation-delay:2s" in moving[1]
    still = rules.replace(moving[0], "").replace(frames[0], "")
    assert not re.search("visibility|opacity|display|animation", still)
    assert "fill-mode" not in rules  # before its delay and after its end, an animation changes nothing
    assert [t.get("style") for t in parts(svg, "text")] == ["animation-duration:0.25s", "animation-duration:1.50s"]
