"""Byte-level BPE, tokenizer model "gpt2", on the `tokenizers` library.

A vocabulary of this kind writes every byte as one printable character (GPT-2's table: a space is "Ġ"); the
merges are pairs of such texts, the earlier the stronger.
"""

from __future__ import annotations

from functools import cache
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


class BPE:
    """Text to ids for one vocabulary. Building takes some tenths of a second for 150k tokens."""

    def __init__(self, ids: dict[str, int], merges: list[str], pre: PreTokenizer) -> None:
        """`ids` maps token text to id, `merges` are "left right" texts by rank. Raises TokenizerError when a
        merge is malformed or builds on a text that is no token.
        """
        self._n_vocab = len(ids)
        # A byte without a token stands between its neighbours while these merge, and is dropped afterwards.
        missing = [char for char in byte_to_char() if char not in ids]
        self._drops = bool(missing)
        if missing:
            ids = ids | {char: self._n_vocab + i for i, char in enumerate(missing)}
        self._engine = _build(ids, merges, pre)

    def encode(self, text: str) -> list[int]:
        """Ids of text that holds no special tokens."""
        ids: list[int] = self._engine.encode(text, add_special_tokens=False).ids
        return [id_ for id_ in ids if id_ < self._n_vocab] if self._drops else ids


def _build(ids: dict[str, int], merges: list[str], pre: PreTokenizer) -> tokenizers.Tokenizer:
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    # Of equal merges the first one ranks.
    pairs: list[Any] = [tuple(merge.split(" ")) for merge in dict.fromkeys(merges)]
    if not set(map(len, pairs)) <= {2}:
        _report_merge(ids, merges)
    try:
        model = models.BPE(ids, pairs, ignore_merges=pre.ignore_merges)
    except Exception as error:  # the library raises Exception itself
        _report_merge(ids, merges)
        raise TokenizerError(f"rejected by the tokenizers library: {error}", key=_MERGES) from error
    engine = Tokenizer(model)
    splits = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in pre.patterns]
    engine.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    return engine


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
