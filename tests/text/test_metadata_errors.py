"""Metadata that does not describe a tokenizer: one typed error, with the key and the value."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.vocabularies import KEY, bpe_metadata, gemma4_metadata, recorded, spm_metadata
from zinc_rt.errors import ZincError
from zinc_rt.text import Tokenizer, TokenizerError
from zinc_rt.text.pretokenizers import PRE_TOKENIZERS

N = len(recorded()["bpe"]["tokens"])
TOKENS: list[str] = recorded()["bpe"]["tokens"]
TYPES: list[int] = recorded()["bpe"]["types"]


@pytest.mark.parametrize(
    ("changes", "key", "says"),
    [
        ({"model": None}, "model", "missing; the file has no tokenizer"),
        ({"model": 7}, "model", "must be a string, not 7"),
        ({"pre": ["qwen2"]}, "pre", r"must be a string, not \['qwen2'\]"),
        ({"tokens": None}, "tokens", "missing"),
        ({"tokens": []}, "tokens", "is empty"),
        ({"tokens": "abc"}, "tokens", "must be an array of strings, not 'abc'"),
        ({"tokens": [*TOKENS[:-1], 5]}, "tokens", f"entry {N - 1} is 5"),
        ({"tokens": [*TOKENS[:-1], "\udcff"]}, "tokens", rf"entry {N - 1}, '\\udcff', is not valid UTF-8"),
        ({"tokens": [*TOKENS[:-1], TOKENS[3]]}, "tokens", f"tokens 3 and {N - 1} have the same text 'ă'"),
        ({"token_type": TYPES[:-1]}, "token_type", f"has {N - 1} entries, but tokenizer.ggml.tokens has {N}"),
        ({"token_type": [*TYPES[:-1], 7]}, "token_type", f"entry {N - 1} is 7; token types are 0..6"),
        ({"token_type": np.zeros((N, 1), np.int32)}, "token_type", "must be an array of numbers"),
        ({"token_type": ["x"] * N}, "token_type", "must be an array of numbers"),
        ({"token_type": [6, *TYPES[1:]]}, "token_type", "token 0 is typed as a byte, but its text 'Ā' is not"),
        ({"scores": [0.0] * (N + 1)}, "scores", f"has {N + 1} entries"),
        ({"scores": [0.0] * (N - 1) + [float("nan")]}, "scores", f"entry {N - 1} is not a number"),
        ({"merges": None}, "merges", 'missing; a tokenizer of kind "gpt2" needs its merges'),
        ({"merges": ["a b", None]}, "merges", "entry 1 is None"),
        ({"bos_token_id": N}, "bos_token_id", f"token id {N} is outside the vocabulary of {N} tokens"),
        ({"eos_token_id": -1}, "eos_token_id", "token id -1 is outside"),
        ({"eot_token_id": 1.5}, "eot_token_id", "must be a token id, not 1.5"),
        ({"eom_token_id": True}, "eom_token_id", "must be a token id, not True"),
        ({"fim_pad_token_id": 2**32 - 1}, "fim_pad_token_id", "token id 4294967295 is outside"),
        ({"add_bos_token": 1}, "add_bos_token", "must be a bool, not 1"),
        ({"bos_token_id": None, "add_bos_token": True}, "add_bos_token", "is true, but there is no"),
        ({"eos_token_id": None, "add_eos_token": True}, "add_eos_token", "is true, but there is no"),
    ],
)
def test_reported_at_load(changes: dict[str, Any], key: str, says: str) -> None:
    with pytest.raises(TokenizerError, match=says) as caught:
        Tokenizer.from_metadata(bpe_metadata(**changes))
    assert caught.value.key == KEY + key
    assert str(caught.value).startswith(KEY + key + ": ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("merge", "says"),
    [
        ("ab", "entry 1 is 'ab'; a merge is two texts with one space between them"),
        ("a b c", "entry 1 is 'a b c'; a merge is two texts"),
        ("a ", "entry 1 is 'a '; a merge is two texts"),
        ("", "entry 1 is ''; a merge is two texts"),
        ("zz a", "entry 1 is 'zz a', but 'zz' is not in tokenizer.ggml.tokens"),
        ("q z", "entry 1 is 'q z', but 'qz' is not in tokenizer.ggml.tokens"),
    ],
)
def test_merges_are_reported_at_the_first_encoding(merge: str, says: str) -> None:
    tokenizer = Tokenizer.from_metadata(bpe_metadata(merges=[recorded()["bpe"]["merges"][0], merge]))
    assert tokenizer.encode("<tool>") == [TOKENS.index("<tool>")]  # no need for merges yet
    with pytest.raises(TokenizerError, match=says) as caught:
        tokenizer.encode("a")
    assert (caught.value.key, caught.value.value) == (KEY + "merges", merge)


@pytest.mark.parametrize("kind", ["rwkv", "plamo2", "no_vocab", ""])
def test_other_tokenizers_are_named_with_what_is_supported(kind: str) -> None:
    with pytest.raises(TokenizerError, match=f"unknown tokenizer '{kind}'$") as caught:
        Tokenizer.from_metadata(bpe_metadata(model=kind))
    assert caught.value.value == kind
    assert caught.value.advice == "what would run: a model with a tokenizer of kind gpt2, llama, gemma4, t5, bert"


def test_an_unknown_pre_tokenizer_is_named_with_what_is_supported() -> None:
    with pytest.raises(TokenizerError, match=r"unknown pre-tokenizer 'superbpe'$") as caught:
        Tokenizer.from_metadata(bpe_metadata("superbpe"))
    assert {"llama-bpe", "qwen2", "qwen35", "gpt-2", "smollm", "default", "tekken", "gpt-4o"} <= set(
        caught.value.advice.split("the pre-tokenizer ")[1].replace(", or ", ", ").split(", ")
    )


def test_a_missing_pre_tokenizer_is_the_default_one() -> None:
    assert Tokenizer.from_metadata(bpe_metadata(pre="")).pre == "default"
    metadata = bpe_metadata()
    del metadata[KEY + "pre"]
    ids = Tokenizer.from_metadata(metadata).encode("12345")
    assert ids == Tokenizer.from_metadata(bpe_metadata("default")).encode("12345")


def test_long_values_are_cut_in_messages() -> None:
    with pytest.raises(TokenizerError) as caught:
        Tokenizer.from_metadata(bpe_metadata(pre=["x" * 10_000]))
    assert len(str(caught.value)) < 200


_junk = (
    st.none()
    | st.booleans()
    | st.integers(-2, 2**64)
    | st.floats()
    | st.text(max_size=5)
    | st.lists(st.integers(-1, 9) | st.text(max_size=3) | st.none() | st.lists(st.integers()), max_size=4)
    | st.sampled_from([np.zeros(3), np.array("x"), np.array(5), np.int64(3), np.bool_(True), {}, b"x", object()])
)
_keys = st.sampled_from(
    ["model", "pre", "tokens", "token_type", "scores", "merges", "bos_token_id", "eos_token_id", "eot_token_id",
     "unknown_token_id", "add_bos_token", "add_eos_token", "add_space_prefix", "remove_extra_whitespaces",
     "precompiled_charsmap", "normalizer.lowercase", "normalizer.strip_accents", "seperator_token_id", "cls_token_id"]
)  # fmt: skip


_makers = st.sampled_from(
    [
        spm_metadata,
        bpe_metadata,
        gemma4_metadata,
        partial(spm_metadata, model="t5"),
        partial(spm_metadata, model="bert"),
    ]
)


@given(junk=st.dictionaries(_keys, _junk, min_size=1, max_size=3), make=_makers, pre=st.sampled_from([*PRE_TOKENIZERS]))
@settings(max_examples=125, deadline=None)
def test_nonsense_never_raises_anything_else(junk: dict[str, Any], make: Any, pre: str) -> None:
    metadata = make(pre=pre)
    metadata |= {KEY + name: value for name, value in junk.items()}
    try:
        tokenizer = Tokenizer.from_metadata(metadata)
        tokenizer.decode(tokenizer.encode("a é <tool>\n"))
    except ZincError:
        pass  # anything else fails the test
