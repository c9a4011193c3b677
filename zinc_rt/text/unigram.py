"""SentencePiece's unigram model, tokenizer model "t5": the cut into tokens with the best sum of scores.

The search is the `tokenizers` library's. Its normalisation by the file's table of replacements is not used: it takes a
letter with its marks as one, and loses marks.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from zinc_rt.text.charsmap import Charsmap
from zinc_rt.text.errors import TokenizerError, printable, shown
from zinc_rt.text.spm import SPACE
from zinc_rt.text.vocab import KEY, TokenKind, Vocabulary

if TYPE_CHECKING:
    import tokenizers

_MOST_NESTED = 1 << 14
"""Bytes of the tokens that may begin at one character, all together: the search hashes each of them there. Those of real
vocabularies have a few hundred.
"""
_MATCHED = (TokenKind.NORMAL, TokenKind.USER_DEFINED, TokenKind.UNUSED)


class Unigram:
    """Text to ids for one vocabulary."""

    def __init__(
        self, vocabulary: Vocabulary, charsmap: NDArray[Any] | None, *, merge_spaces: bool, prefix_space: bool
    ) -> None:
        """`charsmap` is the file's table of replacements, bytes. `merge_spaces` collapses runs of spaces and strips the
        ends; `prefix_space` puts a space before the text.
        """
        self._vocabulary, self._charsmap = vocabulary, charsmap
        self._merge_spaces, self._prefix = merge_spaces, " " if prefix_space else ""

    def encode(self, text: str) -> list[int]:
        """Ids of text that holds no special tokens. Raises TokenizerError for a faulty table of replacements, and for
        a character without a token when there is no unknown token.
        """
        if self._charsmap is not None:
            text = self._normalizer.replace(text)
        if self._merge_spaces:
            text = "".join(" " + word for word in text.split(" ") if word)
        elif text.strip(" "):
            text = self._prefix + text
        if not text:
            return []
        try:
            return self._engine.encode(text.replace(" ", SPACE), add_special_tokens=False).ids
        except TokenizerError:
            raise
        except Exception as error:  # the library raises Exception itself: without an unknown token
            raise TokenizerError(f"cannot encode {shown(text)}: {printable(str(error))}", value=text) from error

    @cached_property
    def _normalizer(self) -> Charsmap:
        return Charsmap(np.asarray(self._charsmap).astype(np.uint8).tobytes())

    @cached_property
    def _engine(self) -> tokenizers.Tokenizer:
        from tokenizers import Tokenizer, models

        v = self._vocabulary
        scores = np.zeros(len(v.tokens), np.float32) if v.scores is None else v.scores
        matched = np.isin(v.kinds, _MATCHED)
        scores = np.where(matched & (v.kinds != TokenKind.USER_DEFINED), scores, 0.0)
        # Text never matches a control token: its name here is one that no text has after `replace`.
        entries = [
            (text if there else f" {i}", float(score))
            for i, (text, there, score) in enumerate(zip(v.tokens, matched.tolist(), scores.tolist(), strict=True))
        ]
        _check_nesting([text.encode() for text, there in zip(v.tokens, matched.tolist(), strict=True) if there])
        try:
            return Tokenizer(models.Unigram(entries, v.unk_id, False))
        except Exception as error:  # the library raises Exception itself
            raise TokenizerError(f"rejected by the tokenizers library: {error}", key=KEY + "tokens") from error


def _check_nesting(tokens: list[bytes]) -> None:
    """Raise TokenizerError where more tokens begin with each other than a text can be searched for in linear time."""
    longest = max(map(len, tokens), default=0)
    if longest * (longest + 1) // 2 <= _MOST_NESTED:
        return
    nested: list[bytes] = []
    size = 0
    for token in sorted(set(tokens)):
        while nested and not token.startswith(nested[-1]):
            size -= len(nested.pop())
        nested.append(token)
        size += len(token)
        if size > _MOST_NESTED:
            raise TokenizerError(
                f"has {len(nested)} tokens that begin with each other, of {size} bytes, at most {_MOST_NESTED}: a text"
                " would take hours; the file is damaged or hostile",
                key=KEY + "tokens",
                value=token.decode("utf-8", "replace"),
            )
