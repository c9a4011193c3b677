"""RMS norm: of rows, of each head, and of rows with the residual addition in front."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from zinc_rt.ir.definition import (
    EPS,
    FLOAT32,
    HEAD_ROW,
    HEADS,
    ROW,
    OpDefinition,
    Operands,
    OpSignature,
    activation,
    heads,
    weight,
)
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.elementwise import add_rows
from zinc_rt.kernels.reference.arith import F32, fma_chain, fold_lanes
from zinc_rt.numerics import NORM_LANES

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView


def rms_norm_rows(x: F32, weight: F32 | None, eps: float) -> F32:
    """Norm over the last axis: f32[..., n] with f32[n], or without a weight.

    256 lanes, lane l chains fma(x, x, acc) over l, l + 256, ...; pairwise at distance 128 ... 1; then
    (x * (1 / sqrt(sum / n + eps))) * weight.
    """
    n = x.shape[-1]
    with np.errstate(all="ignore"):
        flat = x.reshape(-1, n)
        scale = np.float32(1.0) / np.sqrt(square_sums(flat) / np.float32(n) + np.float32(eps))
        y = flat * scale[:, None]
        return np.asarray(y if weight is None else y * weight).reshape(x.shape)


def product_sums(x: F32, y: F32) -> F32:
    """The sum of products of each two rows of f32[rows, n], by the norm's tree: f32[rows]. No product is -0.0 alone."""
    with np.errstate(all="ignore"):
        if x.shape[-1] <= NORM_LANES:
            return fold_lanes((x * y + np.float32(0.0)).T, NORM_LANES)  # chains of one step from +0.0
        return fold_lanes(fma_chain(lanes_of(x), lanes_of(y)), NORM_LANES)


def lanes_of(x: F32) -> F32:
    """Rows f32[rows, n] as f32[steps, NORM_LANES, rows]; missing elements are 0: fma(0, 0, acc) = acc."""
    rows, n = x.shape
    steps = -(-n // NORM_LANES)
    out = np.zeros((steps * NORM_LANES, rows), np.float32)
    out[:n] = x.T
    return out.reshape(steps, NORM_LANES, rows)


def square_sums(x: F32) -> F32:
    """The sum of squares of each row of f32[rows, n], by the norm's tree: f32[rows]."""
    with np.errstate(all="ignore"):
        if x.shape[-1] > NORM_LANES:
            chains = lanes_of(x)
            lanes = fma_chain(chains, chains)
        else:
            lanes = (x * x).T  # a chain of one step
        return fold_lanes(lanes, NORM_LANES)


def _rms_norm(at: Operands) -> None:
    (x, *weight), y = at.inputs, at.outputs[0]
    if "head_dim" in at.attrs:
        x, y = heads(at, x), heads(at, y)
    y[...] = rms_norm_rows(x, weight[0] if weight else None, float(at.attrs["eps"]))


def _residual_rms_norm(at: Operands) -> None:
    (x, residual, w), (total, y) = at.inputs, at.outputs
    total[...] = add_rows(x, residual)
    y[...] = rms_norm_rows(total, w, float(at.attrs["eps"]))


def _operations(elements: int, rows: int) -> int:
    """Square, add, times scale, times weight; per row a division, an addition, a root and a reciprocal."""
    return 4 * elements + 4 * rows


def _norm_operations(cost: CostView) -> int:
    elements, rows = cost.elements(0), cost.dim(0, 0)
    if "head_dim" in cost.attrs:
        rows *= cost.attr("n_heads")
    return _operations(elements, rows) - (elements if len(cost.inputs) == 1 else 0)


_WEIGHT = weight("weight", "n", dtypes=FLOAT32)

OPS = (
    OpDefinition(
        Op.RMS_NORM,
        OpSignature((ROW, replace(_WEIGHT, optional=True)), (activation("y", "R", "n"),), {"eps": EPS}),
        reference=_rms_norm,
        operations=_norm_operations,
        variants=(
            OpSignature(
                (HEAD_ROW, replace(weight("weight", "head_dim", dtypes=FLOAT32), optional=True)),
                (activation("y", "R", "n_heads", "head_dim"),),
                {"eps": EPS, **HEADS},
            ),
        ),
    ),
    OpDefinition(
        Op.RESIDUAL_RMS_NORM,
        OpSignature(
            (ROW, activation("residual", "R", "n"), _WEIGHT),
            (activation("sum", "R", "n"), activation("normed", "R", "n")),
            {"eps": EPS},
        ),
        reference=_residual_rms_norm,
        operations=lambda cost: cost.elements(0) + _operations(cost.elements(0), cost.dim(0, 0)),
    ),
)
