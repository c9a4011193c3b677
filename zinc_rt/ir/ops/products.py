"""Matrix products: projections, and the logits of the wanted rows. Their arithmetic is `kernels.reference.matmul`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zinc_rt.ir.definition import (
    ACTIVATION,
    FLOAT32,
    OpDefinition,
    Operands,
    OpSignature,
    Port,
    activation,
    index,
    matrix,
)
from zinc_rt.ir.op import Op

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView
    from zinc_rt.ir.unify import Bindings


def _matmul(at: Operands) -> None:
    from zinc_rt.kernels.reference.matmul import matmul  # compiled kernels run without it

    x, w = at.inputs
    at.outputs[0][...] = matmul(x, w, at.quantized(0)) if w.quantized else matmul(x, w)


def _group_matmul(at: Operands) -> None:
    from zinc_rt.kernels.reference.matmul import matmul

    (x, matrices), y = at.inputs, at.outputs[0]
    n_parts, one = len(matrices), matrices[0]
    parts, out = x.reshape(len(x), n_parts, one.n_in), y.reshape(len(y), n_parts, one.n_rows)
    for i, w in enumerate(matrices):
        out[:, i] = matmul(np.ascontiguousarray(parts[:, i]), w)


def _parts_fit(sizes: Bindings) -> str | None:
    """Rows are as wide as all the matrices' inputs, and their outputs."""
    parts = sizes.value("G")
    for row, one in (("m_in", "n_in"), ("m_out", "n_out")):
        whole, part = sizes.value(row), sizes.value(one)
        if parts and whole and part and whole != parts * part:
            return f"expected rows of {parts} parts of {one} {part}, got {whole}"
    return None


def _lm_head(at: Operands) -> None:
    from zinc_rt.kernels.reference.matmul import matmul

    x, w, wanted = at.inputs
    if wanted.size:
        at.outputs[0][...] = matmul(x[wanted], w)


def _lm_head_touched(cost: CostView) -> tuple[int, int]:
    if cost.dim(2, 0) == 0:
        return 0, 0
    wanted_rows = cost.dim(2, 0) * cost.dim(1, 1) * cost.inputs[0].dtype.row_bytes(1)
    return wanted_rows + cost.bytes_in(1, 2), cost.bytes_out()


OPS = (
    OpDefinition(
        Op.MATMUL,
        OpSignature(
            (activation("x", "R", "n_in"), matrix("weight", "n_out", "n_in")), (activation("y", "R", "n_out"),)
        ),
        reference=_matmul,
        operations=lambda cost: 2 * cost.dim(0, 0) * cost.elements(1),
    ),
    OpDefinition(
        Op.GROUP_MATMUL,
        OpSignature(
            (activation("x", "R", "m_in"), matrix("weight", "G", "n_out", "n_in")),
            (activation("y", "R", "m_out"),),
            rules=(_parts_fit,),
        ),
        reference=_group_matmul,
        operations=lambda cost: 2 * cost.dim(0, 0) * cost.elements(1),
    ),
    OpDefinition(
        Op.LM_HEAD,
        OpSignature(
            (activation("x", "R", "n"), matrix("weight", "n_vocab", "n"), index("logit_rows", "L")),
            (Port("logits", FLOAT32, ("L", "n_vocab"), ACTIVATION),),
        ),
        reference=_lm_head,
        operations=lambda cost: 2 * cost.dim(2, 0) * cost.elements(1),
        touched=_lm_head_touched,
    ),
)
