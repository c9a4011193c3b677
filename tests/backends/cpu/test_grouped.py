"""Products of parts of rows: the reference against products of their own, the kernels against the reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.both import assert_same, check, expected, on_levels
from tests.backends.grouped_cases import SHAPES, grouped
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.errors import GraphError
from zinc_rt.ir.graph import BufferKind, DType
from zinc_rt.ir.op import Op


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_parts_are_products_of_their_own(shape: tuple[GGMLType, int, int, int]) -> None:
    whole, apart = grouped(*shape)
    for step, got, want in zip(whole.steps, expected(whole), expected(apart), strict=True):
        pieces = np.concatenate([want[f"y{part}"] for part in range(shape[1])], axis=1)
        assert_same(got["y"][: step.n_rows], pieces[: step.n_rows], f"{step.n_rows} rows")


@pytest.mark.parametrize(("shape", "isa"), on_levels(SHAPES, SHAPES[:1], [SHAPES[i] for i in (0, 5)]))
def test_kernels(shape: tuple[GGMLType, int, int, int], isa: str) -> None:
    """By default of integers; DeepSeek-V4 in `tests/models/test_families.py` has floats."""
    case, _ = grouped(*shape)
    want = expected(case)
    for threads in (1, 3):
        check(case, want, isa, threads)


@pytest.mark.parametrize(
    ("n_x", "n_y", "words"), [(96, 48, "3 parts of n_in 64, got 96"), (192, 50, "3 parts of n_out 16, got 50")]
)
def test_rows_that_are_no_whole_parts(n_x: int, n_y: int, words: str) -> None:
    b = GraphBuilder("parts")
    x = b.buffer("x", BufferKind.INPUT, DType.F32, ["n_rows", n_x])
    w = b.buffer("w", BufferKind.WEIGHT, DType.F32, [3, 16, 64])
    b.node(Op.GROUP_MATMUL, [x, w], [b.buffer("y", BufferKind.OUTPUT, DType.F32, ["n_rows", n_y])])
    with pytest.raises(GraphError, match=words):
        b.build()
