"""Operations on each element: residual additions, biases, products, gates."""

from __future__ import annotations

import numpy as np

from zinc_rt.ir.definition import FLOAT32, ROW, OpDefinition, Operands, OpSignature, activation, weight
from zinc_rt.ir.op import Op
from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.mathfn import sigmoid, silu


def swiglu_rows(gate: F32, up: F32) -> F32:
    """silu(gate) * up, each operation rounded once."""
    with np.errstate(all="ignore"):
        return silu(gate) * up


def add_rows(a: F32, b: F32) -> F32:
    """a + b, with b broadcast over the rows of a (residual addition, bias)."""
    with np.errstate(all="ignore"):
        return a + b


def _add(at: Operands) -> None:
    at.outputs[0][...] = add_rows(at.inputs[0], at.inputs[1])


def _swiglu(at: Operands) -> None:
    at.outputs[0][...] = swiglu_rows(at.inputs[0], at.inputs[1])


def _sigmoid_mul(at: Operands) -> None:
    x, gate = at.inputs
    with np.errstate(all="ignore"):
        at.outputs[0][...] = x * sigmoid(gate).reshape(x.shape)


def _mul(at: Operands) -> None:
    a, b = at.inputs
    with np.errstate(all="ignore"):
        at.outputs[0][...] = a * b.reshape(a.shape)


_Y = activation("y", "R", "n")

OPS = (
    OpDefinition(
        Op.RESIDUAL_ADD,
        OpSignature((activation("a", "R", "n"), activation("b", "R", "n")), (_Y,)),
        reference=_add,
        operations=lambda cost: cost.elements(0),
        either_rows=True,
    ),
    OpDefinition(
        Op.BIAS_ADD,
        OpSignature((ROW, weight("bias", "n", dtypes=FLOAT32)), (_Y,)),
        reference=_add,
        operations=lambda cost: cost.elements(0),
        either_rows=True,
    ),
    OpDefinition(
        Op.SWIGLU,
        OpSignature((activation("gate", "R", "n"), activation("up", "R", "n")), (_Y,)),
        reference=_swiglu,
        # gate / (1 + exp(-gate)) * up; turning a sign is no operation.
        operations=lambda cost: 4 * cost.elements(0),
    ),
    OpDefinition(
        Op.SIGMOID_MUL,
        OpSignature((ROW, activation("gate", "R", "n")), (_Y,)),
        reference=_sigmoid_mul,
        # x * (1 / (1 + exp(-gate)))
        operations=lambda cost: 4 * cost.elements(0),
    ),
    OpDefinition(
        Op.MUL,
        OpSignature((activation("a", "R", "n"), activation("b", "R", "n")), (_Y,)),
        reference=_mul,
        operations=lambda cost: cost.elements(0),
        either_rows=True,
    ),
)
