"""SentencePiece as llama.cpp reads it, tokenizer model "llama".

Spaces become U+2581; then, over the whole text, the neighbours whose joint text is the best-scored token are
joined, the leftmost first among equals, until no pair makes a token. A character that ends up as no token is
written as its UTF-8 bytes. No library model does exactly this (ties between different tokens go by position,
not by rank), so the loop is here; a cache of words keeps it fast on ordinary text.
"""

from __future__ import annotations

import heapq
import re

from zinc_rt.text.errors import TokenizerError, shown

SPACE = "▁"  # U+2581
_CACHE_LIMIT = 1 << 16  # words
_CACHED_LENGTH = 64  # characters of a word


class SentencePiece:
    """Text to ids for one vocabulary."""

    def __init__(
        self, ids: dict[str, int], scores: list[float], unk_id: int | None, *, merge_spaces: bool, prefix_space: bool
    ) -> None:
        """`ids` maps token text to id, `scores` are by id. `merge_spaces` collapses runs of spaces and strips the
        ends first (`tokenizer.ggml.remove_extra_whitespaces`); `prefix_space` then puts a space before the text.
        """
        self._ids = ids
        self._scores = scores
        self._unk_id = unk_id
        self._merge_spaces = merge_spaces
        self._prefix = " " if prefix_space else ""
        self._words = word_pattern(ids)
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of a piece of text that holds no special tokens.

        Raises TokenizerError for a character that has neither a token nor byte tokens, when there is no
        unknown token.
        """
        if self._merge_spaces:
            text = re.sub(" +", " ", text).strip(" ")
        if not text:
            return []
        text = self._prefix + text
        out: list[int] = []
        for word in self._words.findall(text.replace(" ", SPACE)):
            ids = self._cache.get(word)
            if ids is None:
                ids = self._encode_word(word)
                if len(word) <= _CACHED_LENGTH:
                    if len(self._cache) >= _CACHE_LIMIT:
                        self._cache.clear()
                    self._cache[word] = ids
            out += ids
        return out

    def _encode_word(self, word: str) -> list[int]:
        ids, scores = self._ids, self._scores
        symbols = list(word)  # an empty one has been joined to a symbol on its left
        left_of = list(range(-1, len(symbols) - 1))
        right_of = [*range(1, len(symbols)), -1]
        heap: list[tuple[float, int, int, int]] = []  # (-score, left, right, length of the joint text)

        def consider(left: int, right: int) -> None:
            if left >= 0 and right >= 0:
                joint = symbols[left] + symbols[right]
                token = ids.get(joint)
                if token is not None:
                    heapq.heappush(heap, (-scores[token], left, right, len(joint)))

        for right in range(1, len(symbols)):
            consider(right - 1, right)
        while heap:
            _, left, right, length = heapq.heappop(heap)
            if not symbols[left] or not symbols[right] or len(symbols[left]) + len(symbols[right]) != length:
                continue  # one of the two has been joined to something else since
            symbols[left] += symbols[right]
            symbols[right] = ""
            after = right_of[left] = right_of[right]
            if after >= 0:
                left_of[after] = left
            consider(left_of[left], left)
            consider(left, after)

        out: list[int] = []
        for symbol in symbols:
            if symbol:
                token = ids.get(symbol)
                out += self._fallback(symbol) if token is None else (token,)
        return out

    def _fallback(self, char: str) -> list[int]:
        """The byte tokens of a character that is no token, or else the unknown token."""
        names = byte_names(char)
        if all(name in self._ids for name in names):
            return [self._ids[name] for name in names]
        if self._unk_id is not None:
            return [self._unk_id]
        raise TokenizerError(
            f"cannot encode {shown(char)}: the vocabulary has no token for it, not all of {' '.join(names)} "
            "and no unknown token",
            value=char,
        )


def byte_names(text: str) -> list[str]:
    """The texts of the byte tokens for a text."""
    return [f"<0x{byte:02X}>" for byte in text.encode()]


def word_pattern(ids: dict[str, int]) -> re.Pattern[str]:
    """Matches the words that can be tokenised apart with the same result as together.

    A join never crosses a border that no token text contains. So text may be cut before a run of spaces,
    unless the character before the run is one that some token has before a space.
    """
    bridges = {text[at - 1] for text in ids for at in _spaces_inside(text)} - {SPACE}
    if not bridges:
        return re.compile(f"{SPACE}*+[^{SPACE}]++|{SPACE}++")
    bridge = "".join(map(re.escape, sorted(bridges)))
    return re.compile(f"{SPACE}*+(?:[^{SPACE}]++(?<=[{bridge}]){SPACE}++)*+[^{SPACE}]*+")


def _spaces_inside(text: str) -> list[int]:
    return [at for at in range(1, len(text)) if text[at] == SPACE] if SPACE in text[1:] else []
