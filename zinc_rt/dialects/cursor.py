"""`TextCursor`: text that arrives in pieces, read from front to back by generators that wait for more."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import Final

Wait = Generator[None]
"""What a reader is: it yields where it needs more text."""

_BRACKETS: Final = re.compile(r'["{}\[\]]')
_IN_STRING: Final = re.compile(r'["\\]')


class TextCursor:
    """What is read from it does not depend on how the text was cut into pieces."""

    def __init__(self) -> None:
        self._text = ""
        self._at = 0  # what lies before was read
        self.ended = False
        """Whether no more text will come."""
        self._record: list[str] | None = None

    def feed(self, text: str) -> None:
        """The next piece."""
        self._text = self._text[self._at :] + text
        self._at = 0

    @property
    def held(self) -> str:
        """What has come and was not read."""
        return self._text[self._at :]

    def take(self, n: int) -> str:
        """Read n characters that have come."""
        text = self._text[self._at : self._at + n]
        self._at += len(text)
        if self._record is not None:
            self._record.append(text)
        return text

    def begin_record(self) -> None:
        """Note what is read from here on."""
        self._record = []

    def end_record(self) -> str:
        """What was read since `begin_record`."""
        text = "".join(self._record or ())
        self._record = None
        return text

    def peek(self, n: int) -> Generator[None, None, str]:
        """The next n characters, unread; fewer at the end of the text."""
        while len(self._text) - self._at < n and not self.ended:
            yield
        return self._text[self._at : self._at + n]

    def accept(self, word: str) -> Generator[None, None, bool]:
        """Read a word if it comes next, and nothing otherwise."""
        for n in range(1, len(word) + 1):
            if (yield from self.peek(n)) != word[:n]:
                return False
        self.take(len(word))
        return True

    def close(self, word: str) -> Generator[None, None, bool]:
        """Read a mark that ends something, white space before it included, if it comes next; or the part before the end
        of the text.
        """
        space = yield from self.space()
        for n in range(1, len(word) + 1):
            found = yield from self.peek(n)
            if found != word[:n]:
                if len(found) == n or not word.startswith(found):
                    self._unread(space)
                    return False
                break
        self.take(len(word))
        return True

    def _unread(self, text: str) -> None:
        self._text, self._at = text + self._text[self._at :], 0
        if self._record:
            self._record.append("")
            kept = "".join(self._record)
            self._record[:] = [kept[: len(kept) - len(text)]]

    def space(self) -> Generator[None, None, str]:
        """Read white space, all that comes."""
        out = ""
        while (c := (yield from self.peek(1))) and c.isspace():
            out += self.take(1)
        return out

    def until(
        self, marks: Sequence[str], limit: int | None = None, tell: Callable[[str], None] | None = None
    ) -> Generator[None, None, tuple[str, str]]:
        """Read up to and with the first mark: the text before it, and the mark; "" for the mark where none comes.

        Of marks that begin at the same character the one that stands first in the list counts. limit: the mark must
        begin within so many characters; else they are read and no mark. tell: gets the text as it comes, and then the
        text that is returned is empty.
        """
        out: list[str] = []
        tell = tell or out.append
        size = 0
        find = re.compile("|".join(map(re.escape, marks)))
        while True:
            found = find.search(self._text, self._at)
            begun = len(self._text) if self.ended else self._begun(marks)
            stop = len(self._text) if found is None else found.start()
            sure = found is not None and (begun > stop or len(marks) == 1)
            free = stop if sure else min(stop, begun)
            n = free - self._at
            over = limit is not None and size + n >= limit
            if limit is not None and over:
                n = limit - size
            if n:
                size += n
                tell(self.take(n))
            if over or (self.ended and found is None):
                return "".join(out), ""
            if found is not None and sure:
                return "".join(out), self.take(len(found[0]))
            yield

    def _begun(self, marks: Sequence[str]) -> int:
        """Where the longest tail of what is held begins that may become a mark."""
        text = self._text
        for at in range(max(self._at, len(text) - max(map(len, marks)) + 1), len(text)):
            if any(mark.startswith(text[at:]) for mark in marks):
                return at
        return len(text)

    def rest(self, tell: Callable[[str], None]) -> Generator[None]:
        """Read all that comes."""
        while True:
            tell(self.take(len(self._text) - self._at))
            if self.ended:
                return
            yield

    def json(self, tell: Callable[[str], None] | None = None) -> Generator[None, None, str]:
        """Read a JSON object or array as text, to the bracket that closes it; "" where none begins here, and what there
        is of it at the end of the text. tell: gets the text as it comes; returned is the last bracket alone then, ""
        where it did not come.
        """
        if (yield from self.peek(1)) not in ("{", "["):
            return ""
        out: list[str] = []
        told, depth, in_string = tell or out.append, 0, False
        while True:
            found = (_IN_STRING if in_string else _BRACKETS).search(self._text, self._at)
            if found is None:
                if rest := self.take(len(self._text) - self._at):
                    told(rest)
                if self.ended:
                    return "".join(out)
                yield
                continue
            told(self.take(found.end() - self._at))
            if found[0] == "\\":
                yield from self.peek(1)
                told(self.take(1))
            elif found[0] == '"':
                in_string = not in_string
            else:
                depth += 1 if found[0] in "{[" else -1
                if depth == 0:
                    return found[0] if tell is not None else "".join(out)
