"""Rows of activations: embeddings, norms, sums, SwiGLU; as int8 where only products read them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zinc_rt.backends.arrays import n_bytes
from zinc_rt.backends.fusion import Gate, NormRows, Single
from zinc_rt.backends.gpu.lowering import FOUR, GPU, GpuLowering, pack_keys, wanted_key
from zinc_rt.backends.gpu.operations import ArgumentBlock, TempSpec
from zinc_rt.backends.lowering import Counted
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import product_weights
from zinc_rt.kernels.gpu.catalogue import DECODE, FLOATS, KernelEntry, gate_kernels, plain_norm, sum_norm
from zinc_rt.kernels.gpu.norm import GpuSumNormArgs

HOST_TABLE = 256 << 20
"""Bytes from which on a table of which steps read rows alone stays in the host's memory."""


@GPU.lowers(Op.EMBED)
def embed(low: GpuLowering, single: Single) -> None:
    """Rows of the file's table; of a large one that no product reads, the host brings them."""
    (ids, table), y = single.node.inputs, single.node.outputs[0]
    width = int(low.graph.buffer(table).shape[1])
    kind = low.format_of(single.node, table)
    span = 256 if kind in FLOATS else 2048
    rows, numbers = low.at(table), low.at(ids)
    per_row = int(single.node.attrs.get("per_row", 1))
    large = n_bytes(low.graph.buffer(table), low.sizes) >= HOST_TABLE
    if large and "per_row" not in single.node.attrs and table not in product_weights(low.graph):
        low.out.gathered[table] = ids
        rows, numbers = TempSpec(("gathered", table)), TempSpec("row numbers")
    low.emit(
        single.node,
        DECODE[f"embed_{kind.lower()}"],
        lambda s: (-(-width // span), s.n_rows * per_row),
        (rows, numbers, low.at(y), width),
        "n_rows",
        (ids,),
        (y,),
    )


@GPU.lowers(NormRows)
def norm(low: GpuLowering, n: NormRows) -> None:
    """A norm of rows or of the sum of two; of the wanted rows where no others matter, which are gathered first."""
    width, wanted = low.width(n.y), n.logit_rows
    quantized = low.only_packed(n.y, by_logit=wanted is not None)
    summed = n.residual is not None or n.weight is not None
    both = wanted is None and not quantized and summed and low.also_packed(n.y)
    if wanted is None:
        sources = [low.at(x) for x in n.sources]
        total = () if n.total is None else (low.at(n.total),)
        results: tuple[TempSpec, ...] = () if quantized else (low.at(n.y),)
        if quantized or both:
            results += low.packed(n.y, width)
    else:
        key = wanted_key(n.y)
        low.there.add(key)
        sources = [TempSpec(low.wanted(n.node, x, wanted)) for x in n.sources]
        total = () if n.total is None else (low.room(wanted_key(n.total), "n_logits", width * 4),)
        results = low.packed(key, width, "n_logits") if quantized else (low.room(key, "n_logits", width * 4),)
    entry, arguments = _norm_kernel(low, n, sources, total, results)
    counted: Counted = "n_rows" if wanted is None else "n_logits"
    low.emit(
        n.node,
        entry,
        lambda s: (getattr(s, counted),),
        arguments,
        counted,
        tuple(s.key for s in sources),
        tuple(t.key for t in (*total, *results)),
    )


def _norm_kernel(
    low: GpuLowering, n: NormRows, sources: Sequence[TempSpec], total: Sequence[TempSpec], results: Sequence[TempSpec]
) -> tuple[KernelEntry, tuple[Any, ...]]:
    """The kernel of a norm, and its arguments. results: rows, or quants, scales and sums, or all four."""
    fields = {1: ("y",), 3: ("q", "d", "s"), 4: ("y", "q", "d", "s")}[len(results)]
    quantized, both, width = len(results) >= 3, len(results) == 4, low.width(n.y)
    w: Any = sources[0] if n.weight is None else low.at(n.weight)  # not read where there is none
    factors = (n.residual_scale, n.total_scale)
    if n.residual is not None and (both or n.weight is None or factors != (None, None)):
        places = dict(zip(fields, results, strict=True))
        share, whole = (1.0 if factor is None else factor for factor in factors)
        block = ArgumentBlock(GpuSumNormArgs, {
            "x": sources[0], "residual": sources[1], "w": w, "total": total[0], **places, "n": width, "eps": n.eps,
            "residual_scale": share, "total_scale": whole,
        })  # fmt: skip
        return sum_norm(weight=n.weight is not None, quantized=quantized, both=both), (block,)
    arguments = (*sources, w, *total, *results, width, n.eps)
    if n.weight is None:
        return plain_norm(quantized=quantized), arguments
    prefix = "" if n.residual is None else "residual_"
    return DECODE[prefix + {1: "rms_norm", 3: "norm_quantized", 4: "norm_both"}[len(results)]], arguments


@GPU.lowers(Op.SCALE, Op.SOFTCAP)
def scale(low: GpuLowering, single: Single) -> None:
    """Rows times a number, or held under one."""
    x, y, attrs = single.node.inputs[0], single.node.outputs[0], single.node.attrs
    kernel, key = ("scale", "factor") if single.node.op is Op.SCALE else ("softcap", "cap")
    low.elements(single.node, kernel, low.counted(y), low.width(y), (low.at(x), low.at(y), attrs[key]), (x,), (y,))


@GPU.lowers(Op.CLAMP)
def clamp(low: GpuLowering, single: Single) -> None:
    """Rows held between two numbers."""
    x, y, attrs = single.node.inputs[0], single.node.outputs[0], single.node.attrs
    arguments = (low.at(x), low.at(y), attrs["low"], attrs["high"])
    low.elements(single.node, "clamp", low.counted(y), low.width(y), arguments, (x,), (y,))


@GPU.lowers(Op.POSITION_SCALE)
def position_scale(low: GpuLowering, single: Single) -> None:
    """Rows times the number of their position."""
    (x, positions, factors), y = single.node.inputs, single.node.outputs[0]
    width = low.width(y)
    low.emit(
        single.node,
        DECODE["position_scale"],
        lambda s: (-(-width // 256), s.n_rows),
        (low.at(x), low.at(positions), low.at(factors), low.at(y), width),
        "n_rows",
        (x,),
        (y,),
    )


@GPU.lowers(Op.BIAS_ADD)
def bias_add(low: GpuLowering, single: Single) -> None:
    """A vector added to every row."""
    (a, b), y = single.node.inputs, single.node.outputs[0]
    width, counted = low.width(y), low.counted(y)
    low.emit(
        single.node,
        DECODE["add_row"],
        lambda s: (-(-width // 256), getattr(s, counted)),
        (low.at(a), low.at(b), low.at(y), width),
        counted,
        (a, b),
        (y,),
    )


@GPU.lowers(Op.RESIDUAL_ADD)
def residual_add(low: GpuLowering, single: Single) -> None:
    """A sum of rows."""
    (a, b), y = single.node.inputs, single.node.outputs[0]
    arguments = low.at(a), low.at(b), low.at(y)
    low.elements(single.node, "add", low.counted(y), low.width(y), arguments, (a, b), (y,))


@GPU.lowers(Gate)
def gate(low: GpuLowering, n: Gate) -> None:
    """activation(gate) * up."""
    width, operands, reads = low.width(n.y), (low.at(n.gate), low.at(n.up)), (n.gate, n.up)
    floats, packed, part = gate_kernels(n.activation)
    numbers, counted = (n.alpha, n.limit), low.counted(n.y)
    if low.width(n.up) != width:
        arguments = (*operands, low.at(n.y), width, n.up_start, low.width(n.up), *numbers)
        low.emit(n.node, part, lambda s: (-(-width // 256), getattr(s, counted)), arguments, counted, reads, (n.y,))
        return
    quantized = low.only_packed(n.y)
    results = low.packed(n.y, width) if quantized else (low.at(n.y),)
    low.emit(
        n.node,
        packed if quantized else floats,
        lambda s: (-(-getattr(s, counted) * width // FOUR),),
        (*operands, *results, lambda s: getattr(s, counted) * width, *numbers),
        counted,
        reads,
        pack_keys(n.y) if quantized else (n.y,),
    )


@GPU.lowers(Op.MUL, Op.SIGMOID_MUL)
def mul(low: GpuLowering, single: Single) -> None:
    """A product of rows, or of rows and the sigmoid of others, which may have one element for each head."""
    (a, b), y, attrs = single.node.inputs, single.node.outputs[0], single.node.attrs
    kernel, width, counted = "mul" if single.node.op is Op.MUL else "sigmoid_mul", low.width(y), low.counted(y)
    if "head_dim" in attrs:
        arguments = (low.at(a), low.at(b), low.at(y), attrs["head_dim"], lambda s: getattr(s, counted) * width)
        groups = lambda s: (-(-getattr(s, counted) * width // 256),)  # noqa: E731
        low.emit(single.node, DECODE[f"{kernel}_heads"], groups, arguments, counted, (a, b), (y,))
        return
    low.elements(single.node, kernel, low.counted(y), low.width(y), (low.at(a), low.at(b), low.at(y)), (a, b), (y,))
