"""Recurrent layers. Units are channels or heads; each takes all rows of a step."""

from __future__ import annotations

import math

from zinc_rt.backends.cpu.choice import CONV_CHUNK
from zinc_rt.backends.cpu.lowering import CPU, CpuLowering, External
from zinc_rt.backends.cpu.program import UnitsPer
from zinc_rt.backends.fusion import Single
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.cpu import structs


@CPU.lowers(Op.SSM_CONV1D)
def conv1d(low: CpuLowering, single: Single) -> None:
    """The convolution of a step's rows, and the inputs that are kept."""
    n = single.node
    attrs = attributes(n)
    thirds = 3 if "apart" in attrs else 1
    given = n.inputs[:thirds]
    weight, state, positions, slots, *bias = n.inputs[thirds:]
    channels, taps = (int(d) for d in low.graph.buffer(weight).shape)
    arguments = {
        **{name: low.at(x) for name, x in zip(("x", "x1", "x2"), given, strict=False)},
        "taps": External("taps", weight),
        "state": low.at(state),
        "y": low.at(n.outputs[0]),
        "bias": low.at(bias[0]) if bias else 0,
        "n": channels,
    }
    kernel = low.choice.conv1d(taps, gated=attrs["activation"] == "silu", apart=thirds > 1)
    units = thirds * -(-(channels // thirds) // CONV_CHUNK)
    low.emit(
        n, "conv1d", kernel, structs.Conv1dArgs, arguments, units, UnitsPer.ONCE,
        (*given, state, positions, slots), n.outputs,
    )  # fmt: skip


@CPU.lowers(Op.SSM_DELTA_NET)
def delta_net(low: CpuLowering, single: Single) -> None:
    """The gated delta rule."""
    n, attrs = single.node, attributes(single.node)
    u, alpha, beta, a, dt_bias, state, positions, slots = n.inputs
    n_k, n_v, dim = (int(attrs[key]) for key in ("n_k_heads", "n_v_heads", "head_dim"))
    bound = attrs.get("lower_bound")
    arguments = {
        "u": low.at(u), "alpha": low.at(alpha), "beta": low.at(beta), "a": low.at(a), "dt_bias": low.at(dt_bias),
        "state": low.at(state), "y": low.at(n.outputs[0]), "n_k": n_k, "n_v": n_v,
        "share": n_v // n_k if attrs["pairing"] == "block" else 0, "eps": attrs["eps"], "scale": 1.0 / math.sqrt(dim),
        "lower_bound": 0.0 if bound is None else bound,
    }  # fmt: skip
    kernel = low.choice.delta_net(dim, channels="decay" in attrs, bounded=bound is not None)
    low.emit(
        n, "delta_net", kernel, structs.DeltaNetArgs, arguments, n_v, UnitsPer.ONCE,
        (u, alpha, beta, state, positions, slots), n.outputs,
    )  # fmt: skip


@CPU.lowers(Op.SSM_SCAN)
def scan(low: CpuLowering, single: Single) -> None:
    """The selective scan."""
    n, attrs = single.node, attributes(single.node)
    *read, state, positions, slots = n.inputs
    dim, size, heads, share = int(attrs["head_dim"]), int(attrs["state_size"]), 1, 1
    if attrs.get("per_channel"):
        x, b, c, dt, rates = read
        where = [low.at(buffer) for buffer in (x, b, c, dt, rates)]
        where += [0, low.at(rates, size * dim)]
    else:
        heads, groups = int(attrs["n_heads"]), int(attrs["n_groups"])
        share = heads // groups
        x, dt, *factors = read
        b, starts = x, (0, heads * dim, heads * dim + groups * size)
        where = [*(low.at(x, start) for start in starts), *(low.at(buffer) for buffer in (dt, *factors))]
    arguments = {
        **dict(zip(("x", "b", "c", "dt", "a", "dt_bias", "d"), where, strict=True)),
        "state": low.at(state), "y": low.at(n.outputs[0]), "n_x": low.width(x), "n_b": low.width(b), "n_heads": heads,
        "share": share,
    }  # fmt: skip
    kernel = low.choice.scan(size, dim, bool(attrs.get("per_channel")))
    units = heads * dim // low.choice.scan_slice(dim)
    low.emit(
        n,
        "scan",
        kernel,
        structs.ScanArgs,
        arguments,
        units,
        UnitsPer.ONCE,
        (*read, state, positions, slots),
        n.outputs,
    )


@CPU.lowers(Op.SSM_GATED_NORM)
def gated_norm(low: CpuLowering, single: Single) -> None:
    """Heads normed and gated."""
    n, attrs = single.node, attributes(single.node)
    o, z, weight = n.inputs
    arguments = {
        "o": low.at(o),
        "z": low.at(z),
        "weight": low.at(weight),
        "y": low.at(n.outputs[0]),
        "eps": attrs["eps"],
        "n_heads": int(attrs["n_heads"]),
    }
    first, activation = bool(attrs.get("gate_first")), str(attrs.get("activation", "silu"))
    kernel = low.choice.gated_norm(int(attrs["head_dim"]), activation, first=first)
    low.emit(
        n, "gated_norm", kernel, structs.GatedNormArgs, arguments, int(attrs["n_heads"]), UnitsPer.ROWS, (o, z),
        n.outputs,
    )  # fmt: skip
