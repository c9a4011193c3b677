"""Byte-level BPE, tokenizer model "gpt2", on the `tokenizers` library.

A vocabulary of this kind writes every byte as one printable character (GPT-2's table: a space is "Ġ"); the
merges are pairs of such texts, the earlier the stronger.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import islice, pairwise, repeat
from typing import TYPE_CHECKING, Any

from zinc_rt.text.errors import TokenizerError, shown
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

    def __init__(self, ids: dict[str, int], merges: list[str], pre: PreTokenizer) -> None:
        """`ids` maps token text to id, `merges` are "left right" texts by rank. Raises TokenizerError when a
        merge is malformed or builds on a text that is no token.
        """
        self._n_vocab = len(ids)
        # A byte without a token stands between its neighbours while these merge, and is dropped afterwards.
        missing = [text for text in self.byte_texts() if text not in ids]
        self._drops = bool(missing)
        if missing:
            ids = ids | {text: self._n_vocab + i for i, text in enumerate(missing)}
        self._first = _check_merges(ids, merges)
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

        self._left = -1
        # Of equal merges the first one ranks.
        pairs: list[Any] = [tuple(merge.split(" ")) for merge in dict.fromkeys(self._merges)]
        how = {"byte_fallback": True} if self._pre.raw else {"ignore_merges": self._pre.ignore_merges}
        try:
            engine = Tokenizer(models.BPE(self._ids, pairs, **how))
        except Exception as error:  # the library raises Exception itself
            raise TokenizerError(f"rejected by the tokenizers library: {error}", key=_MERGES) from error
        engine.pre_tokenizer = self._splitter
        self._let_go()
        return engine

    def _let_go(self) -> None:
        """Drop what the library has its own copy of."""
        del self._ids, self._merges

    @cached_property
    def _splitter(self) -> tokenizers.pre_tokenizers.PreTokenizer:
        """Cuts text into pieces, and writes the bytes of each as characters where the vocabulary does."""
        from tokenizers import Regex, pre_tokenizers

        steps: list[Any] = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in self._pre.patterns]
        if not self._pre.raw:
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        return pre_tokenizers.Sequence(steps)

    @cached_property
    def _ranks(self) -> dict[str, int]:
        n = len(self._merges)
        return dict(zip(reversed(self._merges), range(n - 1, -1, -1)))  # backwards: of equal ones the first counts

    def _rank(self, left: str, right: str) -> int:
        """The rank of a merge, their number where there is none."""
        none = len(self._merges)
        if self._first is None:
            return self._ranks.get(f"{left} {right}", none)
        rank = self._ids.get(left + right, -1) - self._first
        return rank if 0 <= rank < none and self._merges[rank] == f"{left} {right}" else none

    def _encode_short(self, text: str) -> list[int] | None:
        """Ids by the definition; None where a piece is long."""
        pieces = self._pieces(text)
        if any(len(piece) > _LONG_PIECE for piece in pieces):
            return None
        self._left -= len(text)
        return [id_ for piece in pieces for id_ in self._merged(piece)]

    def _pieces(self, text: str) -> list[str]:
        """Words in the vocabulary's writing."""
        return [piece for piece, _ in self._splitter.pre_tokenize_str(text)]

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


def _check_merges(ids: dict[str, int], merges: list[str]) -> int | None:
    """The id that the first merge makes, if each of the others makes the next one, as training leaves them.

    Looks at all at once, as there are many; `_report_merge` then finds the one at fault. Where they stand in order, a
    part that is no token is left to be found by the library: such a merge is never met in a text.
    """
    if not merges:
        return None
    n, end = len(merges), "\n"
    if (lines := end.join(merges)).count(end) >= n:  # merges of line feeds
        lines = (end := "\x1e").join(merges)
    if lines.count(end) == n - 1 and lines.count(" ") == n == sum(map(operator.contains, merges, repeat(" "))):
        joined = lines.replace(" ", "").split(end)
        first = ids.get(joined[0], 0)
        if joined == list(islice(ids, first, first + n)):
            return first
        if ids.keys() >= set(joined) and ids.keys() >= set(lines.replace(end, " ").split(" ")):
            return None
    _report_merge(ids, merges)
    return None


def _report_merge(ids: dict[str, int], merges: list[str]) -> None:
    """Raise for the first merge that is at fault, if one is."""
    for rank, merge in enumerate(merges):
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
