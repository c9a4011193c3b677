"""Models on Intel's OpenCL driver for processors: the reference's bits, and so those of the CPU and of AMD's cards.

The driver takes seconds for a kernel and a minute for a model's, so these are slow tests; what it has built is kept.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from tests.helpers import QWEN3, T, engine_for, random_tokens, run_tokens, write_model
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, write_case
from tests.models.families.embedders import EMBEDDERS
from zinc_rt.engine.engine import Device, SequenceChunk
from zinc_rt.models.cache_format import CacheFormat
from zinc_rt.opencl.devices import OpenClCard

pytestmark = pytest.mark.slow

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
    tokens, other = [3, 17, 5, 40, 41, 7, 9], [9, 8, 7]
    results = []
    for options in ({"kernels": "reference"}, {"device": Device.opencl}):
        with engine_for(made.path, n_ctx=64, n_batch=4, **options) as engine:
            slot, second = engine.open_sequence(), engine.open_sequence()
            rows = [run_tokens(engine, slot, tokens[:5], 3)]
            for i, at in enumerate((5, 6)):
                chunks = [
                    SequenceChunk(slot, at, tokens[at : at + 1], (0,)),
                    SequenceChunk(second, i, other[i : i + 1], (0,)),
                ]
                rows.append(engine.step(chunks).logits.copy())
            results.append(np.concatenate(rows).view(np.uint32))
    np.testing.assert_array_equal(results[1], results[0])


def test_a_cache_of_blocks(card: OpenClCard, tmp_path: Path) -> None:
    spec = replace(QWEN3, weights=T.Q8_0, n_layers=1, n_heads=2, n_kv_heads=1, head_dim=32, n_embd=64)
    made = write_model(tmp_path / "model.gguf", spec)
    tokens = random_tokens(3, 12, spec.n_vocab)
    results = []
    for options in ({"kernels": "reference"}, {"device": Device.opencl}):
        with engine_for(made.path, n_ctx=64, n_batch=12, kv=CacheFormat.Q8_0, **options) as engine:
            slot = engine.open_sequence()
            rows = [run_tokens(engine, slot, tokens[:10], 10), run_tokens(engine, slot, tokens[10:], 1, 10)]
            results.append(np.concatenate(rows).view(np.uint32))
    np.testing.assert_array_equal(results[1], results[0])


def test_embeddings(card: OpenClCard, tmp_path: Path) -> None:
    made = write_case(tmp_path / "model.gguf", EMBEDDERS["bert-mean"])
    texts = [random_tokens(5, 9, N_VOCAB - 2), random_tokens(6, 3, N_VOCAB - 2)]
    with zinc_rt.load(made.path, device="cpu") as model, zinc_rt.load(made.path, device="opencl") as gpu:
        assert (gpu.embed(texts) == model.embed(texts)).all()


def test_the_same_text(card: OpenClCard) -> None:
    """The model in the package, greedy and sampled, several texts at once; tokens are chosen on the device."""
    prompts = ["Once upon a time", "The moon"]
    ways = (
        {"temperature": 0.0},
        {"temperature": 0.9, "seed": 5},
        {"temperature": 1.3, "top_k": 0, "top_p": 0.9, "seed": 6},
    )
    texts = []
    for device in ("cpu", "opencl"):
        with zinc_rt.load(device=device, n_ctx=128) as model:
            texts.append([[c.text for c in model.generate(prompts, max_tokens=12, **way)] for way in ways])
    assert texts[0] == texts[1]
