"""What operations of `TokenBoundary` refuse before they submit anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.amdgpu.cs.machines import NODE, process
from zinc_rt.errors import BackendError
from zinc_rt.seed.cs import TokenBoundary
from zinc_rt.seed.cs.errors import InputTooLarge, OutputTooLarge, ShapeMismatch


@pytest.fixture(scope="module")
def boundary() -> Iterator[TokenBoundary]:
    """One for all: nothing of this is submitted."""
    with process() as linux, TokenBoundary.init_path(NODE, linux=linux) as made:
        yield made
        assert made.submit_count == 0
        assert made.last_fence_handle == 0


X = np.ones(64, np.float32)


def out(rows: int) -> Any:
    return np.zeros(rows, np.float32)


def frozen(rows: int) -> Any:
    array = out(rows)
    array.flags.writeable = False
    return array


PRODUCTS: dict[str, tuple[Callable[..., Any], int, int]] = {  # with rows, cols, x, weights, output; bytes a block; rows
    "f32": (lambda b, rows, cols, x, w, o: b.dmmv_f32_row_range(x, w, rows, cols, o), 128, 2),
    "q4_0": (lambda b, rows, cols, x, w, o: b.dmmv_q4_0_row_range(x, w, rows, cols, o), 18, 2),
    "q4_0 parallel": (lambda b, rows, cols, x, w, o: b.dmmv_q4_0_row_range_parallel(x, w, rows, cols, o), 18, 64),
    "q4_0 argmax": (lambda b, rows, cols, x, w, o: b.dmmv_q4_0_argmax_row_range(x, w, rows, cols), 18, 2),
    "q8_0": (lambda b, rows, cols, x, w, o: b.dmmv_q8_0_row_range(x, w, rows, cols, o), 34, 2),
    "q8_0 two ranges": (
        lambda b, rows, cols, x, w, o: b.dmmv_q8_0_two_row_ranges(x, w, rows - 1, w, 1, cols, o),
        34,
        2,
    ),
    "q8_0 parallel": (
        lambda b, rows, cols, x, w, o: b.dmmv_q8_0_two_row_ranges_parallel64(x, w, rows - 1, w, 1, cols, o),
        34,
        64,
    ),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products(boundary: TokenBoundary, name: str) -> None:
    call, block, rows = PRODUCTS[name]
    enough = bytes(rows * 2 * block)
    short = bytes(2 * block - 1)

    def refused(text: str, rows: int = rows, cols: int = 64, x: Any = X, w: Any = enough, o: Any = None) -> None:
        with pytest.raises(ShapeMismatch, match=text) as caught:
            call(boundary, rows, cols, x, w, out(max(rows, 1)) if o is None else o)
        assert "\n" not in str(caught.value)

    for cols in (0, -64, 31, 33, 65, *((32, 96) if name == "f32" else ())):
        refused(f"{cols} columns; a row has a multiple of", cols=cols)
    refused("rows", rows=0)
    refused("rows", rows=-1)
    refused("the rows take", w=short)
    refused("no contiguous bytes", w=np.zeros((64, 512), np.uint8)[:, ::2])
    refused("no contiguous bytes", w="text")
    refused("the input has 63 elements, the rows 64 columns", x=X[:63])
    refused("the input has 65 elements, the rows 64 columns", x=np.ones(65, np.float32))
    refused("shape", x=np.ones((1, 64), np.float32))
    refused("no vector of numbers", x=["a"] * 64)
    if "argmax" not in name:
        refused("one for each of", o=out(rows - 1))
        refused("read-only", o=frozen(rows))
        refused(r"float64\[", o=np.zeros(rows))
        refused("list", o=[0.0] * rows)
        refused(r"float32\[1, ", o=np.zeros((1, rows), np.float32))


@pytest.mark.parametrize("name", ["q4_0 parallel", "q8_0 parallel"])
@pytest.mark.parametrize("rows", [1, 63, 65, 128])
def test_one_wave_takes_64_rows(boundary: TokenBoundary, name: str, rows: int) -> None:
    call, block, _ = PRODUCTS[name]
    with pytest.raises(ShapeMismatch, match="exactly 64"):
        call(boundary, rows, 64, X, bytes(rows * 2 * block), out(rows))


def test_the_parallel_form_takes_exactly_its_rows(boundary: TokenBoundary) -> None:
    with pytest.raises(ShapeMismatch, match="2305 bytes; the rows take 2304"):
        boundary.dmmv_q4_0_row_range_parallel(X, bytes(64 * 36 + 1), 64, 64, out(64))


def test_ranges(boundary: TokenBoundary) -> None:
    row = bytes(68)
    for a, b in ((-1, 3), (3, -1), (0, 0)):
        with pytest.raises(ShapeMismatch, match="rows"):
            boundary.dmmv_q8_0_two_row_ranges(X, row * 3, a, row * 3, b, 64, out(3))
    with pytest.raises(ShapeMismatch, match="the rows of A: 68 bytes"):
        boundary.dmmv_q8_0_two_row_ranges(X, row, 2, row, 1, 64, out(3))
    with pytest.raises(ShapeMismatch, match="the rows of B: 68 bytes"):
        boundary.dmmv_q8_0_two_row_ranges(X, row, 1, row, 2, 64, out(3))
    with pytest.raises(ShapeMismatch, match="-1 rows"):
        boundary.dmmv_q8_0_two_row_ranges_parallel64(X, row * 65, 65, b"", -1, 64, out(64))


def test_two_rows(boundary: TokenBoundary) -> None:
    row = bytes(36)
    with pytest.raises(ShapeMismatch, match="row A: 35 bytes"):
        boundary.dmmv_q4_0_two_rows(X, row[1:], row, 64, out(2))
    with pytest.raises(ShapeMismatch, match="row B: 0 bytes"):
        boundary.dmmv_q4_0_two_rows(X, row, b"", 64, out(2))
    with pytest.raises(ShapeMismatch, match="one for each of 2"):
        boundary.dmmv_q4_0_two_rows(X, row, row, 64, out(1))
    with pytest.raises(ShapeMismatch, match="multiple of 32"):
        boundary.dmmv_q4_0_two_rows(X, row, row, 40, out(2))


def test_too_large(boundary: TokenBoundary) -> None:
    wide = 1 << 19  # columns whose input alone fills the buffer
    x, w = np.zeros(wide, np.float32), bytes(wide // 32 * 34)
    for call in (
        lambda: boundary.dmmv_q4_0_row_range(x, w, 1, wide, out(1)),
        lambda: boundary.dmmv_q8_0_row_range(x, w, 1, wide, out(1)),
        lambda: boundary.dmmv_f32_row_range(X, bytes(8192 * 256), 8192, 64, out(8192)),
        lambda: boundary.dmmv_q4_0_argmax_row_range(x, w, 1, wide),
        lambda: boundary.argmax_f32_range(np.zeros((1 << 19) + 1, np.float32), 0),
    ):
        with pytest.raises(InputTooLarge, match="the input buffer has 2097152"):
            call()
    with pytest.raises(OutputTooLarge, match="32772 bytes; the output buffer has 32768"):
        boundary.dmmv_q4_0_row_range(X[:32], bytes(8193 * 18), 8193, 32, out(8193))


def test_what_just_fits() -> None:
    with process() as linux, TokenBoundary.init_path(NODE, linux=linux) as boundary:
        boundary.dmmv_q4_0_row_range(X[:32], bytes(8192 * 18), 8192, 32, out(8192))
        rows = ((2 << 20) - 256) // 256
        boundary.dmmv_f32_row_range(X, bytes(rows * 256), rows, 64, out(rows))
        assert boundary.submit_count == 2


def test_scores(boundary: TokenBoundary) -> None:
    with pytest.raises(ShapeMismatch, match="0 scores"):
        boundary.argmax_f32_range([], 0)
    with pytest.raises(ShapeMismatch, match="3 scores from row 4294967294"):
        boundary.argmax_f32_range([1.0, 2.0, 3.0], 0xFFFF_FFFE)
    with pytest.raises(ShapeMismatch, match="shape"):
        boundary.argmax_f32_range([[1.0]], 0)
    with pytest.raises(ShapeMismatch, match="no vector"):
        boundary.argmax_f32_range(["x"], 0)
    for start in (-1, 1 << 32):
        with pytest.raises(BackendError, match="the first row"):
            boundary.argmax_f32_range([1.0], start)
        with pytest.raises(BackendError, match="token 0"):
            boundary.argmax_top2(start, 1.0, 0, 1.0)
        with pytest.raises(BackendError, match="token 1"):
            boundary.argmax_top2(0, 1.0, start, 1.0)
