"""The first element of an RMS norm whose scale is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from zinc_rt.seed.cs.boundary_programs import pair
from zinc_rt.seed.cs.boundary_staging import NO_FLOAT, bits_of, run
from zinc_rt.seed.cs.sentinels import BoundaryOperation

if TYPE_CHECKING:
    from zinc_rt.seed.cs.boundary import TokenBoundary


def rms_norm_element0(boundary: TokenBoundary, hidden0: float, inv_rms: float, weight0: float) -> float:
    """See `Operations.rms_norm_element0`."""
    operands = [bits_of(value) for value in (hidden0, inv_rms, weight0)]

    def stage() -> None:
        boundary.input_map[:3] = operands

    words = (*pair(boundary.input_va), *pair(boundary.output_va), 0, 0, 0, 0)
    found = run(boundary, BoundaryOperation.rms_norm, "rms_norm_element0", words, stage, 1, (NO_FLOAT,))
    return float(found.view(np.float32)[0])
