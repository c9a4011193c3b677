"""Mixture of experts: choosing experts for each row, their feed-forward, and the expert that all rows share.

In patterns E is the number of experts, k how many of them a row uses, F their width. Rows of chosen experts lie one
after another in increasing expert id: `[R, k, F]`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.definition import (
    ACTIVATION,
    COUNT,
    FLOAT32,
    INT32,
    READ_ONLY,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    Port,
    activation,
    experts,
    index,
)
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.elementwise import GATED, gated_rows
from zinc_rt.kernels.reference.arith import F32, fma_chain
from zinc_rt.kernels.reference.mathfn import sigmoid
from zinc_rt.kernels.reference.routing import choose_experts

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView
    from zinc_rt.ir.unify import Bindings

GATINGS = ("softmax", "sigmoid", "softmax_chosen", "sigmoid_chosen", "sparse_mixer", "sqrt_softplus")


def _gate_topk(at: Operands) -> None:
    attrs, given = dict(at.attrs), None
    logits, bias, scales = (*at.inputs, None, None)[:3]
    if attrs.pop("by_token", False):
        given, bias, scales = at.inputs[2][at.inputs[1]], None, None
    ids, weights = at.outputs
    ids[...], weights[...] = choose_experts(logits, bias=bias, expert_scale=scales, given=given, **attrs)


def _counts_fit(sizes: Bindings) -> str | None:
    """k of E experts in n_groups_used of n_groups groups."""
    e, k, groups, used = (sizes.value(name) for name in ("E", "k", "n_groups", "n_groups_used"))
    if e is None or k is None or groups is None or used is None:
        return None
    if e % groups or used > groups or k > e // groups * used:
        return f"expected {k} experts out of {used} of {groups} equal groups, there are {e} experts"
    return None


def _products(at: Operands, x: F32, ids: npt.NDArray[np.int32], port: int, rows_of: int, bias: F32 | None) -> F32:
    """Row products with the chosen experts of an input, f32[R, k, n_out]. rows_of: rows of x for each row of the step,
    1 or k.
    """
    from zinc_rt.kernels.reference.matmul import matmul  # compiled kernels run without it

    matrices = at.inputs[port]
    out = np.empty((*ids.shape, matrices[0].n_rows), np.float32)
    rows = x.reshape(ids.shape[0] * rows_of, matrices[0].n_in)
    for expert in np.unique(ids):
        row, j = np.nonzero(ids == expert)
        y = matmul(rows[row * rows_of + (j if rows_of > 1 else 0)], matrices[expert])
        with np.errstate(all="ignore"):
            out[row, j] = y if bias is None else y + bias[expert]
    return out


def _gate_up(at: Operands) -> None:
    x, ids, _, _, gate_bias, up_bias = (*at.inputs, None, None)[:6]
    for port, bias, out in ((2, gate_bias, at.outputs[0]), (3, up_bias, at.outputs[1])):
        out[...] = _products(at, x, ids, port, 1, bias).reshape(out.shape)


def _swiglu(at: Operands) -> None:
    at.outputs[0][...] = gated_rows(at.inputs[0], at.inputs[1], at.attrs)


def _down_acc(at: Operands) -> None:
    act, ids, weights, _, bias = (*at.inputs, None)[:5]
    v = _products(at, act, ids, 3, ids.shape[1], bias)
    with np.errstate(all="ignore"):
        at.outputs[0][...] = fma_chain(weights.T[:, :, None], v.transpose(1, 0, 2))


def _shared_expert(at: Operands) -> None:
    routed, shared, gate = (*at.inputs, None)[:3]
    with np.errstate(all="ignore"):
        at.outputs[0][...] = routed + (shared if gate is None else sigmoid(gate) * shared)


def _touched(first: int) -> Callable[[CostView], tuple[int, int]]:
    """Bytes of a node whose inputs from `first` on have an entry for each expert: those that rows chose."""

    def touched(cost: CostView) -> tuple[int, int]:
        others, chosen = range(first), range(first, len(cost.inputs))
        rows, k, n_experts = cost.dim(1, 0), cost.dim(1, 1), cost.dim(first, 0)
        read = cost.bytes_in(*chosen) * min(n_experts, rows * k) // n_experts
        return cost.bytes_in(*others) + read, cost.bytes_out()

    return touched


def _multiplied(*ports: int) -> Callable[[CostView], int]:
    """Multiplications and additions of row products with chosen experts."""

    def operations(cost: CostView) -> int:
        pairs = cost.dim(1, 0) * cost.dim(1, 1)
        return sum(2 * pairs * cost.elements(port) // cost.dim(port, 0) for port in ports)

    return operations


def _act_fits(sizes: Bindings) -> str | None:
    width, k, f = (sizes.value(name) for name in ("m", "k", "F"))
    if width is None or k is None or f is None or width == k * f:
        return None
    return f"expected rows of {k} * {f} activations, got {width}"


_IDS = Port("ids", INT32, ("R", "k"), ACTIVATION)
_CHOSEN_WEIGHTS = Port("weights", FLOAT32, ("R", "k"), ACTIVATION)
_ROUTING = {
    "k": COUNT,
    "gating": AttrSpec(str, default="softmax", one_of=GATINGS),
    "normalise": AttrSpec(bool, default=False),
    "scale": AttrSpec(float, default=1.0),
    "n_groups": AttrSpec(int, at_least=1, default=1),
    "n_groups_used": AttrSpec(int, at_least=1, default=1),
}

OPS = (
    OpDefinition(
        Op.MOE_GATE_TOPK,
        OpSignature(
            (
                activation("logits", "R", "E"),
                Port("bias", FLOAT32, ("E",), READ_ONLY, optional=True),
                Port("expert_scale", FLOAT32, ("E",), READ_ONLY, optional=True),
            ),
            (_IDS, _CHOSEN_WEIGHTS),
            _ROUTING,
            (_counts_fit,),
        ),
        reference=_gate_topk,
        # Experts that a table has for each token, f32[n_vocab, k]; all of a row's are different.
        variants=(
            OpSignature(
                (
                    activation("logits", "R", "E"),
                    index("token_ids", "R"),
                    Port("table", FLOAT32, ("n_vocab", "k"), READ_ONLY),
                ),
                (_IDS, _CHOSEN_WEIGHTS),
                {**_ROUTING, "by_token": AttrSpec(bool)},
                (_counts_fit,),
            ),
        ),
        # A comparison of each with each, and what turns logits into probabilities.
        operations=lambda cost: cost.elements(0) * (cost.dim(0, 1) + 4),
    ),
    OpDefinition(
        Op.MOE_GATE_UP,
        OpSignature(
            (
                activation("x", "R", "n"),
                _IDS,
                experts("gate", "E", "F", "n"),
                experts("up", "E", "F", "n"),
                experts("gate_bias", "E", "F", dtypes=FLOAT32, optional=True),
                experts("up_bias", "E", "F", dtypes=FLOAT32, optional=True),
            ),
            (activation("gated", "R", "k", "F"), activation("upped", "R", "k", "F")),
        ),
        reference=_gate_up,
        operations=_multiplied(2, 3),
        touched=_touched(2),
    ),
    OpDefinition(
        Op.MOE_SWIGLU,
        OpSignature((activation("gate", "R", "n"), activation("up", "R", "n")), (activation("y", "R", "n"),), GATED),
        reference=_swiglu,
        operations=lambda cost: 4 * cost.elements(0),
    ),
    OpDefinition(
        Op.MOE_DOWN_ACC,
        OpSignature(
            (
                activation("act", "R", "m"),
                _IDS,
                _CHOSEN_WEIGHTS,
                experts("weight", "E", "n", "F"),
                experts("bias", "E", "n", dtypes=FLOAT32, optional=True),
            ),
            (activation("y", "R", "n"),),
            rules=(_act_fits,),
        ),
        reference=_down_acc,
        # Beside the products: a fused multiply-add for each element of each expert's row.
        operations=lambda cost: _multiplied(3)(cost) + 2 * cost.dim(1, 0) * cost.dim(1, 1) * cost.dim(3, 1),
        touched=_touched(3),
    ),
    OpDefinition(
        Op.SHARED_EXPERT,
        OpSignature(
            (
                activation("routed", "R", "n"),
                activation("shared", "R", "n"),
                Port("gate", FLOAT32, ("R", 1), ACTIVATION, optional=True),
            ),
            (activation("y", "R", "n"),),
        ),
        reference=_shared_expert,
        # The addition; with a gate the product, and the gate's sigmoid for each row.
        operations=lambda cost: (
            cost.elements(0) + (0 if len(cost.inputs) < 3 else cost.elements(0) + 3 * cost.dim(0, 0))
        ),
    ),
)
