"""`Markdown`: a model's answer as a terminal shows it, while it comes.

Text on the screen is never drawn again. So a mark is held back until its meaning is known: `**` until its partner or
the end of the line, and the first characters of a line until the kind of the line is clear. So the output does not
depend on how the text is cut into pieces. Tables, links and HTML are shown as they are written.
"""

from __future__ import annotations

import re
from typing import Final

from zinc_rt.cli.wrap import Wrapper

BOLD: Final = "1"
ITALIC: Final = "3"
HEADING: Final = "1;4"
CODE: Final = "36"
FAINT: Final = "2"
STRUCK: Final = "9"

_LONGEST: Final = 400
"""Characters between two marks from which on the first is no mark."""
_SPECIAL: Final = re.compile(r"[\\`*_~]")
_ESCAPED: Final = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"
_STYLES: Final = {"*": ITALIC, "_": ITALIC, "**": BOLD, "__": BOLD, "***": f"{BOLD};{ITALIC}", "~~": STRUCK}

_FENCE: Final = re.compile(r" {0,3}(```+|~~~+)[^`]*")
_RULE: Final = re.compile(r" {0,3}([-*_])( *\1){2,} *")
_HEADING: Final = re.compile(r" {0,3}#{1,6} +(?=\S)")
_BULLET: Final = re.compile(r"( *)[-*+] +(?=\S)")
_NUMBER: Final = re.compile(r" *\d{1,9}[.)] +(?=\S)")
_QUOTE: Final = re.compile(r" {0,3}> ?(?=\S)")
_UNDECIDED: Final = re.compile(r" *(`{1,2}|~{1,2}|#{1,6} *|[-*_+ ]*|\d{1,9}([.)] *)?|> ?)")
"""The start of a line that may yet become a mark."""


class Markdown:
    """Renders one answer."""

    def __init__(self, width: int | None) -> None:
        """width: columns of the terminal; None asks it, see `Wrapper`."""
        self._lines = Wrapper(width)
        self._held = ""  # of the line that comes
        self._fence = ""  # the mark of the code block that is open
        self._begun = False  # the line's kind is known
        self._kept = False  # the line is not broken
        self._style = ""  # of the whole line
        self._before = ""  # the last character of the line that was shown

    def add(self, text: str) -> str:
        """What the next piece lets show, with escape sequences. text: no control characters but tabs and line ends."""
        for piece in re.findall(r"[^\n]+|\n", text.replace("\r", "")):
            if piece == "\n":
                self._line(whole=True)
                self._lines.end_line()
                self._begun, self._style, self._before = False, "", ""
            else:
                self._held += piece
                self._line(whole=False)
        return self._lines.take()

    def finish(self) -> str:
        """The rest, at the end of the answer. The line that it ends stays open."""
        self._line(whole=True)
        self._lines.finish()
        return self._lines.take()

    def _line(self, whole: bool) -> None:
        """Show what is known of the line."""
        if self._fence:
            self._code(whole)
            return
        if not self._begun:
            self._begun = self._begin(whole)
        if self._begun:
            self._held = self._spans(self._held, self._style, whole)

    def _code(self, whole: bool) -> None:
        """A line of a code block. One that may be its end waits."""
        bare = self._held.strip()
        if not self._begun and not whole and set(bare) <= {self._fence[0]}:
            return
        if not self._begun and bare.startswith(self._fence) and set(bare) == {self._fence[0]}:
            self._lines.keep(self._held, FAINT)
            self._fence = ""
        elif self._held:
            self._begun = True
            self._lines.keep(self._held, CODE)
        self._held = ""

    def _begin(self, whole: bool) -> bool:
        """Show the mark that begins the line, if any; whether its kind is known."""
        text = self._held
        if not whole and (_UNDECIDED.fullmatch(text) or text.lstrip().startswith(("```", "~~~"))):
            return False
        self._kept = text.lstrip().startswith("|")
        if found := _FENCE.fullmatch(text):
            self._fence = found[1]
            self._all(text, FAINT)
        elif _RULE.fullmatch(text):
            self._all("─" * 3, FAINT)
        elif found := _HEADING.match(text):
            self._style = HEADING
            self._held = text[found.end() :]
        elif found := _BULLET.match(text):
            self._mark(found, f"{found[1]}• ", "")
        elif found := _NUMBER.match(text):
            self._mark(found, found[0], "")
        elif found := _QUOTE.match(text):
            self._mark(found, "│ ", FAINT)
        elif indent := text[: len(text) - len(text.lstrip(" "))]:
            self._lines.hang(indent)
            self._held = text[len(indent) :]
        return True

    def _all(self, text: str, style: str) -> None:
        self._lines.keep(text, style)
        self._held = ""

    def _mark(self, found: re.Match[str], shown: str, style: str) -> None:
        self._lines.hang(shown, style)
        self._held = self._held[found.end() :]

    def _spans(self, text: str, style: str, whole: bool) -> str:
        """Show text with its emphasis and code; returns what waits for more."""
        at = 0
        while at < len(text):
            found = _SPECIAL.search(text, at)
            if found is None or found.start() > at:
                end = found.start() if found else len(text)
                self._plain(text[at:end], style)
                at = end
                continue
            taken = self._special(text, at, style, whole)
            if not taken:
                break
            at += taken
        return text[at:]

    def _special(self, text: str, at: int, style: str, whole: bool) -> int:
        """Show what a special character begins; returns how many characters that took, 0 to wait for more."""
        character, rest = text[at], text[at:]
        if character == "\\":
            if len(rest) == 1 and not whole:
                return 0
            escaped = len(rest) > 1 and rest[1] in _ESCAPED
            self._plain(rest[1] if escaped else character, style)
            return 2 if escaped else 1
        run = rest[: len(rest) - len(rest.lstrip(character))]
        if run == rest and not whole:
            return 0
        if character == "`" or self._opens(run, rest):
            inside = _inside(run, rest, whole)
            if inside is None and not whole and len(rest) <= _LONGEST:
                return 0
            if inside is not None:
                if character == "`":
                    self._plain(inside, _joined(style, CODE))
                else:
                    self._spans(inside, _joined(style, _STYLES[run]), whole=True)
                return len(inside) + 2 * len(run)
        self._plain(run, style)
        return len(run)

    def _opens(self, run: str, rest: str) -> bool:
        """Whether a run of marks may begin an emphasis: it stands before a word, an underscore not inside of one."""
        if run not in _STYLES or rest[len(run) : len(run) + 1].strip() == "":
            return False
        return run[0] != "_" or not self._before.isalnum()

    def _plain(self, text: str, style: str) -> None:
        if text:
            (self._lines.keep if self._kept else self._lines.add)(text.replace("\t", "    "), style)
            self._before = text[-1]


def _inside(run: str, rest: str, whole: bool) -> str | None:
    """What stands between a run of marks and its partner; None where there is none, or none yet."""
    for found in re.finditer(re.escape(run[0]) + "+", rest[: _LONGEST + len(run)]):
        if found.start() == 0 or len(found[0]) != len(run):
            continue
        if found.end() == len(rest) and not whole:
            return None  # the run may go on
        behind = rest[found.end() : found.end() + 1]
        if run[0] != "`" and (rest[found.start() - 1].isspace() or (run[0] == "_" and behind.isalnum())):
            continue
        return rest[len(run) : found.start()]
    return None


def _joined(style: str, more: str) -> str:
    return f"{style};{more}" if style else more
