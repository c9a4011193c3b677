"""Layer norm, GELU, learned positions: bits, values, and every backend alike."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend
from tests.backends.amdgpu.stage import check as check_gpu
from tests.backends.cpu.both import LEVELS, Case, Net, Outputs, Step, check, expected
from tests.backends.cpu.hostile import hostile, ordinary, rows
from tests.kernels import oracle
from tests.kernels.material import activations, adversarial_activations
from tests.kernels.oracle import same_bits
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.encoder import layer_norm_rows

WIDTHS = (1, 5, 33, 255, 256, 257, 768)
EPS = float(np.float32(1e-12))


@pytest.mark.parametrize("n", WIDTHS)
def test_bit_for_bit(n: int) -> None:
    rng = np.random.default_rng(n)
    w, b = activations(rng, 2, n)
    for x in (activations(rng, 2, n), adversarial_activations(rng, 4, n, finite=False)):
        got = layer_norm_rows(x, w, b, EPS)
        same_bits(got, [oracle.layer_norm(row, w.tolist(), b.tolist(), EPS) for row in x.tolist()])


def test_values() -> None:
    """Against float64, with a mean far from 0."""
    rng = np.random.default_rng(1)
    x, w, b = rng.standard_normal((3, 384)) + 5.0, rng.standard_normal(384), rng.standard_normal(384)
    want = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12) * w + b
    got = layer_norm_rows(np.float32(x), np.float32(w), np.float32(b), 1e-12)
    assert np.abs(got - want).max() < 4e-6
    without_mean = x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-12) * w + b
    assert np.abs(got - without_mean).max() > 0.5


@cache
def layer_norm(n: int) -> Case:
    rng = np.random.default_rng(n)
    net = Net(5)
    x, inner = net.rows("x", n), net.temp(n)
    w, b = net.vector(ordinary(rng, 1, n)[0]), net.vector(hostile(rng, 1, n)[0])
    net.node(Op.LAYER_NORM, [x, w, b], [net.out("y", n)], eps=1e-12)
    net.node(Op.LAYER_NORM, [x, w, b], [inner], eps=0.25)
    net.node(Op.GELU, [inner], [net.out("gelu", n)])
    table = net.table(hostile(rng, 16, n))
    net.node(Op.ADD_POSITION, [x, net.indices("positions", "n_rows"), table], [net.out("placed", n)])
    places = rng.permutation(16)
    return net.case([Step(k, {"x": rows(rng, k, n), "positions": places[:k]}) for k in (1, 5, 3)])


@cache
def wanted(n: int) -> Outputs:
    return expected(layer_norm(n))


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("n", WIDTHS)
def test_cpu(n: int, isa: str) -> None:
    for threads in (1, 3):
        check(layer_norm(n), wanted(n), isa, threads)


def test_gpu() -> None:
    with amd_backend() as (backend, _):
        for n in WIDTHS:
            check_gpu(backend, layer_norm(n), wanted(n))
