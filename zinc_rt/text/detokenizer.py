"""Tokens to text, one at a time, never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Collection

from zinc_rt.text.tokenizer import Tokenizer


class Detokenizer:
    """A stream of text from a stream of tokens.

    The pieces that `add` and `flush` return, joined, are `tokenizer.decode` of all tokens. Bytes of a
    character that is not complete yet are held back; bytes that can no longer become one turn into U+FFFD.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special: bool = True,
        at_start: bool = True,
        shown: Collection[int] = (),
    ) -> None:
        """`skip_special` leaves out control and unknown tokens, but for those in `shown`. `at_start` says that the
        first token begins a text: a SentencePiece tokenizer's leading space is then dropped, as in `decode`. For tokens
        that continue a text (generated after a prompt) it is False, and the space is kept.
        """
        self._token_bytes = tokenizer.token_bytes
        self._hidden = tokenizer.special_ids.difference(shown) if skip_special else frozenset()
        self._drop_space = at_start and tokenizer.space_prefix
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")
        self._within = False  # whether the bytes end in the middle of a character

    def add(self, token_id: int) -> str:
        """The text that this token completes, maybe none. Raises TokenizerError for an id outside the
        vocabulary.
        """
        if token_id in self._hidden:
            return ""
        piece = self._token_bytes(token_id)
        if self._drop_space and piece:
            self._drop_space = False
            piece = piece.removeprefix(b" ")
        if not self._within:
            try:
                return piece.decode()
            except UnicodeDecodeError:
                pass
        text = self._utf8.decode(piece)
        self._within = bool(self._utf8.getstate()[0])
        return text

    def flush(self) -> str:
        """What was held back, at the end of the tokens: U+FFFD for the bytes of an unfinished character, or
        nothing.
        """
        self._within = False
        return self._utf8.decode(b"", final=True)
