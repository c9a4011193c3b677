"""Operations of encoders, in place of an RMS norm, a gate and a rotation: layer norm, GELU, learned positions."""

from __future__ import annotations

import numpy as np

from zinc_rt.ir.definition import (
    EPS,
    FLOAT32,
    ROW,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    activation,
    flat,
    index,
    weight,
)
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.norms import lanes_of
from zinc_rt.kernels.reference.arith import F32, fma_chain, fold_lanes
from zinc_rt.kernels.reference.mathfn import gelu, gelu_quick
from zinc_rt.numerics import NORM_LANES


def layer_norm_rows(x: F32, weight: F32, bias: F32, eps: float) -> F32:
    """Norm of rows f32[rows, n] with f32[n] and f32[n].

    mean = sum / n, d = x - mean, scale = 1 / sqrt(sum of d^2 / n + eps), ((d * scale) * weight) + bias. Both sums are
    over 256 lanes, lane l chains elements l, l + 256, ..., then pairwise at distance 128 ... 1; the first chain adds,
    the second is fma(d, d, acc).
    """
    n = np.float32(x.shape[-1])
    with np.errstate(all="ignore"):
        sums = np.zeros((NORM_LANES, len(x)), np.float32)
        for part in lanes_of(x):
            sums = sums + part
        d = x - (fold_lanes(sums, NORM_LANES) / n)[:, None]
        chains = lanes_of(d)
        total = fold_lanes(fma_chain(chains, chains), NORM_LANES)
        scale = np.float32(1.0) / np.sqrt(total / n + np.float32(eps))
        return np.asarray(((d * scale[:, None]) * weight) + bias)


def _layer_norm(at: Operands) -> None:
    x, w, b = at.inputs
    flat(at.outputs[0])[...] = layer_norm_rows(flat(x), w, b, float(at.attrs["eps"]))


def _gelu(at: Operands) -> None:
    with np.errstate(all="ignore"):
        form = gelu_quick if at.attrs["quick"] else gelu
        flat(at.outputs[0])[...] = form(flat(at.inputs[0]))


def _add_position(at: Operands) -> None:
    x, positions, table = at.inputs
    with np.errstate(all="ignore"):
        flat(at.outputs[0])[...] = flat(x) + table[positions]


_Y = activation("y", "R", "n")

OPS = (
    OpDefinition(
        Op.LAYER_NORM,
        OpSignature(
            (ROW, weight("weight", "n", dtypes=FLOAT32), weight("bias", "n", dtypes=FLOAT32)), (_Y,), {"eps": EPS}
        ),
        reference=_layer_norm,
        # Sum, difference, square and its sum, scale, weight, bias; per row two divisions, eps, a root, a reciprocal.
        operations=lambda cost: 7 * cost.elements(0) + 5 * cost.dim(0, 0),
    ),
    OpDefinition(
        Op.GELU,
        # quick: x * sigmoid(1.702 x) in place of the form with tanh.
        OpSignature((ROW,), (_Y,), {"quick": AttrSpec(bool, default=False)}),
        reference=_gelu,
        # x^2, its factor and sum, times x, and x / (1 + exp).
        operations=lambda cost: 8 * cost.elements(0),
    ),
    OpDefinition(
        Op.ADD_POSITION,
        OpSignature((ROW, index("positions", "R"), weight("table", "C", "n", dtypes=FLOAT32)), (_Y,)),
        reference=_add_position,
        operations=lambda cost: cost.elements(0),
        touched=lambda cost: (cost.bytes_in(0, 1) + cost.dim(1, 0) * cost.row_bytes(2), cost.bytes_out()),
    ),
)
