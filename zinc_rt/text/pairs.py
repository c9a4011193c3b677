"""The prompt with which a model that ranks reads a query and a text."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zinc_rt.text import metadata as md
from zinc_rt.text.tokenizer import Tokenizer

TEMPLATE = "tokenizer.chat_template.rerank"
"""A text with {query} and {document}, which is no Jinja2 template; files of models made for chat have it."""


class PairPrompt:
    """Makes the token ids of pairs: by the file's template, or as its tokenizer joins two texts."""

    def __init__(self, tokenizer: Tokenizer, template: str | None = None) -> None:
        self._tokenizer, self._template = tokenizer, template

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any], tokenizer: Tokenizer) -> PairPrompt:
        """That of a file. Raises TokenizerError for a template that is no text."""
        return cls(tokenizer, md.string(metadata, TEMPLATE) or None)

    def encode(self, query: str, text: str) -> list[int]:
        """Token ids of a pair. Names of control tokens count in the template alone. Raises TokenizerError."""
        if self._template is None:
            return self._tokenizer.encode_pair(query, text)
        given = {"{query}": query, "{document}": text}
        ids: list[int] = []
        for piece in self._tokenizer.split(self._template):
            if isinstance(piece, int):
                ids.append(piece)
                continue
            filled = re.sub(r"\{query\}|\{document\}", lambda found: given[found[0]], piece)
            ids += self._tokenizer.encode(filled, add_special=False, parse_special=False)
        return ids
