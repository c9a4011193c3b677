"""Operations on what comes with the rows of one step: rotation by own angles, attention among rows, given rows."""

from __future__ import annotations

from typing import Final

from zinc_rt.backends.fusion import Single
from zinc_rt.backends.gpu.lowering import GPU, GpuLowering
from zinc_rt.errors import BackendError
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.kernels.gpu import rows
from zinc_rt.kernels.gpu.catalogue import KernelEntry
from zinc_rt.lang.frontend import Spec

_MAX_DIM: Final = 256
"""Elements of a head: a lane of the workgroup has one of them."""


@GPU.lowers(Op.ROTATE)
def rotate(low: GpuLowering, single: Single) -> None:
    """Rotation of heads by a table with a row of its own for each row."""
    node, y = single.node, single.node.outputs[0]
    x, table = node.inputs
    n, attrs = low.width(y), attributes(node)
    tables = int(attrs["tables"])
    constants = {
        "DIM": int(attrs["head_dim"]),
        "PAIRS": low.width(table) // (2 * tables),
        "TABLES": tables,
        "INTERLEAVED": bool(attrs["interleaved"]),
    }
    entry = KernelEntry(Spec(rows.rotate, constants), ("x", "table", "y", "n"), "ceil(n / 256), rows")
    arguments = (low.at(x), low.at(table), low.at(y), n)
    low.emit(node, entry, lambda s: (-(-n // 256), s.n_rows), arguments, "n_rows", (x, table), (y,))


@GPU.lowers(Op.ROW_ATTN)
def row_attention(low: GpuLowering, single: Single) -> None:
    """Attention among the rows of the step. Raises `BackendError` for heads that are too wide."""
    node, y = single.node, single.node.outputs[0]
    dim, n_heads = int(node.attrs["head_dim"]), int(node.attrs["n_heads"])
    if dim > _MAX_DIM:
        raise BackendError(f"node {node.name}: heads of {dim} elements; the kernel takes up to {_MAX_DIM}")
    names = ("q", "k", "v", "first", "last", "y", "n_heads", "scale")
    entry = KernelEntry(Spec(rows.row_attention, {"DIM": dim}), names, "n_heads, rows")
    arguments = (*map(low.at, node.inputs), low.at(y), n_heads, float(node.attrs["scale"]))
    low.emit(node, entry, lambda s: (n_heads, s.n_rows), arguments, "n_rows", node.inputs, (y,))


@GPU.lowers(Op.JOIN_HEADS)
def join_heads(low: GpuLowering, single: Single) -> None:
    """Heads with a tail behind each."""
    node, y = single.node, single.node.outputs[0]
    n, sizes = low.width(y), tuple(int(node.attrs[name]) for name in ("n_heads", "n_tails", "head_dim", "tail_dim"))
    names = ("x", "tail", "y", "n_heads", "n_tails", "n_x", "n_tail")
    entry = KernelEntry(Spec(rows.join_heads, {}), names, "ceil(n_heads * (n_x + n_tail) / 256), rows")
    arguments = (*map(low.at, node.inputs), low.at(y), *sizes)
    low.emit(node, entry, lambda s: (-(-n // 256), s.n_rows), arguments, "n_rows", node.inputs, (y,))


@GPU.lowers(Op.GIVEN_ROWS)
def given_rows(low: GpuLowering, single: Single) -> None:
    """Rows that come with the step, in place of others or added to them."""
    node, y = single.node, single.node.outputs[0]
    n, n_given, start = low.width(y), low.width(node.inputs[1]), int(node.attrs.get("start", 0))
    spec = Spec(rows.given_rows, {"ADD": bool(node.attrs.get("add", False))})
    names = ("x", "given", "is_given", "y", "n", "n_given", "start")
    entry = KernelEntry(spec, names, "ceil(n / 256), rows")
    arguments = (*map(low.at, node.inputs), low.at(y), n, n_given, start)
    low.emit(node, entry, lambda s: (-(-n // 256), s.n_rows), arguments, "n_rows", node.inputs, (y,))
