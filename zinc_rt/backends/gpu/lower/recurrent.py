"""Recurrent layers: a workgroup for each sequence of the step, and part of its channels or heads."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any, NamedTuple

from zinc_rt.backends.fusion import Single
from zinc_rt.backends.gpu.fusion import DeltaNet, ProductConv
from zinc_rt.backends.gpu.lower import products
from zinc_rt.backends.gpu.lowering import ELSEWHERE, GPU, GpuLowering
from zinc_rt.backends.gpu.operations import BLOCKS, ArgumentBlock, StepShape, TempSpec, block_of, blocks_of
from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.gpu import catalogue
from zinc_rt.kernels.gpu.catalogue import FLOATS, conv1d, delta_net, gated_norm, matvec_conv, rows_before_norm
from zinc_rt.kernels.gpu.recurrent import (
    CHANNELS,
    FEW_VALUES,
    IN_REGISTERS,
    MOST_HEAD_DIM,
    MOST_TAPS,
    GpuConvArgs,
    GpuDeltaArgs,
)
from zinc_rt.kernels.gpu.scan import MOST_STATE, WAVES, GpuScanArgs
from zinc_rt.numerics import GROUP, SCAN_BLOCK


def sequences(low: GpuLowering, s: StepShape) -> int:
    """Workgroups for sequences: one for each row, or for each slot where these are fewer."""
    return min(s.n_rows, low.sizes.n_slots)


def rows_of(low: GpuLowering, positions: int, slots: int) -> dict[str, Any]:
    """What says to kernels which rows belong to a sequence."""
    return {
        "positions": low.at(positions),
        "slots": low.at(slots),
        "n_rows": lambda s: s.n_rows,
        "by_row": lambda s: int(s.n_rows <= low.sizes.n_slots),
    }


class Convolution(NamedTuple):
    """A convolution as its kernels take it; values: all arguments but what it reads."""

    form: dict[str, Any]
    values: dict[str, Any]
    channels: int
    state: int


def _convolution(low: GpuLowering, n: Node) -> Convolution:
    apart = "apart" in n.attrs
    weight, state, positions, slots, *bias = n.inputs[3 if apart else 1 :]
    channels, taps = (int(d) for d in low.graph.buffer(weight).shape)
    if not 2 <= taps <= MOST_TAPS:
        raise BackendError(
            f"node {n.name}: a convolution of {taps} taps; the GPU kernels do 2 to {MOST_TAPS}; {ELSEWHERE}"
        )
    values = {
        "weight": low.at(weight),
        "state": low.at(state),
        "bias": low.at(bias[0]) if bias else 0,
        "y": low.at(n.outputs[0]),
        "n_channels": channels,
        **rows_of(low, positions, slots),
    }
    form = {"taps": taps, "gated": attributes(n)["activation"] == "silu", "bias": bool(bias)}
    if apart:
        form["apart"] = True
    return Convolution(form, values, channels, state)


@GPU.lowers(Op.SSM_CONV1D)
def convolution(low: GpuLowering, single: Single) -> None:
    """A causal convolution of each channel; its last inputs are kept."""
    n = single.node
    given = n.inputs[: 3 if "apart" in n.attrs else 1]
    made = _convolution(low, n)
    sources = {name: low.at(x) for name, x in zip(("x", "x1", "x2"), given, strict=False)}
    block = ArgumentBlock(GpuConvArgs, {**made.values, **sources})
    low.emit(
        n,
        conv1d(**made.form),
        lambda s: (-(-made.channels // CHANNELS), sequences(low, s)),
        (block,),
        "n_rows",
        (*given, made.state),
        n.outputs,
        lambda s: s.n_rows * made.channels * made.form["taps"],
    )


@GPU.lowers(ProductConv)
def product_convolution(low: GpuLowering, n: ProductConv) -> None:
    """The product and the convolution: one dispatch where a block has all rows of the step, otherwise two."""
    product = n.product
    kind = low.format_of(product.node, product.weight)
    n_out, n_in = (int(d) for d in low.graph.buffer(product.weight).shape)
    made = _convolution(low, n.node)
    entries = {m: matvec_conv(kind, m, **made.form) for m in blocks_of(low.sizes.n_rows)}
    low.out.kernels += entries.values()
    keys: tuple[Hashable, ...] = (product.x,) if kind in FLOATS else low.pack(product.node, product.x, n_in, "n_rows")
    sources = (low.at(product.x),) if kind in FLOATS else tuple(map(TempSpec, keys))
    units = n_in if kind in FLOATS else n_in // GROUP
    block = ArgumentBlock(GpuConvArgs, made.values)
    with low.only(lambda s: s.n_rows <= BLOCKS[-1]):
        low.emit(
            n.node,
            lambda s: entries[block_of(s.n_rows)],
            lambda s: (-(-made.channels // rows_before_norm(block_of(s.n_rows))),),
            (low.at(product.weight), *sources, units, block),
            "n_rows",
            (*keys, made.state),
            (*n.node.outputs, made.state),
            lambda s: s.n_rows * n_out * n_in,
        )
    if low.sizes.n_rows > BLOCKS[-1]:
        with low.only(lambda s: s.n_rows > BLOCKS[-1]):
            products.product(low, product)
            convolution(low, Single(n.node))


@GPU.lowers(DeltaNet)
def gated_delta_rule(low: GpuLowering, n: DeltaNet) -> None:
    """The gated delta rule; the norm of its heads in the same dispatch where a workgroup has whole heads."""
    node, attrs = n.node, attributes(n.node)
    u, alpha, beta, decay, dt_bias, state, positions, slots = node.inputs
    n_k, heads, dim = (int(attrs[a]) for a in ("n_k_heads", "n_v_heads", "head_dim"))
    if dim > MOST_HEAD_DIM:
        raise BackendError(
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
        "lower_bound": float(attrs.get("lower_bound", 0.0)),
        **dict(zip(("q", "d", "s") if packed else ("y",), results, strict=True)), **rows_of(low, positions, slots),
    }  # fmt: skip
    reads: tuple[int, ...] = (u, alpha, beta, state)
    kind = "bounded" if "lower_bound" in attrs else str(attrs.get("decay", "head"))
    norm = ""
    if joined and n.norm is not None:
        _, z, weight = n.norm.inputs
        values |= {"z": low.at(z), "weight": low.at(weight), "norm_eps": float(attributes(n.norm)["eps"])}
        reads, norm = (*reads, z), str(attributes(n.norm)["activation"])
    blocks = 1 if dim <= IN_REGISTERS else -(-dim // FEW_VALUES)
    low.emit(
        node,
        delta_net(dim, norm=norm, packed=packed, decay=kind),
        lambda s: (heads, sequences(low, s), blocks),
        (ArgumentBlock(GpuDeltaArgs, values),),
        "n_rows",
        reads,
        (*(p.key for p in results), state),
        lambda s: s.n_rows * heads * dim * dim * 4,
    )
    if n.norm is not None and not joined:
        _norm(low, n.norm)


@GPU.lowers(Op.SSM_SCAN)
def selective_scan(low: GpuLowering, single: Single) -> None:
    """The selective scan: of heads, or of channels as one head."""
    n, attrs = single.node, attributes(single.node)
    *read, state, positions, slots = n.inputs
    dim, size, per_channel = int(attrs["head_dim"]), int(attrs["state_size"]), bool(attrs.get("per_channel"))
    if size > MOST_STATE:
        raise BackendError(
            f"node {n.name}: states of {size} elements; the GPU kernels do up to {MOST_STATE}; {ELSEWHERE}"
        )
    heads, groups = (1, 1) if per_channel else (int(attrs["n_heads"]), int(attrs["n_groups"]))
    names = ("x", "b", "c", "dt", "decay") if per_channel else ("x", "dt", "decay", "dt_bias", "d")
    values: dict[str, Any] = dict.fromkeys(("b", "c", "dt_bias", "d"), 0)
    values |= dict(zip(names, map(low.at, read), strict=True))
    values |= {
        "state": low.at(state),
        "y": low.at(n.outputs[0]),
        "width": low.width(read[0]),
        "n_heads": heads,
        "share": heads // groups,
        **rows_of(low, positions, slots),
    }
    units, each = heads * -(-dim // 32), WAVES // -(-size // SCAN_BLOCK)
    low.emit(
        n,
        catalogue.selective_scan(dim, size, per_channel=per_channel),
        lambda s: (-(-units // each), sequences(low, s)),
        (ArgumentBlock(GpuScanArgs, values),),
        "n_rows",
        (*read, state),
        n.outputs,
        lambda s: s.n_rows * heads * dim * size * 3,
    )


@GPU.lowers(Op.SSM_GATED_NORM)
def norm_of_heads(low: GpuLowering, single: Single) -> None:
    """The norm of heads, times silu(z) or sigmoid(z)."""
    _norm(low, single.node)


def _norm(low: GpuLowering, n: Node) -> None:
    o, z, weight = n.inputs
    attrs = attributes(n)
    heads, dim = int(attrs["n_heads"]), int(attrs["head_dim"])
    if attrs.get("gate_first"):
        given = (*map(low.at, (o, z, weight, n.outputs[0])), heads, attrs["eps"])
        low.emit(n, catalogue.gate_first_norm(dim), lambda s: (heads, s.n_rows), given, "n_rows", (o, z), n.outputs)
        return
    arguments = (low.at(o), low.at(z), low.at(weight), low.at(n.outputs[0]), lambda s: s.n_rows * heads, attrs["eps"])
    low.emit(
        n,
        gated_norm(dim, str(attrs["activation"])),
        lambda s: (-(-s.n_rows * heads // 4),),
        arguments,
        "n_rows",
        (o, z),
        n.outputs,
    )
