"""Products and sums of experts whose last workgroup norms the residual stream."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from zinc_rt.backends.amdgpu.joins import ExpertsDown, Normed
from zinc_rt.backends.amdgpu.lower.experts import down_arguments
from zinc_rt.backends.amdgpu.lowering import GPU, GpuLowering
from zinc_rt.backends.amdgpu.operations import BLOCKS, ArgumentBlock, TempSpec, block_of, padded_rows
from zinc_rt.backends.fusion import NormRows, Product
from zinc_rt.kernels.rdna.catalogue import FLOATS, experts_down_norm, matvec_norm
from zinc_rt.kernels.rdna.tails import WAVES, GpuNormTail
from zinc_rt.numerics import GROUP


@GPU.lowers(Normed)
def normed(low: GpuLowering, n: Normed) -> None:
    """What makes one side of the sum, then the sum and its norm."""
    forms, values, reads, writes = _tail(low, n)
    tail = ArgumentBlock(GpuNormTail, values)
    if isinstance(n.source, ExpertsDown):
        _experts(low, n.source, tail, forms, reads, writes)
    else:
        _product(low, n.source, tail, forms, reads, writes)


def _tail(
    low: GpuLowering, n: Normed
) -> tuple[dict[str, Any], dict[str, Any], tuple[Hashable, ...], tuple[Hashable, ...]]:
    """The norm's forms of result, its arguments, what it reads, and what it writes."""
    norm: NormRows = n.norm
    assert norm.residual is not None
    assert norm.total is not None
    assert norm.weight is not None
    other = norm.residual if norm.x == n.source.y else norm.x
    quantized = low.only_packed(norm.y)
    packed = quantized or low.also_packed(norm.y)
    values: dict[str, Any] = {
        "counters": low.counters(n.node), "residual": low.at(other), "weight": low.at(norm.weight),
        "total": low.at(norm.total), "n_rows": lambda s: s.n_rows, "eps": norm.eps,
    }  # fmt: skip
    writes: tuple[Hashable, ...] = (norm.total,)
    if packed:
        places = low.packed(norm.y, low.width(norm.y))
        values |= dict(zip(("q", "d", "s"), places, strict=True))
        writes = (*writes, *(place.key for place in places))
    if not quantized:
        values["y"] = low.at(norm.y)
        writes = (*writes, norm.y)
    # The last workgroup loads what all have stored.
    return {"packed": packed, "plain": not quantized}, values, (other, n.source.y), writes


def _product(
    low: GpuLowering, n: Product, tail: ArgumentBlock, forms: dict[str, Any], reads: tuple[Hashable, ...],
    writes: tuple[Hashable, ...],
) -> None:  # fmt: skip
    kind = low.format_of(n.node, n.weight)
    n_out, n_in = (int(d) for d in low.graph.buffer(n.weight).shape)
    bias = () if n.bias is None else (low.at(n.bias),)
    entries = {m: matvec_norm(kind, m, bias=bool(bias), **forms) for m in BLOCKS if m <= padded_rows(low.sizes.n_rows)}
    low.out.kernels += entries.values()
    keys: tuple[Hashable, ...] = (n.x,) if kind in FLOATS else low.pack(n.node, n.x, n_in, "n_rows")
    units = n_in if kind in FLOATS else n_in // GROUP
    sources = (low.at(n.x),) if kind in FLOATS else tuple(map(TempSpec, keys))
    low.emit(
        n.node, lambda s: entries[block_of(s.n_rows)],
        lambda s: (-(-n_out // WAVES), -(-s.n_rows // block_of(s.n_rows))),
        (low.at(n.weight), *sources, *bias, low.at(n.y), units, n_out, tail), "n_rows", (*keys, *reads),
        (n.y, *writes), lambda s: s.n_rows * n_out * n_in,
    )  # fmt: skip


def _experts(
    low: GpuLowering, n: ExpertsDown, tail: ArgumentBlock, forms: dict[str, Any], reads: tuple[Hashable, ...],
    writes: tuple[Hashable, ...],
) -> None:  # fmt: skip
    made = down_arguments(low, n)
    entry = experts_down_norm(**made.constants, **forms)
    low.emit(
        n.node, entry, lambda s: (-(-made.n_out // WAVES), s.n_rows),
        (made.block, tail), "n_rows", (*made.reads, *reads), (n.y, *writes), lambda s: s.n_rows * made.work,
    )  # fmt: skip
