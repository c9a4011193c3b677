"""`Wrapper`: styled text broken at words, for a terminal of some width, while it comes; `wrapped`: a whole text."""

from __future__ import annotations

import os
import shutil
import sys
import unicodedata
from typing import Final

_RESET: Final = "\x1b[0m"


def columns() -> int:
    """Columns of the terminal's window as it is now; that behind standard error counts where there is no other."""
    try:
        other = os.get_terminal_size(sys.__stderr__.fileno() if sys.__stderr__ is not None else -1)
    except (OSError, ValueError):  # no terminal; closed
        other = os.terminal_size((80, 24))
    return shutil.get_terminal_size(other).columns


def width_of(text: str) -> int:
    """Columns that a text takes: two for East Asian wide characters, none for combining marks."""
    return len(text) if text.isascii() else sum(map(_columns, text))


def _columns(character: str) -> int:
    if unicodedata.combining(character) or character in "\u200b\u200d\ufe0e\ufe0f":
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrapped(text: str, indent: int = 0) -> str:
    """A text broken at words for the terminal, as wide as it is now. indent: columns before lines that are added."""
    lines = Wrapper(None)
    for number, line in enumerate(text.split("\n")):
        if number:
            lines.end_line()
        if indent:
            lines.hang(line[:indent])
        lines.add(line[indent:])
    lines.finish()
    return lines.take() + " " * (len(text) - len(text.rstrip(" ")))


class Wrapper:
    """Joins words to lines. A word waits until its end is known; all else is given at once.

    A style is the parameters of an SGR sequence (ECMA-48 8.3.117), as "1;36"; "" is the terminal's own. It holds for a
    line at the most.
    """

    def __init__(self, width: int | None) -> None:
        """width: columns of the terminal; None asks it for each word, since its window may change."""
        self._given = width
        self._indent, self._indent_style = "", ""
        self._column = 0
        self._space: list[tuple[str, str]] = []  # behind the last word
        self._word: list[tuple[str, str]] = []
        self._style = ""
        self._out: list[str] = []

    @property
    def _width(self) -> int:
        return max(2, columns() if self._given is None else self._given)

    def take(self) -> str:
        """What can be shown by now, with escape sequences; every call continues the last one."""
        out, self._out = "".join(self._out), []
        return out

    def stand_behind(self, text: str) -> None:
        """Begin where a text ends that the terminal shows already."""
        self._column = width_of(text.rpartition("\n")[2]) % self._width

    def add(self, text: str, style: str = "") -> None:
        """Text of a line, which may be broken at its spaces and beside wide characters."""
        for character in text:
            wide = not character.isascii() and _columns(character) == 2
            if character == " " or wide:
                self._end_word()
            (self._space if character == " " else self._word).append((character, style))
            if wide:
                self._end_word()

    def add_lines(self, text: str) -> None:
        """Text with line ends in it."""
        first, *rest = text.split("\n")
        self.add(first)
        for line in rest:
            self.end_line()
            self.add(line)

    def keep(self, text: str, style: str = "") -> None:
        """Text of a line that stays as it is, however long."""
        self._end_word()
        self._put([*self._space, (text, style)])
        self._space = []

    def hang(self, text: str, style: str = "") -> None:
        """Begin a line with a mark; what does not fit goes below the text behind it. Marks add up."""
        self.keep(text, style)
        below = text if text.isspace() or style else " " * width_of(text)
        if width_of(self._indent + below) < self._width // 2:
            self._indent, self._indent_style = self._indent + below, style

    def end_line(self) -> None:
        """The line is over."""
        self._end_word()
        self._space = []
        self._break()
        self._indent, self._indent_style = "", ""

    def finish(self) -> None:
        """The text is over; its last line may have no end."""
        self._end_word()
        self._switch("")

    def _end_word(self) -> None:
        if not self._word:
            return
        word = sum(_columns(c) for c, _ in self._word)
        space = len(self._space)
        if self._column + space + word > self._width and self._column > width_of(self._indent):
            self._break()
            if self._indent:
                self._put([(self._indent, self._indent_style)])
        else:
            self._put(self._space)
        self._put(self._word)
        self._space, self._word = [], []

    def _break(self) -> None:
        self._switch("")
        self._out.append("\n")
        self._column = 0

    def _put(self, pieces: list[tuple[str, str]]) -> None:
        for text, style in pieces:
            self._switch(style)
            self._out.append(text)
            self._column += width_of(text)

    def _switch(self, style: str) -> None:
        if style != self._style:
            self._out.append((_RESET if self._style else "") + (f"\x1b[{style}m" if style else ""))
            self._style = style
