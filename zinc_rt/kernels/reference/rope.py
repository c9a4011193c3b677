"""Rotary position embedding."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.errors import ShapeMismatch
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


def rope(
    data: F32,
    stride: int,
    rope_dim: int,
    n_heads: int,
    position: int,
    inv_freq: Sequence[float] | npt.ArrayLike,
) -> None:
    """NeoX half rotation of one row in place: head h starts at h * stride, its first `rope_dim` elements rotate.

    A missing inv_freq entry counts as 0, which leaves its pair as it is. Raises `ShapeMismatch`.
    """
    if rope_dim % 2 or rope_dim > stride or rope_dim < 0:
        raise ShapeMismatch(f"rope: rope_dim {rope_dim} must be even and at most the head stride {stride}")
    if data.ndim != 1 or data.size < stride * n_heads:
        raise ShapeMismatch(f"rope: data has {data.size} elements, {n_heads} heads of {stride} need {stride * n_heads}")
    freqs = np.zeros(rope_dim // 2)
    given = np.ravel(np.asarray(inv_freq, np.float64))[: freqs.size]
    freqs[: given.size] = given
    heads = data[: stride * n_heads].reshape(1, n_heads, stride)
    heads[...] = rope_rows(heads, rope_table(np.array([position]), freqs), interleaved=False)
