"""Whether the new tokenizer is the old one: both read the same texts."""

from __future__ import annotations

from typing import Any, Final

from zinc_rt.converting.errors import ConvertError
from zinc_rt.text import Tokenizer
from zinc_rt.utils.checks import show

TEXTS: Final = (
    "Hello world", " Hello  world ", "the quick brown fox jumps over the lazy dog.", "I'm, you're, he'll, we'd, IT'S",
    "1 12 123 1234 12345 3.14159 1,000,000 2024-01-31", "def f(x):\n    return x + 1  # comment\n\n\n\tif x:\r\n",
    "a\n\nb\n \nc   d\t\te", "    indented\n        more", "CamelCaseWords HTTPServer iPhone McDonald",
    "x=y*z;//e!=0&&a|b", "naïve café über straße Ærø", "Привет, мир! Ёлка", "Ελληνικά γλώσσα",
    "こんにちは世界。漢字とかな", "안녕하세요 세계", "你好\uff0c世界\uff01今天天气很好。", "مرحبا بالعالم", "שלום עולם",
    "नमस्ते दुनिया", "สวัสดีชาวโลก", "🙂🚀 emoji👍🏽", "«quoted» “text” — dash…", "$100 €50 50%",
    "http://example.org/path?query=1&x=y#frag", "<html><b>bold</b></html>", '{"key": [1, 2.5, null]}',
    "\\frac{a}{b} \\sum_{i=0}^{n}", "...!!!???", "----- ===== ~~~~~", "A", "z", "0", "    ", "\n", "don't stop",
)  # fmt: skip
"""Words, digits, code, white space and scripts, in the composed form of Unicode."""


def library_of(tokenizer_json: str) -> Any:
    """The tokenizer of the `tokenizers` library. Raises `ConvertError` for what it does not read."""
    from tokenizers import Tokenizer as Library

    try:
        return Library.from_str(tokenizer_json)
    except Exception as error:  # the library raises Exception itself
        raise ConvertError(f"tokenizer.json is not read by the tokenizers library: {error}") from error


def check_texts(keys: dict[str, Any], tokenizer_json: str) -> None:
    """Raise `ConvertError` where the tokenizer of these keys gives other ids than the folder's own, by the
    `tokenizers` library.

    With a space before text, texts that begin with one are left out: SentencePiece puts another one before it, newer
    writings of the same tokenizer do not.
    """
    old = library_of(tokenizer_json)
    new = Tokenizer.from_metadata(keys)
    for text in TEXTS:
        if new.space_prefix and text.startswith(" "):
            continue
        wanted, got = (
            old.encode(text, add_special_tokens=False).ids,
            new.encode(text, add_special=False),
        )
        if wanted != got and max(wanted, default=0) < new.n_vocab:
            raise ConvertError(
                f"the tokenizer is none that a GGUF file can hold: {show(text)} is {show(str(wanted))} in the folder"
                f" and would be {show(str(got))}"
            )
