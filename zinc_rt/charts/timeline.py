"""A picture of a profile: what share of the time each operation had, and the last step on a line of time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from zinc_rt.charts.scale import label, ticks
from zinc_rt.charts.svg import COLOURS, FAINT, GRID, Svg

_WIDTH: Final = 1000
_LEFT, _RIGHT = 150, 40
_BAR, _LANE = 20, 26
_MOST_SPANS: Final = 5000
"""Of a picture: a browser draws so many at once."""


@dataclass(frozen=True)
class TraceSpan:
    """A stretch of an operation on a thread; microseconds."""

    name: str
    kind: str
    thread: str
    begin: float
    length: float


def timeline(trace: str, title: str) -> str:
    """An SVG document of a trace in Chrome's format (`StepProfile.chrome_trace`)."""
    spans = _spans(trace)
    kinds = _kinds(spans)
    colours = {kind: COLOURS[i % len(COLOURS)] for i, kind in enumerate(kinds)}
    step = _last_step(spans)
    threads = list(dict.fromkeys(span.thread for span in spans))
    height = 60 + len(kinds) * _BAR + 80 + len(threads) * _LANE + 30
    svg = Svg(_WIDTH, height)
    svg.text(20, 24, title, size=14)
    _shares(svg, kinds, colours, 40)
    _step(svg, step, threads, colours, 60 + len(kinds) * _BAR + 24)
    return str(svg)


def _spans(trace: str) -> list[TraceSpan]:
    events: list[dict[str, Any]] = json.loads(trace)["traceEvents"]
    names = {e["tid"]: str(e["args"]["name"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    return [
        TraceSpan(e["name"], e.get("cat", e["name"]), names.get(e["tid"], f"queue {e['tid']}"), e["ts"], e["dur"])
        for e in events
        if e["ph"] == "X"
    ]


def _kinds(spans: Sequence[TraceSpan]) -> dict[str, float]:
    """Microseconds of each kind, the longest first."""
    sums: dict[str, float] = {}
    for span in spans:
        sums[span.kind] = sums.get(span.kind, 0.0) + span.length
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _last_step(spans: Sequence[TraceSpan]) -> list[TraceSpan]:
    """From the last time that the first operation ran; of a long step the beginning."""
    if not spans:
        return []
    ordered = sorted(spans, key=lambda span: span.begin)
    begin = max(span.begin for span in ordered if span.name == ordered[0].name)
    return [span for span in ordered if span.begin >= begin][:_MOST_SPANS]


def _shares(svg: Svg, kinds: dict[str, float], colours: dict[str, str], top: float) -> None:
    whole = sum(kinds.values()) or 1.0
    room = _WIDTH - _LEFT - _RIGHT - 130
    for number, (kind, time) in enumerate(kinds.items()):
        y = top + number * _BAR
        svg.text(_LEFT - 8, y + 14, kind, anchor="end")
        svg.rect(_LEFT, y + 3, max(1.0, room * time / whole), _BAR - 6, colours[kind])
        svg.text(_LEFT + room * time / whole + 6, y + 14, f"{time / whole:.1%}, {time / 1e3:.2f} ms", colour=FAINT)


def _step(svg: Svg, step: Sequence[TraceSpan], threads: Sequence[str], colours: dict[str, str], top: float) -> None:
    if not step:
        svg.text(20, top, "no step was recorded")
        return
    begin = min(span.begin for span in step)
    length = max(span.begin + span.length for span in step) - begin
    svg.text(20, top, f"the last step, {length / 1e3:.3f} ms")
    values = ticks(length, 8)
    room = _WIDTH - _LEFT - _RIGHT
    bottom = top + 14 + len(threads) * _LANE
    for value in values:
        x = _LEFT + room * value / values[-1]
        svg.line([(x, top + 12), (x, bottom)], GRID)
        svg.text(x, bottom + 16, f"{label(value)} us", anchor="middle", colour=FAINT)
    for number, thread in enumerate(threads):
        svg.text(_LEFT - 8, top + 14 + number * _LANE + 16, thread, anchor="end")
    for span in step:
        x = _LEFT + room * (span.begin - begin) / values[-1]
        y = top + 14 + threads.index(span.thread) * _LANE + 2
        width = max(0.3, room * span.length / values[-1])
        svg.rect(x, y, width, _LANE - 4, colours[span.kind], f"{span.name}: {span.length:.1f} us")
