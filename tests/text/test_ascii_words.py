"""ASCII text is cut by Python's expressions as the `tokenizers` library cuts it by the rows' own."""

from __future__ import annotations

import warnings
from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, pre_tokenizers

from tests.helpers import soon
from tests.text.vocabularies import bpe_metadata
from zinc_rt.text import Tokenizer, ascii_words
from zinc_rt.text.pretokenizers import PRE_TOKENIZERS

ROWS = {row.patterns: name for name, row in PRE_TOKENIZERS.items() if not row.raw}
KINDS = ("qwen35", "tekken", "deepseek-coder", "kimi-k2", "exaone-moe", "default")
"""Contractions, cases of letters, steps one after the other, the library's, repetitions in one another, punctuation."""
LEFT_TO_THE_LIBRARY = {"kimi-k2", "afmoe", "cohere2moe"}  # intersections of sets, expressions that Python lacks

_SNIPPETS = (
    "'s",
    "'LL",
    "'re",
    "  ",
    "\r\n",
    "\n\n",
    "123",
    "Ab",
    "aB",
    " a",
    "...",
    "\x1c",
    "\x0b",
    "\t",
    "[",
    "-",
    "]",
)
ascii_text = st.lists(st.sampled_from(_SNIPPETS) | st.characters(max_codepoint=127), max_size=24).map("".join)


@cache
def library(patterns: tuple[str, ...]) -> Any:
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(p), "isolated") for p in patterns])


@pytest.mark.parametrize("name", soon(KINDS, ROWS.values()))
@given(text=ascii_text)
@settings(max_examples=60, deadline=None)
def test_random_texts_are_cut_as_the_library_cuts_them(name: str, text: str) -> None:
    patterns = PRE_TOKENIZERS[name].patterns
    if name in LEFT_TO_THE_LIBRARY:
        assert ascii_words.split(text, patterns) is None
    else:
        expected = [piece for piece, _ in library(patterns).pre_tokenize_str(text)]
        assert ascii_words.split(text, patterns) == expected


@pytest.mark.parametrize("patterns", ROWS, ids=list(ROWS.values()))
def test_all_short_texts_are_cut_as_the_library_cuts_them(patterns: tuple[str, ...]) -> None:
    """Of one character of each kind that the expressions tell apart."""
    if ROWS[patterns] not in LEFT_TO_THE_LIBRARY:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # of sets that a later Python may read otherwise
            ascii_words._expressions.cache_clear()
            ascii_words._expressions(patterns)
        for text in ("".join(chars) for n in range(4) for chars in product("aB9 '\n\r\t.<", repeat=n)):
            assert ascii_words.split(text, patterns) == [p for p, _ in library(patterns).pre_tokenize_str(text)]


def test_every_character_alone_and_between_letters_is_cut_alike() -> None:
    for patterns in (p for p, name in ROWS.items() if name not in LEFT_TO_THE_LIBRARY):
        for text in (f"{before}{chr(code)}{before}" for code in range(128) for before in ("", "a", " ")):
            assert ascii_words.split(text, patterns) == [p for p, _ in library(patterns).pre_tokenize_str(text)]


def test_other_texts_and_expressions_are_left_to_the_library() -> None:
    for text in ("é", "a\x80", "日本", "a\u3000b"):
        assert ascii_words.split(text, PRE_TOKENIZERS["qwen2"].patterns) is None
    for pattern in (r"\p{Han}+", r"[\p{L}&&[^a]]", r"\bx", r"\h+", "[[:alpha:]]", r"\x61"):
        assert ascii_words.split("a", (pattern,)) is None


def test_a_short_ascii_text_needs_no_library_and_a_long_one_gets_the_same_ids() -> None:
    text = "Stones at 1234 all\r\n  the River's end... 'LL\tGo"
    for pre in ("qwen2", "llama-bpe", "gpt-2", "deepseek-v3", "default"):
        short, long = (Tokenizer.from_metadata(bpe_metadata(pre)) for _ in range(2))
        long.encode("x" * 9000)
        assert short.encode(text) == long.encode(text)
        assert "_splitter" not in short._encoder.__dict__
