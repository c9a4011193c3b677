"""A recording of a terminal as an animated SVG: what a command wrote, and when."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from html import escape
from typing import Final

from zinc_rt.charts.svg import Svg

_CODE: Final = re.compile(r"\x1b\[([0-9;]*)m|\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07]*\x07|\x1b[()][A-Z0-9]|\x1b[=>]")
_FONT: Final = "ui-monospace,Menlo,Consolas,monospace"
_GROUND, _PAPER = "#1e1e2e", "#cdd6f4"
_STYLES: Final = {
    "1": 'font-weight="bold"',
    "2": 'opacity="0.55"',
    "31": 'fill="#f38ba8"',
    "32": 'fill="#a6e3a1"',
    "33": 'fill="#f9e2af"',
    "36": 'fill="#94e2d5"',
}
_ADVANCE, _LINE, _EDGE = 8.43, 18, 14
_SHOWN_FIRST: Final = 2.0
"""Seconds that the whole text is shown for before it is written once more."""
_STYLE_RULES: Final = (
    "<style>text{white-space:pre;font-size:14px}"
    f"@media (prefers-reduced-motion:no-preference){{.t{{animation-name:hide;animation-delay:{_SHOWN_FIRST:g}s}}}}"
    "@keyframes hide{from,to{visibility:hidden}}</style>"
)


@dataclass(frozen=True)
class Written:
    """Text that arrived at a time, in seconds from the start."""

    at: float
    text: str


@dataclass(frozen=True)
class Piece:
    """Text in one style on one line of the screen, from a column on."""

    at: float
    row: int
    column: int
    text: str
    style: str


def screen(writes: Iterable[Written], columns: int) -> list[Piece]:
    """Where on an endless screen of this width the text comes to stand. Colours and line ends are obeyed, of all else
    that moves the cursor only the return to the line's beginning, after which the line is written anew.
    """
    pieces: list[Piece] = []
    row = column = 0
    style = ""
    for write in writes:
        for text, codes in _parts(write.text):
            if codes is not None:
                style = _STYLES.get(codes, "") if codes not in ("", "0") else ""
                continue
            for part in re.findall(r"\r\n|\n|\r|[^\r\n]+", text):
                if part in ("\r\n", "\n"):
                    row, column = row + 1, 0
                elif part == "\r":
                    pieces = [piece for piece in pieces if piece.row != row]
                    column = 0
                else:
                    while part:
                        if column == columns:
                            row, column = row + 1, 0
                        shown, part = part[: columns - column], part[columns - column :]
                        pieces.append(Piece(write.at, row, column, shown, style))
                        column += len(shown)
    return pieces


def _parts(text: str) -> Iterator[tuple[str, str | None]]:
    """Text between the codes, and the colour codes; others are left out."""
    end = 0
    for found in _CODE.finditer(text):
        if found.start() > end:
            yield text[end : found.start()], None
        if found[1] is not None:
            yield "", found[1]
        end = found.end()
    if end < len(text):
        yield text[end:], None


def recording(writes: Iterable[Written], columns: int = 100) -> str:
    """An SVG document that shows the whole text, then hides each piece until the time when it was written.

    So all of the text is in the first frame, for renderers without animations and readers who want no motion.
    """
    pieces = screen(writes, columns)
    rows = 1 + max((piece.row for piece in pieces), default=0)
    svg = Svg(2 * _EDGE + _ADVANCE * columns, 2 * _EDGE + _LINE * rows, _GROUND, _FONT)
    svg.raw(_STYLE_RULES)
    for piece in pieces:
        x, y = _EDGE + _ADVANCE * piece.column, _EDGE + _LINE * (piece.row + 0.75)
        fill = piece.style if "fill" in piece.style else f'{piece.style} fill="{_PAPER}"'.strip()
        # The width is said, since the reader's font may be wider than the one that places were computed for.
        svg.raw(
            f'<text class="t" style="animation-duration:{piece.at:.2f}s" x="{x:.1f}" y="{y:.1f}" {fill}'
            f' textLength="{_ADVANCE * len(piece.text):.1f}" lengthAdjust="spacingAndGlyphs">'
            f"{escape(piece.text, quote=False)}</text>"
        )
    return str(svg)
