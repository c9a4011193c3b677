"""Rotary position embedding."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.reference.arith import F32


def rope_table(positions: npt.NDArray[np.integer], inv_freq: npt.ArrayLike, magnitude: float = 1.0) -> F32:
    """cos and sin of position * inv_freq, computed in float64 and rounded once: f32[n, n_pairs, 2].

    inv_freq: radians per position for each pair. magnitude: factor on both (YaRN's attention scaling).
    """
    angles = np.asarray(positions, np.float64)[:, None] * np.asarray(inv_freq, np.float64)[None, :]
    return np.stack([np.cos(angles) * magnitude, np.sin(angles) * magnitude], axis=-1).astype(np.float32)


def rope_rows(x: F32, table: F32, *, interleaved: bool) -> F32:
    """Rotate the first 2 * n_pairs elements of each head; the rest passes through.

    x: f32[n, heads, head_dim]; table: f32[n, n_pairs, 2], the rows of `rope_table` for each x row.
    interleaved: pairs are (2i, 2i + 1) (the `llama` layout), otherwise (i, i + n_pairs) (NeoX halves).
    Each output is two rounded products and one rounded sum: a*cos - b*sin, a*sin + b*cos.
    """
    pairs = table.shape[1]
    first, second = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(0, pairs), slice(pairs, 2 * pairs))
    )
    cos, sin = table[:, None, :, 0], table[:, None, :, 1]
    out = x.copy()
    with np.errstate(all="ignore"):
        a, b = x[:, :, first], x[:, :, second]
        out[:, :, first] = a * cos - b * sin
        out[:, :, second] = a * sin + b * cos
    return out
