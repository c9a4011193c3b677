"""WordPiece, tokenizer model "bert": words of plain letters, cut into the longest tokens from the left.

Text is normalised as BERT's `BasicTokenizer` does it: control characters go, accents go and letters become small where
the file says so, punctuation and Chinese characters are words of their own. A token that begins a word has U+2581
before it; a word that tokens do not cover is one unknown token.
"""

from __future__ import annotations

import unicodedata
from functools import cache

from zinc_rt.text.spm import SPACE

_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B920, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)
_CACHE_LIMIT = 1 << 16  # words


class WordPiece:
    """Text to ids for one vocabulary."""

    def __init__(self, ids: dict[str, int], unk_id: int | None, *, lowercase: bool, strip_accents: bool) -> None:
        """`ids` maps token text to id. Without `unk_id` a word that tokens do not cover is left out."""
        self._ids = ids
        self._unknown = [] if unk_id is None else [unk_id]
        self._longest = max(map(len, ids))
        self._lowercase, self._strip_accents = lowercase, strip_accents
        self._cache: dict[str, list[int]] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of text that holds no special tokens."""
        if self._strip_accents:
            text = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
        out: list[int] = []
        for word in "".join(map(_small if self._lowercase else _plain, text)).split(" "):
            if word:
                ids = self._cache.get(word)
                if ids is None:
                    ids = self._word(SPACE + word)
                    if len(self._cache) < _CACHE_LIMIT:
                        self._cache[word] = ids
                out += ids
        return out

    def _word(self, word: str) -> list[int]:
        ids, at = [], 0
        while at < len(word):
            for end in range(min(len(word), at + self._longest), at, -1):
                found = self._ids.get(word[at:end])
                if found is not None:
                    ids.append(found)
                    at = end
                    break
            else:
                return self._unknown
        return ids


@cache
def _plain(char: str) -> str:
    """What a character becomes: nothing, a space, a word of its own, or itself."""
    kind = unicodedata.category(char)
    if char in "\t\n\r" or kind[0] == "Z":
        return " "
    if char == "\ufffd" or kind in ("Cc", "Cf", "Co"):  # what Unicode has not assigned stays: an unknown token
        return ""
    code = ord(char)
    alone = kind[0] == "P" or (kind[0] == "S" and code < 0x7F) or any(a <= code <= b for a, b in _CHINESE)
    return f" {char} " if alone else char


@cache
def _small(char: str) -> str:
    plain = _plain(char)
    return plain.lower()[:1] if plain == char and char != " " else plain
