"""Models on Intel's OpenCL driver for processors: the reference's bits, and so those of the CPU and of AMD's cards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers import engine_for, run_tokens
from tests.models.families import CASES
from tests.models.families.build import write_case
from zinc_rt.engine.engine import Device
from zinc_rt.opencl.devices import OpenClCard

KINDS = {
    "dense": "qwen3",
    "experts": "qwen3moe",
    "delta net": "qwen35",
    "gemma": "gemma3",
    "gpt-oss": "gpt-oss",
    "latent attention": "deepseek2-lite",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_references_logits(kind: str, card: OpenClCard, tmp_path: Path) -> None:
    """A prompt in two steps, then single rows, beside another text."""
    made = write_case(tmp_path / "model.gguf", CASES[KINDS[kind]])
    tokens = [3, 17, 5, 40, 41, 7, 9]
    results = []
    for options in ({"kernels": "reference"}, {"device": Device.opencl}):
        with engine_for(made.path, n_ctx=64, n_batch=3, **options) as engine:
            slot = engine.open_sequence()
            rows = [run_tokens(engine, slot, tokens[:5], 3), run_tokens(engine, slot, tokens[5:], 1, 5)]
            results.append(np.concatenate(rows).view(np.uint32))
    np.testing.assert_array_equal(results[1], results[0])
