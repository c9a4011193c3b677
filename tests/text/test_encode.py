"""Encoding against the slow oracles, and round trips."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.helpers import soon
from tests.text import oracles
from tests.text.vocabularies import PRES, SPMS, bpe, bpe_metadata, recorded, spm, spm_metadata
from zinc_rt.text import Tokenizer, TokenizerError
from zinc_rt.text.bpe import _LONG_TEXT, BPE, byte_to_char
from zinc_rt.text.pretokenizers import PRE_TOKENIZERS

_SNIPPETS = (
    " ", "  ", "\n", "\r\n", "\t", "'s", "'LL", "'", "12", "2024", " 7", "river", " stones", "the ", "can't", ".",
    "...", "!\n", "$", "`", "(", "é", "e\u0301", "\u0301", "न\u094dम", "ж", "水", "😀", "\u200d", "½", "Ⅷ", "٣",
    "\xa0", "\u3000", "\x85", "\x1c", "▁", "stones at all", "s s",
)  # fmt: skip
mixed = st.deferred(
    lambda: st.lists(st.sampled_from(_SNIPPETS) | st.sampled_from(oracles.stable_characters()), max_size=20)
).map("".join)


PRES_SOON = ("llama-bpe", "gpt-4o", "deepseek-v3", "default")
"""One of each kind of expressions by default; `test_pretokenizers.py` has how each of them cuts."""


@cache
def _bpe_tables() -> tuple[dict[str, int], dict[tuple[str, str], int]]:
    data = recorded()["bpe"]
    pairs = [tuple(merge.split(" ")) for merge in data["merges"]]
    return {text: i for i, text in enumerate(data["tokens"])}, {(a, b): i for i, (a, b) in enumerate(pairs)}


@pytest.mark.parametrize("pre", soon(PRES_SOON, PRES))
@given(text=mixed)
@settings(max_examples=80, deadline=None)
def test_bpe_is_words_then_merges(pre: str, text: str) -> None:
    ids, ranks = _bpe_tables()
    whole = PRE_TOKENIZERS[pre].ignore_merges
    words = oracles.words(pre, text)
    assert "".join(words) == text
    expected = [i for word in words for i in oracles.bpe_ids(word, ids, ranks, byte_to_char(), whole)]
    assert bpe(pre).encode(text, add_special=False, parse_special=False) == expected


def _encoder(pre: str, in_order: bool) -> BPE:
    data = recorded()["bpe"]
    tokens = data["tokens"] if in_order else data["tokens"][::-1]
    return BPE({token: i for i, token in enumerate(tokens)}, data["merges"], PRE_TOKENIZERS[pre])


@cache
def _library(pre: str, in_order: bool) -> BPE:
    """An encoder that leaves all to the library."""
    long = _encoder(pre, in_order)
    assert len(long.encode("x" * 9000)) > 100
    assert "_engine" in long.__dict__
    return long


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("pre", soon(("llama-bpe", "default"), PRES))  # words that are tokens count as they are, or not
@given(text=mixed | st.text())
@settings(max_examples=40, deadline=None)
def test_short_texts_are_merged_as_the_library_does_it(pre: str, in_order: bool, text: str) -> None:
    short = _encoder(pre, in_order)
    assert short.encode(text) == _library(pre, in_order).encode(text)
    assert "_engine" not in short.__dict__ or len(text) > 64


def test_long_pieces_and_much_text_go_to_the_library() -> None:
    data = recorded()["bpe"]
    ids = {token: i for i, token in enumerate(data["tokens"])}
    by_piece, by_amount = (BPE(ids, data["merges"], PRE_TOKENIZERS["qwen2"]) for _ in range(2))
    expected = by_piece.encode("a" * 200)
    assert "_engine" in by_piece.__dict__
    for _ in range(2000):
        assert by_amount.encode("ab cd") == by_piece.encode("ab cd")
    assert "_engine" in by_amount.__dict__
    assert by_amount.encode("a" * 200) == expected


@given(text=mixed)
@settings(max_examples=120, deadline=None)
def test_spm_joins_the_best_pair_of_the_whole_text(text: str) -> None:
    data = recorded()["spm"]
    ids = {token: i for i, token in enumerate(data["tokens"])}
    assert spm("no_prefix").encode(text, add_special=False, parse_special=False) == oracles.spm_ids(
        text, ids, data["scores"]
    )


@pytest.mark.parametrize("bridge", ["", "b▁", "a▁b", "▁a▁"])
@given(text=st.text("ab \n", max_size=30))
@settings(max_examples=80, deadline=None)
def test_spm_words_do_not_change_the_result(bridge: str, text: str) -> None:
    tokens = ["<unk>", "▁", "a", "b", "ab", "▁a", "▁▁", "ba", "aa", "▁ab", "<0x0A>", *([bridge] if bridge else [])]
    scores = [0.0, -9.0, -9.0, -9.0, -2.0, -1.0, -2.0, -2.0, -1.0, -0.5, 0.0, -1.0][: len(tokens)]
    tokenizer = Tokenizer.from_metadata(
        spm_metadata("no_prefix", tokens=tokens, scores=scores, token_type=None, add_eos_token=False)
    )
    ids = {token: i for i, token in enumerate(tokens)}
    assert tokenizer.encode(text, parse_special=False) == oracles.spm_ids(text, ids, scores)


@pytest.mark.parametrize("pre", soon(PRES_SOON, PRES))
@given(text=st.text())
@settings(max_examples=60, deadline=None)
def test_bpe_round_trip(pre: str, text: str) -> None:
    tokenizer = bpe(pre)
    for parse in (False, True):
        assert tokenizer.decode(tokenizer.encode(text, add_special=False, parse_special=parse)) == text
    assert tokenizer.decode(tokenizer.encode(text, parse_special=False), skip_special=True) == text


@pytest.mark.parametrize("name", SPMS)
@given(text=st.text() | mixed)
@settings(max_examples=60, deadline=None)
def test_spm_round_trip(name: str, text: str) -> None:
    tokenizer = spm(name)
    expected = text.replace("▁", " ")
    assert tokenizer.decode(tokenizer.encode(text, parse_special=False), skip_special=True) == expected
    assert tokenizer.decode(tokenizer.encode(text, add_special=False, parse_special=False)) == expected


def test_a_text_with_half_a_surrogate_pair_is_encoded_with_a_replacement_character() -> None:
    for tokenizer in (bpe(), spm()):
        broken = "a\ud83db\udcff"
        assert tokenizer.encode(broken) == tokenizer.encode("a\ufffdb\ufffd")


@pytest.mark.parametrize("pre", soon(("llama-bpe",), PRES))  # all are cut up by the same lines of code
def test_a_very_long_text_is_its_lines_one_by_one(pre: str) -> None:
    """Lines that end in letters, so that no word reaches over the end of a line."""
    tokenizer = Tokenizer.from_metadata(bpe_metadata(pre))
    lines = ["\nriver stones can't 2024 x", "\n水😀 the é stones at all", "\nthe  ж 's $ (river"]
    apart = [tokenizer.encode(line, add_special=False) for line in lines]
    n = _LONG_TEXT // len("".join(lines)) + 1
    assert tokenizer.encode("".join(lines) * n, add_special=False) == [*apart[0], *apart[1], *apart[2]] * n


def test_text_must_be_a_str() -> None:
    with pytest.raises(TokenizerError, match="must be a str, not b'a'"):
        bpe().encode(b"a")  # type: ignore[arg-type]


def test_bytes_without_a_token_are_dropped_but_keep_their_neighbours_apart() -> None:
    metadata = bpe_metadata(tokens=["a", "b", "ab"], token_type=None, merges=["a b"], bos_token_id=0, eos_token_id=1)
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.encode("ab") == [2]
    assert tokenizer.encode("aéb") == [0, 1]


def test_characters_without_tokens_become_unknown_or_an_error() -> None:
    few = {"tokens": ["<unk>", "▁", "a"], "scores": [0.0, -1.0, -1.0], "token_type": [2, 1, 1]}
    tokenizer = Tokenizer.from_metadata(spm_metadata(**few, add_bos_token=False))
    assert tokenizer.encode("aé") == [1, 2, 0]
    tokenizer = Tokenizer.from_metadata(spm_metadata(**few | {"token_type": [1, 1, 1]}, add_bos_token=False))
    with pytest.raises(TokenizerError, match=r"cannot encode 'é': .* <0xC3> <0xA9> and no unknown token"):
        tokenizer.encode("aé")


def test_spaces_are_merged_when_the_file_says_so() -> None:
    plain, merging = spm(), Tokenizer.from_metadata(spm_metadata(remove_extra_whitespaces=True))
    assert merging.encode("  the   river ") == plain.encode("the river")
    assert merging.encode("the river") == plain.encode("the river")
    assert merging.encode("  ") == [1]


def test_equal_merges_rank_by_the_first() -> None:
    tokens = [*byte_to_char(), "ab", "bc"]
    metadata = bpe_metadata(tokens=tokens, token_type=None, merges=["a b", "b c", "a b"])
    tokenizer = Tokenizer.from_metadata(metadata | {"tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 0})
    assert tokenizer.encode("abc", add_special=False) == [tokens.index("ab"), tokens.index("c")]


@pytest.mark.parametrize("blank", soon("\u3000", " \n\u3000"))  # the one of several bytes by default
def test_more_white_space_than_the_library_takes(blank: str) -> None:
    text = blank * (1 << 23)
    with pytest.raises(TokenizerError, match="more than 8388608 characters of white space in one run; shorten it"):
        bpe().encode("x" + text + blank)
