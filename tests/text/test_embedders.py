"""The tokenizers of embedding models: WordPiece and unigram, against the library's own and against plain searches."""

from __future__ import annotations

import math
import struct
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.random_texts import random_texts
from tests.text.vocabularies import KEY
from zinc_rt.text import Tokenizer, TokenizerError
from zinc_rt.text.charsmap import Charsmap

WORDS = [
    "river",
    "stone",
    "http",
    "server",
    "iphone",
    "don",
    "can",
    "e",
    "ж",
    "水",
    "源",
    "7",
    "12",
    "ss",
    "a",
    "$",
    "/",
    ".",
]
PIECES = ["s", "es", "er", "stones", "t", "n", "ver", "ri", "ж", "2", "345", "e"]
CLS, SEP, UNK = 1, 2, 3


@cache
def bert(**changes: Any) -> Tokenizer:
    tokens = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", *("▁" + word for word in WORDS), *PIECES]
    values: dict[str, Any] = {
        "model": "bert",
        "tokens": tokens,
        "token_type": np.array([3] * 4 + [1] * (len(tokens) - 4), np.int32),
        "cls_token_id": CLS,
        "seperator_token_id": SEP,
        "unknown_token_id": UNK,
        **changes,
    }
    return Tokenizer.from_metadata({KEY + name: value for name, value in values.items()})


@cache
def upstream_bert(lowercase: bool) -> Any:
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    ids = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[UNK]": 3}
    ids |= {word: 4 + i for i, word in enumerate([*WORDS, *("##" + piece for piece in PIECES)])}
    made = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=10**6))
    made.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return made


def different(lowercase: bool, texts: list[str]) -> list[str]:
    tokenizer = bert() if lowercase else bert(**{"normalizer.lowercase": False})
    # U+0085 is white space to llama.cpp and dropped upstream; U+2581 is the vocabulary's own mark.
    texts = [text.replace("\x85", " ").replace("▁", " ") for text in texts]
    made = upstream_bert(lowercase)
    return [
        text
        for text in texts
        if tokenizer.encode(text, add_special=False, parse_special=False)
        != made.encode(text, add_special_tokens=False).ids
    ]


@pytest.mark.parametrize("lowercase", [True, False])
def test_wordpiece_as_upstream(lowercase: bool) -> None:
    assert different(lowercase, list(random_texts(21, 400))) == []


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [True, False])
def test_20000_texts_of_wordpiece_as_upstream(lowercase: bool) -> None:
    assert different(lowercase, list(random_texts(22, 20_000))) == []


@pytest.mark.parametrize("lowercase", [True, False])
def test_characters_of_no_use_as_upstream(lowercase: bool) -> None:
    """Controls, formats, private and unassigned characters, alone and within a word."""
    code_points = (*range(0xA1), 0xAD, 0x378, 0x530, 0x200B, 0x2028, 0xE000, 0xFFFD, 0x10FFFF, 0xE0001, 0x50000)
    assert different(lowercase, [text for n in code_points for text in (chr(n), f"river{chr(n)}stones")]) == []


def test_wordpiece_as_it_is_written() -> None:
    tokenizer = bert()
    for text, expected in {
        "River  stones": ["▁river", "▁stone", "s"],
        "rivers!": ["▁river", "s", "[UNK]"],
        "É水源ЖЖ": ["▁e", "▁水", "▁源", "▁ж", "ж"],
        "riverq": ["[UNK]"],
        "a\u200da\ufffd": ["[UNK]"],
        "r\x0bi\u0378": ["[UNK]"],
        "": [],
        " \n\u3000": [],
    }.items():
        ids = tokenizer.encode(text)
        assert [tokenizer.token_text(i) for i in ids] == ["[CLS]", *expected, "[SEP]"], text
    assert tokenizer.decode(tokenizer.encode("river stones"), skip_special=True) == "river stones"
    a = tokenizer.token_id("▁a")
    assert tokenizer.encode("a[SEP]a", add_special=False) == [a, SEP, a]


def test_a_very_long_word_is_cut_in_a_moment() -> None:
    ids = bert().encode("river" + "stones" * 50_000, add_special=False)
    assert len(ids) == 50_001
    assert bert().encode("river" * 50_000 + "q", add_special=False) == [UNK]


UNIGRAM = {
    "<s>": 0.0, "</s>": 0.0, "<unk>": 0.0, "▁": -3.0, "▁river": -5.0, "river": -6.5, "r": -4.0, "i": -4.1, "v": -4.2,
    "e": -3.9, "er": -4.5, "▁r": -4.4, "iv": -6.0, "s": -3.5, "▁s": -4.0, "1": -4.0, "12": -5.0, "水": -6.0,
    "水源": -7.0, "ver▁s": -9.0, "ss": -7.0,
}  # fmt: skip


def unigram(**changes: Any) -> Tokenizer:
    values: dict[str, Any] = {
        "model": "t5",
        "tokens": list(UNIGRAM),
        "scores": np.array(list(UNIGRAM.values()), np.float32),
        "token_type": np.array([3, 3, 2] + [1] * (len(UNIGRAM) - 3), np.int32),
        "eos_token_id": 1,
        "unknown_token_id": 2,
        "add_space_prefix": True,
        **changes,
    }
    return Tokenizer.from_metadata({KEY + name: value for name, value in values.items() if value is not None})


def best_sum(text: str) -> float:
    """The best sum of scores over all cuts of a text in the vocabulary's writing. An unknown character counts 10 less
    than the worst token.
    """
    scores = {piece: float(np.float32(score)) for piece, score in UNIGRAM.items() if score}
    best = [0.0] + [-math.inf] * len(text)
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            score = scores.get(text[start:end], -19.0 if end == start + 1 else -math.inf)
            best[end] = max(best[end], best[start] + score)
    return best[-1]


@given(text=st.text("rives 12水源é", max_size=16))
@settings(max_examples=200, deadline=None)
def test_the_cut_has_the_best_sum(text: str) -> None:
    tokenizer = unigram()
    ids = tokenizer.encode(text, add_special=False)
    written = (" " + text if text.strip() else text).replace(" ", "▁")
    known = [piece for piece in (tokenizer.token_text(i) for i in ids) if piece != "<unk>"]
    at = 0
    for piece in known:
        at = written.index(piece, at) + len(piece)  # in order
    unknown = len(written) - sum(map(len, known))
    total = sum(UNIGRAM[piece] for piece in known) - 19.0 * unknown
    assert total == pytest.approx(best_sum(written), abs=1e-4)


def test_tokens_that_all_begin_with_each_other_are_refused() -> None:
    """The search is linear in a text only while few tokens begin at each of its characters."""

    def made(n: int) -> Tokenizer:
        tokens = [*list(UNIGRAM)[:3], *("a" * i for i in range(1, n))]
        kinds = np.array([3, 3, 2] + [1] * (n - 1), np.int32)
        return unigram(tokens=tokens, token_type=kinds, scores=np.zeros(len(tokens), np.float32))

    assert len(made(150).encode("a" * 149, add_special=False)) > 0
    with pytest.raises(TokenizerError, match=r"181 tokens that begin with each other, of 16471 bytes, at most 16384"):
        made(1000).encode("a", add_special=False)
    assert unigram(tokens=[*list(UNIGRAM)[:-1], "long" * 4000]).encode("r", add_special=False)


def test_a_character_without_a_token_when_nothing_is_unknown() -> None:
    made = unigram(unknown_token_id=None, token_type=None)
    assert made.unk_id is None
    with pytest.raises(TokenizerError, match="cannot encode ' é'"):
        made.encode("é")


def test_spaces_and_ends_of_unigram() -> None:
    plain, merging, bare = unigram(), unigram(remove_extra_whitespaces=True), unigram(add_space_prefix=False)
    river = plain.token_id("▁river")
    assert plain.encode("river") == [river, 1]
    assert plain.encode("") == [1]
    assert merging.encode("  river  river ") == [river, river, 1]
    assert [bare.token_text(i) for i in bare.encode("river", add_special=False)] == ["river"]
    assert plain.decode(plain.encode("river river"), skip_special=True) == "river river"
    assert plain.encode("<s>", add_special=False, parse_special=False) != [0]
    assert plain.encode("éé", add_special=False) == [plain.token_id("▁"), 2]  # unknown neighbours are one token


def charsmap(replacements: dict[str, str]) -> bytes:
    """A table of replacements: a double array in which every inner node has 256 places for its children."""
    texts, where = bytearray(), {}
    for text in dict.fromkeys(replacements.values()):
        where[text] = len(texts)
        texts += text.encode() + b"\0"
    children: dict[bytes, set[int]] = {b"": set()}
    for key in replacements:
        raw = key.encode()
        for i in range(len(raw)):
            children.setdefault(raw[:i], set()).add(raw[i])
            children.setdefault(raw[: i + 1], set())
    ends = {key.encode(): where[text] for key, text in replacements.items()}
    blocks = {node: 256 * (i + 1) for i, node in enumerate(children)}
    units = [0] * (256 * (len(children) + 1))
    places = {b"": 0} | {
        node + bytes([byte]): blocks[node] ^ byte for node, bytes_ in children.items() for byte in bytes_
    }
    for node, place in places.items():
        units[place] = (place ^ blocks[node]) << 10 | (node[-1] if node else 0) | (0x100 if node in ends else 0)
        if node in ends:
            units[blocks[node]] = ends[node] | 1 << 31
    return struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + bytes(texts)


MAP = {"A": "a", "\u017f": "s", "①": "1", "①②": "12", "\u200b": "", "\t": " ", "é": "e", "ab": "x", "abcd": "y"}


def test_the_longest_prefix_is_replaced() -> None:
    table = Charsmap(charsmap(MAP))
    for text, expected in {
        "A river": "a river",
        "①②①": "121",
        "abcabcde": "xcye",
        "\u200b\t水é": " 水e",
        "ab": "x",
        "a": "a",
        "": "",
    }.items():
        assert table.replace(text) == expected


@given(text=st.text("A\u017f①② abcdé水", max_size=12))
@settings(max_examples=100, deadline=None)
def test_replacements_by_a_plain_search(text: str) -> None:
    expected, at = "", 0
    while at < len(text):
        key = max((key for key in MAP if text.startswith(key, at)), key=len, default="")
        expected += MAP[key] if key else text[at]
        at += len(key) or 1
    assert Charsmap(charsmap(MAP)).replace(text) == expected


def test_unigram_normalises_by_the_files_table() -> None:
    made = unigram(precompiled_charsmap=np.frombuffer(charsmap({"R": "r", "①": "12"}), np.uint8))
    assert [made.token_text(i) for i in made.encode("River①", add_special=False)] == ["▁river", "12"]


@pytest.mark.parametrize("table", [b"", b"\4\0\0\0", b"\xff\xff\xff\x7f" + b"\0" * 20, b"\3\0\0\0" + b"\0" * 20])
def test_tables_that_do_not_fit_their_size(table: bytes) -> None:
    made = unigram(precompiled_charsmap=np.frombuffer(table, np.uint8))
    with pytest.raises(TokenizerError, match="bytes are an array; the file is damaged"):
        made.encode("a")


def test_a_table_that_is_no_bytes() -> None:
    with pytest.raises(TokenizerError, match="must be an array of bytes"):
        unigram(precompiled_charsmap=np.zeros(3, np.float32))


def test_damaged_tables_give_text_or_a_typed_error() -> None:
    rng, sound = np.random.default_rng(4), np.frombuffer(charsmap(MAP), np.uint8)
    refused = 0
    for _ in range(300):
        table = sound.copy()
        used = np.flatnonzero(table)
        table[rng.choice(used[used > 3], 6)] = rng.integers(0, 256, 6)
        try:
            Charsmap(table.tobytes()).replace("A①② abcd é" * 3)
        except TokenizerError:
            refused += 1
    assert 0 < refused < 300
