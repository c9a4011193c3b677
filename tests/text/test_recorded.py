"""Ids against those that llama.cpp's tokenizer gave for the same vocabularies."""

from __future__ import annotations

from typing import Any

import pytest

from tests.text.vocabularies import FLAGS, SPMS, bpe_metadata, recorded, spm_metadata
from zinc_rt.text import Tokenizer

BPE = tuple(recorded()["bpe"]["ids"])


def _check(tokenizer: Tokenizer, expected: dict[str, Any]) -> None:
    data = recorded()
    for text, ids in zip(data["texts"], expected["plain"], strict=True):
        assert tokenizer.encode(text, add_special=False, parse_special=False) == ids, text
        assert tokenizer.decode(ids) == _shown(text, tokenizer), text
    for text, by_flags in zip(data["special_texts"], expected["special"], strict=True):
        for (add, parse), ids in zip(FLAGS, by_flags, strict=True):
            assert tokenizer.encode(text, add_special=add, parse_special=parse) == ids, (text, add, parse)


def _shown(text: str, tokenizer: Tokenizer) -> str:
    """What comes back of a text: SentencePiece cannot tell its own mark from a space."""
    return text.replace("\u2581", " ") if tokenizer.kind == "llama" else text


@pytest.mark.parametrize("pre", BPE)
def test_bpe_as_llama_cpp(pre: str) -> None:
    _check(Tokenizer.from_metadata(bpe_metadata(pre)), recorded()["bpe"]["ids"][pre])


@pytest.mark.parametrize("name", SPMS)
def test_spm_as_llama_cpp(name: str) -> None:
    _check(Tokenizer.from_metadata(spm_metadata(name)), recorded()["spm"]["ids"][name])


def test_the_texts_tell_the_pre_tokenizers_apart() -> None:
    answers = [str(recorded()["bpe"]["ids"][pre]["plain"]) for pre in BPE if pre != "glm4"]
    assert len(set(answers)) == len(answers)  # glm4 differs from llama-bpe in adding no BOS only
