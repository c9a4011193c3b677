"""Matrix products: every format, level, number of rows and odd size, with ordinary and with hostile numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from tests.backends.cpu.both import (
    BEST_AND_LEAST,
    LEVELS,
    Case,
    Net,
    Outputs,
    Step,
    check,
    compare,
    expected,
    finite_share,
    outputs,
)
from tests.backends.cpu.hostile import hostile, ordinary, rows
from tests.helpers import soon
from tests.kernels.material import (
    FINITE_F16,
    FLOATS,
    OF_EACH_KIND,
    QUANTISED,
    SUPER,
    WILD_F16,
    T,
    adversarial_rows,
    float_rows,
    packed_rows,
)
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.op import Op

FORMATS = (*QUANTISED, *FLOATS)
MOST_ROWS = 17
# (rows of the matrix, columns): tiles of 16 that are short, groups of 32 that fill no lane, one, or some twice.
SHAPES = {
    "blocks": ((1, 32), (15, 64), (17, 96), (16, 1056), (33, 1120)),
    "super": ((17, 256), (1, 768), (40, 1280)),
    "floats": ((1, 1), (17, 31), (16, 33), (15, 64), (18, 1057), (33, 100)),
}
KINDS_OF_WEIGHTS = ("ordinary", "awkward", "wild", "bytes")


def shapes_of(kind: GGMLType) -> tuple[tuple[int, int], ...]:
    return SHAPES["floats" if kind in FLOATS else "super" if kind in SUPER else "blocks"]


def weights(kind: GGMLType, how: str, rng: np.random.Generator, n_out: int, n_in: int) -> np.ndarray:
    """Packed rows. wild: infinite and NaN scales too; bytes: anything that a file may hold."""
    if how == "bytes":
        return rng.integers(0, 256, (n_out, n_in // kind.block_size * kind.block_bytes), np.uint8)
    if kind in FLOATS:
        values = ordinary(rng, n_out, n_in) if how == "ordinary" else hostile(rng, n_out, n_in, finite=how != "wild")
        return float_rows(kind, values)
    if how == "ordinary":
        return packed_rows(kind, rng, n_out, n_in)
    return adversarial_rows(kind, rng, n_out, n_in, FINITE_F16 if how == "awkward" else WILD_F16)


def product_case(kind: GGMLType, n_out: int, n_in: int, how: str, counts: tuple[int, ...], seed: int) -> Case:
    """One product; every second one has a bias."""
    rng = np.random.default_rng(seed)
    net = Net(MOST_ROWS)
    x, y = net.rows("x", n_in), net.out("y", n_out)
    w = net.matrix(kind, weights(kind, how, rng, n_out, n_in))
    if seed % 2:
        z = net.temp(n_out)
        net.node(Op.MATMUL, [x, w], [z])
        net.node(Op.BIAS_ADD, [z, net.vector(hostile(rng, 1, n_out)[0])], [y])
    else:
        net.node(Op.MATMUL, [x, w], [y])
    return net.case([Step(n, {"x": rows(rng, n, n_in)}) for n in counts])


@cache
def cases(kind: GGMLType) -> list[tuple[Case, Outputs]]:
    """All shapes with all kinds of weights; every number of rows comes up."""
    counts = list(range(1, MOST_ROWS + 1))
    out = []
    for seed, ((n_out, n_in), how) in enumerate(product(shapes_of(kind), KINDS_OF_WEIGHTS)):
        mine = tuple(counts[(5 * seed + i) % MOST_ROWS] for i in (0, 6, 12))
        case = product_case(kind, n_out, n_in, how, mine, seed + 1000 * int(kind))
        out.append((case, expected(case)))
    return out


# Compiling takes most of the time: the level with matrix registers has one format of each way to scale, the best one of
# vectors the other ways to multiply (the code for few rows is that of the level before), the others three, AVX2 bytes
# with whole scales, too. Products of floats of avx512 are those of avx512vnni.
VECTORS = next(isa for isa in LEVELS if isa != "amx")
MATRIX = ("Q4_0", "Q8_0", "Q4_K", "Q6_K", "IQ2_S", "NVFP4", "F16", "BF16")
MULTIPLIED = ("Q4_0", "Q5_1", "Q8_0", "Q6_K", "Q2_K", "NVFP4", "F16")
"""A format of each way to multiply. `test_products_of_a_row` has the other ways to unpack; BF16 is among
`test_shared_activations`, and tests of architectures are of F32.
"""
SOON = {
    "avx512": ("Q8_0", "Q6_K"),
    VECTORS: tuple(name for name in MULTIPLIED if "amx" not in LEVELS or name not in MATRIX or name == "Q8_0"),
    "amx": MATRIX,
}
THREE = ("Q8_0", "Q6_K", "F16")
SOON["avx2"] = (*SOON.get("avx2", THREE), "IQ4_XS")
PAIRS = [
    pytest.param(
        isa,
        kind,
        id=f"{isa}-{kind.name}",
        marks=() if kind.name in SOON.get(isa, THREE) else pytest.mark.slow,
    )
    for isa in LEVELS
    for kind in FORMATS
]


@pytest.mark.parametrize(("isa", "kind"), PAIRS)
def test_products(isa: str, kind: GGMLType) -> None:
    for i, (case, want) in enumerate(cases(kind)):
        check(case, want, isa, 1 + i % 4)
    # They say something: every number of rows is there, and most results are numbers.
    assert {s.n_rows for case, _ in cases(kind) for s in case.steps} == set(range(1, MOST_ROWS + 1))
    assert np.mean([finite_share(want, case) for case, want in cases(kind)]) > 0.4


@pytest.fixture(scope="module")
def one_row() -> Iterator[CpuBackend]:
    """A backend whose products take one row at a time: the least to compile."""
    with CpuBackend(isa=VECTORS, threads=2) as backend:
        backend.choice = replace(backend.choice, blocks=(1,))
        yield backend


ALIKE = ("IQ4_NL", "TQ2_0", "Q5_K", "IQ2_S", "IQ2_XXS", "IQ1_S")
"""Nibbles that are looked up, as MXFP4's; quarters, as Q3_K's; pairs of nibbles and six-bit scales, as Q4_K's in
`test_experts.py`, with high bits as Q5_1's; grids, as those of IQ2_XS in `test_emulated_dots.py` and of IQ1_M. How each
is decoded, `test_rows.py` tries.
"""
SINGLE = [name for name in OF_EACH_KIND if name not in MULTIPLIED and T[name] in QUANTISED]


@pytest.mark.parametrize("kind", soon([name for name in SINGLE if name not in ALIKE], SINGLE))
def test_products_of_a_row(kind: str, one_row: CpuBackend) -> None:
    n_in = 512 if T[kind] in SUPER else 96  # `test_products` has rows that fill the lanes
    for how in KINDS_OF_WEIGHTS[:3]:
        case = product_case(T[kind], 17, n_in, how, (1, 3), 1)
        compare(case, outputs(one_row, case), expected(case), kind)


@cache
def many_rows(kind: GGMLType) -> tuple[Case, Outputs]:
    """Blocks of 16 rows and panels of 64, whole and begun."""
    rng = np.random.default_rng(int(kind))
    n_in = kind.block_size if kind in SUPER else 96
    net = Net(130)
    x = net.rows("x", n_in)
    net.node(Op.MATMUL, [x, net.matrix(kind, weights(kind, "ordinary", rng, 35, n_in))], [net.out("y", 35)])
    case = net.case([Step(n, {"x": rows(rng, n, n_in)}) for n in (130, 31, 64, 65, 33, 48, 80, 129)])
    return case, expected(case)


@pytest.mark.parametrize(("isa", "kind"), PAIRS)
def test_many_rows(isa: str, kind: GGMLType) -> None:
    for threads in (1, 3):
        check(*many_rows(kind), isa, threads)
        if kind in FLOATS:
            check(*long_rows(kind), isa, threads)


@cache
def long_rows(kind: GGMLType) -> tuple[Case, Outputs]:
    """Several tiles at once, lanes with two groups, and a last group that is short; hostile numbers."""
    rng = np.random.default_rng(int(kind))
    net = Net(41)
    x = net.rows("x", 1100)
    net.node(Op.MATMUL, [x, net.matrix(kind, weights(kind, "awkward", rng, 70, 1100))], [net.out("y", 70)])
    case = net.case([Step(n, {"x": rows(rng, n, 1100)}) for n in (41, 24)])
    return case, expected(case)


@cache
def shared_activations() -> tuple[Case, Outputs]:
    """One buffer is read by products of formats that want it as integers and as floats, and by another operation."""
    rng = np.random.default_rng(5)
    net = Net(9)
    x, other = net.rows("x", 64), net.rows("other", 64)
    total = net.temp(64)
    net.node(Op.RESIDUAL_ADD, [x, other], [total])
    for i, kind in enumerate((T.Q8_0, T.F16, T.Q5_1, T.BF16)):
        net.node(Op.MATMUL, [total, net.matrix(kind, weights(kind, "ordinary", rng, 20, 64))], [net.out(f"y{i}", 20)])
    net.node(Op.RESIDUAL_ADD, [total, total], [net.out("twice", 64)])
    case = net.case([Step(n, {"x": rows(rng, n, 64), "other": rows(rng, n, 64)}) for n in (9, 1, 8)])
    return case, expected(case)


@pytest.mark.parametrize("threads", soon((3,), (1, 2, 3, 4)))
@pytest.mark.parametrize("isa", soon(LEVELS[:1], (LEVELS[0], LEVELS[-1])))
def test_shared_activations(isa: str, threads: int) -> None:
    check(*shared_activations(), isa, threads)


@cache
def wanted_rows(kind: GGMLType) -> tuple[Case, Outputs]:
    """The output matrix works on the wanted rows alone, in the order in which they are wanted."""
    rng = np.random.default_rng(6)
    n_in = 256 if kind in SUPER else 96
    net = Net(MOST_ROWS, n_logits=MOST_ROWS)
    x, ids = net.rows("x", n_in), net.indices("logit_rows", "n_logits")
    normed, logits = net.temp(n_in), net.out("logits", 50, "n_logits")
    tokens = net.b.buffer("tokens", "output", "i32", ["n_logits"])
    net.node(Op.RMS_NORM, [x, net.vector(ordinary(rng, 1, n_in)[0])], [normed], eps=1e-5)
    net.node(Op.LM_HEAD, [normed, net.matrix(kind, weights(kind, "ordinary", rng, 50, n_in)), ids], [logits])
    net.node(Op.ARGMAX, [logits], [tokens])
    steps = []
    for n, wanted in ((1, 1), (17, 1), (17, 17), (12, 9), (5, 0), (3, 2)):
        picked = rng.permutation(n)[:wanted]
        steps.append(Step(n, {"x": rows(rng, n, n_in), "logit_rows": picked}, wanted))
    case = net.case(steps)
    return case, expected(case)


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
@pytest.mark.parametrize("kind", soon((T.Q8_0,), (T.Q8_0, T.Q6_K, T.F16)), ids=lambda k: k.name)
def test_wanted_rows(kind: GGMLType, isa: str) -> None:
    for threads in (1, 2, 4):
        check(*wanted_rows(kind), isa, threads)


@cache
def unnormed_head() -> tuple[Case, Outputs]:
    """A head that reads activations which a product of all rows reads too, and a buffer nobody packed."""
    rng = np.random.default_rng(7)
    net = Net(6, n_logits=6)
    x, ids = net.rows("x", 64), net.indices("logit_rows", "n_logits")
    normed = net.temp(64)
    net.node(Op.RMS_NORM, [x, net.vector(ordinary(rng, 1, 64)[0])], [normed], eps=1e-5)
    head = net.matrix(T.Q8_0, packed_rows(T.Q8_0, rng, 30, 64))
    net.node(Op.MATMUL, [normed, net.matrix(T.Q8_0, packed_rows(T.Q8_0, rng, 17, 64))], [net.out("y", 17)])
    net.node(Op.LM_HEAD, [normed, head, ids], [net.out("logits", 30, "n_logits")])
    net.node(Op.LM_HEAD, [x, head, ids], [net.out("raw_logits", 30, "n_logits")])
    case = net.case(
        [
            Step(n, {"x": rows(rng, n, 64), "logit_rows": np.array(ids)}, len(ids))
            for n, ids in ((6, [5, 0, 3]), (2, [1]), (4, []))
        ]
    )
    return case, expected(case)


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
def test_a_head_beside_other_readers(isa: str) -> None:
    for threads in (1, 3):
        check(*unnormed_head(), isa, threads)


@pytest.mark.slow
@pytest.mark.parametrize("isa", BEST_AND_LEAST)
@pytest.mark.parametrize("kind", FORMATS, ids=lambda k: k.name)
def test_products_of_all_sizes(kind: GGMLType, isa: str) -> None:
    """Every number of rows with every number of threads, and every number of groups up to three rounds of the lanes."""
    step = kind.block_size if kind in QUANTISED else 29
    for seed, n_in in enumerate(range(step, 3 * 32 * 32 + 256, step * (1 if step == 256 else 3))):
        counts = tuple(1 + (seed + i) % MOST_ROWS for i in (0, 5, 11))
        case = product_case(kind, 1 + seed % 35, n_in, KINDS_OF_WEIGHTS[seed % 4], counts, seed)
        check(case, expected(case), isa, 1 + seed % 4)
    case = product_case(kind, 40, 16 * step, "ordinary", tuple(range(1, MOST_ROWS + 1)), 1)
    want = expected(case)
    for threads in (1, 2, 3, 4):
        check(case, want, isa, threads)
