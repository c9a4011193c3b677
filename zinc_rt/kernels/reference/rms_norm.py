"""RMS norm, plain and with the residual addition in front."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.reference.arith import F32, fma_chain, fold_lanes
from zinc_rt.kernels.reference.checks import as_f32, same_length
from zinc_rt.kernels.reference.elementwise import add_rows
from zinc_rt.numerics import NORM_LANES


def rms_norm_rows(x: F32, weight: F32, eps: float) -> F32:
    """Norm over the last axis: f32[..., n] with f32[n].

    256 lanes, lane l chains fma(x, x, acc) over l, l + 256, ...; pairwise at distance 128 ... 1; then
    (x * (1 / sqrt(sum / n + eps))) * weight.
    """
    n = x.shape[-1]
    with np.errstate(all="ignore"):
        flat = x.reshape(-1, n)
        if n > NORM_LANES:
            # A missing element changes nothing: fma(0, 0, acc) = acc.
            chains = np.zeros((n + -n % NORM_LANES, flat.shape[0]), np.float32)
            chains[:n] = flat.T
            chains = chains.reshape(-1, NORM_LANES, flat.shape[0])
            lanes = fma_chain(chains, chains)
        else:
            lanes = (flat * flat).T  # a chain of one step
        total = fold_lanes(lanes, NORM_LANES)
        scale = np.float32(1.0) / np.sqrt(total / np.float32(n) + np.float32(eps))
        return np.asarray((flat * scale[:, None]) * weight).reshape(x.shape)


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
