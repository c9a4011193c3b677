"""The small vocabularies of these tests, and what llama.cpp's tokenizer makes of them (`recorded.json`)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from zinc_rt.text import Tokenizer

KEY = "tokenizer.ggml."
FLAGS = ((False, False), (False, True), (True, False), (True, True))  # (add_special, parse_special) as recorded
PRES = (
    "llama-bpe",
    "qwen2",
    "qwen35",
    "gpt-2",
    "smollm",
    "tekken",
    "gpt-4o",
    "deepseek-v3",
    "deepseek-coder",
    "default",
)
SPMS = ("prefix", "no_prefix")


@cache
def recorded() -> dict[str, Any]:
    """Vocabularies, texts and expected ids."""
    data: dict[str, Any] = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))
    return data


def bpe_metadata(pre: str = "gpt-2", **changes: Any) -> dict[str, Any]:
    """Metadata of the byte-level vocabulary, as a GGUF reader gives it. `changes` replace keys, None removes one."""
    bpe = recorded()["bpe"]
    values = {
        "model": "gpt2",
        "pre": pre,
        "tokens": bpe["tokens"],
        "token_type": np.array(bpe["types"], np.int32),
        "merges": bpe["merges"],
        "bos_token_id": bpe["bos"],
        "eos_token_id": bpe["eos"],
        **changes,
    }
    return {KEY + name: value for name, value in values.items() if value is not None}


def spm_metadata(name: str = "prefix", **changes: Any) -> dict[str, Any]:
    """Metadata of the SentencePiece vocabulary; "no_prefix" adds no space and no BOS, but EOS."""
    spm = recorded()["spm"]
    values: dict[str, Any] = {
        "model": "llama",
        "pre": "default",
        "tokens": spm["tokens"],
        "token_type": np.array(spm["types"], np.int32),
        "scores": np.array(spm["scores"], np.float32),
    }
    if name == "no_prefix":
        values |= {"add_space_prefix": False, "add_bos_token": False, "add_eos_token": True}
    values |= changes
    return {KEY + key: value for key, value in values.items() if value is not None}


def gemma4_metadata(**changes: Any) -> dict[str, Any]:
    """Metadata of a vocabulary of tokenizer model "gemma4". Four line feeds are a token that no merge makes."""
    merges = (
        "▁ r", "i v", "e r", "iv er", "▁r iver", "r iver", "▁ ▁", "▁▁ ▁▁", "\n \n", "\n\n \n", "t h", "th e", "▁ the",
        "e s", "s ▁", "1 2", "3 4", "12 34", "水 源", "ж Ж", ". .", ".. .", "' s", "e \u0301", "R iver", "▁ S", "S t",
    )  # fmt: skip
    characters = sorted({c for merge in merges for c in merge.replace(" ", "")} | set("aéÉ…!"))
    special, joined = ["<pad>", "<eos>", "<bos>", "<|turn>", "<turn|>"], [merge.replace(" ", "") for merge in merges]
    names = [f"<0x{byte:02X}>" for byte in range(256)]
    tokens = [*special, *names, *characters, *joined, "\n\n\n\n"]
    values: dict[str, Any] = {
        "model": "gemma4",
        "tokens": tokens,
        "token_type": np.array([3] * len(special) + [6] * 256 + [1] * (len(tokens) - 256 - len(special)), np.int32),
        "merges": list(merges),
        "bos_token_id": 2,
        "eos_token_id": 1,
        **changes,
    }
    return {KEY + name: value for name, value in values.items() if value is not None}


@cache
def bpe(pre: str = "gpt-2") -> Tokenizer:
    """A tokenizer over the byte-level vocabulary."""
    return Tokenizer.from_metadata(bpe_metadata(pre))


@cache
def spm(name: str = "prefix") -> Tokenizer:
    """A tokenizer over the SentencePiece vocabulary."""
    return Tokenizer.from_metadata(spm_metadata(name))
