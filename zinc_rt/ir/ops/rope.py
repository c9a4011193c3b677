"""Rotary position embedding, and heads put together of a part without and a part with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.definition import (
    COUNT,
    FLOAT32,
    HEAD_ROW,
    HEADS,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    activation,
    flat,
    heads,
    index,
    weight,
)
from zinc_rt.ir.op import Op
from zinc_rt.ir.unify import Bindings
from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.nearest import turns

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView


def rope_table(positions: npt.NDArray[np.integer], inv_freq: npt.ArrayLike, magnitude: float = 1.0) -> F32:
    """cos and sin of position * inv_freq, a product in float64, each rounded once: f32[n, n_pairs, 2].

    inv_freq: radians per position for each pair. magnitude: factor on both (YaRN's attention scaling).
    """
    angles = np.asarray(positions, np.float64)[:, None] * np.asarray(inv_freq, np.float64)[None, :]
    return turns(angles, magnitude)


def rope_rows(x: F32, table: F32, *, interleaved: bool, begin: int = 0) -> F32:
    """Rotate 2 * n_pairs elements of each head, from `begin` on; the rest passes through.

    x: f32[n, heads, head_dim]; table: f32[n, n_pairs, 2], the rows of `rope_table` for each x row.
    interleaved: pairs are (2i, 2i + 1) (the `llama` layout), otherwise (i, i + n_pairs) (NeoX halves).
    Each output is two rounded products and one rounded sum: a*cos - b*sin, a*sin + b*cos.
    """
    pairs = table.shape[1]
    first, second = (
        (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(0, pairs), slice(pairs, 2 * pairs))
    )
    cos, sin = table[:, None, :, 0], table[:, None, :, 1]
    out = x.copy()
    with np.errstate(all="ignore"):
        a, b = x[:, :, begin:][:, :, first], x[:, :, begin:][:, :, second]
        out[:, :, begin:][:, :, first] = a * cos - b * sin
        out[:, :, begin:][:, :, second] = a * sin + b * cos
    return out


def _rope(at: Operands) -> None:
    x, positions, table = at.inputs
    interleaved, begin = bool(at.attrs["interleaved"]), int(at.attrs["begin"])
    heads(at, at.outputs[0])[...] = rope_rows(heads(at, x), table[positions], interleaved=interleaved, begin=begin)


def rotated_part_fits(bound: Bindings) -> str | None:
    half, head_dim, begin = bound.value("rope_dim/2"), bound.value("head_dim"), bound.value("begin") or 0
    if half is not None and head_dim is not None and begin + 2 * half > head_dim:
        return f"rope_table rotates {2 * half} elements of a head from {begin} on, head_dim is {head_dim}"
    return None


def _join(at: Operands) -> None:
    x, tail, y = heads(at, at.inputs[0]), heads(at, at.inputs[1], "n_tails", "tail_dim"), at.outputs[0]
    tails = np.repeat(tail, x.shape[1] // tail.shape[1], axis=1)
    flat(y)[...] = flat(np.concatenate([x, tails], axis=2))


def _joined_width(bound: Bindings) -> str | None:
    sizes = [bound.value(name) for name in ("n", "n_heads", "n_tails", "head_dim", "tail_dim")]
    if None in sizes:
        return None
    n, n_heads, n_tails, head_dim, tail_dim = (size or 0 for size in sizes)
    if n_heads % n_tails:
        return f"{n_tails} tails cannot be shared by {n_heads} heads"
    whole = n_heads * (head_dim + tail_dim)
    return None if n == whole else f"y has {n} elements, {n_heads} heads of {head_dim} + {tail_dim} make {whole}"


def _touched(cost: CostView) -> tuple[int, int]:
    table_row = cost.dim(2, 1) * cost.row_bytes(2)
    return cost.bytes_in(0, 1) + cost.dim(1, 0) * table_row, cost.bytes_out()


OPS = (
    OpDefinition(
        Op.ROPE,
        OpSignature(
            (HEAD_ROW, index("positions", "R"), weight("rope_table", "C", "rope_dim/2", 2, dtypes=FLOAT32)),
            (activation("y", "R", "n_heads", "head_dim"),),
            {"interleaved": AttrSpec(bool), "begin": AttrSpec(int, at_least=0, default=0), **HEADS},
            (rotated_part_fits,),
        ),
        reference=_rope,
        # Two multiplications and one addition for each rotated element.
        operations=lambda cost: 3 * cost.dim(1, 0) * cost.attr("n_heads") * 2 * cost.dim(2, 1),
        touched=_touched,
    ),
    # y = the heads of x, each with its tail behind it.
    OpDefinition(
        Op.JOIN_HEADS,
        OpSignature(
            (HEAD_ROW, activation("tail", "R", "n_tails", "tail_dim")),
            (activation("y", "R", "n"),),
            {"n_tails": COUNT, "tail_dim": COUNT, **HEADS},
            (_joined_width,),
        ),
        reference=_join,
        operations=lambda cost: 0,
    ),
)
