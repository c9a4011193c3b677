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
        "qwen3.5-0.8b": KnownModel("ggml-org/Qwen3.5-0.8B-GGUF", "Q8_0", 0.83, "Apache-2.0", "chat, reasoning, tools"),
        "qwen3.5-2b": KnownModel("unsloth/Qwen3.5-2B-GGUF", "Q4_K_M", 1.28, "Apache-2.0", "chat, reasoning, tools"),
        "qwen3.5-4b": KnownModel("unsloth/Qwen3.5-4B-GGUF", "Q4_K_M", 2.74, "Apache-2.0", "chat, reasoning, tools"),
        "qwen3.5-9b": KnownModel("unsloth/Qwen3.5-9B-GGUF", "Q4_K_M", 5.68, "Apache-2.0", "chat, reasoning, tools"),
        "qwen3.6-35b-a3b": KnownModel(
            "unsloth/Qwen3.6-35B-A3B-GGUF", "UD-Q4_K_M", 22.1, "Apache-2.0", "the same, as fast as a 3B"
        ),
        "qwen3.8-27b": KnownModel(
            "unsloth/Qwen3.8-27B-GGUF", "UD-Q4_K_M", 16.5, "Apache-2.0", "chat, reasoning, tools"
        ),
        "llama-3.2-1b": KnownModel("bartowski/Llama-3.2-1B-Instruct-GGUF", "Q4_K_M", 0.81, "Llama 3.2", "chat"),
        "llama-3.2-3b": KnownModel("bartowski/Llama-3.2-3B-Instruct-GGUF", "Q4_K_M", 2.0, "Llama 3.2", "chat"),
        "llama-3.1-8b": KnownModel(
            "bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "Q4_K_M", 4.9, "Llama 3.1", "chat, tools"
        ),
        "gemma-3-1b": KnownModel("ggml-org/gemma-3-1b-it-GGUF", "Q4_K_M", 0.81, "Gemma", "chat"),
        "gemma-3-4b": KnownModel("ggml-org/gemma-3-4b-it-GGUF", "Q4_K_M", 2.5, "Gemma", "chat, many languages"),
        "gemma-3-12b": KnownModel("ggml-org/gemma-3-12b-it-GGUF", "Q4_K_M", 7.3, "Gemma", "chat, many languages"),
        "gemma-4-e2b": KnownModel("unsloth/gemma-4-E2B-it-GGUF", "Q4_K_M", 3.1, "Apache-2.0", "chat, reasoning, tools"),
        "gemma-4-e4b": KnownModel("unsloth/gemma-4-E4B-it-GGUF", "Q4_K_M", 5.0, "Apache-2.0", "chat, reasoning, tools"),
        "gemma-4-12b": KnownModel("unsloth/gemma-4-12b-it-GGUF", "Q4_K_M", 7.1, "Apache-2.0", "chat, reasoning, tools"),
        "gemma-4-26b-a4b": KnownModel(
            "unsloth/gemma-4-26B-A4B-it-GGUF", "UD-Q4_K_M", 17, "Apache-2.0", "the same, as fast as a 4B"
        ),
        "ministral-3-3b": KnownModel(
            "mistralai/Ministral-3-3B-Instruct-2512-GGUF", "Q4_K_M", 2.15, "Apache-2.0", "chat, tools"
        ),
        "ministral-3-8b": KnownModel(
            "mistralai/Ministral-3-8B-Instruct-2512-GGUF", "Q4_K_M", 5.2, "Apache-2.0", "chat, tools"
        ),
        "ministral-3-14b": KnownModel(
            "mistralai/Ministral-3-14B-Instruct-2512-GGUF", "Q4_K_M", 8.24, "Apache-2.0", "chat, tools"
        ),
        "smollm3-3b": KnownModel("ggml-org/SmolLM3-3B-GGUF", "Q4_K_M", 1.92, "Apache-2.0", "chat, reasoning"),
        "lfm2.5-1.2b": KnownModel(
            "LiquidAI/LFM2.5-1.2B-Instruct-GGUF", "Q4_K_M", 0.73, "LFM 1.0", "chat, tools, small and fast"
        ),
        "lfm2-8b-a1b": KnownModel(
            "LiquidAI/LFM2-8B-A1B-GGUF", "Q4_K_M", 5.04, "LFM 1.0", "the same, as fast as a 1.5B"
        ),
        "glm-4-9b": KnownModel("unsloth/GLM-4-9B-0414-GGUF", "Q4_K_M", 6.17, "MIT", "chat, tools"),
        "glm-4.7-flash": KnownModel(
            "unsloth/GLM-4.7-Flash-GGUF", "Q4_K_M", 18.3, "MIT", "reasoning, tools, as fast as a 3B"
        ),
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
"""Repositories, formats and sizes as programs in public repositories named them up to November 2026; of models younger
than Qwen 3, those alone that several of them agree on. The hub itself was not asked."""
