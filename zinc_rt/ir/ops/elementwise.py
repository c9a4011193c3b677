"""Operations on each element: residual additions, biases, products, gates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from zinc_rt import numerics
from zinc_rt.ir.definition import (
    FLOAT32,
    HEADS,
    ROW,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    activation,
    flat,
    heads,
    weight,
)
from zinc_rt.ir.op import Op
from zinc_rt.ir.unify import Bindings
from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.mathfn import gelu, gelu_erf, gelu_quick, sigmoid, silu, times_sigmoid


def gated_rows(gate: F32, up: F32, attrs: Mapping[str, Any]) -> F32:
    """activation(gate) * up, each operation rounded once; attrs: `GATED`, of which "clamped" reads all, and
    "silu_clamped" and "clamped_silu" the limit.
    """
    with np.errstate(all="ignore"):
        if attrs["activation"] == "silu":
            return silu(gate) * up
        if attrs["activation"] == "gelu":
            return gelu(gate) * up
        if attrs["activation"] == "gelu_quick":
            return gelu_quick(gate) * up
        if attrs["activation"] == "relu":
            return np.where(gate < 0, np.float32(0.0), gate) * up
        if attrs["activation"] == "gelu_alone":
            return gelu(gate)
        if attrs["activation"] == "gelu_erf":
            return gelu_erf(gate) * up
        alpha, limit = np.float32(attrs["alpha"]), np.float32(attrs["limit"])
        if attrs["activation"] == "silu_clamped":
            return np.minimum(silu(gate), limit) * np.clip(up, -limit, limit)
        g, u = np.minimum(gate, limit), np.clip(up, -limit, limit)  # both keep NaN
        if attrs["activation"] == "clamped_silu":
            return silu(g) * u
        return times_sigmoid(g, g * alpha) * (u + np.float32(1.0))


def add_rows(a: F32, b: F32) -> F32:
    """a + b, with b broadcast over the rows of a (residual addition, bias)."""
    with np.errstate(all="ignore"):
        return a + b


def _add(at: Operands) -> None:
    at.outputs[0][...] = add_rows(at.inputs[0], at.inputs[1])


def _swiglu(at: Operands) -> None:
    gate, up = at.inputs
    start = int(at.attrs.get("up_start", 0))
    rows, whole = flat(gate), flat(up)
    part = whole[:, start : start + rows.shape[1]]
    at.outputs[0][...] = gated_rows(rows, part, at.attrs).reshape(at.outputs[0].shape)


def _part_fits(bound: Bindings) -> str | None:
    start, n, whole = (bound.value(name) for name in ("up_start", "n", "n_up"))
    if start is not None and n is not None and whole is not None and start + n > whole:
        return f"elements {start} to {start + n - 1} of up are wanted, it has {whole}"
    return None


GATED: Mapping[str, AttrSpec] = {
    "activation": AttrSpec(str, default="silu", one_of=numerics.ACTIVATIONS),
    "alpha": AttrSpec(float, default=numerics.CLAMP_ALPHA),
    "limit": AttrSpec(float, default=numerics.CLAMP_LIMIT, at_least=0.0),
}
"""What a gate goes through: the activation, and the two numbers of "clamped"."""


def _beside(at: Operands, factors: F32) -> tuple[F32, F32]:
    """Rows and their factors in shapes that fit: one for each element, or for each head."""
    x = at.inputs[0]
    return (heads(at, x), factors[..., None]) if "head_dim" in at.attrs else (x, factors.reshape(x.shape))


def _sigmoid_mul(at: Operands) -> None:
    x, gate = _beside(at, sigmoid(at.inputs[1]))
    with np.errstate(all="ignore"):
        at.outputs[0][...] = (x * gate).reshape(at.outputs[0].shape)


def _mul(at: Operands) -> None:
    a, b = _beside(at, at.inputs[1])
    with np.errstate(all="ignore"):
        at.outputs[0][...] = (a * b).reshape(at.outputs[0].shape)


def _by_head(first: str, second: str) -> OpSignature:
    """The variant with a factor for each head of a row."""
    rows, factors = activation(first, "R", "n_heads", "head_dim"), activation(second, "R", "n_heads")
    return OpSignature((rows, factors), (activation("y", "R", "n_heads", "head_dim"),), HEADS)


_Y = activation("y", "R", "n")
_GATE = activation("gate", "R", "n")

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
        OpSignature((_GATE, activation("up", "R", "n")), (_Y,), GATED),
        reference=_swiglu,
        # gate / (1 + exp(-gate)) * up; turning a sign is no operation.
        operations=lambda cost: 4 * cost.elements(0),
        # Elements of up from one on: what layers read of one buffer that is made for all of them.
        variants=(
            OpSignature(
                (_GATE, activation("up", "R", "n_up")),
                (_Y,),
                {**GATED, "up_start": AttrSpec(int, at_least=0)},
                (_part_fits,),
            ),
        ),
    ),
    OpDefinition(
        Op.SIGMOID_MUL,
        OpSignature((ROW, activation("gate", "R", "n")), (_Y,)),
        reference=_sigmoid_mul,
        # x * (1 / (1 + exp(-gate)))
        operations=lambda cost: cost.elements(0) + 3 * cost.elements(1),
        variants=(_by_head("x", "gate"),),
    ),
    OpDefinition(
        Op.MUL,
        OpSignature((activation("a", "R", "n"), activation("b", "R", "n")), (_Y,)),
        reference=_mul,
        operations=lambda cost: cost.elements(0),
        variants=(_by_head("a", "b"),),
        either_rows=True,
    ),
)
