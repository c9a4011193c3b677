"""Layer norm: rows with mean 0 and variance 1, times a weight, plus a bias."""

from __future__ import annotations

import numpy as np

from zinc_rt.ir.definition import EPS, FLOAT32, ROW, OpDefinition, Operands, OpSignature, activation, weight
from zinc_rt.ir.op import Op
from zinc_rt.kernels.reference.arith import F32, fma_chain, fold_lanes
from zinc_rt.numerics import NORM_LANES


def _lanes(x: F32) -> F32:
    """Rows f32[rows, n] as f32[steps, 256, rows]; missing elements are 0."""
    rows, n = x.shape
    out = np.zeros((n + -n % NORM_LANES, rows), np.float32)
    out[:n] = x.T
    return out.reshape(-1, NORM_LANES, rows)


def layer_norm_rows(x: F32, weight: F32, bias: F32, eps: float) -> F32:
    """Norm over the last axis: f32[..., n] with f32[n] and f32[n].

    mean = sum / n, d = x - mean, scale = 1 / sqrt(sum of d^2 / n + eps), ((d * scale) * weight) + bias. Both sums are
    over 256 lanes, lane l chains elements l, l + 256, ..., then pairwise at distance 128 ... 1; the first chain adds,
    the second is fma(d, d, acc).
    """
    n = x.shape[-1]
    with np.errstate(all="ignore"):
        flat = np.ascontiguousarray(x.reshape(-1, n))
        sums = np.zeros((NORM_LANES, len(flat)), np.float32)
        for part in _lanes(flat):
            sums = sums + part
        mean = fold_lanes(sums, NORM_LANES) / np.float32(n)
        d = flat - mean[:, None]
        chains = _lanes(d)
        total = fold_lanes(fma_chain(chains, chains), NORM_LANES)
        scale = np.float32(1.0) / np.sqrt(total / np.float32(n) + np.float32(eps))
        return np.asarray(((d * scale[:, None]) * weight) + bias).reshape(x.shape)


def _layer_norm(at: Operands) -> None:
    x, w, b = at.inputs
    at.outputs[0][...] = layer_norm_rows(x.reshape(len(x), -1), w, b, float(at.attrs["eps"])).reshape(
        at.outputs[0].shape
    )


OPS = (
    OpDefinition(
        Op.LAYER_NORM,
        OpSignature(
            (ROW, weight("weight", "n", dtypes=FLOAT32), weight("bias", "n", dtypes=FLOAT32)),
            (activation("y", "R", "n"),),
            {"eps": EPS},
        ),
        reference=_layer_norm,
        # Sum, difference, square and its sum, scale, weight, bias; per row two divisions, eps, a root, a reciprocal.
        operations=lambda cost: 7 * cost.elements(0) + 5 * cost.dim(0, 0),
    ),
)
