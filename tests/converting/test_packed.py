"""Weights of 8 bits and their scales, which are for blocks, rows, matrices, or all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.converting.folders import write_safetensors
from tests.converting.test_logits import FLOATS
from zinc_rt.converting.packed import packed
from zinc_rt.converting.safetensors import open_safetensors


@pytest.mark.parametrize(
    ("shape", "block"), [((2, 2, 2), (4, 6)), ((1,), None), ((2, 1, 1), None), ((2, 6), None), ((2, 6, 1), (4, 6))]
)
def test_scales(shape: tuple[int, ...], block: tuple[int, int] | None, tmp_path: Path) -> None:
    """Two matrices of 6 rows and 8 columns; any rows of them, in any order."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 127, (2, 6, 8)).astype(np.uint8)
    scales = np.ldexp(np.float32(1), rng.integers(-3, 4, shape))
    tensors = {
        "w": ("F8_E4M3", codes.shape, codes.tobytes()),
        "w_scale_inv": ("F32", shape, scales.tobytes()),
        "w.activation_scale": ("F32", (1,), bytes(4)),
    }
    write_safetensors(tmp_path / "m.safetensors", tensors)
    file, stored = open_safetensors(tmp_path / "m.safetensors")
    each = scales
    if shape == (2, 2, 2):
        each = scales.repeat(4, 1).repeat(6, 2)[:, :6, :8]
    elif shape == (2, 6):
        each = scales[..., None]
    want = np.float32(FLOATS[codes] * each).reshape(12, 8)
    (weights,) = packed(stored, block).values()
    assert (weights.dtype, weights.shape, weights.count(16)) == ("BF16", (2, 6, 8), 12)
    for rows in (slice(None), slice(5, 9), np.array([11, 0, 6])):
        got = weights.rows(rows, 16).view(np.uint16).astype(np.uint32) << 16
        np.testing.assert_array_equal(got.view(np.float32), want[rows])
    file.close()
