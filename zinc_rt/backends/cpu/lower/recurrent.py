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
    }
    kernel = low.choice.gated_norm(int(attrs["head_dim"]), str(attrs["activation"]))
    low.emit(
        n, "gated_norm", kernel, structs.GatedNormArgs, arguments, int(attrs["n_heads"]), UnitsPer.ROWS, (o, z),
        n.outputs,
    )  # fmt: skip
