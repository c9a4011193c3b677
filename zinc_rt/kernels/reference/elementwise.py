"""Kernels that touch each element once."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.checks import as_f32, same_length
from zinc_rt.kernels.reference.mathfn import sigmoid, silu


def swiglu_rows(gate: F32, up: F32) -> F32:
    """silu(gate) * up, each operation rounded once."""
    with np.errstate(all="ignore"):
        return silu(gate) * up


def add_rows(a: F32, b: F32) -> F32:
    """a + b, with b broadcast over the rows of a (residual addition, bias)."""
    with np.errstate(all="ignore"):
        return a + b


def swiglu(gate: npt.ArrayLike, up: npt.ArrayLike, output: F32) -> None:
    """output = silu(gate) * up. Raises `EmptyInput`, `ShapeMismatch`."""
    g, u = as_f32("swiglu", gate=gate, up=up)
    same_length("swiglu", gate=g, up=u, output=output)
    output[...] = swiglu_rows(g, u)


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
