"""What every operation must answer, whatever runs its kernels."""

from __future__ import annotations

import itertools
import math
import struct
from typing import Any

import numpy as np

from tests.seed.cs.rows import pack_q4_0, pack_q8_0, products, same
from zinc_rt.seed.cs import TokenBoundary
from zinc_rt.seed.cs.sentinels import BoundaryOperation, sentinel, sortable_key

NAN, INF = math.nan, math.inf
SPECIAL = [0.0, -0.0, 1e-45, -1e-45, 1.1754944e-38, 1.0, -1.0, 3.4e38, -3.4e38, INF, -INF, NAN]


def retired(boundary: TokenBoundary, operation: BoundaryOperation) -> None:
    """The latest submission left its own sentinel."""
    signal = int(boundary.signal_map[0]) | int(boundary.signal_map[1]) << 32
    assert signal == sentinel(operation, boundary.submit_count)


def check_argmax_top2(boundary: TokenBoundary) -> None:
    tokens = 7, 0xFFFF_FFFE
    for a, b in itertools.product(SPECIAL, SPECIAL):
        first = sortable_key(a) >= sortable_key(b)
        assert boundary.argmax_top2(tokens[0], a, tokens[1], b) == tokens[0 if first else 1], (a, b)
    retired(boundary, BoundaryOperation.argmax_top2)
    assert boundary.argmax_top2(5, 1e300, 6, INF) == 5, "rounded to float32 first"


def check_argmax_f32_range(boundary: TokenBoundary) -> None:
    rng = np.random.default_rng(1)
    ranges: list[Any] = [
        [1.0], [0.0, -0.0], [-0.0, 0.0], [1.0, 3.0, 3.0, 2.0], [-INF, -INF], [NAN, INF], [-1.0] * 33, SPECIAL,
        rng.standard_normal(1000).astype(np.float32), np.float32(rng.integers(0, 4, 257)),
    ]  # fmt: skip
    for scores, start in itertools.product(ranges, (0, 12345)):
        keys = [sortable_key(float(score)) for score in scores]
        found = boundary.argmax_f32_range(scores, start)
        assert (found.token, found.ordered_score) == (start + keys.index(max(keys)), max(keys))
        retired(boundary, BoundaryOperation.argmax_range)
    assert boundary.argmax_f32_range([1.0, 2.0], 0xFFFF_FFFE).token == 0xFFFF_FFFF


def check_rms_norm_element0(boundary: TokenBoundary) -> None:
    for operands in [*itertools.product((1.5, -1e-30, 3e38, 1e-45), (0.7, 1e-10, 1e10), (1.0, -0.3)), (NAN, 1.0, 1.0)]:
        hidden, inverse, weight = (np.float32(v) for v in operands)
        with np.errstate(all="ignore"):
            expected = (hidden * inverse) * weight
        found = boundary.rms_norm_element0(*operands)
        assert same(np.array([found], np.float32), np.array([expected])), operands
    retired(boundary, BoundaryOperation.rms_norm)


def vector(rng: np.random.Generator, cols: int, scale: float = 1.0) -> Any:
    """A random input."""
    return (rng.standard_normal(cols) * scale).astype(np.float32)


def check_dmmv_f32(boundary: TokenBoundary) -> None:
    rng = np.random.default_rng(2)
    for rows, cols, scale in ((1, 64, 1.0), (3, 1088, 1e-3), (2, 64, 1e25), (5, 128, 1e-25)):
        x, w = vector(rng, cols, scale), (rng.standard_normal((rows, cols)) * scale).astype(np.float32)
        output = np.full(rows + 2, 9.0, np.float32)
        boundary.dmmv_f32_row_range(x, w.tobytes(), rows, cols, output)
        assert same(output[:rows], products("f32", w.tobytes(), cols, x))
        assert (output[rows:] == 9.0).all(), "what is behind the rows stays"
        retired(boundary, BoundaryOperation.dmmv_f32)


def check_dmmv_q4_0(boundary: TokenBoundary) -> None:
    rng = np.random.default_rng(3)
    for rows, cols, scale in ((1, 32, 1.0), (2, 1056, 1.0), (7, 96, 1e-4), (3, 64, 1e3)):
        x, raw = vector(rng, cols), pack_q4_0(rng, rows, cols, scale)
        output = np.zeros(rows, np.float32)
        boundary.dmmv_q4_0_row_range(x, raw + b"more", rows, cols, output)
        assert same(output, products("q4_0", raw, cols, x))
        retired(boundary, BoundaryOperation.dmmv_q4_0)
    infinite = struct.pack("<e", INF) + bytes(range(16))  # a nibble of 8 is zero: 0 * inf
    output = np.zeros(1, np.float32)
    boundary.dmmv_q4_0_row_range([1.0] * 32, infinite, 1, 32, output)
    assert np.isnan(output[0])


def check_dmmv_q4_0_parallel(boundary: TokenBoundary) -> None:
    rng = np.random.default_rng(4)
    x, raw = vector(rng, 64), pack_q4_0(rng, 64, 64)
    output = np.zeros(64, np.float32)
    boundary.dmmv_q4_0_row_range_parallel(x, raw, 64, 64, output)
    assert same(output, products("q4_0", raw, 64, x))
    retired(boundary, BoundaryOperation.dmmv_q4_0_parallel)


def check_dmmv_q4_0_two_rows(boundary: TokenBoundary) -> None:
    rng = np.random.default_rng(5)
    x, raw = vector(rng, 160), pack_q4_0(rng, 2, 160)
    output = np.zeros(2, np.float32)
    a, b = raw[:90] + b"behind", np.frombuffer(raw[90:] + b"behind", np.uint8)
    boundary.dmmv_q4_0_two_rows(x, a, b, 160, output)
    assert same(output, products("q4_0", raw, 160, x))
    retired(boundary, BoundaryOperation.dmmv_q4_0_two_rows)


def check_dmmv_q4_0_argmax(boundary: TokenBoundary) -> None:
    rng = np.random.default_rng(6)
    for rows in (1, 2, 31, 70):
        x, raw = vector(rng, 32), pack_q4_0(rng, rows, 32)
        values = products("q4_0", raw, 32, x)
        found = boundary.dmmv_q4_0_argmax_row_range(x, raw, rows, 32)
        assert found.row == int(values.argmax())
        assert np.float32(found.score) == values[found.row]
        retired(boundary, BoundaryOperation.dmmv_q4_0_argmax)
    one = pack_q4_0(rng, 1, 32)
    assert boundary.dmmv_q4_0_argmax_row_range([1.0] * 32, one * 40, 40, 32).row == 0, "the first of equal ones"
    nothing = boundary.dmmv_q4_0_argmax_row_range([NAN] * 32, one * 3, 3, 32)
    assert (nothing.row, nothing.score) == (0, -INF)
    mixed = boundary.dmmv_q4_0_argmax_row_range([1.0] * 32, struct.pack("<e", NAN) + one[2:] + one, 2, 32)
    assert mixed.row == 1, "a NaN is smaller than every number"


def check_dmmv_q8_0(boundary: TokenBoundary) -> None:
    rng = np.random.default_rng(7)
    for rows, cols in ((1, 32), (2, 1056), (5, 96)):
        x, raw = vector(rng, cols), pack_q8_0(rng, rows, cols)
        output = np.zeros(rows, np.float32)
        boundary.dmmv_q8_0_row_range(list(map(float, x)), raw, rows, cols, output)
        assert same(output, products("q8_0", raw, cols, x))
        retired(boundary, BoundaryOperation.dmmv_q8_0)


def check_dmmv_q8_0_two_ranges(boundary: TokenBoundary) -> None:
    rng = np.random.default_rng(8)
    for rows_a, rows_b in ((1, 1), (3, 2), (0, 2), (2, 0)):
        x, raw = vector(rng, 96), pack_q8_0(rng, rows_a + rows_b, 96)
        cut = rows_a * 102
        output = np.zeros(rows_a + rows_b, np.float32)
        boundary.dmmv_q8_0_two_row_ranges(x, raw[:cut] + b"more", rows_a, raw[cut:], rows_b, 96, output)
        assert same(output, products("q8_0", raw, 96, x))
        retired(boundary, BoundaryOperation.dmmv_q8_0_two_ranges)


def check_dmmv_q8_0_parallel64(boundary: TokenBoundary) -> None:
    rng = np.random.default_rng(9)
    for rows_a in (32, 63):
        x, raw = vector(rng, 32), pack_q8_0(rng, 64, 32)
        output = np.zeros(64, np.float32)
        boundary.dmmv_q8_0_two_row_ranges_parallel64(
            x, raw[: rows_a * 34], rows_a, raw[rows_a * 34 :], 64 - rows_a, 32, output
        )
        assert same(output, products("q8_0", raw, 32, x))
        retired(boundary, BoundaryOperation.dmmv_q8_0_two_ranges_parallel64)


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}
