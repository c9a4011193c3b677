"""Whole models against float64: what comes out is the architecture, and only rounding stands between.

The reference kernels run here; the others equal them to the last bit (tests/backends/cpu).
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import LLAMA, QKV, QWEN2, QWEN3, T, Tiny, engine_for, logits_of, random_tokens, soon, write_model
from tests.models.truth import Truth, error
from zinc_rt.engine.engine import SequenceChunk
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define

N_TOKENS = 40
WIDE = {"n_embd": 256, "n_ff": 256, "head_dim": 64}
YARN = {"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64}
LINEAR = {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}
EVERYWHERE = (*QKV, "attn_output", "ffn_gate", "ffn_up", "ffn_down")

FLOAT_MODELS = {
    "llama": LLAMA,
    "llama-f16": replace(LLAMA, weights=T.F16),
    "llama-one-layer": replace(LLAMA, n_layers=1),
    "llama-biases": replace(LLAMA, biases=EVERYWHERE),
    "llama-one-bias": replace(LLAMA, biases=("ffn_up",)),
    "llama-part-of-the-head-turns": replace(LLAMA, rope_dim=8),
    "llama-factors": replace(LLAMA, rope_factors=True),
    "llama-linear": replace(LLAMA, keys=LINEAR),
    "llama-every-head-its-own": replace(LLAMA, n_kv_heads=4),
    "llama-one-kv-head": replace(LLAMA, n_kv_heads=1),
    "qwen2": QWEN2,
    "qwen2-bf16": replace(QWEN2, weights=T.BF16),
    "qwen2-yarn": replace(QWEN2, keys=YARN),
    "qwen3": QWEN3,
    "qwen3-tied": replace(QWEN3, tied=True, rope_base=1e6),
}
QUANTISED_MODELS = {
    "qwen3-q8_0": replace(QWEN3, weights=T.Q8_0),
    "llama-q4_0": replace(LLAMA, weights=T.Q4_0),
    "llama-q4_1": replace(LLAMA, weights=T.Q4_1, tied=True),
    "qwen2-q5_0": replace(QWEN2, weights=T.Q5_0),
    "qwen2-q5_1": replace(QWEN2, weights=T.Q5_1),
    "llama-q4_k-q6_k": replace(
        LLAMA, weights=T.Q4_K, formats=dict.fromkeys(("attn_v", "down", "output"), T.Q6_K), **WIDE
    ),
    "qwen3-q5_k-f16": replace(QWEN3, weights=T.Q5_K, formats={"attn_k": T.F16}, **WIDE),
}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logits")


@cache
def computed(folder: Path, name: str) -> tuple[Tiny, list[int], np.ndarray]:
    """A model, some tokens, and the engine's logits."""
    spec = (FLOAT_MODELS | QUANTISED_MODELS)[name]
    tiny, tokens = write_model(folder / f"{name}.gguf", spec), random_tokens(3, N_TOKENS, spec.n_vocab)
    return tiny, tokens, logits_of(tiny.path, tokens, kernels="reference")


def both(folder: Path, name: str, *variants: dict[str, object]) -> list[np.ndarray]:
    """The logits of the engine for some tokens, then those of the formulas, in each variant."""
    tiny, tokens, got = computed(folder, name)
    return [got, *(Truth(tiny, **wrong).logits(tokens) for wrong in variants or ({},))]


def quietest_row(got: np.ndarray, want: np.ndarray) -> float:
    """The error of the best row: rows that no rounding decision fell differently in are much closer than the rest."""
    return min(error(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.parametrize("name", FLOAT_MODELS)
def test_float_models(name: str, folder: Path) -> None:
    """float32 is off by some 1e-7. A key or value that float16 rounds the other way is off by 5e-4 of itself, one
    among thousands; hence a looser bound for the whole than for the best row.
    """
    got, want = both(folder, name)
    assert error(got, want) < 1e-3
    assert quietest_row(got, want) < 1e-6
    assert want.std() > 0.5  # logits that say something


K_QUANTS = {"llama-q4_k-q6_k", "qwen3-q5_k-f16"}
"""`test_families.py` mixes such formats by default."""


@pytest.mark.parametrize("name", soon(QUANTISED_MODELS.keys() - K_QUANTS, QUANTISED_MODELS))
def test_quantised_models(name: str, folder: Path) -> None:
    """With int8 activations in the formulas too, only activations that fall to the other side of a half differ: each
    is off by a whole step, 1 / 127 of its group's largest.

    Against float activations, one product of normal numbers loses about 2.2 / (127 sqrt(12)) = 0.5 %, for the largest
    of 32 is some 2.2 standard deviations. Independent losses of the fourteen products on the way add up to the square
    root of 14 times that, 1.9 %, if each reaches the logits undiminished.
    """
    got, with_int8, without = both(folder, name, {}, {"quantize_activations": False})
    assert error(got, with_int8) < 1e-2
    assert quietest_row(got, with_int8) < 1e-6
    assert 0.003 < error(got, without) < 0.04
    assert error(got, with_int8) < error(got, without) / 2


WRONG = {
    "the other rope layout (llama)": ("llama", {"interleaved": False}),
    "the other rope layout (qwen2)": ("qwen2", {"interleaved": True}),
    "the other rope layout, partial": ("llama-part-of-the-head-turns", {"interleaved": False}),
    "no QK-norm": ("qwen3", {"qk_norm": False}),
    "no biases (qwen2)": ("qwen2", {"biases": False}),
    "no biases (llama)": ("llama-one-bias", {"biases": False}),
    "no frequency factors": ("llama-factors", {"factors": False}),
    "no linear scaling": ("llama-linear", {"scaling": False}),
    "no yarn": ("qwen2-yarn", {"scaling": False}),
    "heads that share keys in turn": ("llama", {"shared": False}),
    "no causal mask": ("llama", {"causal": False}),
}


@pytest.mark.parametrize("name", WRONG)
def test_the_comparison_notices(name: str, folder: Path) -> None:
    """One thing done wrong is far outside the tolerances above."""
    model, wrong = WRONG[name]
    got, right, wrongly = both(folder, model, {}, wrong)
    assert error(got, right) < 1e-3
    assert error(got, wrongly) > 0.3


def test_the_tied_embedding_is_the_output(tmp_path: Path) -> None:
    tied = write_model(tmp_path / "tied.gguf", replace(QWEN3, tied=True, weights=T.Q8_0))
    with GGUFFile.open(tied.path) as file:
        graph = define(file).graph
    head = next(node for node in graph.nodes if node.name == "lm_head")
    assert graph.buffer(head.inputs[1]).name == "token_embd.weight"


def test_two_splits_of_attention(tmp_path: Path) -> None:
    """More than 256 positions, where partial softmaxes are merged."""
    tiny = write_model(tmp_path / "tiny.gguf", replace(QWEN3, n_layers=1, n_embd=32, n_ff=32))
    tokens = random_tokens(4, 264, tiny.spec.n_vocab)
    got, want = logits_of(tiny.path, tokens, kernels="reference"), Truth(tiny).logits(tokens)
    assert error(got, want) < 1e-3
    assert quietest_row(got[256:], want[256:]) < 1e-6


def test_greedy_tokens_are_the_argmax(tmp_path: Path) -> None:
    tiny = write_model(tmp_path / "tiny.gguf", QWEN3)
    tokens = random_tokens(5, 9, tiny.spec.n_vocab)
    with engine_for(tiny.path, kernels="reference") as engine:
        result = engine.step([SequenceChunk(engine.open_sequence(), 0, tokens, logits_indices=(8, 0, 4))])
        want = Truth(tiny).logits(tokens)[[8, 0, 4]]
        assert error(result.logits, want) < 1e-3
        assert result.tokens.tolist() == want.argmax(axis=1).tolist()
