"""Matrix-vector products of every format on the emulated shader core: the reference's bits."""

from __future__ import annotations

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from tests.amdgpu.queue.stage import INTERFACES
from tests.kernels import material as m
from tests.kernels.gpu.listing import BLOCKS
from tests.kernels.gpu.stage import Stage, same, stage
from zinc_rt.formats.kinds import CodeLayout
from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.ops.elementwise import add_rows
from zinc_rt.kernels.amd.catalogue import KERNELS
from zinc_rt.kernels.gpu.catalogue import matvec_rows
from zinc_rt.kernels.reference.activations import quantize_activations
from zinc_rt.kernels.reference.matmul import Weight, matmul

Quantised = tuple[np.ndarray, np.ndarray, np.ndarray]


def quantised(gpu: Stage, x: np.ndarray) -> Quantised:
    """x by the kernel that does it."""
    groups = x.size // 32
    q, d, s = np.full(x.size, 99, np.int8), np.full(groups, 7, np.float32), np.full(groups, 7, np.uint32)
    gpu.run(KERNELS["quantize"], -(-x.size // 1024), x, q, d, s, x.size)
    return q, d, s


def expected(x: np.ndarray) -> Quantised:
    """x as the reference quantises it, in the kernels' form."""
    acts = quantize_activations(x)
    q = acts.q.reshape(-1).astype(np.int8)
    halves = q.reshape(-1, 2, 16).sum(axis=2).astype(np.int16)
    return q, acts.d.reshape(-1).copy(), halves.view(np.uint32).reshape(-1)


@pytest.mark.parametrize("finite", [True, False])
def test_quantised_activations(gpu: Stage, rng: np.random.Generator, finite: bool) -> None:
    x = m.adversarial_activations(rng, 3, 32 * 37, finite=finite)
    for got, want in zip(quantised(gpu, x), expected(x), strict=True):
        assert same(got, want)


def test_activations_next_to_a_tie(gpu: Stage, rng: np.random.Generator) -> None:
    """Where dividing by the scale and multiplying by its inverse part ways."""
    top = rng.uniform(1, 2, (512, 1)).astype(np.float32)
    scale = top / np.float32(127)
    x = (rng.integers(-126, 126, (512, 32)) + np.float32(0.5)).astype(np.float32) * scale
    x = np.nextafter(x, rng.choice(np.float32([-9, 9]), x.shape)).astype(np.float32)
    x[:, :1] = top
    q, d, _ = quantised(gpu, x.reshape(1, -1))
    with np.errstate(all="ignore"):
        assert (np.rint(x / scale) != np.rint(x * (np.float32(1) / scale))).any(), "else this shows nothing"
    want = expected(x.reshape(1, -1))
    assert same(q, want[0])
    assert same(d, want[1])


@pytest.mark.parametrize("kind", m.by_kind(m.QUANTISED, m.FEW))
def test_memory_that_is_read(rng: np.random.Generator, kind: GGMLType) -> None:
    """Weights and activations, nothing behind them, and every byte of the weights asked for by one request a row."""
    groups, n_rows = 40, 5
    n = groups * 32
    w, x = m.packed_rows(kind, rng, n_rows, n), expected(m.activations(rng, 1, n))
    core = ShaderCore(measure=True)
    with stage(core=core) as made:
        made.run(KERNELS[f"matvec_{kind.name.lower()}"], 2, w, *x, np.zeros(n_rows, np.float32), groups, n_rows)
    counted = core.counters[-1]
    q, d, s = x
    f = FORMATS[kind.name]
    activations = q.nbytes + d.nbytes + (0 if f.offset == 0 and f.minimum is None else s.nbytes)
    if f.grid is not None:  # and of its table what the weights ask for, at any number of times
        table = 4 * len(f.grid.words)
        assert w.nbytes + activations < counted.unique_read <= w.nbytes + activations + table
        assert counted.unique_written == 4 * n_rows
        return
    assert counted.unique_read == w.nbytes + activations
    assert counted.unique_written == counted.bytes_written == 4 * n_rows
    # Lanes beyond the last group repeat it, in the same request.
    twice = 12 * w.nbytes // f.block_bytes if f.kind == CodeLayout.TRITS else 0  # two loads of 16 bytes overlap
    assert counted.bytes_read == w.nbytes + twice + n_rows * activations


@pytest.mark.parametrize("kind", m.by_kind(m.QUANTISED))
def test_quantised_weights(gpu: Stage, rng: np.random.Generator, kind: GGMLType) -> None:
    # Group counts: less than a wave's lanes, more, and more than two for each.
    for groups, scales in ((8, m.WILD_F16), (40, m.FINITE_F16), (104, None)):
        n, n_rows = 32 * groups, 7
        if scales is None:
            w, x = m.packed_rows(kind, rng, n_rows, n), m.activations(rng, 1, n)
        else:
            w = m.adversarial_rows(kind, rng, n_rows, n, scales)
            x = m.adversarial_activations(rng, 1, n, finite=scales is m.FINITE_F16)
        y = np.full(n_rows + 3, 55, np.float32)
        gpu.run(KERNELS[f"matvec_{kind.name.lower()}"], 2, w, *expected(x), y, groups, n_rows)
        assert same(y[:n_rows], matmul(x, Weight.from_raw(kind, w))[0]), (groups, scales)
        assert (y[n_rows:] == 55).all()


@pytest.mark.parametrize("kind", m.FLOATS, ids=lambda kind: kind.name)
def test_float_weights(gpu: Stage, rng: np.random.Generator, kind: GGMLType) -> None:
    for n in (1, 31, 64, 1100):
        for finite in (True, False):
            w = m.float_rows(kind, m.adversarial_activations(rng, 5, n, finite=finite))
            x = m.adversarial_activations(rng, 1, n, finite=finite)
            y = np.full(8, 55, np.float32)
            gpu.run(KERNELS[f"matvec_{kind.name.lower()}"], 2, np.ascontiguousarray(w), x, y, n, 5)
            assert same(y[:5], matmul(x, Weight(kind, w, n))[0]), n
            assert (y[5:] == 55).all()


SEVERAL = (("Q4_0", 3), ("F16", 3), ("Q5_K", 2), ("BF16", 4), ("Q8_0", 8), ("IQ2_XS", 8))
"""Each number of rows, and each way to read weights. The others differ in how they are decoded, which one row of
activations shows, and are slow tests.
"""


@pytest.mark.parametrize(
    ("kind", "rows"),
    [pytest.param(kind, n, marks=() if (kind, n) in SEVERAL else pytest.mark.slow) for kind, n in BLOCKS],
)
def test_several_rows_of_activations(gpu: Stage, rng: np.random.Generator, kind: str, rows: int) -> None:
    """Rows of weights that no wave has four of, and groups that no lane has as many of as the others."""
    kinds, n, n_rows = GGMLType[kind], 1280, 6
    x = m.adversarial_activations(rng, rows, n)
    y = np.full((rows + 1, n_rows), 55, np.float32)
    if kinds in m.FLOATS:
        w = m.float_rows(kinds, m.activations(rng, n_rows, n))
        gpu.run(matvec_rows(kind, rows), 2, w, x, y, n, n_rows)
    else:
        w = m.packed_rows(kinds, rng, n_rows, n)
        gpu.run(matvec_rows(kind, rows), 2, w, *expected(x), y, n // 32, n_rows)
    assert same(y[:rows], matmul(x, Weight.from_raw(kinds, w)))
    assert (y[rows:] == 55).all()


@pytest.mark.parametrize("kind", ["Q8_0", pytest.param("Q4_K", marks=pytest.mark.slow), "F16"])
@pytest.mark.parametrize("rows", [pytest.param(1, marks=pytest.mark.slow), 3])
def test_a_bias_is_added_last(gpu: Stage, rng: np.random.Generator, kind: str, rows: int) -> None:
    """One more rounded sum a result, also where the product or the bias is no number."""
    kinds, n, n_rows = GGMLType[kind], 512, 6
    x = m.adversarial_activations(rng, rows, n)
    bias = m.adversarial_activations(rng, 1, 32)[0, :n_rows].copy()
    bias[:2] = np.nan, -0.0
    y = np.full((rows, n_rows), 55, np.float32)
    if kinds in m.FLOATS:
        w = m.float_rows(kinds, m.activations(rng, n_rows, n))
        gpu.run(matvec_rows(kind, rows, bias=True), 2, w, x, bias, y, n, n_rows)
    else:
        w = m.packed_rows(kinds, rng, n_rows, n)
        gpu.run(matvec_rows(kind, rows, bias=True), 2, w, *expected(x), bias, y, n // 32, n_rows)
    assert same(y, add_rows(matmul(x, Weight.from_raw(kinds, w)), bias))


@pytest.mark.parametrize("interface", INTERFACES)
def test_through_every_interface(rng: np.random.Generator, interface: str) -> None:
    w, x = m.packed_rows(GGMLType.Q4_K, rng, 8, 512), m.activations(rng, 1, 512)
    y = np.zeros(8, np.float32)
    with stage(interface) as made:
        made.run(KERNELS["matvec_q4_k"], 2, w, *quantised(made, x), y, 16, 8)
    assert same(y, matmul(x, Weight.from_raw(GGMLType.Q4_K, w))[0])
