"""What the float16 cache costs: where float64 formulas see the keys and values that the package wrote, they agree.

The formulas of the other tests round keys and values themselves. One whose float32 sum lies beside the middle between
two float16 numbers falls to the other side there at times; nothing else keeps the package from float64.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from tests.helpers import logits_of, random_tokens
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, Made, write_case
from tests.models.families.common import Net, half
from tests.models.families.rankers import RANKERS, score
from zinc_rt.ir.ops import kv_cache

WITHIN = 5e-5
"""Of log-probabilities and scores, which float32 arithmetic moves by up to 1.4e-5 here."""


class Replayed(Net):
    """Formulas whose cache holds what was written. written: float32, in any order; halves of a key apart."""

    def __init__(self, made: Made, written: list[np.ndarray]) -> None:
        super().__init__(made)
        joined = [np.concatenate([a, b], -1) for a, b in pairwise(written) if a.shape[:2] == b.shape[:2]]
        self._written = [half(x) for x in (*written, *joined)]
        self.n_moved = 0

    def cached(self, x: np.ndarray) -> np.ndarray:
        own = half(x).reshape(len(x), -1, x.shape[-1])
        found = min((y for y in self._written if y.shape == own.shape), key=lambda y: float(np.abs(y - own).max()))
        moved = found != own
        self.n_moved += int(moved.sum())
        step = np.spacing(np.abs(own).astype(np.float16)).astype(np.float64)
        assert (
            np.abs(found - own)[moved] <= 1.001 * step[moved] + 3e-6
        ).all()  # to the neighbour, of sums near 0 further
        return found.reshape(x.shape)


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[np.ndarray]:
    """What is written into caches from here on."""
    rows, own = [], kv_cache.heads

    def noted(*arguments: object) -> np.ndarray:
        rows.append(np.array(own(*arguments)))  # type: ignore[arg-type]
        return rows[-1]

    monkeypatch.setattr(kv_cache, "heads", noted)
    return rows


def log_probabilities(x: np.ndarray) -> np.ndarray:
    x = x - x.max(axis=1, keepdims=True)
    return x - np.log(np.exp(x).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("name", ["deepseek32", "falcon", pytest.param("kimi-linear", marks=pytest.mark.slow)])
def test_nothing_but_the_cache(name: str, tmp_path: Path, written: list[np.ndarray]) -> None:
    """These are the ones that lie furthest from formulas which round by themselves: 2.1e-4, 4.2e-3 and 2.1e-4."""
    made = write_case(tmp_path / "model.gguf", CASES[name])
    tokens = random_tokens(5, made.case.n_tokens, N_VOCAB - 2)
    got = log_probabilities(logits_of(made.path, tokens, n_ctx=512, kernels="reference"))
    net = Replayed(made, written)
    assert np.abs(got - log_probabilities(net.logits(tokens))).max() < WITHIN
    assert 0 < net.n_moved < 100
    apart = np.abs(got - log_probabilities(Net(made).logits(tokens))).max()
    assert apart > 2 * WITHIN  # what moved is seen


@pytest.mark.slow
def test_scores(tmp_path: Path, written: list[np.ndarray]) -> None:
    made = write_case(tmp_path / "model.gguf", RANKERS["modern-bert-reranker-mean"])
    tokens = random_tokens(0, 24, N_VOCAB - 2)
    with zinc_rt.load(made.path, device="cpu", kernels="reference") as model:
        assert model.ranker is not None
        written.clear()
        (got,) = model.ranker.scores([tokens])
    assert abs(got - score(Replayed(made, written), tokens)) < WITHIN < abs(got - score(Net(made), tokens))
