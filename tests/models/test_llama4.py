"""Texts of more than a chunk, which is 256 positions here instead of 8192."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.helpers import engine_for, logits_of, random_tokens, run_tokens
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, Made, write_case
from tests.models.families.common import Net
from tests.models.families.llama4 import forward
from tests.models.test_families import NOTICED, WHOLE
from tests.models.truth import error
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define, llama4

CHUNK = 256
TOKENS = random_tokens(7, CHUNK + 4, N_VOCAB - 2)


@pytest.fixture
def made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Made:
    monkeypatch.setattr(llama4, "CHUNK", CHUNK)
    return write_case(tmp_path / "m.gguf", CASES["llama4"])


def test_queries_of_the_second_chunk_are_larger(made: Made) -> None:
    with GGUFFile.open(made.path) as file:
        factors = define(file).constants["q_factors"](512)
    np.testing.assert_allclose(factors[[0, 254, 255, 510, 511]], 1 + 0.1 * np.log([1, 1, 2, 2, 3]), rtol=1e-7)


def test_a_second_chunk(made: Made) -> None:
    """From position 256 on most layers see nothing before it."""
    want = forward(Net(made), TOKENS, CHUNK)
    assert error(logits_of(made.path, TOKENS, n_ctx=512, kernels="reference"), want) < WHOLE
    assert error(forward(Net(made, wrong=["chunks"]), TOKENS, CHUNK)[CHUNK:], want[CHUNK:]) > NOTICED


def test_few_layers(tmp_path: Path) -> None:
    """Without a layer that sees all positions."""
    case = CASES["llama4"]
    shapes = {name: shape for name, shape in case.shapes.items() if not name.startswith(("blk.2", "blk.3"))}
    short = replace(case, keys={**case.keys, "block_count": 2}, shapes=shapes)
    made, tokens = write_case(tmp_path / "m.gguf", short), TOKENS[:9]
    got = logits_of(made.path, tokens, n_ctx=64, kernels="reference")
    assert error(got, Net(made).logits(tokens)) < WHOLE


@pytest.mark.slow
def test_pieces_on_the_cpu(made: Made) -> None:
    want = logits_of(made.path, TOKENS, n_ctx=512, kernels="reference").view(np.uint32)
    for chunk in (7, 131, len(TOKENS)):
        with engine_for(made.path, n_batch=chunk, n_ctx=512) as engine:
            got = run_tokens(engine, engine.open_sequence(), TOKENS, chunk)
        np.testing.assert_array_equal(got.view(np.uint32), want)
