"""What a `TokenBoundary` does, one method each; the modules beside this one do the work.

Every operation is one submission that is waited for. All of them raise `SubmitFailed`, `WaitFailed`, `WaitTimedOut`,
`OutOfSpace`, `BackendClosed`, and `SignalMismatch` when the fence retired without the operation's sentinel; the output
is
written only after that. Operands are checked before anything is submitted: `ShapeMismatch`, `InputTooLarge`,
`OutputTooLarge`, `ValueOutOfRange`. Inputs are f32[cols], an array or a sequence; weights are rows as the GGUF file
has them, bytes or an array; outputs are writable float32 arrays, of which the first `rows` elements are written. The
arithmetic: docs/numerics.md, "Row products of the boundary".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from zinc_rt.seed.cs import boundary_argmax, boundary_f32, boundary_norm, boundary_q4_0, boundary_q8_0, copying
from zinc_rt.seed.cs.results import ArgmaxRangeResult, DmmvArgmaxResult

if TYPE_CHECKING:
    from zinc_rt.seed.cs.boundary import TokenBoundary


class Operations:
    """The operations alone: `TokenBoundary` has the memory and the submissions."""

    @property
    def _boundary(self) -> TokenBoundary:
        return cast("TokenBoundary", self)

    def copy_u32(self, value: int) -> int:
        """Let the command processor copy a number through memory; what came out. Raises `ValueOutOfRange`."""
        return copying.copy_u32(self._boundary, value)

    def produce_token(self, token_id: int) -> int:
        """`copy_u32` as the pulse of a decode step."""
        return copying.copy_u32(self._boundary, token_id)

    def argmax_top2(self, token0: int, score0: float, token1: int, score1: float) -> int:
        """The token with the greater score, token0 when they are equal; scores compare as sortable keys.

        Raises `ArgmaxTop2InvalidToken` when the kernel answers with neither.
        """
        return boundary_argmax.argmax_top2(self._boundary, token0, score0, token1, score1)

    def argmax_f32_range(self, scores: Any, start_row: int) -> ArgmaxRangeResult:
        """The first greatest of scores f32[n] as `start_row` + its index, and its sortable key.

        Raises `ShapeMismatch` for an empty range and one that ends beyond u32, `InputTooLarge`,
        `ArgmaxRangeInvalidToken` when the kernel answers outside of the range.
        """
        return boundary_argmax.argmax_f32_range(self._boundary, scores, start_row)

    def rms_norm_element0(self, hidden0: float, inv_rms: float, weight0: float) -> float:
        """`(hidden0 * inv_rms) * weight0` in float32."""
        return boundary_norm.rms_norm_element0(self._boundary, hidden0, inv_rms, weight0)

    def dmmv_f32_row_range(self, input: Any, weights_f32: Any, rows: int, cols: int, output: Any) -> None:
        """output = rows times input, by one work-item. cols: a multiple of 64; weights_f32: at least rows * cols * 4
        bytes.
        """
        boundary_f32.dmmv_f32_row_range(self._boundary, input, weights_f32, rows, cols, output)

    def dmmv_q4_0_row_range(self, input: Any, weights_q4_0: Any, rows: int, cols: int, output: Any) -> None:
        """output = Q4_0 rows times input, by one work-item. cols: a multiple of 32; weights_q4_0: at least
        rows * (cols / 32 * 18) bytes.
        """
        boundary_q4_0.dmmv_q4_0_row_range(self._boundary, input, weights_q4_0, rows, cols, output)

    def dmmv_q4_0_row_range_parallel(self, input: Any, weights_q4_0: Any, rows: int, cols: int, output: Any) -> None:
        """The same of exactly 64 rows by one wave of 64, a lane for each row."""
        boundary_q4_0.dmmv_q4_0_row_range_parallel(self._boundary, input, weights_q4_0, rows, cols, output)

    def dmmv_q4_0_two_rows(self, input: Any, row_a: Any, row_b: Any, cols: int, output: Any) -> None:
        """output[0] = Q4_0 row A times input, output[1] = row B times input, by one work-item."""
        boundary_q4_0.dmmv_q4_0_two_rows(self._boundary, input, row_a, row_b, cols, output)

    def dmmv_q4_0_argmax_row_range(self, input: Any, weights_q4_0: Any, rows: int, cols: int) -> DmmvArgmaxResult:
        """The first row with the greatest product, and the product; row 0 and -infinity where none is greater.

        Raises `ArgmaxRangeInvalidToken` when the kernel answers with no row of the range.
        """
        return boundary_q4_0.dmmv_q4_0_argmax_row_range(self._boundary, input, weights_q4_0, rows, cols)

    def dmmv_q8_0_row_range(self, input: Any, weights_q8_0: Any, rows: int, cols: int, output: Any) -> None:
        """output = Q8_0 rows times input, by one work-item. cols: a multiple of 32; weights_q8_0: at least
        rows * (cols / 32 * 34) bytes.
        """
        boundary_q8_0.dmmv_q8_0_row_range(self._boundary, input, weights_q8_0, rows, cols, output)

    def dmmv_q8_0_two_row_ranges(
        self, input: Any, weights_a: Any, rows_a: int, weights_b: Any, rows_b: int, cols: int, output: Any
    ) -> None:
        """output = the products of range A, then those of range B, by one work-item. One range may be empty."""
        boundary_q8_0.dmmv_q8_0_two_row_ranges(
            self._boundary, input, weights_a, rows_a, weights_b, rows_b, cols, output
        )

    def dmmv_q8_0_two_row_ranges_parallel64(
        self, input: Any, weights_a: Any, rows_a: int, weights_b: Any, rows_b: int, cols: int, output: Any
    ) -> None:
        """The same of exactly 64 rows together by one wave of 64, a lane for each row."""
        boundary_q8_0.dmmv_q8_0_two_row_ranges_parallel64(
            self._boundary, input, weights_a, rows_a, weights_b, rows_b, cols, output
        )
