"""Byte-level BPE, tokenizer model "gpt2", on the `tokenizers` library.

A vocabulary of this kind writes every byte as one printable character (GPT-2's table: a space is "Ġ"); the
merges are pairs of such texts, the earlier the stronger.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from zinc_rt.gguf.strings import StringTable
from zinc_rt.text import ascii_words
from zinc_rt.text.errors import TokenizerError, shown
from zinc_rt.text.metadata import numbered
from zinc_rt.text.pretokenizers import PreTokenizer
from zinc_rt.text.vocab import KEY

if TYPE_CHECKING:
    import tokenizers

_MERGES = KEY + "merges"


@cache
def byte_to_char() -> tuple[str, ...]:
    """GPT-2's table: the character that stands for each byte. Printable Latin-1 stands for itself, the other
    bytes are given the characters from U+0100 on, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return tuple(chr(byte if byte in printable else next(others)) for byte in range(256))


@cache
def _char_to_byte() -> dict[str, int]:
    return {char: byte for byte, char in enumerate(byte_to_char())}


def token_bytes(text: str) -> bytes:
    """The bytes that an ordinary token of this kind stands for. A text with characters outside the byte table
    was not written byte by byte and stands for its own UTF-8.
    """
    table = _char_to_byte()
    try:
        return bytes([table[char] for char in text])
    except KeyError:
        return text.encode()


_AT_ONCE = 8192
"""Characters that are merged here before the library is built."""
_LONG_PIECE = 64
"""Characters of a piece from which on the simple search for merges is too slow."""
_LONG_TEXT = 1 << 18
"""Characters from which on the library's faster call is worth its threads."""
_LONGEST_BLANK = 1 << 23
"""White space in one run. At ten million characters the library's regular expressions give up, with a panic."""


class BPE:
    """Text to ids for one vocabulary. Short texts are merged here, at once; for more the `tokenizers` library is
    built, which takes some tenths of a second for 150k tokens and is then many times as fast.
    """

    def __init__(self, ids: Mapping[str, int], merges: Sequence[str], pre: PreTokenizer) -> None:
        """`ids` maps token text to id, `merges` are "left right" texts by rank. Raises TokenizerError when a
        merge is malformed or builds on a text that is no token; for the merges of a file this shows when a text
        needs such a merge, or at the first long text.
        """
        self._n_vocab = len(ids)
        # A byte without a token stands between its neighbours while these merge, and is dropped afterwards.
        missing = [text for text in self.byte_texts() if text not in ids]
        self._drops = bool(missing)
        if missing:
            ids = dict(ids) | {text: self._n_vocab + i for i, text in enumerate(missing)}
        if not isinstance(merges, StringTable):
            _check_merges(ids, merges)
        self._ids, self._merges, self._pre = ids, merges, pre
        self._left = _AT_ONCE

    @staticmethod
    def byte_texts() -> Sequence[str]:
        """How the vocabulary writes each byte."""
        return byte_to_char()

    def encode(self, text: str) -> list[int]:
        """Ids of text that holds no special tokens. Raises TokenizerError for more white space in one run than the
        library can take.
        """
        if len(text) > _LONGEST_BLANK and re.search(rf"(?<!\s)\s{{{_LONGEST_BLANK + 1}}}", text):
            raise TokenizerError(
                f"text has more than {_LONGEST_BLANK} characters of white space in one run; shorten it"
            )
        ids = self._encode_short(text) if len(text) <= self._left else None
        if ids is None:
            ids = self._ids_of(text)
        return [id_ for id_ in ids if id_ < self._n_vocab] if self._drops else ids

    def _ids_of(self, text: str) -> list[int]:
        """What the library says."""
        if len(text) < _LONG_TEXT:
            return self._engine.encode(text, add_special_tokens=False).ids
        # This one counts no offsets, which takes longer than the merging; but it starts threads, which stay.
        return self._engine.encode_batch_fast([text], add_special_tokens=False)[0].ids

    @cached_property
    def _engine(self) -> tokenizers.Tokenizer:
        from tokenizers import Tokenizer, models

        ids, merges = dict(self._ids), list(self._merges)
        if isinstance(self._merges, StringTable):
            _check_merges(ids, merges)
        self._left = -1
        # Of equal merges the first one ranks.
        pairs: list[Any] = [tuple(merge.split(" ")) for merge in dict.fromkeys(merges)]
        how = {"byte_fallback": True} if self._pre.raw else {"ignore_merges": self._pre.ignore_merges}
        try:
            engine = Tokenizer(models.BPE(ids, pairs, **how))
        except Exception as error:  # the library raises Exception itself
            raise TokenizerError(f"rejected by the tokenizers library: {error}", key=_MERGES) from error
        engine.pre_tokenizer = self._splitter
        self._let_go()
        return engine

    def _let_go(self) -> None:
        """Drop what the library has its own copy of."""
        del self._ids, self._merges
        self.__dict__.pop("_ranks", None)

    @cached_property
    def _splitter(self) -> tokenizers.pre_tokenizers.PreTokenizer:
        """Cuts text into pieces, and writes the bytes of each as characters where the vocabulary does."""
        from tokenizers import Regex, pre_tokenizers

        steps: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self._pre.patterns]
        if not self._pre.raw:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(steps)

    @cached_property
    def _ranks(self) -> Mapping[str, int]:
        return numbered(self._merges)

    def _rank(self, left: str, right: str) -> int:
        """The rank of a merge, their number where there is none. Raises TokenizerError where it makes no token."""
        rank = self._ranks.get(f"{left} {right}", len(self._merges))
        if rank < len(self._merges) and left + right not in self._ids:
            _check_merge(self._ids, rank, self._merges[rank])
        return rank

    def _encode_short(self, text: str) -> list[int] | None:
        """Ids by the definition; None where a piece is long."""
        pieces = self._pieces(text)
        if any(len(piece) > _LONG_PIECE for piece in pieces):
            return None
        self._left -= len(text)
        return [id_ for piece in pieces for id_ in self._merged(piece)]

    def _pieces(self, text: str) -> list[str]:
        """Words in the vocabulary's writing."""
        words = ascii_words.split(text, self._pre.patterns)
        if words is None:
            return [piece for piece, _ in self._splitter.pre_tokenize_str(text)]
        table = byte_to_char()
        return [word.translate(table) for word in words]

    def _merged(self, piece: str) -> list[int]:
        """The strongest merge, the leftmost of equals, until there is none."""
        ids = self._ids
        if self._pre.ignore_merges and piece in ids:
            return [ids[piece]]
        parts, none = list(piece), len(self._merges)
        while True:
            found = [self._rank(left, right) for left, right in pairwise(parts)]
            best = min(found, default=none)
            if best == none:
                return self._spelled(parts)
            at = found.index(best)
            parts[at : at + 2] = [parts[at] + parts[at + 1]]

    def _spelled(self, parts: list[str]) -> list[int]:
        """The ids of texts that nothing joins any more."""
        return [self._ids[part] for part in parts]


def _check_merges(ids: Mapping[str, int], merges: Sequence[str]) -> None:
    """Raise for the first merge that is at fault, if one is. Looks at all at once first, as there are many."""
    parts = [merge.split(" ") for merge in merges]
    lefts, rights = ([pair[i] for pair in parts if len(pair) == 2] for i in range(2))
    if len(lefts) == len(merges) and all(lefts) and all(rights):
        joined = {left + right for left, right in zip(lefts, rights)}
        if joined <= ids.keys() and ids.keys() >= {*lefts, *rights}:
            return
    for rank, merge in enumerate(merges):
        _check_merge(ids, rank, merge)


def _check_merge(ids: Mapping[str, int], rank: int, merge: str) -> None:
    """Raise TokenizerError if a merge is at fault."""
    parts = merge.split(" ")
    if len(parts) != 2 or not all(parts):
        raise TokenizerError(
            f"entry {rank} is {shown(merge)}; a merge is two texts with one space between them",
            key=_MERGES,
            value=merge,
        )
    for part in (*parts, "".join(parts)):
        if part not in ids:
            raise TokenizerError(
                f"entry {rank} is {shown(merge)}, but {shown(part)} is not in tokenizer.ggml.tokens",
                key=_MERGES,
                value=merge,
            )
