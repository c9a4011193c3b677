"""Rows of the embedding table, dequantised."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zinc_rt.ir.definition import OpDefinition, Operands, OpSignature, activation, index, weight
from zinc_rt.ir.op import Op
from zinc_rt.kernels.errors import TokenOutOfRange

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView


def _embed(at: Operands) -> None:
    ids, table = at.inputs
    if ids.size and not (ids.min() >= 0 and ids.max() < table.n_rows):
        bad = next(int(i) for i in ids if not 0 <= i < table.n_rows)
        raise TokenOutOfRange(f"{at.name}: token id {bad} is outside the vocabulary of {table.n_rows}")
    at.outputs[0][...] = table.rows(ids)


def _touched(cost: CostView) -> tuple[int, int]:
    return cost.bytes_in(0) + cost.dim(0, 0) * cost.row_bytes(1), cost.bytes_out()


OPS = (
    OpDefinition(
        Op.EMBED,
        OpSignature(
            (index("token_ids", "R"), weight("token_embd", "n_vocab", "n_embd")), (activation("x", "R", "n_embd"),)
        ),
        reference=_embed,
        operations=lambda cost: 0,
        touched=_touched,
    ),
)
