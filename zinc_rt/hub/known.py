"""Models with a short name: where they are, how large, under which license. The hub has many more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final


@dataclass(frozen=True)
class KnownModel:
    """A model in one line of the table.

    repo: `owner/name` on the hub; quant: the format that is taken unless another is asked for; gigabytes: size of that
    file, 10^9 bytes, about; what: for what it is good.
    """

    repo: str
    quant: str
    gigabytes: float
    license: str
    what: str


KNOWN: Final[Mapping[str, KnownModel]] = MappingProxyType(
    {
        "smollm2-135m": KnownModel(
            "bartowski/SmolLM2-135M-Instruct-GGUF", "Q8_0", 0.15, "Apache-2.0", "chat, the smallest"
        ),
        "qwen3-0.6b": KnownModel("Qwen/Qwen3-0.6B-GGUF", "Q8_0", 0.64, "Apache-2.0", "chat, reasoning, tools"),
        "qwen3-1.7b": KnownModel("Qwen/Qwen3-1.7B-GGUF", "Q8_0", 1.8, "Apache-2.0", "chat, reasoning, tools"),
        "qwen3-4b": KnownModel("Qwen/Qwen3-4B-GGUF", "Q4_K_M", 2.5, "Apache-2.0", "chat, reasoning, tools"),
        "qwen3-8b": KnownModel("Qwen/Qwen3-8B-GGUF", "Q4_K_M", 5.0, "Apache-2.0", "chat, reasoning, tools"),
        "qwen3-14b": KnownModel("Qwen/Qwen3-14B-GGUF", "Q4_K_M", 9.0, "Apache-2.0", "chat, reasoning, tools"),
        "qwen3-30b-a3b": KnownModel(
            "Qwen/Qwen3-30B-A3B-GGUF", "Q4_K_M", 18.6, "Apache-2.0", "the same, as fast as a 3B"
        ),
        "llama-3.2-1b": KnownModel("bartowski/Llama-3.2-1B-Instruct-GGUF", "Q4_K_M", 0.81, "Llama 3.2", "chat"),
        "llama-3.2-3b": KnownModel("bartowski/Llama-3.2-3B-Instruct-GGUF", "Q4_K_M", 2.0, "Llama 3.2", "chat"),
        "llama-3.1-8b": KnownModel(
            "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "Q4_K_M", 4.9, "Llama 3.1", "chat, tools"
        ),
        "gemma-3-1b": KnownModel("ggml-org/gemma-3-1b-it-GGUF", "Q4_K_M", 0.81, "Gemma", "chat"),
        "gemma-3-4b": KnownModel("ggml-org/gemma-3-4b-it-GGUF", "Q4_K_M", 2.5, "Gemma", "chat, many languages"),
        "gemma-3-12b": KnownModel("ggml-org/gemma-3-12b-it-GGUF", "Q4_K_M", 7.3, "Gemma", "chat, many languages"),
        "phi-4": KnownModel("bartowski/phi-4-GGUF", "Q4_K_M", 9.1, "MIT", "chat, mathematics"),
        "gpt-oss-20b": KnownModel("ggml-org/gpt-oss-20b-GGUF", "MXFP4", 12.1, "Apache-2.0", "reasoning, tools"),
        "qwen3-embedding-0.6b": KnownModel(
            "Qwen/Qwen3-Embedding-0.6B-GGUF", "Q8_0", 0.64, "Apache-2.0", "vectors of texts"
        ),
        "embeddinggemma": KnownModel(
            "ggml-org/embeddinggemma-300M-GGUF", "Q8_0", 0.33, "Gemma", "vectors of texts, small"
        ),
        "nomic-embed-text": KnownModel(
            "nomic-ai/nomic-embed-text-v1.5-GGUF", "Q8_0", 0.15, "Apache-2.0", "vectors of texts, small"
        ),
    }
)
"""Repositories and sizes as of November 2026."""
