"""The rows of a step by their experts, on the emulated shader core."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels.gpu.stage import Stage
from zinc_rt.kernels.amd.catalogue import KERNELS
from zinc_rt.kernels.gpu.expert_lists import TILE_ROWS, tiles_of


def chosen(rng: np.random.Generator, n_rows: int, n_experts: int, k: int) -> np.ndarray:
    """Ids of k experts a row, ascending; the first experts are chosen by most, the last one by none."""
    weights = np.r_[np.arange(n_experts - 1, 0, -1.0) ** 2, 0.0]
    picks = [rng.choice(n_experts, k, replace=False, p=weights / weights.sum()) for _ in range(n_rows)]
    return np.sort(np.array(picks, np.int32), axis=1)


@pytest.mark.parametrize(("n_rows", "n_experts", "k"), [(150, 5, 2), (1, 9, 3), (64, 2, 1)])
def test_slots_and_tiles(gpu: Stage, rng: np.random.Generator, n_rows: int, n_experts: int, k: int) -> None:
    """Every pair has a slot, experts and rows ascend, and tiles have an expert's slots in order, none twice."""
    ids, n_pairs = chosen(rng, n_rows, n_experts, k), n_rows * k
    rows, places = (np.full(n_pairs + 1, 0xABCD, np.uint32) for _ in range(2))
    tiles = np.full((tiles_of(n_pairs, n_experts) + 1, 4), 0xABCD, np.uint32)
    gpu.run(KERNELS["expert_lists"], n_experts, ids, rows, places, tiles, n_pairs, k)
    assert (rows[-1], places[-1], tiles[-1].tolist()) == (0xABCD, 0xABCD, [0xABCD] * 4)
    order = np.argsort(ids.reshape(-1), kind="stable")
    assert (rows[:-1] == order // k).all()
    assert (places[:-1][order] == np.arange(n_pairs)).all()
    counts = np.bincount(ids.reshape(-1), minlength=n_experts)
    want = [
        (expert, start + done, min(TILE_ROWS, count - done))
        for expert, (start, count) in enumerate(zip(np.cumsum(counts) - counts, counts, strict=True))
        for done in range(0, count, TILE_ROWS)
    ]
    assert [tuple(tile) for tile in tiles[:-1, :3].tolist() if tile[2]] == want
