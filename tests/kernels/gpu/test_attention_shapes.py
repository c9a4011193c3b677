"""Attention compiled for the heads of real models: all values stay in registers, and enough waves fit a SIMD."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernels.gpu.listing import compiled
from zinc_rt.kernels.gpu.catalogue import attention_kernel

SHAPES: dict[str, dict[str, Any]] = {
    **{f"{heads} latent heads": {"dim": 576, "group": heads, "rope": 64} for heads in (10, 12, 14, 15, 17, 18, 24)},
    "DeepSeek-V2-Lite, Moonlight": {"dim": 576, "group": 16, "rope": 64},
    "GLM-4.7-Flash": {"dim": 576, "group": 20, "rope": 64},
    "Kanana-2, as many as there may be": {"dim": 576, "group": 32, "rope": 64},
    "Llama 2 7B, OLMo 2, Qwen 1.5": {"dim": 128, "group": 1},
    "Qwen3 0.6B": {"dim": 128, "group": 2},
    "Llama 3.2 3B, Phi-4-mini": {"dim": 128, "group": 3},
    "Llama 3, Qwen3, Mistral, SmolLM3, Phi-4": {"dim": 128, "group": 4},
    "Qwen3 14B, Qwen2.5 32B": {"dim": 128, "group": 5},
    "OLMo 3": {"dim": 128, "group": 5, "window": True},
    "Qwen2.5 1.5B": {"dim": 128, "group": 6},
    "Qwen2.5 7B": {"dim": 128, "group": 7},
    "Qwen3-30B, Llama 70B": {"dim": 128, "group": 8},
    "StarCoder2": {"dim": 128, "group": 9},
    "Seed-OSS": {"dim": 128, "group": 10},
    "GLM-4.5, Mistral Large": {"dim": 128, "group": 12},
    "GLM-4 9B, Qwen3-235B, Llama 405B": {"dim": 128, "group": 16},
    "GLM-4 32B": {"dim": 128, "group": 24},
    "as many heads as there may be": {"dim": 128, "group": 32},
    "SmolLM2 1.7B": {"dim": 64, "group": 1},
    "Granite 1B-A400M, LFM2 350M": {"dim": 64, "group": 2},
    "SmolLM2 135M, Granite 3B-A800M": {"dim": 64, "group": 3},
    "Llama 3.2 1B, Granite 2B, LFM2": {"dim": 64, "group": 4},
    "Qwen2.5 0.5B": {"dim": 64, "group": 7},
    "TinyLlama": {"dim": 64, "group": 8},
    "gpt-oss": {"dim": 64, "group": 8, "window": True, "sinks": True},
    "gpt-oss, all positions": {"dim": 64, "group": 8, "sinks": True},
    "Phi-3": {"dim": 96, "group": 1},
    "Qwen3.5 4B": {"dim": 256, "group": 4, "gated": True},
    "Qwen3.5 27B": {"dim": 256, "group": 6, "gated": True},
    "Qwen3-Next, Qwen3.5 35B": {"dim": 256, "group": 8, "gated": True},
    "Qwen3.5 122B": {"dim": 256, "group": 16, "gated": True},
    "Gemma 2": {"dim": 256, "group": 2, "window": True, "cap": True},
    "Gemma 2 27B": {"dim": 128, "group": 2, "window": True, "cap": True},
    "Gemma 3 4B": {"dim": 256, "group": 2, "window": True},
    "Gemma 3 1B": {"dim": 256, "group": 4, "window": True},
    "Gemma 3 27B": {"dim": 128, "group": 2, "window": True},
    "Gemma 4 E2B": {"dim": 256, "group": 8, "window": True},
    "Gemma 4 E4B": {"dim": 512, "group": 4},
    "Gemma 4": {"dim": 512, "group": 8},
    "Gemma 4, one key head": {"dim": 512, "group": 16},
    "BERT": {"dim": 64, "group": 1, "reach": True},
    "MiniLM": {"dim": 32, "group": 1, "reach": True},
    "EmbeddingGemma": {"dim": 256, "group": 3, "reach": True},
    "five heads that spilled": {"dim": 256, "group": 5},
}
DECIDING = (
    ("DeepSeek-V2-Lite, Moonlight", False),
    ("GLM-4.7-Flash", False),
    ("Qwen3.5 27B", False),
    ("five heads that spilled", True),
)
"""Those that took scratch once, or have the most values for their registers; and whether the cache holds blocks."""
LEAST_WAVES = 4


def scratch_and_waves(target: str, names: list[tuple[str, bool]]) -> dict[str, tuple[int, bool]]:
    """Bytes of scratch of each kernel, and whether at least LEAST_WAVES of its waves fit a SIMD."""
    entries = {
        f"{name}, {'blocks' if blocks else 'f16'}": attention_kernel(**SHAPES[name], quantized=blocks, packed=True)
        for name, blocks in names
    }
    return {name: (k.scratch_bytes, k.occupancy >= LEAST_WAVES) for name, k in compiled(entries, target).items()}


@pytest.mark.parametrize("target", ["gfx1201", pytest.param("gfx1100", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "shape", [*DECIDING[::3], *(pytest.param(s, marks=pytest.mark.slow) for s in DECIDING[1:3])], ids=str
)
def test_the_deciding_shapes_stay_in_registers(target: str, shape: tuple[str, bool]) -> None:
    assert set(scratch_and_waves(target, [shape]).values()) == {(0, True)}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx1201", "gfx1200", "gfx1100", "gfx1151"])
def test_all_shapes_stay_in_registers(target: str) -> None:
    found = scratch_and_waves(target, [(name, blocks) for name in SHAPES for blocks in (False, True)])
    assert found == dict.fromkeys(found, (0, True))
