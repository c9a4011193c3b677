"""Recurrent layers: a causal convolution, the gated delta rule, the selective scan, and the gated norm of an output.

A sequence keeps state of a fixed size in such a layer: an entry of f32[n_slots, ...], which a row finds by its `slots`.
Rows of a sequence are worked on one after another, in the order in which they stand in the step, which is that of their
positions. A row at position 0 starts from a state of +0.0, so nothing has to clear memory.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.definition import (
    CACHE,
    COUNT,
    EPS,
    FLOAT32,
    HEADS,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    Port,
    Rule,
    activation,
    flat,
    heads,
    index,
    weight,
)
from zinc_rt.ir.graph import Dim
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.norms import rms_norm_rows, square_sums
from zinc_rt.ir.unify import Bindings
from zinc_rt.kernels.reference.arith import F32, fma, fma_chain
from zinc_rt.kernels.reference.mathfn import exp, sigmoid, silu, softplus
from zinc_rt.numerics import SCAN_BLOCK

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView

I32 = npt.NDArray[np.int32]

SCAN_SIZES = ("n_heads", "head_dim", "n_groups", "state_size")
PAIRINGS = ("block", "modulo")
"""The key head of value head h: h // (n_v_heads / n_k_heads), or h % n_k_heads."""


def conv1d_rows(x: F32, taps: F32, state: F32, positions: I32, slots: I32, bias: F32 | None, *, gated: bool) -> F32:
    """A causal convolution of each channel over positions; keeps the last inputs in the state.

    x: f32[rows, C]. taps: f32[C, K], the last for the present row. state: f32[n_slots, K - 1, C], oldest first,
    written.
    A chain of fma over the taps from +0.0, oldest first; then the bias, then silu where `gated`.
    """
    out = np.empty_like(x)
    with np.errstate(all="ignore"):
        for row, (position, slot) in enumerate(zip(positions.tolist(), slots.tolist(), strict=True)):
            if position == 0:
                state[slot] = 0.0
            window = np.concatenate([state[slot], x[row : row + 1]])
            out[row] = fma_chain(window, taps.T)
            state[slot] = window[1:]
        if bias is not None:
            out += bias
        return silu(out) if gated else out


def unit_heads(x: F32, eps: float) -> F32:
    """Each head f32[..., D] times 1 / sqrt(its sum of squares + eps)."""
    flat = x.reshape(-1, x.shape[-1])
    scale = np.float32(1.0) / np.sqrt(square_sums(flat) + np.float32(eps))
    return np.asarray(flat * scale[:, None]).reshape(x.shape)


def key_heads(n_k_heads: int, n_v_heads: int, pairing: str) -> I32:
    """The key head of each value head; see `PAIRINGS`."""
    h = np.arange(n_v_heads, dtype=np.int32)
    return h // np.int32(n_v_heads // n_k_heads) if pairing == "block" else h % np.int32(n_k_heads)


def delta_net_rows(q: F32, k: F32, v: F32, decay: F32, strength: F32, state: F32, positions: I32, slots: I32) -> F32:
    """The gated delta rule, row after row: f32[rows, heads, D].

    q, k, v: f32[rows, heads, D]. decay: f32[rows, heads, 1 or D], of keys. strength: f32[rows, heads]. state:
    f32[n_slots, heads, D, D] as [key][value], written. With S' = decay * S: r = S'^T k, d = strength * (v - r), S'' =
    S' + k d^T, o = S''^T q. The chains run over keys in order.
    """
    out = np.empty_like(v)
    for row, (position, slot) in enumerate(zip(positions.tolist(), slots.tolist(), strict=True)):
        if position == 0:
            state[slot] = 0.0
        by_key = (decay[row, :, :, None] * state[slot]).transpose(1, 0, 2)  # [key, head, value]
        keys, queries = k[row].T[:, :, None], q[row].T[:, :, None]
        d = strength[row, :, None] * (v[row] - fma_chain(by_key, keys))
        by_key = fma(keys, d[None], by_key)
        out[row] = fma_chain(by_key, queries)
        state[slot] = by_key.transpose(1, 0, 2)
    return out


def scan_rows(x: F32, b: F32, c: F32, dt: F32, a: F32, d: F32, state: F32, positions: I32, slots: I32) -> F32:
    """The selective scan, row after row: f32[rows, heads, P].

    x: f32[rows, heads, P]. b, c: f32[rows, heads, N]. dt: f32[rows, heads, P or 1]. a: f32[heads, N or 1, P or 1]. d:
    f32[heads, P or 1]. state: f32[n_slots, heads, N, P], written. S' = exp(a dt) * S + b (dt x)^T, y = S'^T c + d x.
    The chains over n are of `SCAN_BLOCK` elements; their results are added in order.
    """
    out = np.empty_like(x)
    for row, (position, slot) in enumerate(zip(positions.tolist(), slots.tolist(), strict=True)):
        if position == 0:
            state[slot] = 0.0
        kept = exp(a * dt[row, :, None, :]) * state[slot]
        state[slot] = fma(b[row, :, :, None], (dt[row] * x[row])[:, None, :], kept)
        by_n, reads = state[slot].transpose(1, 0, 2), c[row].T[:, :, None]
        total = fma_chain(by_n[:SCAN_BLOCK], reads[:SCAN_BLOCK])
        for start in range(SCAN_BLOCK, len(by_n), SCAN_BLOCK):
            part = slice(start, start + SCAN_BLOCK)
            total = total + fma_chain(by_n[part], reads[part])
        out[row] = fma(d, x[row], total)
    return out


def _conv1d(at: Operands) -> None:
    apart = at.attrs.get("apart", False)
    x, w, _, positions, slots, *bias = (np.concatenate(at.inputs[:3], axis=1), *at.inputs[3:]) if apart else at.inputs
    taps = w if isinstance(w, np.ndarray) else w.rows(np.arange(w.n_rows))
    y, state = at.outputs
    gated = at.attrs["activation"] == "silu"
    rows = conv1d_rows(
        flat(x),
        taps.reshape(-1, state.shape[1] + 1),
        state,
        positions,
        slots,
        bias[0] if bias else None,
        gated=gated,
    )
    y[...] = rows.reshape(y.shape)


def _delta_net(at: Operands) -> None:
    u, alpha, beta, a, dt_bias, _, positions, slots = at.inputs
    y, state = at.outputs
    n_k, n_v, d = (int(at.attrs[key]) for key in ("n_k_heads", "n_v_heads", "head_dim"))
    n, eps, rates = len(u), float(at.attrs["eps"]), d if "decay" in at.attrs else 1
    with np.errstate(all="ignore"):
        all_heads = u.reshape(n, 2 * n_k + n_v, d)
        paired = key_heads(n_k, n_v, str(at.attrs["pairing"]))
        unit = unit_heads(all_heads[:, : 2 * n_k], eps)
        q, k = unit[:, :n_k] * np.float32(1.0 / math.sqrt(d)), unit[:, n_k:]
        rate, a = alpha.reshape(n, n_v, rates) + dt_bias.reshape(n_v, rates), a[:, None]
        bound = at.attrs.get("lower_bound")
        decay = exp(a * softplus(rate) if bound is None else np.float32(bound) * sigmoid(a * rate))
        rows = delta_net_rows(
            q[:, paired],
            k[:, paired],
            all_heads[:, 2 * n_k :],
            decay,
            sigmoid(beta.reshape(n, n_v)),
            state,
            positions,
            slots,
        )
    y[...] = rows.reshape(y.shape)


def _scan(at: Operands) -> None:
    if at.attrs.get("per_channel"):
        _channel_scan(at)
        return
    u, dt, a, dt_bias, d, _, positions, slots = at.inputs
    n_heads, dim, groups, size = (int(at.attrs[name]) for name in SCAN_SIZES)
    x, b, c = np.split(flat(u), [n_heads * dim, n_heads * dim + groups * size], axis=1)
    b, c = (np.repeat(part.reshape(-1, groups, size), n_heads // groups, axis=1) for part in (b, c))
    with np.errstate(all="ignore"):
        done = scan_rows(
            x.reshape(-1, n_heads, dim),
            b,
            c,
            softplus(flat(dt) + dt_bias)[:, :, None],
            a[:, :, None],
            d,
            at.outputs[1],
            positions,
            slots,
        )
    at.outputs[0][...] = done.reshape(at.outputs[0].shape)


def _channel_scan(at: Operands) -> None:
    x, b, c, dt, rates, _, positions, slots = at.inputs
    x, b, c, dt = (flat(rows)[:, None] for rows in (x, b, c, dt))
    with np.errstate(all="ignore"):
        done = scan_rows(
            x, b, c, softplus(dt), rates[None, :-1], rates[None, -1], at.outputs[1][:, None], positions, slots
        )
    at.outputs[0][...] = done.reshape(at.outputs[0].shape)


def _gated_norm(at: Operands) -> None:
    o, z, w = at.inputs
    y, eps = heads(at, at.outputs[0]), float(at.attrs["eps"])
    gate = sigmoid if at.attrs.get("activation") == "sigmoid" else silu
    with np.errstate(all="ignore"):
        if at.attrs.get("gate_first"):
            y[...] = rms_norm_rows(heads(at, o) * silu(heads(at, z)), None, eps) * w
        else:
            y[...] = rms_norm_rows(heads(at, o), w, eps) * gate(heads(at, z))


def _keeps_all_but_one(bound: Bindings) -> str | None:
    taps, kept = bound.value("taps"), bound.value("kept")
    if taps is not None and kept is not None and kept != taps - 1:
        return f"the weight has {taps} taps, so the state keeps {taps - 1} inputs, not {kept}"
    return None


def _thirds_fit(bound: Bindings) -> str | None:
    third, channels = bound.value("third"), bound.value("C")
    if third is not None and channels is not None and 3 * third != channels:
        return f"the weight has {channels} channels, three inputs of {third} have {3 * third}"
    return None


def _heads_fit(bound: Bindings) -> str | None:
    n_k, n_v, d, width = (bound.value(key) for key in ("n_k_heads", "n_v_heads", "head_dim", "n"))
    if n_k and n_v and n_v % n_k:
        return f"n_v_heads {n_v} is no multiple of n_k_heads {n_k}"
    if n_k and n_v and d and width is not None and width != (2 * n_k + n_v) * d:
        return f"u has {width} elements, (2 * {n_k} + {n_v}) heads of {d} have {(2 * n_k + n_v) * d}"
    return None


def _scan_fits(bound: Bindings) -> str | None:
    n_heads, dim, groups, size, width = (bound.value(key) for key in (*SCAN_SIZES, "n"))
    if n_heads and groups and n_heads % groups:
        return f"n_heads {n_heads} is no multiple of n_groups {groups}"
    if n_heads and dim and groups and size and width is not None and width != n_heads * dim + 2 * groups * size:
        return f"u has {width} elements, {n_heads} heads of {dim} and twice {groups} groups of {size} have others"
    return None


def _rates_fit(bound: Bindings) -> str | None:
    n, size = bound.value("n_rates"), bound.value("state_size")
    if n is not None and size is not None and n != size + 1:
        return f"rates has {n} rows; a decay for each of {size} elements of the state, and ssm_d, are {size + 1}"
    return None


def _biases_fit(bound: Bindings) -> str | None:
    n_v, d, n_rates = (bound.value(key) for key in ("n_v_heads", "head_dim", "n_rates"))
    if n_v and d and n_rates is not None and n_rates != n_v * d:
        return f"dt_bias has {n_rates} elements, {n_v} heads of {d} channels have {n_v * d}"
    return None


def _state_bytes(cost: CostView, port: int) -> int:
    """Bytes of the entries that a step's sequences have in a state."""
    return cost.bytes_in(port) // cost.dim(port, 0) * min(cost.sizes.n_rows, cost.sizes.n_slots)


def touched_beside(state: int) -> Any:
    """Bytes of a node with a state, the input of this number: of the entries that its sequences have."""

    def touched(cost: CostView) -> tuple[int, int]:
        others = [port for port in range(len(cost.inputs)) if port != state]
        kept, outputs = _state_bytes(cost, state), [cost.sizes.nbytes(buffer) for buffer in cost.outputs]
        return cost.bytes_in(*others) + kept, outputs[0] + kept

    return touched


def _conv_operations(cost: CostView) -> int:
    """Two for each tap, one for a bias, three for silu."""
    weight = 3 if "apart" in cost.attrs else 1
    each = 2 * cost.dim(weight, 1) + (len(cost.inputs) == 6) + (3 if cost.attrs["activation"] == "silu" else 0)
    return sum(cost.elements(port) for port in range(weight)) * each


def _conv_touched(cost: CostView) -> tuple[int, int]:
    touched: tuple[int, int] = touched_beside(4 if "apart" in cost.attrs else 2)(cost)
    return touched


def _delta_operations(cost: CostView) -> int:
    """Unit vectors of query and key heads; three for a value head's strength, six for its decay or for that of each key
    channel (seven for a bounded one); seven for each element of its state.
    """
    d, n_k, n_v = cost.attr("head_dim"), cost.attr("n_k_heads"), cost.attr("n_v_heads")
    decays = (6 + ("lower_bound" in cost.attrs)) * d if "decay" in cost.attrs else 6
    return cost.sizes.n_rows * (n_k * (7 * d + 6) + n_v * (3 + decays + 2 * d + 7 * d * d))


def _scan_operations(cost: CostView) -> int:
    """Six for a head's step size and decay; five for each element of its state; for each of its outputs the sums of
    blocks, and three.
    """
    if cost.attrs.get("per_channel"):
        return _channel_operations(cost)
    n_heads, dim, size = (cost.attr(name) for name in ("n_heads", "head_dim", "state_size"))
    return cost.sizes.n_rows * n_heads * (6 + dim * _output_operations(size))


def _channel_operations(cost: CostView) -> int:
    """The same with three for a channel's step size, and two for the decay of each element of its state."""
    n, size = cost.attr("head_dim"), cost.attr("state_size")
    return cost.sizes.n_rows * n * (3 + 2 * size + _output_operations(size))


def _output_operations(size: int) -> int:
    return 5 * size + 2 + -(-size // SCAN_BLOCK)


def state_port(name: str, *shape: Dim) -> Port:
    """What each sequence keeps, f32[n_slots, *shape]."""
    return Port(name, FLOAT32, ("S", *shape), CACHE, role=name)


_WHERE = (index("positions", "R"), index("slots", "R"))
_CONV_STATE = state_port("conv_state", "kept", "C")
_DELTA_STATE = state_port("delta_state", "n_v_heads", "head_dim", "head_dim")
_SCAN_STATE = state_port("scan_state", "n_heads", "state_size", "head_dim")
_CHANNEL_STATE = state_port("scan_state", "state_size", "head_dim")
_CONV_ATTRS = {"activation": AttrSpec(str, default="silu", one_of=("silu", "none"))}
_CONV_RULES: tuple[Rule, ...] = (_keeps_all_but_one,)
_DELTA_RULES: tuple[Rule, ...] = (_heads_fit,)
_DELTA_ATTRS = {
    "n_k_heads": COUNT,
    "n_v_heads": COUNT,
    "head_dim": COUNT,
    "eps": EPS,
    "pairing": AttrSpec(str, one_of=PAIRINGS),
}

OPS = (
    OpDefinition(
        Op.SSM_CONV1D,
        OpSignature(
            (
                activation("x", "R", "C"),
                weight("weight", "C", "taps", dtypes=FLOAT32),
                _CONV_STATE,
                *_WHERE,
                Port("bias", FLOAT32, ("C",), weight("bias", "C").kinds, optional=True),
            ),
            (activation("y", "R", "C"), _CONV_STATE),
            _CONV_ATTRS,
            _CONV_RULES,
        ),
        reference=_conv1d,
        operations=_conv_operations,
        touched=_conv_touched,
        # Channels that three products make, a third each.
        variants=(
            OpSignature(
                (
                    *(activation(name, "R", "third") for name in "qkv"),
                    weight("weight", "C", "taps", dtypes=FLOAT32),
                    _CONV_STATE,
                    *_WHERE,
                ),
                (activation("y", "R", "C"), _CONV_STATE),
                {**_CONV_ATTRS, "apart": AttrSpec(bool)},
                (*_CONV_RULES, _thirds_fit),
            ),
        ),
    ),
    OpDefinition(
        Op.SSM_DELTA_NET,
        OpSignature(
            (
                activation("u", "R", "n"),
                activation("alpha", "R", "n_v_heads"),
                activation("beta", "R", "n_v_heads"),
                weight("ssm_a", "n_v_heads", dtypes=FLOAT32),
                weight("dt_bias", "n_v_heads", dtypes=FLOAT32),
                _DELTA_STATE,
                *_WHERE,
            ),
            (activation("o", "R", "n_v_heads", "head_dim"), _DELTA_STATE),
            _DELTA_ATTRS,
            _DELTA_RULES,
        ),
        reference=_delta_net,
        operations=_delta_operations,
        touched=touched_beside(5),
        # A decay for each key channel. lower_bound: of the logarithm of decays, which are a sigmoid's then.
        variants=(
            OpSignature(
                (
                    activation("u", "R", "n"),
                    activation("alpha", "R", "n_v_heads", "head_dim"),
                    activation("beta", "R", "n_v_heads"),
                    weight("ssm_a", "n_v_heads", dtypes=FLOAT32),
                    weight("dt_bias", "n_rates", dtypes=FLOAT32),
                    _DELTA_STATE,
                    *_WHERE,
                ),
                (activation("o", "R", "n_v_heads", "head_dim"), _DELTA_STATE),
                {
                    **_DELTA_ATTRS,
                    "decay": AttrSpec(str, one_of=("channel",)),
                    "lower_bound": AttrSpec(float, optional=True),
                },
                (*_DELTA_RULES, _biases_fit),
            ),
        ),
    ),
    OpDefinition(
        Op.SSM_SCAN,
        OpSignature(
            (
                activation("u", "R", "n"),
                activation("dt", "R", "n_heads"),
                weight("ssm_a", "n_heads", 1, dtypes=FLOAT32),
                weight("dt_bias", "n_heads", dtypes=FLOAT32),
                weight("ssm_d", "n_heads", 1, dtypes=FLOAT32),
                _SCAN_STATE,
                *_WHERE,
            ),
            (activation("y", "R", "n_heads", "head_dim"), _SCAN_STATE),
            dict.fromkeys(SCAN_SIZES, COUNT),
            (_scan_fits,),
        ),
        reference=_scan,
        operations=_scan_operations,
        touched=touched_beside(5),
        # Channels that have a step size each, and a decay for each element of their state (Mamba 1). rates: the
        # decays by element, then what is called ssm_d.
        variants=(
            OpSignature(
                (
                    activation("x", "R", "head_dim"),
                    activation("b", "R", "state_size"),
                    activation("c", "R", "state_size"),
                    activation("dt", "R", "head_dim"),
                    weight("rates", "n_rates", "head_dim", dtypes=FLOAT32),
                    _CHANNEL_STATE,
                    *_WHERE,
                ),
                (activation("y", "R", "head_dim"), _CHANNEL_STATE),
                {"head_dim": COUNT, "state_size": COUNT, "per_channel": AttrSpec(bool)},
                (_rates_fit,),
            ),
        ),
    ),
    OpDefinition(
        Op.SSM_GATED_NORM,
        OpSignature(
            (
                activation("o", "R", "n_heads", "head_dim"),
                activation("z", "R", "n_heads", "head_dim"),
                weight("weight", "head_dim", dtypes=FLOAT32),
            ),
            (activation("y", "R", "n_heads", "head_dim"),),
            {"eps": EPS, **HEADS, "activation": AttrSpec(str, default="silu", one_of=("silu", "sigmoid"))},
        ),
        reference=_gated_norm,
        # As an RMS norm of each head; then silu or a sigmoid and one product for each element.
        operations=lambda cost: 8 * cost.elements(0) + 4 * cost.sizes.n_rows * cost.attr("n_heads"),
        # The norm of the gated heads, each of which has weights of its own.
        variants=(
            OpSignature(
                (
                    activation("o", "R", "n_heads", "head_dim"),
                    activation("z", "R", "n_heads", "head_dim"),
                    weight("weight", "n_heads", "head_dim", dtypes=FLOAT32),
                ),
                (activation("y", "R", "n_heads", "head_dim"),),
                {"eps": EPS, **HEADS, "gate_first": AttrSpec(bool)},
            ),
        ),
    ),
)
