"""Products of F32 rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zinc_rt.seed.cs.boundary_staging import Product, checked_rows, multiply, packed, row_bytes_f32, target, vector
from zinc_rt.seed.cs.sentinels import BoundaryOperation

if TYPE_CHECKING:
    from zinc_rt.seed.cs.boundary import TokenBoundary


def dmmv_f32_row_range(boundary: TokenBoundary, x: Any, weights: Any, rows: int, cols: int, output: Any) -> None:
    """See `Operations.dmmv_f32_row_range`."""
    n_bytes = checked_rows(rows) * row_bytes_f32(cols)
    part, into = packed(weights, n_bytes, "the F32 rows"), target(output, rows)
    product = Product(
        BoundaryOperation.dmmv_f32, "dmmv_serial_f32", vector(x, "the input"), (part,), cols, rows, n_words=rows
    )  # fmt: skip
    into[:rows] = multiply(boundary, product).view(np.float32)
