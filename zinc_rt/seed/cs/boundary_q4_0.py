"""Products of Q4_0 rows: one work-item for all of them, a lane for each of 64, two rows from anywhere, the best row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zinc_rt.seed.cs.boundary_staging import (
    NO_FLOAT,
    NO_ID,
    Product,
    checked_rows,
    multiply,
    packed,
    row_bytes_q4_0,
    target,
    vector,
)  # fmt: skip
from zinc_rt.seed.cs.errors import ArgmaxRangeInvalidToken, ShapeMismatch
from zinc_rt.seed.cs.results import DmmvArgmaxResult
from zinc_rt.seed.cs.sentinels import BoundaryOperation

if TYPE_CHECKING:
    from zinc_rt.seed.cs.boundary import TokenBoundary

LANES = 64


def dmmv_q4_0_row_range(boundary: TokenBoundary, x: Any, weights: Any, rows: int, cols: int, output: Any) -> None:
    """See `Operations.dmmv_q4_0_row_range`."""
    part = packed(weights, checked_rows(rows) * row_bytes_q4_0(cols), "the Q4_0 rows")
    into = target(output, rows)
    product = Product(
        BoundaryOperation.dmmv_q4_0, "dmmv_serial_q4_0", vector(x, "the input"), (part,), cols, rows, n_words=rows
    )
    into[:rows] = multiply(boundary, product).view(np.float32)


def dmmv_q4_0_row_range_parallel(
    boundary: TokenBoundary, x: Any, weights: Any, rows: int, cols: int, output: Any
) -> None:
    """See `Operations.dmmv_q4_0_row_range_parallel`."""
    if rows != LANES:
        raise ShapeMismatch(f"{rows} rows; one wave takes exactly {LANES}, a lane for each")
    part = packed(weights, rows * row_bytes_q4_0(cols), "the Q4_0 rows", exactly=True)
    into = target(output, rows)
    product = Product(
        BoundaryOperation.dmmv_q4_0_parallel,
        "dmmv_rows_q4_0",
        vector(x, "the input"),
        (part,),
        cols,
        rows,
        n_words=rows,
    )
    into[:rows] = multiply(boundary, product).view(np.float32)


def dmmv_q4_0_two_rows(boundary: TokenBoundary, x: Any, row_a: Any, row_b: Any, cols: int, output: Any) -> None:
    """See `Operations.dmmv_q4_0_two_rows`."""
    n_bytes = row_bytes_q4_0(cols)
    parts = packed(row_a, n_bytes, "row A"), packed(row_b, n_bytes, "row B")
    into = target(output, 2)
    product = Product(
        BoundaryOperation.dmmv_q4_0_two_rows, "dmmv_serial_q4_0", vector(x, "the input"), parts, cols, 2, n_words=2
    )
    into[:2] = multiply(boundary, product).view(np.float32)


def dmmv_q4_0_argmax_row_range(boundary: TokenBoundary, x: Any, weights: Any, rows: int, cols: int) -> DmmvArgmaxResult:
    """See `Operations.dmmv_q4_0_argmax_row_range`."""
    part = packed(weights, checked_rows(rows) * row_bytes_q4_0(cols), "the Q4_0 rows")
    product = Product(
        BoundaryOperation.dmmv_q4_0_argmax, "dmmv_argmax_q4_0", vector(x, "the input"), (part,), cols, rows,
        n_words=2, before=(NO_ID, NO_FLOAT),
    )  # fmt: skip
    found = multiply(boundary, product)
    row = int(found[0])
    if row >= rows:
        raise ArgmaxRangeInvalidToken(f"the kernel chose row {row}; the range has {rows}")
    return DmmvArgmaxResult(row, float(found[1:].view(np.float32)[0]))
