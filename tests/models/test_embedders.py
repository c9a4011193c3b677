"""Embedders against float64 formulas written without the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from tests.helpers import random_tokens, soon
from tests.models.families.build import N_VOCAB, write_case
from tests.models.families.common import Net
from tests.models.families.embedders import EMBEDDERS, vector
from zinc_rt.engine.batch import EngineError
from zinc_rt.errors import UsageError

KINDS = ("bert-mean", "gemma-embedding", "jina-bert-v2", "qwen3-embedding")
"""Learned positions; windows both ways; slopes by distance; a decoder. The others are slow, but for vectors."""


@pytest.mark.parametrize("name", soon(KINDS, EMBEDDERS))
def test_the_formulas_notice(name: str, tmp_path: Path) -> None:
    """One thing done wrongly turns the vector far from where it belongs."""
    case = EMBEDDERS[name]
    made = write_case(tmp_path / "model.gguf", case)
    tokens = random_tokens(5, case.n_tokens, N_VOCAB - 2)
    want = vector(Net(made), tokens)
    assert abs(np.linalg.norm(want) - 1) < 1e-12
    for what in case.wrong:
        net = Net(made, wrong=[what])
        assert np.linalg.norm(vector(net, tokens) - want) > 0.03, what
        assert not net.unasked(), what


def texts_of(name: str) -> list[list[int]]:
    return [random_tokens(seed, n, N_VOCAB - 2) for seed, n in ((5, EMBEDDERS[name].n_tokens), (6, 1), (7, 33))]


@pytest.mark.parametrize("name", EMBEDDERS)
def test_vectors(name: str, tmp_path: Path) -> None:
    """Near the formulas' vector."""
    made, texts = write_case(tmp_path / "model.gguf", EMBEDDERS[name]), texts_of(name)
    want = np.stack([vector(Net(made), tokens) for tokens in texts])
    with zinc_rt.load(made.path, device="cpu", kernels="reference") as model:
        assert np.abs(model.embed(texts) - want).max() < 1e-3


@pytest.mark.parametrize("name", soon(("bert-mean",), EMBEDDERS))
def test_on_the_cpu(name: str, tmp_path: Path) -> None:
    """Equal to the reference, alone or beside other texts. `tests/kernels/test_encoder.py` has the others' kernels."""
    made, texts = write_case(tmp_path / "model.gguf", EMBEDDERS[name]), texts_of(name)
    with zinc_rt.load(made.path, device="cpu", kernels="reference") as model:
        got = model.embed(texts)
    with zinc_rt.load(made.path, device="cpu") as model:
        with pytest.raises(UsageError, match="embeddings=False" if name.startswith("qwen3") else "generates none"):
            model.logits(texts[0])
        assert (model.embed(texts) == got).all()
        assert (np.concatenate([model.embed([tokens]) for tokens in texts]) == got).all()


LARGE = (
    "nomic-bert",
    "gemma-embedding",
    "jina-bert-v2",
    "jina-bert-v2-code",
    "jina-bert-v3",
    "modern-bert",
    "nomic-bert-moe",
)
"""`tests/kernels/test_encoder.py` tries their kernels."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow) for n in ("bert-mean", *LARGE)])
def test_the_emulated_gpu(name: str, tmp_path: Path) -> None:
    made = write_case(tmp_path / "model.gguf", EMBEDDERS[name])
    texts = [random_tokens(5, 9, N_VOCAB - 2), random_tokens(6, 3, N_VOCAB - 2)]
    with zinc_rt.load(made.path, device="cpu") as model, zinc_rt.load(made.path, device="emu") as gpu:
        assert (gpu.embed(texts) == model.embed(texts)).all()


@pytest.mark.slow
def test_blocks_in_the_cache_of_rows_that_see_both_ways(tmp_path: Path) -> None:
    """Q8_0 under windows of rows before and behind: near the formulas, nearer than a wrong window, equal everywhere."""
    heads = {"q.weight": (192, 64), "k.weight": (64, 64), "v.weight": (64, 64), "output.weight": (64, 192)}
    norms = {"q_norm.weight": (32,), "k_norm.weight": (32,)}
    narrow = EMBEDDERS["gemma-embedding"]
    shapes = {f"blk.{i}.attn_{part}": shape for i in range(7) for part, shape in (heads | norms).items()}
    keys = {"attention.key_length": 32, "attention.value_length": 32}
    made = write_case(
        tmp_path / "m.gguf", replace(narrow, keys={**narrow.keys, **keys}, shapes={**narrow.shapes, **shapes})
    )
    texts = [random_tokens(5, 14, N_VOCAB - 2), random_tokens(6, 3, N_VOCAB - 2)]
    want = np.stack([vector(Net(made), tokens) for tokens in texts])
    wrong = vector(Net(made, wrong=["window"]), texts[0])
    got = {}
    for device, kernels in (("cpu", "reference"), ("cpu", "native"), ("emu", None)):
        with zinc_rt.load(made.path, device=device, kernels=kernels, kv="q8_0") as model:
            got[device, kernels] = model.embed(texts)
    first, *others = got.values()
    for other in others:
        assert (other == first).all()
    with zinc_rt.load(made.path, device="cpu", kernels="reference") as model:
        assert (model.embed(texts) != first).any()
    off = np.linalg.norm(first - want, axis=1)
    assert off.max() < 0.02
    assert 4 * off[0] < np.linalg.norm(first[0] - wrong)


def test_a_text_or_a_context_beyond_the_learned_positions(tmp_path: Path) -> None:
    made = write_case(tmp_path / "model.gguf", EMBEDDERS["bert-mean"])
    with pytest.raises(UsageError, match=r"the model has learned 64 positions; give a context \(n_ctx, -c\) of 64"):
        zinc_rt.load(made.path, device="cpu", kernels="reference", n_ctx=65)
    with zinc_rt.load(made.path, device="cpu", kernels="reference", n_batch=8) as model:
        with pytest.raises(EngineError, match=r"a step holds 8; .* larger batch \(n_batch, -b\)"):
            model.embed([[1] * 9])
        with pytest.raises(EngineError, match=r"text 1 has 65 tokens"):
            model.embed([[1], [1] * 65])
    with pytest.raises(UsageError, match=r"cannot generate any; use `zinc embed`"):
        zinc_rt.load(made.path, embeddings=False)
