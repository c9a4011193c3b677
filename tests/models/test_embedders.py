"""Embedders against float64 formulas written without the package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from tests.helpers import random_tokens
from tests.models.families.build import N_VOCAB, write_case
from tests.models.families.common import Net
from tests.models.families.embedders import EMBEDDERS, vector


@pytest.mark.parametrize("name", EMBEDDERS)
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


@pytest.mark.parametrize("name", EMBEDDERS)
def test_vectors(name: str, tmp_path: Path) -> None:
    """Near the formulas' vector, equal on the CPU, alone or beside other texts."""
    made = write_case(tmp_path / "model.gguf", EMBEDDERS[name])
    texts = [random_tokens(seed, n, N_VOCAB - 2) for seed, n in ((5, EMBEDDERS[name].n_tokens), (6, 1), (7, 33))]
    want = np.stack([vector(Net(made), tokens) for tokens in texts])
    with zinc_rt.load(made.path, device="cpu", kernels="reference") as model:
        got = model.embed(texts)
    assert np.abs(got - want).max() < 1e-3
    with zinc_rt.load(made.path, device="cpu") as model:
        assert (model.embed(texts) == got).all()
        assert (np.concatenate([model.embed([tokens]) for tokens in texts]) == got).all()


@pytest.mark.parametrize("name", ["bert-mean", "nomic-bert", "gemma-embedding"])
def test_the_emulated_gpu(name: str, tmp_path: Path) -> None:
    made = write_case(tmp_path / "model.gguf", EMBEDDERS[name])
    texts = [random_tokens(5, 9, N_VOCAB - 2), random_tokens(6, 3, N_VOCAB - 2)]
    with zinc_rt.load(made.path, device="cpu") as model, zinc_rt.load(made.path, device="emu") as gpu:
        assert (gpu.embed(texts) == model.embed(texts)).all()
