"""Models that rank against float64 formulas written without the package."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from tests.helpers import random_tokens, soon
from tests.models.families.build import N_VOCAB, write_case
from tests.models.families.common import Net
from tests.models.families.rankers import RANKERS, score
from zinc_rt.models.errors import ModelError

LENGTHS = (24, 1, 33)


@pytest.mark.parametrize("name", soon(RANKERS.keys() - {"modern-bert-reranker-mean", "bert-reranker-first"}, RANKERS))
def test_scores(name: str, tmp_path: Path) -> None:
    """Near the formulas' scores, and the formulas notice mistakes."""
    case = RANKERS[name]
    made = write_case(tmp_path / "model.gguf", case)
    pairs = [random_tokens(seed, n, N_VOCAB - 2) for seed, n in enumerate(LENGTHS)]
    want = np.array([score(Net(made), tokens) for tokens in pairs])
    for what in case.wrong:
        net = Net(made, wrong=[what])
        assert abs(score(net, pairs[0]) - want[0]) > 0.02, what
        assert not net.unasked(), what
    with zinc_rt.load(made.path, device="cpu", kernels="reference") as model:
        assert model.ranker is not None
        got = model.ranker.scores(pairs)
    assert np.abs(got - want).max() < 1e-3


@pytest.mark.parametrize("name", soon(["bert-reranker"], RANKERS))
def test_on_the_cpu(name: str, tmp_path: Path) -> None:
    """Equal to the reference, alone or beside other pairs."""
    made = write_case(tmp_path / "model.gguf", RANKERS[name])
    pairs = [random_tokens(seed, n, N_VOCAB - 2) for seed, n in enumerate(LENGTHS)]
    with zinc_rt.load(made.path, device="cpu", kernels="reference") as model:
        assert model.ranker is not None
        got = model.ranker.scores(pairs)
    with zinc_rt.load(made.path, device="cpu") as model:
        assert model.ranker is not None
        assert (model.ranker.scores(pairs) == got).all()
        assert (np.concatenate([model.ranker.scores([pair]) for pair in pairs]) == got).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", RANKERS)
@pytest.mark.usefixtures("patience")
def test_the_emulated_gpu(name: str, tmp_path: Path) -> None:
    """Equal to the reference, a pair of several rows and one of a single row."""
    made = write_case(tmp_path / "model.gguf", RANKERS[name])
    pairs = [random_tokens(5, 9, N_VOCAB - 2), random_tokens(6, 1, N_VOCAB - 2)]
    scores = []
    for how in ({"device": "cpu", "kernels": "reference"}, {"device": "emu"}):
        with zinc_rt.load(made.path, **how) as model:
            assert model.ranker is not None
            scores.append(model.ranker.scores(pairs))
    assert (scores[0] == scores[1]).all()


def test_a_ranker_without_a_head(tmp_path: Path) -> None:
    """A file that says it ranks and has nothing to make scores with, or whose head has a wrong shape."""
    case = RANKERS["bert-reranker-short"]
    bare = {name: shape for name, shape in case.shapes.items() if not name.startswith("cls")}
    with pytest.raises(ModelError, match=r"neither cls.weight nor cls.output.weight"):
        zinc_rt.load(write_case(tmp_path / "bare.gguf", replace(case, shapes=bare)).path)
    odd = {**case.shapes, "cls.output.weight": (1, 95)}
    with pytest.raises(ModelError, match=r"tensor cls.output.weight has shape \[1, 95\]"):
        zinc_rt.load(write_case(tmp_path / "odd.gguf", replace(case, shapes=odd)).path)
