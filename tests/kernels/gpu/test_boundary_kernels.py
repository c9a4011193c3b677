"""The boundary's kernels on the emulated shader core: one answer from every form of a product."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import material as m
from tests.kernels.gpu.stage import Stage, same
from zinc_rt.gguf import GGMLType, blocks
from zinc_rt.kernels.amd.catalogue import BOUNDARY
from zinc_rt.kernels.reference.matmul import Weight, matmul


@pytest.mark.parametrize("kind", [*(pytest.param(kind, marks=pytest.mark.slow) for kind in ("F32", "Q4_0")), "Q8_0"])
def test_row_products(gpu: Stage, rng: np.random.Generator, kind: str) -> None:
    for cols, n_rows in ((64, 70), (1088, 3)):
        x = m.adversarial_activations(rng, 1, cols)
        if kind == "F32":
            w = np.ascontiguousarray(m.float_rows(GGMLType.F32, m.adversarial_activations(rng, n_rows, cols)))
        else:
            w = m.adversarial_rows(GGMLType[kind], rng, n_rows, cols)
        floats = np.ascontiguousarray(blocks.dequantize(GGMLType[kind], w)).view(np.uint8)
        want = matmul(x, Weight(GGMLType.F32, floats, cols))[0]
        first = n_rows // 2
        for form in ("serial", "rows", "two_ranges"):
            y = np.full(n_rows + 1, 55, np.float32)
            entry = BOUNDARY[f"dmmv_{form}_{kind.lower()}"]
            groups = 1 if form == "serial" else -(-n_rows // 64)
            if form == "two_ranges":
                parts = w[:first].copy(), w[first:].copy()
                gpu.run(entry, groups, x, y, parts[0], cols, first, parts[1], n_rows - first)
            elif form == "rows":
                gpu.run(entry, groups, x, y, w, cols, n_rows)
            else:
                gpu.run(entry, groups, x, y, w, cols, 3)
                y[3:n_rows] = want[3:]
            assert same(y[:n_rows], want), form
            assert y[n_rows] == 55
        best = np.full(2, 55, np.uint32)
        gpu.run(BOUNDARY[f"dmmv_argmax_{kind.lower()}"], 1, x, best, w, cols, n_rows)
        numbers = np.where(np.isnan(want), -np.inf, want)
        assert best[0] == np.argmax(numbers)
        assert best.view(np.float32)[1] == numbers.max()


def test_nothing_greater_than_minus_infinity_is_row_0(gpu: Stage) -> None:
    x, best = np.ones((1, 32), np.float32), np.full(2, 55, np.uint32)
    w = np.full((3, 32), -np.inf, np.float32)
    w[0] = np.nan
    gpu.run(BOUNDARY["dmmv_argmax_f32"], 1, x, best, w, 32, 3)
    assert best[0] == 0
    assert best.view(np.float32)[1] == -np.inf


def test_argmax_of_keys(gpu: Stage, rng: np.random.Generator) -> None:
    for n in (1, 31, 33, 500):
        choice = np.array([0, 1, 5, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF] if n != 33 else [0], np.uint32)
        keys, y = rng.choice(choice, n).astype(np.uint32), np.full(3, 55, np.uint32)
        gpu.run(BOUNDARY["argmax_keys"], 1, keys, y, n, 1000)
        assert y.tolist() == [1000 + int(np.argmax(keys)), int(keys.max()), 55]


def test_argmax_of_two(gpu: Stage) -> None:
    for key0, key1 in ((5, 4), (4, 5), (5, 5), (0xFFFFFFFF, 0x80000000), (0, 0xFFFFFFFF)):
        y = np.full(2, 55, np.uint32)
        gpu.run(BOUNDARY["argmax_top2"], 1, np.zeros(1, np.uint32), y, key0, key1, 11, 22)
        assert y.tolist() == [11 if key0 >= key1 else 22, 55]


def test_small_ones(gpu: Stage) -> None:
    x, y = np.float32([1.1, 3.3, -7.7]), np.full(2, 55, np.float32)
    gpu.run(BOUNDARY["rms_norm_element0"], 1, x, y)
    assert y.tolist() == [(x[0] * x[1]) * x[2], 55]
    a, b = np.arange(100, dtype=np.uint32), np.full(100, 55, np.uint32)
    gpu.run(BOUNDARY["copy"], 4, a, b, 97)
    assert b.tolist() == [*range(97), 55, 55, 55]
