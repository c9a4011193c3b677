"""Matrix products, and the largest of their logits."""

from __future__ import annotations

from collections.abc import Hashable

from zinc_rt.backends.fusion import Product, Single
from zinc_rt.backends.gpu.lowering import GPU, GpuLowering
from zinc_rt.backends.gpu.operations import TempSpec, block_of
from zinc_rt.backends.lowering import Counted
from zinc_rt.ir.op import Op
from zinc_rt.kernels.gpu import block_tiles, float_tiles
from zinc_rt.kernels.gpu.argmax import PART
from zinc_rt.kernels.gpu.catalogue import (
    DECODE,
    FLOATS,
    QUANTIZED,
    block_tile,
    float_tile,
    grouped_rows,
    matvec_rows,
    rows_of_workgroup,
)
from zinc_rt.numerics import GROUP

FEW_FOR_TILES = 256
"""Rows of float weights up to which tiles would be too few to fill a GPU: those of routers and gates."""


@GPU.lowers(Product)
def product(low: GpuLowering, n: Product) -> None:
    """Rows of activations, or the wanted ones, times a matrix, plus a bias where there is one."""
    x: Hashable = n.x if n.logit_rows is None else low.wanted(n.node, n.x, n.logit_rows)
    counted: Counted = "n_rows" if n.logit_rows is None else "n_logits"
    kind = low.format_of(n.node, n.weight)
    n_out, n_in = (int(d) for d in low.graph.buffer(n.weight).shape)
    if low.tiles and counted == "n_rows" and (kind in QUANTIZED or n_out > FEW_FOR_TILES):
        _of_many_rows(low, n, kind)
        return
    entries = {m: matvec_rows(kind, m, bias=n.bias is not None) for m in low.blocks(counted)}
    low.out.kernels += entries.values()
    keys: tuple[Hashable, ...] = (x,) if kind in FLOATS else low.pack(n.node, x, n_in, counted)
    n_units = n_in if kind in FLOATS else n_in // GROUP
    bias = () if n.bias is None else (low.at(n.bias),)
    arguments = (low.at(n.weight), *map(TempSpec, keys), *bias, low.at(n.y), n_units, n_out)
    across = {m: rows_of_workgroup(kind, m) for m in entries}
    low.emit(
        n.node,
        lambda s: entries[block_of(getattr(s, counted))],
        lambda s: (
            -(-n_out // across[block_of(getattr(s, counted))]),
            -(-getattr(s, counted) // block_of(getattr(s, counted))),
        ),
        arguments,
        counted,
        keys,
        (n.y,),
        lambda s: getattr(s, counted) * n_out * n_in,
    )


def _of_many_rows(low: GpuLowering, n: Product, kind: str) -> None:
    """By tiles of rows: of blocks by matrix instructions, of floats by chains that share what they load."""
    n_out, n_in = (int(d) for d in low.graph.buffer(n.weight).shape)
    bias = () if n.bias is None else (low.at(n.bias),)
    if kind in FLOATS:
        x, units, entry = TempSpec(n.x), n_in, float_tile(kind, bias=bool(bias))
        rows, columns = float_tiles.TILE_X, float_tiles.TILE_W
    else:
        x, units, entry = TempSpec(low.slabs(n.node, n.x, n_in)), n_in // GROUP, block_tile(kind, bias=bool(bias))
        rows, columns = block_tiles.TILE_X, block_tiles.TILE_W
    low.emit(
        n.node,
        entry,
        lambda s: (-(-s.n_rows // rows), -(-n_out // columns)),
        (low.at(n.weight), x, *bias, low.at(n.y), units, n_out, lambda s: s.n_rows),
        "n_rows",
        (x.key,),
        (n.y,),
        lambda s: s.n_rows * n_out * n_in,
    )


@GPU.lowers(Op.GROUP_MATMUL)
def grouped(low: GpuLowering, single: Single) -> None:
    """Parts of rows times a matrix each."""
    node, (x, weight), y = single.node, single.node.inputs, single.node.outputs[0]
    kind = low.format_of(node, weight)
    parts, n_out, n_in = (int(d) for d in low.graph.buffer(weight).shape)
    entries = {m: grouped_rows(kind, m) for m in low.blocks("n_rows")}
    low.out.kernels += entries.values()
    keys: tuple[Hashable, ...] = (x,) if kind in FLOATS else low.pack(node, x, parts * n_in, "n_rows")
    n_units = n_in if kind in FLOATS else n_in // GROUP
    low.emit(
        node,
        lambda s: entries[block_of(s.n_rows)],
        lambda s: (-(-n_out // 4), -(-s.n_rows // block_of(s.n_rows)), parts),
        (low.at(weight), *map(TempSpec, keys), low.at(y), n_units, n_out, parts),
        "n_rows",
        keys,
        (y,),
        lambda s: s.n_rows * parts * n_out * n_in,
    )


@GPU.lowers(Op.ARGMAX)
def argmax(low: GpuLowering, single: Single) -> None:
    """The place of each row's largest element; long rows are cut into parts."""
    n, x, y = single.node, single.node.inputs[0], single.node.outputs[0]
    width, counted = low.width(x), low.counted(x)
    if width <= PART:
        low.rows(n, "argmax", counted, (low.at(x), low.at(y), width), (x,), (y,))
        return
    parts = -(-width // PART)
    tops, places = (low.room((what, n.id), counted, parts * 4) for what in ("best", "place"))
    between = (tops.key, places.key)
    low.emit(
        n,
        DECODE["argmax_parts"],
        lambda s: (parts, getattr(s, counted)),
        (low.at(x), tops, places, width, parts),
        counted,
        (x,),
        between,
    )
    low.rows(n, "argmax_merge", counted, (tops, places, low.at(y), parts), between, (y,))
