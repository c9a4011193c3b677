"""Slow tokenizers written from the definitions, without regular expressions and without a library."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from itertools import pairwise

_SPACES = frozenset("\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000") | {chr(c) for c in range(0x2000, 0x200B)}
_CONTRACTIONS = ("'s", "'t", "'re", "'ve", "'m", "'ll", "'d")
Matcher = Callable[[str, int], int]  # (text, position) -> end of the match that starts there, or the position


@cache
def stable_characters() -> str:
    """The characters below U+10000 that have had their category since Unicode 3.2, so that all tables agree."""
    old = unicodedata.ucd_3_2_0.category
    chars = map(chr, range(0x10000))
    return "".join(
        c for c in chars if unicodedata.category(c) not in ("Cs", "Cn") and old(c) == unicodedata.category(c)
    )


def _is(char: str, classes: str) -> bool:
    """Whether a character is white space ("s") or of a general category group (L, M, N, P)."""
    return ("s" in classes and char in _SPACES) or unicodedata.category(char)[0] in classes.replace("s", "")


def _run(text: str, at: int, accept: Callable[[str], bool], limit: int = 1 << 60) -> int:
    end = at
    while end < len(text) and end - at < limit and accept(text[end]):
        end += 1
    return end


def _white(text: str, at: int, newlines: bool) -> int:
    """A run of white space: up to its last line break if `newlines`, else all but the space of a next word."""
    end = _run(text, at, lambda c: c in _SPACES)
    if newlines:
        for cut in range(end, at, -1):
            if text[cut - 1] in "\r\n":
                return cut
    return end if end == len(text) or end - at <= 1 else end - 1


def _contraction(text: str, at: int, fold: bool) -> int:
    for mark in _CONTRACTIONS:
        piece = text[at : at + len(mark)]
        if piece == mark or (fold and piece.isascii() and piece.lower() == mark):
            return at + len(mark)
    return at


def _gpt2(text: str, at: int) -> int:
    end = _contraction(text, at, fold=False)
    if end > at:
        return end
    start = at + 1 if text[at] == " " and at + 1 < len(text) else at
    for accept in (lambda c: _is(c, "L"), lambda c: _is(c, "N"), lambda c: not _is(c, "sLN")):
        end = _run(text, start, accept)
        if end > start:
            return end
    return _white(text, at, newlines=False)


def _llama3(text: str, at: int, digits: int, letters: str) -> int:
    end = _contraction(text, at, fold=True)
    if end > at:
        return end
    for start in (at + 1, at):  # an optional character before a word, unless it is itself what words are made of
        led = start == at or (text[at] not in "\r\n" and not _is(text[at], "LN"))
        if led and (end := _run(text, start, lambda c: _is(c, letters))) > start:
            return end
    end = _run(text, at, lambda c: _is(c, "N"), digits)
    if end > at:
        return end
    for start in (at + 1, at):
        if start == at or text[at] == " ":
            end = _run(text, start, lambda c: not _is(c, "sN" + letters))
            if end > start:
                return _run(text, end, lambda c: c in "\r\n")
    return _white(text, at, newlines=True)


def _category(char: str, categories: str) -> bool:
    """Whether a character's general category is one of the given, separated by spaces ("Lu M")."""
    return any(unicodedata.category(char).startswith(one) for one in categories.split())


def _cased_word(text: str, at: int) -> int:
    """A word that ends before a capital behind a small letter; one character that is no letter may lead it."""
    starts = [at + 1, at] if text[at] not in "\r\n" and not _is(text[at], "LN") else [at]
    for small in (True, False):
        for start in starts:
            end = _run(text, start, lambda c: _category(c, "Lu Lt Lm Lo M"))
            if small:
                for begin in range(end, start - 1, -1):  # the last small letter may be one that is a capital as well
                    if (done := _run(text, begin, lambda c: _category(c, "Ll Lm Lo M"))) > begin:
                        return done
            elif end > start:
                return _run(text, end, lambda c: _category(c, "Ll Lm Lo M"))
    return at


def _o200k(text: str, at: int, digits: int, contractions: bool) -> int:
    end = _cased_word(text, at)
    if end > at:
        return _contraction(text, end, fold=True) if contractions else end
    end = _run(text, at, lambda c: _is(c, "N"), digits)
    if end > at:
        return end
    for start in (at + 1, at):
        if start == at or text[at] == " ":
            end = _run(text, start, lambda c: not _is(c, "sNL"))
            if end > start:
                return _run(text, end, lambda c: c in "\r\n/")
    return _white(text, at, newlines=True)


def _deepseek_v3(text: str, at: int) -> int:
    if text[at].isascii() and text[at].isprintable() and not text[at].isalnum() and text[at] != " ":
        end = _run(text, at + 1, lambda c: c.isascii() and c.isalpha())
        if end > at + 1:
            return end
    for start in (at + 1, at):
        led = start == at or (text[at] not in "\r\n" and not _category(text[at], "L P S"))
        if led and (end := _run(text, start, lambda c: _is(c, "LM"))) > start:
            return end
    for start in (at + 1, at):
        if start == at or text[at] == " ":
            end = _run(text, start, lambda c: _category(c, "P S"))
            if end > start:
                return _run(text, end, lambda c: c in "\r\n")
    return _white(text, at, newlines=True) if text[at] in _SPACES else at


def _spaced(text: str, at: int, accept: Callable[[str], bool]) -> int:
    """A run of characters, with one white space before it."""
    for start in (at + 1, at):
        if start == at or text[at] in _SPACES:
            end = _run(text, start, accept)
            if end > start:
                return end
    return at


def _between(*ranges: str) -> Callable[[str], bool]:
    return lambda c: any(first <= c <= last for first, last in ranges)


_CJK = _between("一龥", "\u0800一", "가\ud7ff")
_DIGIT = lambda t, i: _run(t, i, lambda c: _is(c, "N"), 1)  # noqa: E731


def _isolate(pieces: Iterable[str], match: Matcher) -> Iterator[str]:
    """Cut every piece into matches and what lies between them."""
    for piece in pieces:
        begin = at = 0
        while at < len(piece):
            end = match(piece, at)
            if end == at:
                at += 1
                continue
            if begin < at:
                yield piece[begin:at]
            yield piece[at:end]
            begin = at = end
        if begin < len(piece):
            yield piece[begin:]


def _three_digits(text: str, at: int) -> int:
    end = _run(text, at, lambda c: c in "0123456789", 3)
    return end if end == at + 3 else at


_STAGES: dict[str, list[Matcher]] = {
    "llama-bpe": [lambda t, i: _llama3(t, i, 3, "L")],
    "qwen2": [lambda t, i: _llama3(t, i, 1, "L")],
    "qwen35": [lambda t, i: _llama3(t, i, 1, "LM")],
    "gpt-2": [_gpt2],
    "smollm": [_DIGIT, _gpt2],
    "tekken": [lambda t, i: _o200k(t, i, 1, False)],
    "gpt-4o": [lambda t, i: _o200k(t, i, 3, True)],
    "deepseek-v3": [
        lambda t, i: _run(t, i, lambda c: _is(c, "N"), 3),
        lambda t, i: _run(t, i, _between("一龥", "\u3040ゟ", "\u30a0ヿ")),
        _deepseek_v3,
    ],
    "deepseek-coder": [
        lambda t, i: _run(t, i, lambda c: c in "\r\n", 1),
        lambda t, i: _spaced(t, i, lambda c: _is(c, "L")),
        lambda t, i: _spaced(t, i, lambda c: _is(c, "P")),
        lambda t, i: _run(t, i, _CJK),
        _DIGIT,
    ],
    "default": [
        lambda t, i: _run(t, i, lambda c: _is(c, "P") or c in "$+<=>^~|"),
        _gpt2,
        lambda t, i: _run(t, i, lambda c: _is(c, "N")),
        _three_digits,
    ],
}


def words(pre: str, text: str) -> list[str]:
    """The words of `text` for a pre-tokenizer."""
    pieces: Iterable[str] = [text] if text else []
    for match in _STAGES[pre]:
        pieces = list(_isolate(pieces, match))
    return list(pieces)


def bpe_ids(
    word: str, ids: dict[str, int], ranks: dict[tuple[str, str], int], byte_chars: tuple[str, ...], ignore_merges: bool
) -> list[int]:
    """Ids of one word: apply the best-ranked merge, leftmost first, until none applies."""
    parts = [byte_chars[byte] for byte in word.encode()]
    if ignore_merges and "".join(parts) in ids:
        return [ids["".join(parts)]]
    while True:
        pairs = [(ranks[pair], at) for at, pair in enumerate(pairwise(parts)) if pair in ranks]
        if not pairs:
            return [ids[part] for part in parts]
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def spm_ids(text: str, ids: dict[str, int], scores: list[float]) -> list[int]:
    """Ids of a whole text: join the neighbours with the best-scored joint token, leftmost first."""
    parts = list(text.replace(" ", "\u2581"))
    while True:
        pairs = [(-scores[ids[a + b]], at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in ids]
        if not pairs:
            break
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    out: list[int] = []
    for part in parts:
        out += [ids[part]] if part in ids else [ids[f"<0x{byte:02X}>"] for byte in part.encode()]
    return out


def cut(text: str, tokens: Iterable[tuple[int, str, bool, bool]]) -> list[str | int]:
    """Pieces of text and ids of the tokens (id, text, eats left, eats right), cut out one token after the other."""
    pieces: list[str | int] = [text] if text else []
    for id_, name, eats_left, eats_right in sorted(tokens, key=lambda token: (-len(token[1].encode()), token[0])):
        done: list[str | int] = []
        for piece in pieces:
            rest = piece
            while isinstance(rest, str) and name in rest:
                left, rest = rest.split(name, 1)
                left = left.rstrip(" \t\n\v\f\r") if eats_left else left
                rest = rest.lstrip(" \t\n\v\f\r") if eats_right else rest
                done += [left, id_] if left else [id_]
            done += [rest] if rest != "" else []
        pieces = done
    return pieces
