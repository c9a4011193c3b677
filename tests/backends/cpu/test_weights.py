"""Weights that are put into tiles piece by piece: the bits of whole matrices, and less of the file in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.helpers import T, logits_of, random_tokens
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, write_case
from zinc_rt.backends.cpu import weights


@pytest.mark.parametrize("family", ["qwen3moe", "qwen35"])
def test_pieces_make_the_same_tiles(tmp_path: Path, family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_case(tmp_path / "model.gguf", CASES[family], T.Q8_0).path
    tokens = random_tokens(5, 6, N_VOCAB - 2)
    seen: list[int] = []
    pieces = weights._pieces

    def counted(m: weights.Matrix, *rest: weights.Bytes) -> list[tuple[weights.Matrix, weights.Bytes, weights.Bytes]]:
        parts = list(pieces(m, *rest))
        seen.append(len(parts))
        assert sum(room.nbytes for _, _, room in parts) == m.n_bytes
        return parts

    monkeypatch.setattr(weights, "_pieces", counted)
    whole = logits_of(path, tokens)
    assert set(seen) == {1}
    monkeypatch.setattr(weights, "PART", 1)
    assert np.array_equal(logits_of(path, tokens), whole)
    assert max(seen) > 1
