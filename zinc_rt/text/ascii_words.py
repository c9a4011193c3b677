"""Cutting ASCII text into words by Python's own regular expressions, as the `tokenizers` library does it by Oniguruma.

In ASCII a Unicode property is a short list of characters, which is all that Python's expressions lack. Importing the
library takes longer than a short text.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache

_ASCII = [chr(code) for code in range(128)]
_PROPERTY = re.compile(r"\\p\{([A-Z][a-z]?)\}")
_KNOWN = re.compile(r"\\p\{[A-Z][a-z]?\}|\\[rnsSz$+^|?\-\\\[\]]|\[(?!\[)|[^\\\[&]|&(?!&)")
"""What the rows' expressions are made of, piece by piece: no sets within sets, no others of Oniguruma's escapes."""


def split(text: str, patterns: tuple[str, ...]) -> list[str] | None:
    """The words of a text: each expression cuts what the ones before it left into its matches and what lies between.

    None where that is left to the library: a text beyond ASCII, an expression with more than is known here.
    """
    expressions = _expressions(patterns) if text.isascii() else None
    if expressions is None:
        return None
    pieces: Sequence[str] = [text] if text else []
    for expression in expressions:
        pieces = [part for piece in pieces for part in _cut(piece, expression)]
    return list(pieces)


def _cut(text: str, expression: re.Pattern[str]) -> Iterator[str]:
    done = 0
    for match in expression.finditer(text):
        start, stop = match.span()
        if start > done:
            yield text[done:start]
        if stop > start:
            yield text[start:stop]
        done = stop
    if done < len(text):
        yield text[done:]


@cache
def _expressions(patterns: tuple[str, ...]) -> tuple[re.Pattern[str], ...] | None:
    if not all(re.fullmatch(f"(?:{_KNOWN.pattern})*", pattern, re.DOTALL) for pattern in patterns):
        return None
    return tuple(re.compile(_translated(pattern), re.ASCII) for pattern in patterns)


def _translated(pattern: str) -> str:
    """An expression with the ASCII characters of each property, as a set or as a part of one."""
    out, inside = [], False
    for token in _KNOWN.findall(pattern):
        if match := _PROPERTY.fullmatch(token):
            out.append(_members(match[1]) if inside else f"[{_members(match[1])}]")
            continue
        inside = token == "[" or (inside and token != "]")
        out.append(r"\Z" if token == r"\z" else token)
    return "".join(out)


@cache
def _members(name: str) -> str:
    """The ASCII characters of a general category, ready for a set; where there are none, one that no text here has."""
    return "".join(re.escape(char) for char in _ASCII if unicodedata.category(char).startswith(name)) or "\x80"
