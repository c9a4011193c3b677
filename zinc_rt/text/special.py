"""Cutting text at special tokens, before any other tokenisation.

The order of llama.cpp's `tokenizer_st_partition` is kept: the longest token text (in UTF-8 bytes) cuts the
whole text first, then the next longest cuts what is left. That is not the leftmost match: of overlapping
occurrences the longer token wins wherever it starts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from zinc_rt.text.metadata import Metadata
from zinc_rt.text.vocab import KEY, TokenKind, Vocabulary

_SPACE = " \t\n\v\f\r"  # C's isspace in the "C" locale
_PREFIX = 2  # characters by which tokens are grouped, so that most are ruled out with one search


@dataclass(frozen=True)
class SpecialToken:
    """A token that is recognised in text as a whole."""

    id: int
    text: str
    only_if_parsed: bool  # control tokens: recognised only when the caller asks for special tokens to be parsed
    eats_left: bool = False  # white space before it belongs to it
    eats_right: bool = False  # white space after it belongs to it


class SpecialTokens:
    """The special tokens of one vocabulary and the partition of text by them."""

    def __init__(self, tokens: Iterable[SpecialToken]) -> None:
        ordered = sorted(tokens, key=lambda token: (-len(token.text.encode()), token.id))
        self._groups: dict[str, list[tuple[int, SpecialToken]]] = defaultdict(list)
        for rank, token in enumerate(ordered):
            self._groups[token.text[:_PREFIX]].append((rank, token))

    def split(self, text: str, parse_special: bool) -> list[str | int]:
        """`text` as plain pieces (never empty) and the ids of the special tokens found between them."""
        present = sorted(
            (rank, token)
            for prefix, group in self._groups.items()
            if prefix in text
            for rank, token in group
            if (parse_special or not token.only_if_parsed) and token.text in text
        ) if text else []  # fmt: skip
        pieces: list[str | int] = [text] if text else []
        for _, token in present:
            cut: list[str | int] = []
            for piece in pieces:
                if isinstance(piece, int):
                    cut.append(piece)
                else:
                    _cut(piece, token, cut)
            pieces = cut
        return pieces


def _cut(piece: str, token: SpecialToken, out: list[str | int]) -> None:
    """Append to `out` the parts of `piece` around every occurrence of `token`, left to right."""
    while (at := piece.find(token.text)) >= 0:
        left, piece = piece[:at], piece[at + len(token.text) :]
        if token.eats_left:
            left = left.rstrip(_SPACE)
        if token.eats_right:
            piece = piece.lstrip(_SPACE)
        if left:
            out.append(left)
        out.append(token.id)
    if piece:
        out.append(piece)


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
