"""Cutting text at special tokens, before any other tokenisation.

The order of llama.cpp's `tokenizer_st_partition` is kept: the longest token text (in UTF-8 bytes) cuts the
whole text first, then the next longest cuts what is left. That is not the leftmost match: of overlapping
occurrences the longer token wins wherever it starts.

The time grows with the text and not with the number of tokens. `SpecialTokenMatcher` finds the longest token that ends
at each character. A shorter one that ends there is looked at only where a stronger token is in the way, and a token
that was taken is in the way of at most as many others as it has bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from zinc_rt.text.metadata import Metadata
from zinc_rt.text.special_matcher import SpecialToken, SpecialTokenMatcher
from zinc_rt.text.vocab import KEY, TokenKind, Vocabulary

_SPACE = " \t\n\v\f\r"  # C's isspace in the "C" locale
_PLAIN, _TAKEN, _START = b"\0", b"\1", b"\2"  # text; part of a token or white space that one eats; a token starts


class SpecialTokens:
    """The special tokens of one vocabulary and the partition of text by them."""

    def __init__(self, tokens: Iterable[SpecialToken]) -> None:
        self._tokens = sorted(tokens, key=lambda token: (-len(token.text.encode()), token.id))
        self._matchers: dict[bool, SpecialTokenMatcher] = {}

    def split(self, text: str, parse_special: bool) -> list[str | int]:
        """`text` as plain pieces (never empty) and the ids of the special tokens found between them."""
        matcher = self._matchers.get(parse_special)
        if matcher is None:
            tokens = [token for token in self._tokens if parse_special or not token.only_if_parsed]
            matcher = self._matchers[parse_special] = SpecialTokenMatcher(tokens)
        ends = matcher.find(text)
        if not ends:
            return [text] if text else []
        cuts = _Cuts(text, matcher)
        cuts.choose(ends)
        return cuts.pieces()


class _Cuts:
    """The tokens that cut one text."""

    def __init__(self, text: str, matcher: SpecialTokenMatcher) -> None:
        self._text = text
        self._matcher = matcher
        self._marks = bytearray(len(text))  # of each character: _PLAIN, _TAKEN or _START
        self._ranks = array("i", bytes(4 * len(text)))  # of the tokens, where they start

    def choose(self, ends: dict[int, array[int]]) -> None:
        """Take the tokens that end at `ends`, or shorter ones that end there, the strongest rank first."""
        matcher, marks = self._matcher, self._marks
        unordered: set[int] = set()  # ranks whose ends are not ascending
        waiting = list(ends)
        heapify(waiting)
        while waiting:
            rank = heappop(waiting)
            of_rank = ends.pop(rank)
            fitting: dict[int, int] = {}  # by the length that is free
            for end in self._take(rank, sorted(of_rank) if rank in unordered else of_rank):
                if marks[end - 1]:
                    continue
                plain = marks[end - matcher.lengths[rank] : end]
                length = len(plain) - len(plain.rstrip(_PLAIN))
                other = fitting.get(length, -2)
                if other == -2:
                    other = fitting[length] = matcher.fitting(rank, length)
                if other >= 0:
                    unordered.add(other)
                    if other not in ends:
                        ends[other] = array("Q")
                        heappush(waiting, other)
                    ends[other].append(end)

    def _take(self, rank: int, ends: Iterable[int]) -> Iterable[int]:
        """Take one token wherever nothing is in its way, from left to right; the ends where something is."""
        marks, ranks = self._marks, self._ranks
        token, length = self._matcher.tokens[rank], self._matcher.lengths[rank]
        eats = token.eats_left or token.eats_right
        plain, taken = _PLAIN * length, _START + _TAKEN * (length - 1)
        blocked = array("Q")
        free = 0  # where the next one may start
        for end in ends:
            start = end - length
            if start < free or marks[start:end] != plain:
                blocked.append(end)
                continue
            free = end
            marks[start:end] = taken
            ranks[start] = rank
            if eats:
                self._eat(token, start, end)
        return blocked

    def _eat(self, token: SpecialToken, start: int, end: int) -> None:
        """Take the white space around a token, as far as no other token has it."""
        text, marks = self._text, self._marks
        while token.eats_left and start > 0 and not marks[start - 1] and text[start - 1] in _SPACE:
            start -= 1
            marks[start] = _TAKEN[0]
        while token.eats_right and end < len(text) and not marks[end] and text[end] in _SPACE:
            marks[end] = _TAKEN[0]
            end += 1

    def pieces(self) -> list[str | int]:
        """The text between the tokens, without what they eat, and their ids."""
        text, marks, matcher = self._text, self._marks, self._matcher
        pieces: list[str | int] = []
        done = 0
        while done < len(text):
            if marks[done] == _START[0]:
                rank = self._ranks[done]
                pieces.append(matcher.tokens[rank].id)
                done += matcher.lengths[rank]
                continue
            start = marks.find(_START, done)
            stop = len(text) if start < 0 else start
            begin = marks.find(_PLAIN, done, stop)
            if begin >= 0:
                pieces.append(text[begin : marks.rfind(_PLAIN, begin, stop) + 1])
            done = stop
        return pieces


def read_special_tokens(metadata: Metadata, vocabulary: Vocabulary) -> SpecialTokens:
    """The special tokens of a vocabulary. GGUF does not say which of them eat white space; llama.cpp goes by
    the names of models known to need it, and so does this.
    """
    name, pre = (str(metadata.get(key) or "") for key in ("general.name", KEY + "pre"))
    phi3 = any(part in name.lower() for part in ("phi-3", "phi3"))
    not_eating = {"<unk>", "<s>", "<|endoftext|>"}
    eats_left: set[str] = set()
    if any(part in pre for part in ("jina-v2-de", "jina-v2-es")):
        eats_left.add("<mask>")
    elif "modern-bert" in name.lower():
        eats_left.add("[MASK]")
    special = vocabulary.of_kind(TokenKind.CONTROL, TokenKind.USER_DEFINED, TokenKind.UNKNOWN)
    return SpecialTokens(
        SpecialToken(
            id=id_,
            text=(text := vocabulary.tokens[id_]),
            only_if_parsed=vocabulary.kinds[id_] != TokenKind.USER_DEFINED,
            eats_left=text in eats_left,
            eats_right=phi3 and text not in not_eating,
        )
        for id_ in special
    )
