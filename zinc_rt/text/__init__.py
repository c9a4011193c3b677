"""Text in and out of a model: tokenizers, incremental detokenisation, chat templates, from GGUF metadata."""

from zinc_rt.text.chat_template import ChatTemplate
from zinc_rt.text.detokenizer import Detokenizer
from zinc_rt.text.errors import ChatTemplateError, ChatTemplateMissing, TokenizerError, UnsupportedTokenizer
from zinc_rt.text.tokenizer import Tokenizer

__all__ = [
    "ChatTemplate",
    "ChatTemplateError",
    "ChatTemplateMissing",
    "Detokenizer",
    "Tokenizer",
    "TokenizerError",
    "UnsupportedTokenizer",
]
