"""Attention: head sizes, shared key-value heads, contexts about the ends of its splits, pages in any order."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import product

import pytest

from tests.backends.attention_cases import Shape, build
from tests.backends.cpu.both import (
    BEST_AND_LEAST,
    LEVELS,
    THREADS,
    Case,
    Outputs,
    check,
    expected,
    finite_share,
    on_levels,
)
from tests.helpers import soon
from zinc_rt.ir.graph import DType
from zinc_rt.models.config import MAX_GROUP, MAX_HEAD_DIM

CONTEXTS = (600, 513, 270)  # of the three sequences
# head_dim, query heads that share a key-value head, key-value heads
SHAPES = ((16, 1, 8), (32, 8, 1), (64, 3, 1), (80, 4, 2), (64, 2, 5), (256, 1, 2))
# Rows of a step as (sequence, position): a lone row deep down, lengths at the seams, runs across them, a mixture.
STEPS = {
    "deep": [(0, 599)],
    "seams": [(0, 254), (1, 255), (2, 256), (0, 511), (1, 512)],
    "one-split": [(2, 7), (0, 255)],
    "short-and-long": [(2, 3), (0, 530)],
    "run": [(0, p) for p in range(250, 263)],
    "runs": [*((1, p) for p in range(250, 255)), *((2, p) for p in range(253, 262)), (0, 598), (0, 599)],
    "mixed": [(0, 300), (1, 17), (0, 301), (1, 18), (2, 0), (0, 302), (1, 19)],
    "from-the-start": [(2, p) for p in range(18)],
}


# What a layer may have besides, each at, before and behind the splits' edges.
MORE = {
    "window 1": Shape(16, 1, 8, window=1),
    "window 3": Shape(32, 1, 2, window=3),
    "window 16 of wide groups": Shape(16, 8, 1, window=16),
    "window 255": Shape(16, 2, 2, window=255),
    "window 256": Shape(64, 1, 2, window=256, softcap=30.0),
    "window 257": Shape(24, 4, 1, window=257),
    "window beyond the context": Shape(16, 1, 8, window=1 << 40),
    "sinks": Shape(64, 4, 2, sinks=(0.5, math.nan, math.inf, -math.inf, 3.0, -2.0, -0.0, 1e30)),
    "window and sinks": Shape(64, 8, 1, window=128, sinks=(0.5, math.nan, math.inf, -math.inf, 3.0, -2.0, -0.0, 1.0)),
    "chunks": Shape(32, 2, 2, chunk=256, sinks=(0.5, 1.0, -1.0, math.nan)),
    "wide chunks": Shape(16, 1, 3, chunk=512),
    "soft cap": Shape(80, 3, 1, softcap=50.0),
    "wider keys": Shape(24, 2, 2, value_dim=16),
    "wider values": Shape(16, 1, 3, value_dim=40, window=300, sinks=(1.0, 0.0, -1.0)),
    "latent": Shape(40, 4, 1, rope=8),
    "latent of odd sizes": Shape(27, 3, 2, rope=6, window=40, softcap=20.0),
    "two latent heads": Shape(48, 1, 2, rope=16, softcap=20.0, sinks=(1.0, -1.0)),
    "latent, one row alone": Shape(96, 20, 1, rope=32),
}

MORE_SOON = ("window 16 of wide groups", "wider values")
"""Each property once: windows, sinks, other widths; of eight rows and one at once. Soft caps are in Gemma 2's tests,
latent heads in DeepSeek's and below, chunks in Llama 4's. The others are slow tests: compiling takes most of the time.
"""

# Caches of blocks: shared heads, edges of splits, what a layer may have besides.
Q8 = {
    "one head": Shape(32, 1, 2, kv=DType.Q8_0),
    "shared": Shape(64, 3, 1, kv=DType.Q8_0),
    "many share, sinks": Shape(96, 7, 1, sinks=(0.5, math.nan, math.inf, -math.inf, 3.0, -0.0, 1.0), kv=DType.Q8_0),
    "window and soft cap": Shape(32, 2, 2, window=257, softcap=30.0, kv=DType.Q8_0),
    "wide, small window": Shape(128, 2, 1, window=3, kv=DType.Q8_0),
    "wider values": Shape(32, 1, 3, value_dim=96, window=300, kv=DType.Q8_0),
    "chunks": Shape(32, 3, 1, chunk=256, kv=DType.Q8_0),
    "latent": Shape(96, 4, 1, rope=32, kv=DType.Q8_0),
    "two latent heads": Shape(160, 1, 2, rope=64, window=40, softcap=20.0, sinks=(1.0, -1.0), kv=DType.Q8_0),
}
Q8_SOON = ("latent",)
"""Sinks of wide groups are among `test_emulated_dots.py`; windows and soft caps are those of halves."""
HOW = ("ordinary", "hostile", "wild")


@cache
def case(shape: Shape, how: str) -> Case:
    return build(shape, CONTEXTS, STEPS, how)


@cache
def wanted(shape: Shape, how: str) -> Outputs:
    return expected(case(shape, how))


def try_it(shape: Shape, number: int, isa: str, threads: Sequence[int]) -> None:
    """With the number's sort of activations, most of whose results say something."""
    how = HOW[number % 3]
    assert finite_share(wanted(shape, how), case(shape, how)) > (0.2 if how == "wild" else 0.5)
    for n in threads:
        check(case(shape, how), wanted(shape, how), isa, n)


@pytest.mark.parametrize(("shape", "isa"), on_levels(SHAPES, SHAPES[1:2], SHAPES[1:2]))
def test_attention(shape: tuple[int, int, int], isa: str) -> None:
    try_it(Shape(*shape), SHAPES.index(shape), isa, THREADS)


@pytest.mark.parametrize(("name", "isa"), on_levels(MORE, ("wider values",), MORE_SOON))
def test_windows_caps_sinks_and_widths(name: str, isa: str) -> None:
    try_it(MORE[name], list(MORE).index(name), isa, THREADS)


@pytest.mark.parametrize(("name", "isa"), on_levels(Q8, ("latent",), Q8_SOON))
def test_caches_of_blocks(name: str, isa: str) -> None:
    try_it(Q8[name], list(Q8).index(name), isa, (1, 4))


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
@pytest.mark.parametrize("scale", soon((0.0, 1e30), (0.0, -3.0, 1e30)))
def test_other_scales(scale: float, isa: str) -> None:
    for threads in (1, 4):
        shape = Shape(*SHAPES[1], scale=scale)
        check(case(shape, "ordinary"), wanted(shape, "ordinary"), isa, threads)


@pytest.mark.slow
@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("dim", [8, 16, 24, 32, 40, 64, 80, 96, 112, 128, 192, 256])
def test_attention_of_all_shapes(dim: int, isa: str) -> None:
    for group, (n_kv, how) in product(range(1, 9), ((1, "ordinary"), (3, "hostile"), (8, "wild"))):
        small = case(Shape(dim, group, n_kv), how)
        want = expected(small)
        for threads in THREADS:
            check(small, want, isa, threads)


@pytest.mark.slow
@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("shape", [(MAX_HEAD_DIM, 2, 1), (MAX_HEAD_DIM - 1, 1, 1), (16, MAX_GROUP, 1)], ids=str)
def test_the_widest_heads_that_a_model_may_have(shape: tuple[int, int, int], isa: str) -> None:
    check(case(Shape(*shape), "ordinary"), wanted(Shape(*shape), "ordinary"), isa, 2)


@pytest.mark.slow
@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("group", [16, 20, 128])
def test_latent_attention_as_models_have_it(group: int, isa: str) -> None:
    shape = Shape(576, group, 1, rope=64)
    small = build(shape, (270,), {"deep": [(0, 269)], "run": [(0, 20), (0, 21), (0, 22)]}, "ordinary")
    check(small, expected(small), isa, 2)
