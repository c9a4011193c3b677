"""Recurrent layers: a workgroup for each sequence of the step, and part of its channels or heads."""

from __future__ import annotations

import math
from typing import Any

from zinc_rt.backends.amdgpu.joins import DeltaNet
from zinc_rt.backends.amdgpu.lowering import ELSEWHERE, GPU, GpuLowering
from zinc_rt.backends.amdgpu.operations import ArgumentBlock, StepShape, TempSpec
from zinc_rt.backends.errors import UnsupportedOp
from zinc_rt.backends.fusion import Single
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.rdna.catalogue import conv1d, delta_net, gated_norm
from zinc_rt.kernels.rdna.recurrent import (
    CHANNELS,
    FEW_VALUES,
    IN_REGISTERS,
    MOST_HEAD_DIM,
    MOST_TAPS,
    GpuConvArgs,
    GpuDeltaArgs,
)
from zinc_rt.numerics import GROUP


def _sequences(low: GpuLowering, s: StepShape) -> int:
    """Workgroups for sequences: one for each row, or for each slot where these are fewer."""
    return min(s.n_rows, low.sizes.n_slots)


def _rows(low: GpuLowering, positions: int, slots: int) -> dict[str, Any]:
    return {
        "positions": low.at(positions), "slots": low.at(slots), "n_rows": lambda s: s.n_rows,
        "by_row": lambda s: int(s.n_rows <= low.sizes.n_slots),
    }  # fmt: skip


@GPU.lowers(Op.SSM_CONV1D)
def convolution(low: GpuLowering, single: Single) -> None:
    """A causal convolution of each channel; its last inputs are kept."""
    n = single.node
    x, weight, state, positions, slots, *bias = n.inputs
    channels, taps = (int(d) for d in low.graph.buffer(weight).shape)
    if not 2 <= taps <= MOST_TAPS:
        raise UnsupportedOp(
            f"node {n.name}: a convolution of {taps} taps; the GPU kernels do 2 to {MOST_TAPS}; {ELSEWHERE}"
        )
    block = ArgumentBlock(GpuConvArgs, {
        "x": low.at(x), "weight": low.at(weight), "state": low.at(state), "bias": low.at(bias[0]) if bias else 0,
        "y": low.at(n.outputs[0]), "n_channels": channels, **_rows(low, positions, slots),
    })  # fmt: skip
    low.emit(
        n, conv1d(taps, gated=attributes(n)["activation"] == "silu", bias=bool(bias)),
        lambda s: (-(-channels // CHANNELS), _sequences(low, s)), (block,), "n_rows", (x, state), n.outputs,
        lambda s: s.n_rows * channels * taps,
    )  # fmt: skip


@GPU.lowers(DeltaNet)
def gated_delta_rule(low: GpuLowering, n: DeltaNet) -> None:
    """The gated delta rule; the norm of its heads in the same dispatch where a workgroup has whole heads."""
    node, attrs = n.node, attributes(n.node)
    u, alpha, beta, decay, dt_bias, state, positions, slots = node.inputs
    n_k, heads, dim = (int(attrs[a]) for a in ("n_k_heads", "n_v_heads", "head_dim"))
    if dim > MOST_HEAD_DIM:
        raise UnsupportedOp(
            f"node {node.name}: heads of {dim} elements; the GPU kernels of the delta rule do up to {MOST_HEAD_DIM};"
            f" {ELSEWHERE}"
        )
    joined = n.norm is not None and dim <= IN_REGISTERS
    y = n.y if joined else node.outputs[0]
    packed = dim % GROUP == 0 and low.only_packed(y)
    results: tuple[TempSpec, ...] = low.packed(y, low.width(y)) if packed else (low.at(y),)
    values: dict[str, Any] = {
        "u": low.at(u), "alpha": low.at(alpha), "beta": low.at(beta), "decay": low.at(decay),
        "dt_bias": low.at(dt_bias), "state": low.at(state), "n_k": n_k, "n_v": heads,
        "by_block": int(attrs["pairing"] == "block"), "eps": float(attrs["eps"]), "query_scale": 1.0 / math.sqrt(dim),
        **dict(zip(("q", "d", "s") if packed else ("y",), results, strict=True)), **_rows(low, positions, slots),
    }  # fmt: skip
    reads: tuple[int, ...] = (u, alpha, beta, state)
    if joined and n.norm is not None:
        _, z, weight = n.norm.inputs
        values |= {"z": low.at(z), "weight": low.at(weight), "norm_eps": float(attributes(n.norm)["eps"])}
        reads = (*reads, z)
    blocks = 1 if dim <= IN_REGISTERS else -(-dim // FEW_VALUES)
    low.emit(
        node, delta_net(dim, norm=joined, packed=packed), lambda s: (heads, _sequences(low, s), blocks),
        (ArgumentBlock(GpuDeltaArgs, values),), "n_rows", reads, (*(p.key for p in results), state),
        lambda s: s.n_rows * heads * dim * dim * 4,
    )  # fmt: skip
    if n.norm is not None and not joined:
        _norm(low, n.norm)


@GPU.lowers(Op.SSM_GATED_NORM)
def norm_of_heads(low: GpuLowering, single: Single) -> None:
    """The norm of heads, times silu(z)."""
    _norm(low, single.node)


def _norm(low: GpuLowering, n: Node) -> None:
    o, z, weight = n.inputs
    attrs = attributes(n)
    heads, dim = int(attrs["n_heads"]), int(attrs["head_dim"])
    arguments = (low.at(o), low.at(z), low.at(weight), low.at(n.outputs[0]), lambda s: s.n_rows * heads, attrs["eps"])
    low.emit(
        n, gated_norm(dim), lambda s: (-(-s.n_rows * heads // 4),), arguments, "n_rows", (o, z), n.outputs
    )  # fmt: skip
