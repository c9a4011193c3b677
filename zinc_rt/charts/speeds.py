"""A chart of speeds: tokens per second over lengths, a line for each kind of test, with the spread of its rounds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from zinc_rt.charts.scale import label, ticks
from zinc_rt.charts.svg import COLOURS, FAINT, GRID, Svg

_WIDTH: Final = 720
_PANEL: Final = 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 70, 20, 40, 46


@dataclass(frozen=True)
class SpeedPoint:
    """Tokens per second at a place of the axis: the middle one of the rounds, the slowest and the fastest."""

    at: str
    middle: float
    low: float
    high: float


@dataclass(frozen=True)
class SpeedPanel:
    """A chart of its own, since prompts are much faster than texts. axis: what the places are."""

    title: str
    axis: str
    points: Sequence[SpeedPoint]


def speed_chart(title: str, panels: Sequence[SpeedPanel]) -> str:
    """An SVG document: one panel below the other, each from zero."""
    svg = Svg(_WIDTH, 34 + _PANEL * len(panels))
    svg.text(_LEFT, 22, title, size=14)
    for number, panel in enumerate(panels):
        _panel(svg, panel, 34 + _PANEL * number, COLOURS[number % len(COLOURS)])
    return str(svg)


def _panel(svg: Svg, panel: SpeedPanel, top: float, colour: str) -> None:
    left, right = _LEFT, _WIDTH - _RIGHT
    upper, lower = top + _TOP, top + _PANEL - _BOTTOM
    values = ticks(max((p.high for p in panel.points), default=0.0))

    def height(value: float) -> float:
        return lower - (lower - upper) * value / values[-1]

    svg.text(left, top + 22, panel.title)
    for value in values:
        svg.line([(left, height(value)), (right, height(value))], GRID)
        svg.text(left - 8, height(value) + 4, label(value), anchor="end", colour=FAINT)
    svg.text((left + right) / 2, lower + 36, panel.axis, anchor="middle", colour=FAINT)
    step = (right - left) / max(1, len(panel.points))
    xs = [left + step * (i + 0.5) for i in range(len(panel.points))]
    svg.line([(x, height(p.middle)) for x, p in zip(xs, panel.points, strict=True)], colour, 2)
    for x, point in zip(xs, panel.points, strict=True):
        svg.line([(x, height(point.low)), (x, height(point.high))], colour, 1.5)
        about = f"{point.at}: {point.middle:.2f} tokens/s ({point.low:.2f} to {point.high:.2f})"
        svg.dot(x, height(point.middle), colour, about)
        svg.text(x, height(point.high) - 8, label(round(point.middle, 1)), anchor="middle")
        svg.text(x, lower + 18, point.at, anchor="middle", colour=FAINT)
