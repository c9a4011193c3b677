"""Attention compiled for the heads of real models: all values stay in registers, and enough waves fit a SIMD."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kernels.gpu.listing import compiled
from zinc_rt.kernels.gpu.catalogue import attention_kernel

SHAPES: dict[str, dict[str, Any]] = {
    "DeepSeek-V2-Lite, Moonlight": {"dim": 576, "group": 16, "rope": 64},
    "GLM-4.7-Flash": {"dim": 576, "group": 20, "rope": 64},
    "GLM-4.5-Air": {"dim": 128, "group": 12},
    "GLM-4, Qwen3-235B": {"dim": 128, "group": 16},
    "Llama 3, Qwen3": {"dim": 128, "group": 4},
    "Llama 3.2 1B": {"dim": 64, "group": 4},
    "Qwen2.5": {"dim": 64, "group": 7},
    "Qwen3-30B, Llama 70B": {"dim": 128, "group": 8},
    "Seed-OSS": {"dim": 128, "group": 10},
    "StarCoder2": {"dim": 128, "group": 9},
    "Qwen3-Next": {"dim": 256, "group": 8, "gated": True},
    "Qwen3.5": {"dim": 256, "group": 6, "gated": True},
    "Phi-3": {"dim": 96, "group": 1},
    "Gemma 2": {"dim": 256, "group": 2, "window": True, "cap": True},
    "Gemma 3": {"dim": 256, "group": 4, "window": True},
    "Gemma 4": {"dim": 512, "group": 8},
    "Gemma 4, one key head": {"dim": 512, "group": 16},
    "gpt-oss": {"dim": 64, "group": 8, "window": True, "sinks": True},
    "BERT": {"dim": 64, "group": 1, "reach": True},
    "as many heads as there may be": {"dim": 128, "group": 32},
    "as many wide heads as there may be": {"dim": 576, "group": 32, "rope": 64},
}
DECIDING = (
    ("gfx1201", "DeepSeek-V2-Lite, Moonlight", False),
    ("gfx1201", "GLM-4.7-Flash", False),
    ("gfx1201", "GLM-4.5-Air", False),
    ("gfx1201", "GLM-4, Qwen3-235B", True),
    ("gfx1100", "DeepSeek-V2-Lite, Moonlight", True),
    ("gfx1100", "Qwen3.5", False),
)
"""Those with the most values for their registers: by target, shape and whether the cache holds blocks of Q8_0."""
LEAST_WAVES = 4


def scratch_and_waves(target: str, names: list[tuple[str, bool]]) -> dict[str, tuple[int, bool]]:
    """Bytes of scratch of each kernel, and whether at least LEAST_WAVES of its waves fit a SIMD."""
    entries = {
        f"{name}, {'blocks' if blocks else 'f16'}": attention_kernel(**SHAPES[name], quantized=blocks, packed=True)
        for name, blocks in names
    }
    return {name: (k.scratch_bytes, k.occupancy >= LEAST_WAVES) for name, k in compiled(entries, target).items()}


@pytest.mark.slow  # the largest kernels, and registers as one compiler hands them out
@pytest.mark.parametrize("target", ["gfx1201", "gfx1100"])
def test_the_deciding_shapes_stay_in_registers(target: str) -> None:
    found = scratch_and_waves(target, [(name, blocks) for where, name, blocks in DECIDING if where == target])
    assert found == dict.fromkeys(found, (0, True))


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx1201", "gfx1200", "gfx1100", "gfx1151"])
def test_all_shapes_stay_in_registers(target: str) -> None:
    found = scratch_and_waves(target, [(name, blocks) for name in SHAPES for blocks in (False, True)])
    assert found == dict.fromkeys(found, (0, True))
