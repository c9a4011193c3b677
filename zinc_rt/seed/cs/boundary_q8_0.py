"""Products of Q8_0 rows: one range, or two that share an input vector, by one work-item or by a lane for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from zinc_rt.seed.cs.boundary_staging import (
    Bytes,
    Product,
    checked_rows,
    multiply,
    packed,
    row_bytes_q8_0,
    target,
    vector,
)
from zinc_rt.seed.cs.errors import ShapeMismatch
from zinc_rt.seed.cs.sentinels import BoundaryOperation

if TYPE_CHECKING:
    from zinc_rt.seed.cs.boundary import TokenBoundary

LANES = 64


def dmmv_q8_0_row_range(boundary: TokenBoundary, x: Any, weights: Any, rows: int, cols: int, output: Any) -> None:
    """See `Operations.dmmv_q8_0_row_range`."""
    part = packed(weights, checked_rows(rows) * row_bytes_q8_0(cols), "the Q8_0 rows")
    _multiply(boundary, BoundaryOperation.dmmv_q8_0, "dmmv_serial_q8_0", x, (part,), rows, cols, output)


def dmmv_q8_0_two_row_ranges(
    boundary: TokenBoundary, x: Any, weights_a: Any, rows_a: int, weights_b: Any, rows_b: int, cols: int, output: Any
) -> None:
    """See `Operations.dmmv_q8_0_two_row_ranges`."""
    parts = _ranges(weights_a, rows_a, weights_b, rows_b, cols)
    rows = checked_rows(rows_a + rows_b)
    _multiply(boundary, BoundaryOperation.dmmv_q8_0_two_ranges, "dmmv_serial_q8_0", x, parts, rows, cols, output)


def dmmv_q8_0_two_row_ranges_parallel64(
    boundary: TokenBoundary, x: Any, weights_a: Any, rows_a: int, weights_b: Any, rows_b: int, cols: int, output: Any
) -> None:
    """See `Operations.dmmv_q8_0_two_row_ranges_parallel64`."""
    if rows_a + rows_b != LANES:
        raise ShapeMismatch(f"{rows_a} and {rows_b} rows; one wave takes exactly {LANES} together, a lane for each")
    parts = _ranges(weights_a, rows_a, weights_b, rows_b, cols)
    _multiply(
        boundary, BoundaryOperation.dmmv_q8_0_two_ranges_parallel64, "dmmv_rows_q8_0", x, parts, LANES, cols, output
    )


def _ranges(weights_a: Any, rows_a: int, weights_b: Any, rows_b: int, cols: int) -> tuple[Bytes, Bytes]:
    n_bytes = row_bytes_q8_0(cols)
    a = packed(weights_a, checked_rows(rows_a, empty=True) * n_bytes, "the rows of A")
    return a, packed(weights_b, checked_rows(rows_b, empty=True) * n_bytes, "the rows of B")


def _multiply(
    boundary: TokenBoundary,
    operation: BoundaryOperation,
    kernel: str,
    x: Any,
    parts: tuple[Bytes, ...],
    rows: int,
    cols: int,
    output: Any,
) -> None:
    into = target(output, rows)
    product = Product(operation, kernel, vector(x, "the input"), parts, cols, rows, n_words=rows)
    into[:rows] = multiply(boundary, product).view(np.float32)
