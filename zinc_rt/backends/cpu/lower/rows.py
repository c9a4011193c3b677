"""Operations on what comes with the rows of one step: rotation by own angles, attention among rows, given rows."""

from __future__ import annotations

from zinc_rt.backends.cpu.lowering import CPU, CpuLowering
from zinc_rt.backends.cpu.program import UnitsPer
from zinc_rt.backends.fusion import Single
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.cpu import rows

_QUERIES = 6
"""That are worked on side by side: with two vectors of keys (four of 16 lanes) they fill the registers."""


@CPU.lowers(Op.ROTATE)
def rotate(low: CpuLowering, single: Single) -> None:
    """Rotation of heads by a table with a row of its own for each row."""
    node, attrs = single.node, attributes(single.node)
    x, table = node.inputs
    arguments = {"x": low.at(x), "table": low.at(table), "y": low.at(node.outputs[0]), "n_heads": attrs["n_heads"]}
    tables = int(attrs["tables"])
    constants = {
        "DIM": attrs["head_dim"],
        "PAIRS": low.width(table) // (2 * tables),
        "TABLES": tables,
        "INTERLEAVED": bool(attrs["interleaved"]),
    }
    kernel = rows.rotate, constants
    low.emit(node, "rotate", kernel, rows.RotateArgs, arguments, 1, UnitsPer.ROWS, (x, table), (node.outputs[0],))


@CPU.lowers(Op.ROW_ATTN)
def row_attention(low: CpuLowering, single: Single) -> None:
    """Attention among the rows of the step."""
    node, y = single.node, single.node.outputs[0]
    names = ("q", "k", "v", "first", "last")
    arguments = {name: low.at(buffer) for name, buffer in zip(names, node.inputs, strict=True)}
    heads = int(node.attrs["n_heads"])
    arguments |= {"y": low.at(y), "n_heads": heads, "scale": float(node.attrs["scale"])}
    kernel = rows.row_attention, {"DIM": node.attrs["head_dim"], "W": low.choice.lanes, "R": _QUERIES}
    low.emit(
        node, "row attention", kernel, rows.RowAttentionArgs, arguments, heads, UnitsPer.ATTENTION, node.inputs, (y,)
    )


@CPU.lowers(Op.JOIN_HEADS)
def join_heads(low: CpuLowering, single: Single) -> None:
    """Heads with a tail behind each."""
    node, y = single.node, single.node.outputs[0]
    sizes = {"n_heads": "n_heads", "n_tails": "n_tails", "n_x": "head_dim", "n_tail": "tail_dim"}
    arguments = {"x": low.at(node.inputs[0]), "tail": low.at(node.inputs[1]), "y": low.at(y)}
    arguments |= {name: int(node.attrs[attr]) for name, attr in sizes.items()}
    low.emit(node, "join heads", (rows.join_heads, {}), rows.JoinArgs, arguments, 1, UnitsPer.ROWS, node.inputs, (y,))


@CPU.lowers(Op.GIVEN_ROWS)
def given_rows(low: CpuLowering, single: Single) -> None:
    """Rows that come with the step, in place of others or added to them."""
    node, y = single.node, single.node.outputs[0]
    arguments = {name: low.at(buffer) for name, buffer in zip(("x", "given", "is_given"), node.inputs, strict=True)}
    arguments |= {"y": low.at(y), "n": low.width(y), "n_given": low.width(node.inputs[1])}
    arguments["start"] = int(node.attrs.get("start", 0))
    kernel = rows.given_rows, {"ADD": bool(node.attrs.get("add", False))}
    low.emit(node, "given rows", kernel, rows.GivenRowsArgs, arguments, 1, UnitsPer.ROWS, node.inputs, (y,))
