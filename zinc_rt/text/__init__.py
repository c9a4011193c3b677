"""Text in and out of a model: tokenizers, incremental detokenisation, chat templates, from GGUF metadata.

Names are imported when they are first used: the process that renders chat templates needs none of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zinc_rt.text.chat_template import ChatTemplate as ChatTemplate
    from zinc_rt.text.detokenizer import Detokenizer as Detokenizer
    from zinc_rt.text.errors import ChatTemplateError as ChatTemplateError
    from zinc_rt.text.errors import ChatTemplateMissing as ChatTemplateMissing
    from zinc_rt.text.errors import TokenizerError as TokenizerError
    from zinc_rt.text.tokenizer import Tokenizer as Tokenizer

_MODULES = {
    "ChatTemplate": "chat_template",
    "ChatTemplateError": "errors",
    "ChatTemplateMissing": "errors",
    "Detokenizer": "detokenizer",
    "Tokenizer": "tokenizer",
    "TokenizerError": "errors",
}

__all__ = [
    "ChatTemplate",
    "ChatTemplateError",
    "ChatTemplateMissing",
    "Detokenizer",
    "Tokenizer",
    "TokenizerError",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(importlib.import_module(f"zinc_rt.text.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'zinc_rt.text' has no attribute {name!r}")
