"""Heads, by themselves or behind the product that makes them."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from zinc_rt.backends.caches import quantized_caches
from zinc_rt.backends.fusion import HeadsWrite
from zinc_rt.backends.gpu.fusion import ProductHeads
from zinc_rt.backends.gpu.lower.attention import MAX_KEY_DIM
from zinc_rt.backends.gpu.lowering import ELSEWHERE, GPU, GpuLowering
from zinc_rt.backends.gpu.operations import ArgumentBlock, TempSpec, block_of, blocks_of
from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op
from zinc_rt.kernels.gpu.catalogue import FLOATS, HeadForm, head_form, heads_kernel, matvec_heads, rows_before_heads
from zinc_rt.kernels.gpu.heads import GpuHeadsArgs
from zinc_rt.numerics import GROUP


class Placed(NamedTuple):
    """The work on heads: its form, its arguments, and the names of the buffers that it writes."""

    form: HeadForm
    values: dict[str, Any]
    writes: tuple[Hashable, ...]


@GPU.lowers(HeadsWrite)
def heads(low: GpuLowering, n: HeadsWrite) -> None:
    """Norm, rotation and placing of heads."""
    placed, h = _placed(low, n), n.heads
    low.emit(
        n.node,
        heads_kernel(placed.form),
        lambda s: (-(-s.n_rows * h.n_heads // 4),),
        (ArgumentBlock(GpuHeadsArgs, placed.values),),
        "n_rows",
        (h.source,),
        placed.writes,
    )


@GPU.lowers(ProductHeads)
def product_heads(low: GpuLowering, n: ProductHeads) -> None:
    """The product, and its heads by the workgroups that are the last of one."""
    product, y, n_heads, dim = n.product, n.product.y, n.heads[0].heads.n_heads, n.heads[0].heads.dim
    placed = [_placed(low, part) for part in n.heads]
    forms = [part.form for part in placed]
    kind = low.format_of(product.node, product.weight)
    n_out, n_in = (int(d) for d in low.graph.buffer(product.weight).shape)
    bias = () if product.bias is None else (low.at(product.bias),)
    entries = {m: matvec_heads(kind, m, n_in, *forms, bias=bool(bias)) for m in blocks_of(low.sizes.n_rows)}
    low.out.kernels += entries.values()
    keys: tuple[Hashable, ...] = (product.x,) if kind in FLOATS else low.pack(product.node, product.x, n_in, "n_rows")
    sources = (low.at(product.x),) if kind in FLOATS else tuple(map(TempSpec, keys))
    units = n_in if kind in FLOATS else n_in // GROUP
    counters = low.counters(product.node, n_heads)
    first, *others = (ArgumentBlock(GpuHeadsArgs, {**part.values, "counters": counters}) for part in placed)
    low.emit(
        product.node,
        lambda s: entries[block_of(s.n_rows)],
        lambda s: (n_out // rows_before_heads(block_of(s.n_rows), dim), -(-s.n_rows // block_of(s.n_rows))),
        (low.at(product.weight), *sources, *bias, units, n_out, first, *(others or [first])),
        "n_rows",
        (*keys, y),
        (y, *(key for part in placed for key in part.writes)),
        lambda s: s.n_rows * n_out * n_in,
    )


def _placed(low: GpuLowering, n: HeadsWrite) -> Placed:
    h = n.heads
    _check_head(n.node, h.dim)
    if h.table is not None and h.table not in low.out.rotations:
        low.out.rotations.append(h.table)
    values: dict[str, Any] = {
        "x": low.at(h.source),
        "weight": low.optional(h.weight),
        "table": 0 if h.table is None else TempSpec(("rotation", h.table)),
        "n_heads": h.n_heads,
        "n_rows": lambda s: s.n_rows,
        "eps": h.eps,
        "positions": low.optional(h.positions),
    }
    if n.where:
        positions, slots, pages = n.where
        values |= {
            "positions": low.at(positions),
            "slots": low.at(slots),
            "page_table": low.at(pages),
            "max_pages": low.sizes.max_pages,
        }
    packed = not n.cache and _only_quantized_queries(low, n.target, h.dim)
    writes: tuple[Hashable, ...] = (n.target,)
    if packed:
        places = low.packed(n.target, low.width(n.target))
        values |= dict(zip(("quants", "scales", "sums"), places, strict=True))
        writes = tuple(place.key for place in places)
    else:
        values["cache" if n.cache else "y"] = low.at(n.target)
    form = head_form(
        h.dim, h.pairs, interleaved=h.interleaved, norm=h.normed, weight=h.weight is not None, cache=bool(n.cache),
        row=n.row, start=n.start, quantized=bool(n.cache) and quantized_caches(low.graph, n.node, n.target),
        packed=packed, begin=h.begin, every=n.block,
    )  # fmt: skip
    return Placed(form, values, writes)


def _only_quantized_queries(low: GpuLowering, buffer: int, dim: int) -> bool:
    """Whether a buffer's rows are nothing but queries over caches of blocks, which want them as int8."""
    readers = low.fused.readers(buffer)
    return (
        dim % GROUP == 0
        and bool(readers)
        and not low.fused.kept(buffer)
        and all(n.op is Op.FLASH_ATTN and quantized_caches(low.graph, n, *_caches(n)) for n in readers)
    )


def _caches(n: Node) -> tuple[int, ...]:
    """The buffers of keys and values that a node of attention reads."""
    return (n.inputs[2],) if "latent_dim" in n.attrs else (n.inputs[1], n.inputs[2])


def _check_head(n: Node, dim: int) -> None:
    """Raise `BackendError` for heads that the kernels cannot write."""
    if dim > MAX_KEY_DIM:
        raise BackendError(
            f"node {n.name}: heads of {dim} elements; the GPU kernels do up to {MAX_KEY_DIM}; {ELSEWHERE}"
        )
