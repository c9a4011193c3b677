"""BPE over characters, tokenizer model "gemma4": merges like `bpe`, tokens written like SentencePiece's.

A space is U+2581, other characters stand for themselves, and a character that is no token is written as byte tokens
`<0x00>`. Text is cut at runs of line feeds only; a run that is a token is that token, whatever the merges say.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

from zinc_rt.text.bpe import BPE
from zinc_rt.text.pretokenizers import PreTokenizer
from zinc_rt.text.spm import SPACE, byte_names, word_pattern

_LINES = re.compile(r"\n+|[^\n]+")


class RawBPE(BPE):
    """Text to ids for one vocabulary. Words are merged apart where no token reaches over the space between them."""

    def __init__(self, ids: Mapping[str, int], merges: Sequence[str], pre: PreTokenizer) -> None:
        """As for `BPE`. Raises TokenizerError."""
        ids = dict(ids)  # all texts are looked at here
        super().__init__(ids, merges, pre)
        self._words = word_pattern(ids)
        self._runs = {text: id_ for text, id_ in ids.items() if not text.strip("\n")}

    @staticmethod
    @cache
    def byte_texts() -> Sequence[str]:
        """The texts of the byte tokens."""
        return [f"<0x{byte:02X}>" for byte in range(256)]

    def encode(self, text: str) -> list[int]:
        """Ids of text that holds no special tokens. Raises TokenizerError for faulty merges."""
        return super().encode(text.replace(" ", SPACE))

    def _pieces(self, text: str) -> list[str]:
        return [word for line in _LINES.findall(text) for word in self._words.findall(line) if word]

    def _merged(self, piece: str) -> list[int]:
        run = self._runs.get(piece)
        return super()._merged(piece) if run is None else [run]

    def _spelled(self, parts: list[str]) -> list[int]:
        ids = self._ids
        return [ids[name] for part in parts for name in ((part,) if part in ids else byte_names(part))]

    def _ids_of(self, text: str) -> list[int]:
        out: list[int] = []
        for line in _LINES.findall(text):
            run = self._runs.get(line)
            out += super()._ids_of(line) if run is None else (run,)
        return out
