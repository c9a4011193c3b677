"""Kernels of one row over those of many: argmax, SwiGLU, sums, norms and the rotation.

Operands are float32 or become it; results are written to arrays of the caller.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.ops.argmax import argmax_rows
from zinc_rt.ir.ops.elementwise import add_rows, gated_rows
from zinc_rt.ir.ops.norms import rms_norm_rows
from zinc_rt.ir.ops.rope import rope_rows, rope_table
from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.mathfn import sigmoid
from zinc_rt.seed.kernels.checks import as_f32, exact_length, same_length
from zinc_rt.seed.kernels.errors import ShapeMismatch


def argmax(logits: npt.ArrayLike, output: npt.NDArray[np.integer]) -> None:
    """The index of the largest logit of one row into output[0]. Raises `EmptyInput`, `ShapeMismatch`."""
    (row,) = as_f32("argmax", logits=logits)
    exact_length("argmax", "output", output, 1)
    output[...] = argmax_rows(row)


def swiglu(gate: npt.ArrayLike, up: npt.ArrayLike, output: F32) -> None:
    """output = silu(gate) * up. Raises `EmptyInput`, `ShapeMismatch`."""
    g, u = as_f32("swiglu", gate=gate, up=up)
    same_length("swiglu", gate=g, up=u, output=output)
    output[...] = gated_rows(g, u, {"activation": "silu"})


def sigmoid_mul(gate: npt.ArrayLike, x: npt.ArrayLike, output: F32) -> None:
    """output = sigmoid(gate) * x. Raises `EmptyInput`, `ShapeMismatch`."""
    g, v = as_f32("sigmoid_mul", gate=gate, x=x)
    same_length("sigmoid_mul", gate=g, x=v, output=output)
    with np.errstate(all="ignore"):
        output[...] = sigmoid(g) * v


def vadd(a: npt.ArrayLike, b: npt.ArrayLike, output: F32) -> None:
    """output = a + b. Raises `EmptyInput`, `ShapeMismatch`."""
    x, y = as_f32("vadd", a=a, b=b)
    same_length("vadd", a=x, b=y, output=output)
    output[...] = add_rows(x, y)


def rms_norm(input: npt.ArrayLike, weight: npt.ArrayLike, output: F32, eps: float) -> None:
    """One row into `output`. Raises `EmptyInput`, `ShapeMismatch`."""
    x, w = as_f32("rms_norm", input=input, weight=weight)
    same_length("rms_norm", input=x, weight=w, output=output)
    output[...] = rms_norm_rows(x, w, eps)


def residual_rms_norm(
    x: npt.ArrayLike,
    residual: npt.ArrayLike,
    weight: npt.ArrayLike,
    output: F32,
    eps: float,
    sum_output: F32 | None = None,
) -> None:
    """One row: x + residual (kept in `sum_output` when given), then its norm. Raises `EmptyInput`, `ShapeMismatch`."""
    a, b, w = as_f32("residual_rms_norm", x=x, residual=residual, weight=weight)
    same_length("residual_rms_norm", x=a, residual=b, weight=w, output=output)
    total = add_rows(a, b)
    if sum_output is not None:
        same_length("residual_rms_norm", x=a, sum_output=sum_output)
        sum_output[...] = total
    output[...] = rms_norm_rows(total, w, eps)


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
