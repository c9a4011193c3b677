"""What a `TokenBoundary` does, one method each.

Every operation is one submission that is waited for. All of them raise `SubmitFailed`, `WaitFailed`, `WaitTimedOut`,
`OutOfSpace`, `BackendError`, and `SignalMismatch` when the fence retired without the operation's sentinel; the output
is written only after that. Operands are checked before anything is submitted: `ShapeMismatch`, `InputTooLarge`,
`OutputTooLarge`, `BackendError`. Inputs are f32[cols], an array or a sequence; weights are rows as the GGUF file
has them, bytes or an array; outputs are writable float32 arrays, of which the first `rows` elements are written. The
arithmetic: docs/how/numerics.md, "Row products of the boundary".
"""

from __future__ import annotations

from typing import Any

import numpy as np

from zinc_rt.amdgpu.pm4 import PacketBuilder
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGMLType
from zinc_rt.seed.cs.boundary_programs import pair
from zinc_rt.seed.cs.errors import ArgmaxRangeInvalidToken, ArgmaxTop2InvalidToken, ShapeMismatch
from zinc_rt.seed.cs.operands import Bytes, bits_of, checked_rows, packed, row_bytes, target, token, vector
from zinc_rt.seed.cs.results import ArgmaxRangeResult, DmmvArgmaxResult
from zinc_rt.seed.cs.sentinels import BoundaryOperation, key_of_bits
from zinc_rt.seed.cs.submissions import NO_FLOAT, NO_ID, Submissions

LANES = 64
"""Rows of the products that one wave computes, a lane for each."""
_SIGN = np.uint32(0x8000_0000)
_F32, _Q4_0, _Q8_0 = GGMLType.F32, GGMLType.Q4_0, GGMLType.Q8_0


class Operations(Submissions):
    """The operations alone; `TokenBoundary` adds how they begin and end."""

    def copy_u32(self, value: int) -> int:
        """Let the command processor copy a number through memory; what came out. Raises `BackendError`."""
        if not 0 <= value < 1 << 32:
            raise BackendError(f"{value} is no u32: 0 to {(1 << 32) - 1} can be copied")

        def prepare() -> None:
            self.input_map[0] = value
            self.output_map[0] = NO_ID

        def record(builder: PacketBuilder, signal_va: int, expected: int) -> None:
            builder.copy_data32(self.input_va, self.output_va)
            builder.write_data64(signal_va, expected)

        with self.exclusive():
            self.perform(BoundaryOperation.copy, prepare, record)
            return int(self.output_map[0])

    def produce_token(self, token_id: int) -> int:
        """`copy_u32` as the pulse of a decode step."""
        return self.copy_u32(token_id)

    def argmax_top2(self, token0: int, score0: float, token1: int, score1: float) -> int:
        """The token with the greater score, token0 when they are equal; scores compare as sortable keys.

        Raises `ArgmaxTop2InvalidToken` when the kernel answers with neither.
        """
        tokens = token(token0, "token 0"), token(token1, "token 1")
        keys = key_of_bits(bits_of(score0)), key_of_bits(bits_of(score1))
        words = (0, 0, *pair(self.output_va), *keys, *tokens)
        result = self.dispatch(BoundaryOperation.argmax_top2, "argmax_top2", words, lambda: None, 1, (NO_ID,))
        found = int(result[0])
        if found not in tokens:
            raise ArgmaxTop2InvalidToken(f"the kernel chose {found}, which is neither {token0} nor {token1}")
        return found

    def argmax_f32_range(self, scores: Any, start_row: int) -> ArgmaxRangeResult:
        """The first greatest of scores f32[n] as `start_row` + its index, and its sortable key.

        Raises `ShapeMismatch` for an empty range and one that ends beyond u32, `InputTooLarge`,
        `ArgmaxRangeInvalidToken` when the kernel answers outside of the range.
        """
        floats = vector(scores, "the range of scores")
        n, start = len(floats), token(start_row, "the first row")
        if not 0 < n <= NO_ID or start + n - 1 > NO_ID:
            raise ShapeMismatch(f"{n} scores from row {start} on; a range has at least one, and rows are u32")
        self.check_room(floats.nbytes, 8)
        bits = floats.view(np.uint32)
        keys = np.where(bits & _SIGN != 0, ~bits, bits ^ _SIGN)

        def stage() -> None:
            self.input_map[:n] = keys

        words = (*pair(self.input_va), *pair(self.output_va), n, start, 0, 0)
        result = self.dispatch(BoundaryOperation.argmax_range, "argmax_keys", words, stage, 2, (NO_ID,))
        best, key = result.tolist()
        if not start <= best < start + n:
            raise ArgmaxRangeInvalidToken(f"the kernel chose row {best}; the range is {start} to {start + n - 1}")
        return ArgmaxRangeResult(best, key)

    def rms_norm_element0(self, hidden0: float, inv_rms: float, weight0: float) -> float:
        """`(hidden0 * inv_rms) * weight0` in float32."""
        operands = [bits_of(value) for value in (hidden0, inv_rms, weight0)]

        def stage() -> None:
            self.input_map[:3] = operands

        words = (*pair(self.input_va), *pair(self.output_va), 0, 0, 0, 0)
        found = self.dispatch(BoundaryOperation.rms_norm, "rms_norm_element0", words, stage, 1, (NO_FLOAT,))
        return float(found.view(np.float32)[0])

    def dmmv_f32_row_range(self, input: Any, weights_f32: Any, rows: int, cols: int, output: Any) -> None:
        """output = rows times input, by one work-item. cols: a multiple of 64; weights_f32: at least rows * cols * 4
        bytes.
        """
        part = _range(_F32, weights_f32, rows, cols)
        self._products(BoundaryOperation.dmmv_f32, "dmmv_serial_f32", input, (part,), rows, cols, output)

    def dmmv_q4_0_row_range(self, input: Any, weights_q4_0: Any, rows: int, cols: int, output: Any) -> None:
        """output = Q4_0 rows times input, by one work-item. cols: a multiple of 32; weights_q4_0: at least
        rows * (cols / 32 * 18) bytes.
        """
        part = _range(_Q4_0, weights_q4_0, rows, cols)
        self._products(BoundaryOperation.dmmv_q4_0, "dmmv_serial_q4_0", input, (part,), rows, cols, output)

    def dmmv_q4_0_row_range_parallel(self, input: Any, weights_q4_0: Any, rows: int, cols: int, output: Any) -> None:
        """The same of exactly 64 rows by one wave of 64, a lane for each row."""
        if rows != LANES:
            raise ShapeMismatch(f"{rows} rows; one wave takes exactly {LANES}, a lane for each")
        part = packed(weights_q4_0, rows * row_bytes(_Q4_0, cols), "the Q4_0 rows", exactly=True)
        self._products(BoundaryOperation.dmmv_q4_0_parallel, "dmmv_rows_q4_0", input, (part,), rows, cols, output)

    def dmmv_q4_0_two_rows(self, input: Any, row_a: Any, row_b: Any, cols: int, output: Any) -> None:
        """output[0] = Q4_0 row A times input, output[1] = row B times input, by one work-item."""
        n_bytes = row_bytes(_Q4_0, cols)
        parts = packed(row_a, n_bytes, "row A"), packed(row_b, n_bytes, "row B")
        self._products(BoundaryOperation.dmmv_q4_0_two_rows, "dmmv_serial_q4_0", input, parts, 2, cols, output)

    def dmmv_q4_0_argmax_row_range(self, input: Any, weights_q4_0: Any, rows: int, cols: int) -> DmmvArgmaxResult:
        """The first row with the greatest product, and the product; row 0 and -infinity where none is greater.

        Raises `ArgmaxRangeInvalidToken` when the kernel answers with no row of the range.
        """
        part, x = _range(_Q4_0, weights_q4_0, rows, cols), vector(input, "the input")
        found = self.multiply(
            BoundaryOperation.dmmv_q4_0_argmax,
            "dmmv_argmax_q4_0",
            x,
            (part,),
            rows,
            cols,
            n_words=2,
            before=(NO_ID, NO_FLOAT),
        )
        row = int(found[0])
        if row >= rows:
            raise ArgmaxRangeInvalidToken(f"the kernel chose row {row}; the range has {rows}")
        return DmmvArgmaxResult(row, float(found[1:].view(np.float32)[0]))

    def dmmv_q8_0_row_range(self, input: Any, weights_q8_0: Any, rows: int, cols: int, output: Any) -> None:
        """output = Q8_0 rows times input, by one work-item. cols: a multiple of 32; weights_q8_0: at least
        rows * (cols / 32 * 34) bytes.
        """
        part = _range(_Q8_0, weights_q8_0, rows, cols)
        self._products(BoundaryOperation.dmmv_q8_0, "dmmv_serial_q8_0", input, (part,), rows, cols, output)

    def dmmv_q8_0_two_row_ranges(
        self, input: Any, weights_a: Any, rows_a: int, weights_b: Any, rows_b: int, cols: int, output: Any
    ) -> None:
        """output = the products of range A, then those of range B, by one work-item. One range may be empty."""
        parts = _two_ranges(weights_a, rows_a, weights_b, rows_b, cols)
        rows = checked_rows(rows_a + rows_b)
        self._products(BoundaryOperation.dmmv_q8_0_two_ranges, "dmmv_serial_q8_0", input, parts, rows, cols, output)

    def dmmv_q8_0_two_row_ranges_parallel64(
        self, input: Any, weights_a: Any, rows_a: int, weights_b: Any, rows_b: int, cols: int, output: Any
    ) -> None:
        """The same of exactly 64 rows together by one wave of 64, a lane for each row."""
        if rows_a + rows_b != LANES:
            raise ShapeMismatch(f"{rows_a} and {rows_b} rows; one wave takes exactly {LANES} together, a lane for each")
        parts = _two_ranges(weights_a, rows_a, weights_b, rows_b, cols)
        operation = BoundaryOperation.dmmv_q8_0_two_ranges_parallel64
        self._products(operation, "dmmv_rows_q8_0", input, parts, LANES, cols, output)

    def _products(
        self,
        operation: BoundaryOperation,
        kernel: str,
        input: Any,
        parts: tuple[Bytes, ...],
        rows: int,
        cols: int,
        output: Any,
    ) -> None:
        into = target(output, rows)
        into[:rows] = self.multiply(operation, kernel, vector(input, "the input"), parts, rows, cols).view(np.float32)


def _range(kind: GGMLType, weights: Any, rows: int, cols: int) -> Bytes:
    return packed(weights, checked_rows(rows) * row_bytes(kind, cols), f"the {kind.name} rows")


def _two_ranges(weights_a: Any, rows_a: int, weights_b: Any, rows_b: int, cols: int) -> tuple[Bytes, Bytes]:
    n_bytes = row_bytes(_Q8_0, cols)
    a = packed(weights_a, checked_rows(rows_a, empty=True) * n_bytes, "the rows of A")
    return a, packed(weights_b, checked_rows(rows_b, empty=True) * n_bytes, "the rows of B")
