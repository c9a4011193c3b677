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
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._shown = shown
        self._drop_space = at_start and tokenizer.space_prefix
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token_id: int) -> str:
        """The text that this token completes, maybe none. Raises TokenizerError for an id outside the
        vocabulary.
        """
        if self._skip_special and token_id not in self._shown and self._tokenizer.is_special(token_id):
            return ""
        piece = self._tokenizer.token_bytes(token_id)
        if self._drop_space and piece:
            self._drop_space = False
            piece = piece.removeprefix(b" ")
        return self._utf8.decode(piece)

    def flush(self) -> str:
        """What was held back, at the end of the tokens: U+FFFD for the bytes of an unfinished character, or
        nothing.
        """
        return self._utf8.decode(b"", final=True)
