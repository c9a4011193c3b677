"""Operations on what comes with the rows of one step: rotation by own angles, attention among rows, given rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zinc_rt.ir.definition import (
    ACTIVATION,
    HEAD_ROW,
    HEADS,
    INT32,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    Port,
    activation,
    heads,
)
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.rope import rope_rows, rotated_part_fits
from zinc_rt.ir.unify import Bindings
from zinc_rt.kernels.reference.attention import Scores, attend_rows

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView


def _rotate(at: Operands) -> None:
    x, table = at.inputs
    n = int(at.attrs["tables"])
    pairs, out = table.reshape(len(table), n, -1, 2), heads(at, at.outputs[0])
    for i in range(n):
        own = np.s_[:, i::n]
        out[own] = rope_rows(heads(at, x)[own], pairs[:, i], interleaved=bool(at.attrs["interleaved"]))


def _row_attention(at: Operands) -> None:
    """Rows that see the same rows are computed together."""
    q, k, v = (heads(at, x) for x in at.inputs[:3])
    first, last = at.inputs[3:]
    out = heads(at, at.outputs[0])
    scoring = Scores(float(at.attrs["scale"]))
    for begin, end in sorted(set(zip(first.tolist(), last.tolist(), strict=True))):
        rows = np.flatnonzero((first == begin) & (last == end))
        seen = slice(begin, end + 1)
        out[rows] = attend_rows(q[rows], k[seen], v[seen], np.full(len(rows), end - begin), scoring)


def _given(at: Operands) -> None:
    x, given, is_given = at.inputs
    y, start = at.outputs[0], int(at.attrs["start"])
    y[...] = x
    rows = is_given != 0
    part = given[rows, start : start + x.shape[1]]
    with np.errstate(all="ignore"):
        y[rows] = x[rows] + part if at.attrs["add"] else part


def _part_fits(bound: Bindings) -> str | None:
    start, n, width = (bound.value(name) for name in ("start", "n", "n_given"))
    if None not in (start, n, width) and start + n > width:  # type: ignore[operator]
        return f"elements {start} to {start + n - 1} of given rows, which have {width}"  # type: ignore[operator]
    return None


def _attention_operations(cost: CostView) -> int:
    """Per head and row seen: dot product, scale, maximum, difference, exponential, sum, weighted value."""
    rows, dim = cost.dim(0, 0), cost.attr("head_dim")
    return rows * cost.attr("n_heads") * (rows * (4 * dim + 5) + dim)


_SEEN = tuple(Port(name, INT32, ("R",), ACTIVATION) for name in ("first", "last"))
_IS_GIVEN = Port("is_given", INT32, ("R",), ACTIVATION)
_KV = tuple(activation(name, "R", "n_heads", "head_dim") for name in "kv")

OPS = (
    OpDefinition(
        Op.ROTATE,
        OpSignature(
            (HEAD_ROW, activation("table", "R", "tables", "rope_dim/2", 2)),
            (activation("y", "R", "n_heads", "head_dim"),),
            # tables: so many stand side by side in a row; head h turns by table h % tables.
            {"interleaved": AttrSpec(bool), "tables": AttrSpec(int, default=1, at_least=1), **HEADS},
            (rotated_part_fits,),
        ),
        reference=_rotate,
        # Two multiplications and one addition for each rotated element.
        operations=lambda cost: 3 * cost.attr("n_heads") * cost.elements(1),
    ),
    OpDefinition(
        Op.ROW_ATTN,
        OpSignature(
            (activation("q", "R", "n_heads", "head_dim"), *_KV, *_SEEN),
            (activation("y", "R", "n_heads", "head_dim"),),
            {"scale": AttrSpec(float), **HEADS},
        ),
        reference=_row_attention,
        operations=_attention_operations,
    ),
    # y = x, but for rows whose `is_given` is not 0: those are the given row's elements from `start` on, or x plus them.
    OpDefinition(
        Op.GIVEN_ROWS,
        OpSignature(
            (activation("x", "R", "n"), activation("given", "R", "n_given"), _IS_GIVEN),
            (activation("y", "R", "n"),),
            {"start": AttrSpec(int, at_least=0, default=0), "add": AttrSpec(bool, default=False)},
            (_part_fits,),
        ),
        reference=_given,
        operations=lambda cost: cost.elements(0) if cost.attrs.get("add") else 0,
    ),
)
