"""Matrix products, and the largest of their logits."""

from __future__ import annotations

from typing import Any

from zinc_rt.backends.cpu.lower.activations import pack
from zinc_rt.backends.cpu.lowering import CPU, CpuLowering, External
from zinc_rt.backends.cpu.program import UnitsPer
from zinc_rt.backends.fusion import Product, Single
from zinc_rt.ir.graph import BufferKind
from zinc_rt.ir.op import Op
from zinc_rt.kernels.cpu import layout, structs


@CPU.lowers(Product)
def product(low: CpuLowering, n: Product) -> None:
    """W x + bias over packed rows."""
    m, key = low.matrices[n.weight], ("pack", n.x, n.by_logit)
    if key not in low.out.packs:
        pack(low, n.node, n.x, by_logit=n.by_logit)
    arguments = {
        "w": External("tiles", m.name),
        "tile_bytes": m.tile_bytes,
        "pack": low.out.packs[key],
        "y": low.at(n.y),
        "bias": low.optional(n.bias),
        "n_out": m.n_out,
        "by_logit": int(n.by_logit),
    }
    low.emit(
        n.node, "lm_head" if n.by_logit else "matmul", low.choice.matmul(m.kind), structs.MatmulArgs, arguments,
        layout.n_tiles(m.n_out), UnitsPer.ONCE, (key,), (n.y,), m.n_bytes,
        again=low.graph.buffer(n.y).kind is BufferKind.TEMP,
    )  # fmt: skip


@CPU.lowers(Op.GROUP_MATMUL)
def grouped(low: CpuLowering, single: Single) -> None:
    """Parts of rows, packed part by part, times a matrix each."""
    (x, weight), y, node = single.node.inputs, single.node.outputs[0], single.node
    m, key, rows = low.matrices[weight], ("parts", x, node.id), low.sizes.n_rows
    slots = -(-rows // layout.BLOCK_ROWS) * layout.BLOCK_ROWS if rows >= layout.BLOCK_ROWS else rows
    packed = low.add_pack(key, m.n_in, m.count * slots, [m.kind])
    arguments: dict[str, Any] = {"x": low.at(x), "pack": packed, "n": m.n_in, "parts": m.count}
    low.emit(
        node, "pack", low.choice.grouped_pack(), structs.GroupedPackArgs, arguments, m.count, UnitsPer.ROWS, (x,),
        (key,),
    )  # fmt: skip
    arguments = {
        "pack": packed,
        "w": External("tiles", m.name),
        "y": low.at(y),
        "tile_bytes": m.tile_bytes,
        "n_out": m.n_out,
        "parts": m.count,
    }
    low.emit(
        node, "matmul", low.choice.grouped_matmul(m.kind), structs.GroupedArgs, arguments, m.count * m.n_tiles,
        UnitsPer.ONCE, (key,), (y,), m.n_bytes,
    )  # fmt: skip


@CPU.lowers(Op.ARGMAX)
def argmax(low: CpuLowering, single: Single) -> None:
    """The place of each row's largest element."""
    x, y = single.node.inputs[0], single.node.outputs[0]
    arguments = {"x": low.at(x), "y": low.at(y), "n": low.width(x)}
    low.emit(single.node, "argmax", low.choice.argmax(), structs.ArgmaxArgs, arguments, 1, low.scale(x), (x,), (y,))
