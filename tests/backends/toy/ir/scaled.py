"""An operation for tests: y = x * factor + shift."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from zinc_rt.ir.definition import FLOAT32, ROW, AttrSpec, OpDefinition, Operands, OpSignature, activation, weight
from zinc_rt.ir.op import Op


def _scaled(at: Operands) -> None:
    x, *shift = at.inputs
    y = x * np.float32(at.attrs["factor"])
    at.outputs[0][...] = y + shift[0] if shift else y


OPS = (
    OpDefinition(
        Op.LOAD_REQUEST_STATE,
        OpSignature(
            (ROW, replace(weight("shift", "n", dtypes=FLOAT32), optional=True)),
            (activation("y", "R", "n"),),
            {"factor": AttrSpec(float, default=2.0)},
        ),
        reference=_scaled,
        operations=lambda cost: cost.elements(0) * (1 if len(cost.inputs) == 1 else 2),
    ),
)
