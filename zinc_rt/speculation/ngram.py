"""`NgramDrafter`: guesses the tokens that followed the same last tokens earlier in prompt and text.

This helps where a text repeats what is there already: code that is changed in places, a document that is quoted, names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zinc_rt.speculation.drafter import Drafter, DraftText

_LEAST: Final = 3
"""Tokens that have to be the same."""
_MOST: Final = 16
"""Longer matches are not told apart."""
_PLACES: Final = 8
"""Earlier places that are compared, the last ones first."""
_NOWHERE: Final = -1


class NgramIndex:
    """The places where each n-gram of a growing text ends: a hash table with chains, as compressors have it."""

    def __init__(self, min_length: int = _LEAST, max_length: int = _MOST) -> None:
        self._min_length, self._max_length = min_length, max_length
        self._last: dict[tuple[int, ...], int] = {}  # the place behind an n-gram's last occurrence
        self._before: list[int] = []  # of the place i + least: the occurrence before that one

    def follow(self, tokens: Sequence[int]) -> None:
        """Take the tokens that have come since, but for the n-gram at the end, which nothing follows yet."""
        n, last, before = self._min_length, self._last, self._before
        for at in range(len(before) + n, len(tokens)):
            gram = tuple(tokens[at - n : at])
            before.append(last.get(gram, _NOWHERE))
            last[gram] = at

    def guess(self, tokens: Sequence[int], limit: int) -> list[int]:
        """What followed the longest of the last places that end as the text does; at most so many tokens.

        A place may be so near that what follows it is the guess itself, as in a text that goes round in a circle.
        """
        self.follow(tokens)
        at, best, longest = self._last.get(tuple(tokens[-self._min_length :]), _NOWHERE), _NOWHERE, 0
        for _ in range(_PLACES):
            if at == _NOWHERE:
                break
            if (same := self._same(tokens, at)) > longest:
                best, longest = at, same
            if longest == self._max_length:
                break
            at = self._before[at - self._min_length]
        if best == _NOWHERE:
            return []
        found = list(tokens[best : best + limit])
        while len(found) < limit:  # the text ends here, and goes on with what was guessed
            found.append(found[best + len(found) - len(tokens)])
        return found

    def _same(self, tokens: Sequence[int], at: int) -> int:
        """How many tokens before a place are those before the text's end."""
        n, most = self._min_length, min(self._max_length, at)
        while n < most and tokens[at - n - 1] == tokens[-n - 1]:
            n += 1
        return n


class NgramDrafter(Drafter):
    """Drafts from the text itself. It holds an index of each text that runs, about 150 bytes a token."""

    name = "ngram"
    free = True

    def __init__(self, draft_max: int = Drafter.draft_max, draft_min: int = Drafter.draft_min) -> None:
        self.draft_max, self.draft_min = draft_max, draft_min
        self._indices: dict[int, NgramIndex] = {}

    def draft(self, texts: Sequence[DraftText]) -> list[Sequence[int]]:
        """See `Drafter.draft`."""
        found: list[Sequence[int]] = []
        for text in texts:
            if (index := self._indices.get(text.number)) is None:
                index = self._indices[text.number] = NgramIndex()
            found.append(index.guess(text.tokens, text.draft_max))
        return found

    def forget(self, number: int) -> None:
        """See `Drafter.forget`."""
        self._indices.pop(number, None)
