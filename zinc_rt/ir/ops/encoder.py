"""Layer norm, activations without a gate, learned positions: what encoders have, and decoders of their kind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from zinc_rt import numerics
from zinc_rt.ir.definition import (
    EPS,
    FLOAT32,
    HEAD_ROW,
    HEADS,
    ROW,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    activation,
    flat,
    heads,
    index,
    weight,
)
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.norms import lanes_of
from zinc_rt.kernels.reference.arith import F32, fma_chain, fold_lanes
from zinc_rt.kernels.reference.mathfn import gelu, gelu_quick, relu2, xielu
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
    eps = float(at.attrs["eps"])
    if "head_dim" not in at.attrs:
        flat(at.outputs[0])[...] = layer_norm_rows(flat(x), w, b, eps)
        return
    by_head, y = heads(at, x), heads(at, at.outputs[0])
    for head in range(by_head.shape[1]):
        y[:, head] = layer_norm_rows(by_head[:, head], w[head], b[head], eps)


XIELU: Final = ("alpha_p", "alpha_n", "beta", "eps")
"""The numbers of "xielu", in the order in which kernels take them."""


def activated_rows(x: F32, attrs: Mapping[str, Any]) -> F32:
    """activation(x), each operation rounded once; attrs: of `Op.ACTIVATE`, defaults included."""
    with np.errstate(all="ignore"):
        if attrs["activation"] == "xielu":
            return xielu(x, *(float(attrs[name]) for name in XIELU))
        return {"gelu": gelu, "gelu_quick": gelu_quick, "relu2": relu2}[attrs["activation"]](x)


def _activate(at: Operands) -> None:
    flat(at.outputs[0])[...] = activated_rows(flat(at.inputs[0]), at.attrs)


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
        operations=lambda cost: 7 * cost.elements(0) + 5 * cost.dim(0, 0) * int(cost.attrs.get("n_heads", 1)),
        variants=(
            OpSignature(
                (HEAD_ROW, *(weight(name, "n_heads", "head_dim", dtypes=FLOAT32) for name in ("weight", "bias"))),
                (activation("y", "R", "n_heads", "head_dim"),),
                {"eps": EPS, **HEADS},
            ),
        ),
    ),
    OpDefinition(
        Op.ACTIVATE,
        OpSignature(
            (ROW,),
            (_Y,),
            {
                "activation": AttrSpec(str, one_of=numerics.UNGATED),
                **{name: AttrSpec(float, default=0.0) for name in XIELU},
            },
        ),
        reference=_activate,
        # Of gelu: x^2, its factor and sum, times x, and x / (1 + exp); the others take about as many, or fewer.
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
