"""Rows times a number, held under a bound or between two, or times a number of their position."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zinc_rt.ir.definition import (
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
from zinc_rt.ir.graph import DType
from zinc_rt.ir.op import Op
from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.mathfn import tanh

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView


def softcap_rows(x: F32, cap: float) -> F32:
    """cap * tanh(x / cap), each operation rounded once."""
    limit = np.float32(cap)
    with np.errstate(all="ignore"):
        return np.asarray(limit * tanh(x / limit))


def _scale(at: Operands) -> None:
    with np.errstate(all="ignore"):
        at.outputs[0][...] = at.inputs[0] * np.float32(at.attrs["factor"])


def _softcap(at: Operands) -> None:
    at.outputs[0][...] = softcap_rows(at.inputs[0], float(at.attrs["cap"]))


def _clamp(at: Operands) -> None:
    x, low, high = at.inputs[0], np.float32(at.attrs["low"]), np.float32(at.attrs["high"])
    at.outputs[0][...] = np.where(x > high, high, np.where(x < low, low, x))


def _position_scale(at: Operands) -> None:
    x, positions, table = at.inputs
    with np.errstate(all="ignore"):
        at.outputs[0][...] = (flat(x) * table[positions][:, None]).reshape(at.outputs[0].shape)


def _position_scale_touched(cost: CostView) -> tuple[int, int]:
    return cost.bytes_in(0, 1) + cost.dim(1, 0) * DType.F32.row_bytes(1), cost.bytes_out()


_Y = activation("y", "R", "n")

OPS = (
    OpDefinition(
        Op.SCALE,
        OpSignature((ROW,), (_Y,), {"factor": AttrSpec(float)}),
        reference=_scale,
        operations=lambda cost: cost.elements(0),
        either_rows=True,
    ),
    OpDefinition(
        Op.SOFTCAP,
        OpSignature((ROW,), (_Y,), {"cap": AttrSpec(float, at_least=2.0**-126)}),
        reference=_softcap,
        # A division, (exp(2a) - 1) / (exp(2a) + 1) as one and a product.
        operations=lambda cost: 4 * cost.elements(0),
        either_rows=True,
    ),
    OpDefinition(
        Op.CLAMP,
        OpSignature((ROW,), (_Y,), {"low": AttrSpec(float), "high": AttrSpec(float)}),
        reference=_clamp,
        operations=lambda cost: 2 * cost.elements(0),
        either_rows=True,
    ),
    OpDefinition(
        Op.POSITION_SCALE,
        OpSignature((ROW, index("positions", "R"), weight("factors", "C", dtypes=FLOAT32)), (_Y,)),
        reference=_position_scale,
        operations=lambda cost: cost.elements(0),
        touched=_position_scale_touched,
    ),
)
