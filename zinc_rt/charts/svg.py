"""An SVG document: shapes and text, added one by one."""

from __future__ import annotations

from html import escape
from typing import Final

COLOURS: Final = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#ee8866", "#44bb99", "#99ddff", "#bbbbbb",
)  # fmt: skip
"""That differ for colour-blind readers, too: Paul Tol's "bright" scheme and some of his "light" one."""
INK: Final = "#222222"
FAINT: Final = "#999999"
GRID: Final = "#dddddd"


class Svg:
    """A document of a size in pixels, with a white ground, so that it reads on dark pages as well."""

    def __init__(self, width: float, height: float, ground: str = "#ffffff", font: str = "sans-serif") -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{_n(width)}" height="{_n(height)}"'
            f' viewBox="0 0 {_n(width)} {_n(height)}" font-family="{font}" font-size="12">'
        )
        self._parts: list[str] = []
        self.rect(0, 0, width, height, ground)

    def rect(self, x: float, y: float, width: float, height: float, fill: str, about: str = "") -> None:
        """A filled rectangle. about: shown when the pointer rests on it."""
        end = f"><title>{escape(about)}</title></rect>" if about else "/>"
        self._parts.append(
            f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" fill="{fill}"{end}'
        )

    def line(self, points: list[tuple[float, float]], colour: str, width: float = 1) -> None:
        """A line through points."""
        path = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{_n(width)}"/>')

    def dot(self, x: float, y: float, colour: str, about: str = "") -> None:
        """A point of a chart."""
        title = f"<title>{escape(about)}</title>" if about else ""
        self._parts.append(f'<circle cx="{_n(x)}" cy="{_n(y)}" r="3.5" fill="{colour}">{title}</circle>')

    def text(
        self, x: float, y: float, text: str, *, anchor: str = "start", colour: str = INK, size: float = 12,
        more: str = "",
    ) -> None:  # fmt: skip
        """A line of text at its base line. anchor: "start", "middle" or "end" of it is at x; more: attributes."""
        self._parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}" fill="{colour}" font-size="{_n(size)}"{more}>'
            f"{escape(text, quote=False)}</text>"
        )

    def raw(self, markup: str) -> None:
        """Markup as it is."""
        self._parts.append(markup)

    def __str__(self) -> str:
        return "\n".join([self._head, *self._parts, "</svg>"]) + "\n"


def _n(value: float) -> str:
    """A number in as few characters as it needs."""
    return f"{value:.2f}".rstrip("0").rstrip(".") if value != int(value) else str(int(value))
