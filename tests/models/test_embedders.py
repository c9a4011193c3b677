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
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define
from zinc_rt.models.errors import ModelError

WAITING = {
    "bert-first",
    "bert-mean",
    "gemma-embedding",
    "gemma-embedding-dense",
    "nomic-bert",
}
"""Embedders that are refused so far."""


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


@pytest.mark.parametrize("name", sorted(WAITING))
def test_what_waits_is_refused(name: str, tmp_path: Path) -> None:
    """When this fails, the package has learnt the embedder: compare its vectors, and take its name off the list."""
    made = write_case(tmp_path / "model.gguf", EMBEDDERS[name])
    with GGUFFile.open(made.path) as file, pytest.raises(ModelError):
        define(file)


def test_nothing_embeds_yet() -> None:
    """When this fails, vectors can be had: compare those of every embedder with `vector`."""
    assert not hasattr(zinc_rt.Model, "embed")
