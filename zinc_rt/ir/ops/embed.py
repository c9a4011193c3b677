"""Rows of the embedding table, dequantised; or several rows of a table by numbers that the graph has computed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zinc_rt.ir.definition import (
    ACTIVATION,
    COUNT,
    INT32,
    OpDefinition,
    Operands,
    OpSignature,
    Port,
    activation,
    index,
    weight,
)
from zinc_rt.ir.op import Op
from zinc_rt.kernels.errors import TokenOutOfRange

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView


def _embed(at: Operands) -> None:
    numbers, table = at.inputs
    ids = numbers.reshape(-1)
    if ids.size and not (ids.min() >= 0 and ids.max() < table.n_rows):
        bad = next(int(i) for i in ids if not 0 <= i < table.n_rows)
        raise TokenOutOfRange(f"{at.name}: token id {bad} is outside the vocabulary of {table.n_rows}")
    at.outputs[0][...] = table.rows(ids).reshape(at.outputs[0].shape)


def _touched(cost: CostView) -> tuple[int, int]:
    return cost.bytes_in(0) + cost.elements(0) * cost.row_bytes(1), cost.bytes_out()


OPS = (
    OpDefinition(
        Op.EMBED,
        OpSignature(
            (index("token_ids", "R"), weight("token_embd", "n_vocab", "n_embd")), (activation("x", "R", "n_embd"),)
        ),
        reference=_embed,
        operations=lambda cost: 0,
        touched=_touched,
        variants=(
            OpSignature(
                (Port("ids", INT32, ("R", "per_row"), ACTIVATION), weight("table", "n_rows_of_table", "n")),
                (activation("x", "R", "per_row", "n"),),
                {"per_row": COUNT},
            ),
        ),
    ),
)
