"""Hyper-connections: several streams of rows, f32[rows, streams, n], in place of one residual.

A sub-layer reads a sum of the streams and adds to each of them. Streams are added in order.
"""

from __future__ import annotations

import math

import numpy as np

from zinc_rt.ir.definition import (
    ACTIVATION,
    COUNT,
    EPS,
    FLOAT32,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    Port,
    activation,
    flat,
    weight,
)
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.norms import product_sums, rms_norm_rows
from zinc_rt.ir.unify import Bindings
from zinc_rt.kernels.reference.arith import F32, fma
from zinc_rt.kernels.reference.mathfn import exp, sigmoid

LEAST_AGREEMENT = 1e-6
"""What the root is taken of at the least in the gate of `stream_gate`."""


def _apart(at: Operands, rows: F32) -> F32:
    """Rows with their streams apart: a view f32[rows, streams, n]."""
    n_streams = int(at.attrs["n_streams"])
    return np.asarray(flat(rows)).reshape(len(rows), n_streams, flat(rows).shape[1] // n_streams)


def _stream_norm(at: Operands) -> None:
    x, w = at.inputs
    scaled = rms_norm_rows(_apart(at, x), None, float(at.attrs["eps"]))
    with np.errstate(all="ignore"):
        at.outputs[0][...] = (flat(scaled) * w).reshape(at.outputs[0].shape)


def _stream_sum(at: Operands) -> None:
    x, *weights = at.inputs
    streams = _apart(at, x)
    total = np.zeros_like(streams[:, 0])
    with np.errstate(all="ignore"):
        for s in range(streams.shape[1]):
            total = fma(streams[:, s], weights[0][:, s, None], total) if weights else total + streams[:, s]
        if not weights:
            total = total * np.float32(1.0 / streams.shape[1])
    at.outputs[0][...] = total.reshape(at.outputs[0].shape)


def _stream_add(at: Operands) -> None:
    y, *rest = at.inputs
    out = _apart(at, at.outputs[0])
    if not rest:
        out[...] = flat(y)[:, None]
        return
    x, gates, *mix = rest
    streams = _apart(at, x)
    n = streams.shape[1]
    with np.errstate(all="ignore"):
        if "scale" in at.attrs:
            gates = sigmoid(gates * np.float32(at.attrs["scale"])) * np.float32(2.0)
        kept = streams
        if mix:
            shares = mix[0].reshape(len(x), n, n)
            kept = np.zeros_like(streams)
            for s in range(n):
                kept = fma(streams[:, s : s + 1], shares[:, s, :, None], kept)
        out[...] = fma(flat(y)[:, None], gates[:, :, None], kept)


def _stream_gate(at: Operands) -> None:
    key, query, value = at.inputs
    k, q = _apart(at, key), _apart(at, query)
    n = k.shape[2]
    with np.errstate(all="ignore"):
        s = product_sums(k.reshape(-1, n), q.reshape(-1, n)) * np.float32(1.0 / math.sqrt(n))
        root = np.sqrt(np.maximum(np.abs(s), np.float32(LEAST_AGREEMENT)))
        gate = sigmoid(np.where(s < 0, -root, np.where(s > 0, root, np.float32(0.0))).astype(np.float32))
        _apart(at, at.outputs[0])[...] = flat(value)[:, None] * gate.reshape(*k.shape[:2], 1)


def doubly_stochastic(shares: F32, eps: float, iterations: int) -> F32:
    """Matrices f32[rows, source, target] whose rows and columns sum to nearly 1 (Sinkhorn 1967).

    The softmax of each row and eps; then each column divided by its sum and eps; then rows and columns in turn. Sums
    are formed in order.
    """
    floor, n = np.float32(eps), shares.shape[1]
    e = exp(shares - shares.max(axis=2, keepdims=True))
    shares = e / _sum_in_order(e, 2) + floor
    shares = shares / (_sum_in_order(shares, 1) + floor)
    for _ in range(iterations - 1):
        shares = shares / (_sum_in_order(shares, 2) + floor)
        shares = shares / (_sum_in_order(shares, 1) + floor)
    return shares.reshape(len(shares), n, n)


def _sum_in_order(x: F32, axis: int) -> F32:
    total = np.zeros_like(x.take([0], axis))
    for i in range(x.shape[axis]):
        total = total + x.take([i], axis)
    return total


def _stream_mix(at: Operands) -> None:
    logits, base, scale = at.inputs
    n, eps = int(at.attrs["n_streams"]), float(at.attrs["eps"])
    with np.errstate(all="ignore"):
        reads = sigmoid(fma(logits[:, :n], scale[0], base[:n])) + np.float32(eps)
        at.outputs[0][...] = reads.reshape(at.outputs[0].shape)
        if "iterations" not in at.attrs:
            return
        writes = sigmoid(fma(logits[:, n : 2 * n], scale[1], base[n : 2 * n])) * np.float32(2.0)
        at.outputs[1][...] = writes.reshape(at.outputs[1].shape)
        shares = fma(logits[:, 2 * n :], scale[2], base[2 * n :]).reshape(len(logits), n, n)
        mixed = doubly_stochastic(shares, eps, int(at.attrs["iterations"]))
        at.outputs[2][...] = mixed.reshape(at.outputs[2].shape)


def _as_many_logits(bound: Bindings) -> str | None:
    n, given, iterations = (bound.value(name) for name in ("n_streams", "n_logits_of_row", "iterations"))
    wanted = None if n is None else n if iterations is None else n * (2 + n)
    if given is not None and wanted is not None and given != wanted:
        return f"rows have {given} numbers, {n} streams take {wanted}"
    return None


def _a_weight_for_each(bound: Bindings) -> str | None:
    n, streams, weights = (bound.value(name) for name in ("n", "n_streams", "n_weights"))
    if n and streams and weights and n * streams != weights:
        return f"{streams} streams of {n} elements have {n * streams} weights, not {weights}"
    return None


_STREAMS = {"n_streams": COUNT}
_X = activation("x", "R", "n_streams", "n")
_MIX_INPUTS = (
    Port("logits", FLOAT32, ("R", "n_logits_of_row"), ACTIVATION, view=True),
    weight("base", "n_logits_of_row", dtypes=FLOAT32),
)
_MIX_ATTRS = {"n_streams": COUNT, "eps": EPS}
_GATES = Port("gates", FLOAT32, ("R", "n_streams"), ACTIVATION, view=True, optional=True)

OPS = (
    OpDefinition(
        Op.STREAM_NORM,
        OpSignature(
            (_X, weight("weight", "n_weights", dtypes=FLOAT32)),
            (activation("y", "R", "n_streams", "n"),),
            {**_STREAMS, "eps": EPS},
            (_a_weight_for_each,),
        ),
        reference=_stream_norm,
        operations=lambda cost: 4 * cost.elements(0) + 4 * cost.dim(0, 0) * cost.attr("n_streams"),
    ),
    OpDefinition(
        Op.STREAM_SUM,
        OpSignature((_X, _GATES), (activation("y", "R", "n"),), _STREAMS),
        reference=_stream_sum,
        operations=lambda cost: 2 * cost.elements(0),
    ),
    OpDefinition(
        Op.STREAM_ADD,
        OpSignature(
            (
                activation("y", "R", "n"),
                Port("x", FLOAT32, ("R", "n_streams", "n"), ACTIVATION, view=True, optional=True),
                _GATES,
                Port("mix", FLOAT32, ("R", "n_streams", "n_streams"), ACTIVATION, view=True, optional=True),
            ),
            (activation("streams", "R", "n_streams", "n"),),
            {**_STREAMS, "scale": AttrSpec(float, optional=True)},
        ),
        reference=_stream_add,
        operations=lambda cost: (
            2
            * cost.elements(0)
            * cost.attr("n_streams")
            * (1 + (cost.attr("n_streams") if len(cost.inputs) > 3 else 0))
        ),
    ),
    OpDefinition(
        Op.STREAM_GATE,
        OpSignature(
            (
                activation("key", "R", "n_streams", "n"),
                activation("query", "R", "n_streams", "n"),
                activation("value", "R", "n"),
            ),
            (activation("y", "R", "n_streams", "n"),),
            _STREAMS,
        ),
        reference=_stream_gate,
        operations=lambda cost: 3 * cost.elements(0) + 8 * cost.dim(0, 0) * cost.attr("n_streams"),
    ),
    # How streams are read at the end; with iterations also how they are written, and their mix.
    OpDefinition(
        Op.STREAM_MIX,
        OpSignature(
            (*_MIX_INPUTS, weight("scale", 1, dtypes=FLOAT32)),
            (activation("reads", "R", "n_streams"),),
            _MIX_ATTRS,
            (_as_many_logits,),
        ),
        reference=_stream_mix,
        operations=lambda cost: (
            cost.elements(0) * (4 + (4 * int(cost.attrs["iterations"]) if "iterations" in cost.attrs else 0))
        ),
        variants=(
            OpSignature(
                (*_MIX_INPUTS, weight("scale", 3, dtypes=FLOAT32)),
                (
                    activation("reads", "R", "n_streams"),
                    activation("writes", "R", "n_streams"),
                    activation("mix", "R", "n_streams", "n_streams"),
                ),
                {**_MIX_ATTRS, "iterations": COUNT},
                (_as_many_logits,),
            ),
        ),
    ),
)
