"""Streams of tokens to streams of text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.vocabularies import SPMS, bpe, recorded, spm
from zinc_rt.text import Detokenizer, Tokenizer, TokenizerError

TOKENIZERS = (bpe("qwen2"), spm("prefix"), spm("no_prefix"))


def stream(tokenizer: Tokenizer, ids: list[int], **options: bool) -> list[str]:
    detokenizer = Detokenizer(tokenizer, **options)
    return [*map(detokenizer.add, ids), detokenizer.flush()]


@st.composite
def _ids(draw: st.DrawFn) -> tuple[Tokenizer, list[int]]:
    """Random ids, or the ids of a text with some left out, repeated or put in between."""
    tokenizer = draw(st.sampled_from(TOKENIZERS))
    ids = st.integers(0, tokenizer.n_vocab - 1)
    if draw(st.booleans()):
        return tokenizer, draw(st.lists(ids, max_size=30))
    out = tokenizer.encode(draw(st.text(max_size=20)), parse_special=draw(st.booleans()))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(out)))
        out[at : at + draw(st.integers(0, 2))] = draw(st.lists(ids, max_size=2))
    return tokenizer, out


@given(case=_ids(), skip=st.booleans())
@settings(max_examples=200, deadline=None)
def test_the_pieces_are_the_decoded_whole(case: tuple[Tokenizer, list[int]], skip: bool) -> None:
    tokenizer, ids = case
    whole = tokenizer.decode(ids, skip_special=skip)
    so_far = ""
    parts = stream(tokenizer, ids, skip_special=skip)
    for seen, part in enumerate(parts[:-1], start=1):
        so_far += part
        assert whole.startswith(so_far)
        # What is held back is the start of one character, never more: one U+FFFD, or two for half a surrogate pair.
        held = tokenizer.decode(ids[:seen], skip_special=skip).removeprefix(so_far)
        assert held in ("", "\ufffd", "\ufffd\ufffd")
    assert so_far + parts[-1] == whole


@given(text=st.text())
@settings(max_examples=100, deadline=None)
def test_text_comes_back_in_whole_characters(text: str) -> None:
    for tokenizer in TOKENIZERS:
        parts = stream(tokenizer, tokenizer.encode(text, parse_special=False))
        expected = text.replace("▁", " ") if tokenizer.kind == "llama" else text
        assert "".join(parts) == expected
        assert "\ufffd" in text or "\ufffd" not in "".join(parts)


def test_an_emoji_in_four_bytes_comes_out_once() -> None:
    tokenizer = spm("no_prefix")
    ids = [tokenizer.token_id(f"<0x{byte:02X}>") for byte in "🦙".encode()]
    assert stream(tokenizer, [i for i in ids if i is not None]) == ["", "", "", "🦙", ""]


def _byte_ids(data: bytes) -> list[int]:
    return [recorded()["spm"]["tokens"].index(f"<0x{byte:02X}>") for byte in data]


@pytest.mark.parametrize(
    ("data", "parts"),
    [
        (b"a\xffb", ["a", "\ufffd", "b", ""]),
        (b"\xf0\x9fa", ["", "", "\ufffda", ""]),
        (b"\xe6\xb0", ["", "", "\ufffd"]),
        (b"\x80\xc3\xa9", ["\ufffd", "", "é", ""]),
        (b"\xc3\xc3\xa9", ["", "\ufffd", "é", ""]),
        (b"\xed\xa0\x80", ["", "", "\ufffd\ufffd\ufffd", ""]),
    ],
)
def test_bytes_that_are_not_utf8(data: bytes, parts: list[str]) -> None:
    assert "".join(parts) == data.decode("utf-8", "replace")
    got = stream(spm("no_prefix"), _byte_ids(data))
    assert "".join(got) == "".join(parts)
    assert [part == "" for part in got] == [part == "" for part in parts]


def test_special_tokens_are_left_out_or_shown() -> None:
    tokenizer = bpe()
    ids = tokenizer.encode("a<|im_end|>b<tool>c")
    assert "".join(stream(tokenizer, ids)) == "ab<tool>c"
    assert "".join(stream(tokenizer, ids, skip_special=False)) == "a<|im_end|>b<tool>c"


def test_special_tokens_that_are_shown() -> None:
    end = bpe().token_id("<|im_end|>")
    assert end is not None
    detokenizer = Detokenizer(bpe(), shown={end})
    ids = bpe().encode("a<|im_end|>b<|endoftext|>c")
    assert "".join(map(detokenizer.add, ids)) == "a<|im_end|>bc"


def test_a_skipped_special_token_does_not_break_a_character() -> None:
    first, second = _byte_ids("é".encode())
    assert stream(spm(), [first, 1, second]) == ["", "", "é", ""]
    assert "".join(stream(spm(), [first, 1, second], skip_special=False)) == "\ufffd<s>\ufffd"


@pytest.mark.parametrize("name", SPMS)
def test_the_leading_space_of_a_text_and_of_a_continuation(name: str) -> None:
    tokenizer = spm(name)
    the = recorded()["spm"]["tokens"].index("▁the")
    expected = "the the" if name == "prefix" else " the the"
    assert "".join(stream(tokenizer, [1, the, the])) == tokenizer.decode([1, the, the], skip_special=True) == expected
    assert "".join(stream(tokenizer, [the, the], at_start=False)) == " the the"
    assert tokenizer.decode([1, the]) == "<s> the"


def test_an_id_outside_the_vocabulary() -> None:
    for skip in (False, True):
        with pytest.raises(TokenizerError, match="outside the vocabulary"):
            Detokenizer(bpe(), skip_special=skip).add(10**9)
