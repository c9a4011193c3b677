"""Attention: head sizes, shared key-value heads, contexts about the seams of its splits, pages in any order.

A first step fills the cache page by page, each page as the first of a sequence of its own, which costs next to nothing;
the later steps read the pages through longer tables.
"""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest

from tests.backends.cpu.both import LEVELS, THREADS, Case, Net, Outputs, Step, check, expected, finite_share
from tests.backends.cpu.hostile import hostile
from zinc_rt.ir.op import Op
from zinc_rt.mem.kv_pages import pages_for
from zinc_rt.models.config import MAX_GROUP, MAX_HEAD_DIM

CONTEXTS = (1000, 513, 270)  # of the three sequences
PAGES = [pages_for(n) for n in CONTEXTS]
# head_dim, query heads that share a key-value head, key-value heads
SHAPES = (
    (16, 1, 8), (32, 8, 1), (64, 3, 1), (80, 4, 2), (96, 5, 1), (128, 6, 1), (16, 7, 3), (256, 1, 2), (64, 2, 5),
    (128, 2, 2),
)  # fmt: skip
# Rows of a step as (sequence, position): a lone row deep down, lengths at the seams, runs across them, a mixture.
STEPS = {
    "deep": [(0, 999)],
    "seams": [(0, 254), (1, 255), (2, 256), (0, 511), (1, 512)],
    "one-split": [(2, 7), (0, 255)],
    "short-and-long": [(2, 3), (0, 600)],
    "run": [(0, p) for p in range(246, 269)],
    "runs": [*((1, p) for p in range(250, 255)), *((2, p) for p in range(253, 262)), (0, 998), (0, 999)],
    "mixed": [(0, 300), (1, 17), (0, 301), (1, 18), (2, 0), (0, 302), (1, 19)],
    "from-the-start": [(2, p) for p in range(18)],
}


def material(rng: np.random.Generator, n: int, width: int, how: str) -> np.ndarray:
    """ordinary: scores of a few units; hostile: all that float16 holds; wild: some rows beyond it and not finite."""
    out = rng.standard_normal((n, width)).astype(np.float32)
    if how == "hostile":
        return np.where(rng.random((n, 1)) < 0.5, out, np.clip(hostile(rng, n, width), -65504, 65504))
    if how == "wild":
        return np.where(rng.random((n, 1)) < 0.98, out, hostile(rng, n, width, finite=False))
    return out


@cache
def case(dim: int, group: int, n_kv: int, how: str, scale: float | None = None) -> Case:
    rng = np.random.default_rng([dim, group, n_kv, len(how)])
    n_pages = sum(PAGES)
    net = Net(16 * n_pages, n_ctx=max(CONTEXTS), n_slots=n_pages, n_pages=n_pages)
    q, k, v = net.rows("q", n_kv * group * dim), net.rows("k", n_kv * dim), net.rows("v", n_kv * dim)
    where, caches = net.where(), net.caches(n_kv, dim)
    net.node(Op.KV_WRITE, [k, v, *where], caches, n_kv_heads=n_kv, head_dim=dim)
    net.node(
        Op.FLASH_ATTN, [q, *caches, *where], [net.out("y", n_kv * group * dim)],
        scale=dim**-0.5 if scale is None else scale, n_heads=n_kv * group, n_kv_heads=n_kv, head_dim=dim,
    )  # fmt: skip

    def step(rows: list[tuple[int, int]], table: np.ndarray, how: str) -> Step:
        n = len(rows)
        widths = {"q": n_kv * group * dim, "k": n_kv * dim, "v": n_kv * dim}
        slots, positions = np.array(rows).T
        inputs = {name: material(rng, n, width, how) for name, width in widths.items()}
        return Step(n, {**inputs, "positions": positions, "slots": slots, "page_table": table})

    own = np.zeros((n_pages, max(PAGES)), np.int32)
    own[:, 0] = rng.permutation(n_pages)
    fill = step([(page, at) for page in range(n_pages) for at in range(16)], own, how)
    shuffled, table, at = rng.permutation(n_pages), np.zeros_like(own), 0
    for sequence, pages in enumerate(PAGES):
        table[sequence, :pages] = shuffled[at : at + pages]
        at += pages
    return net.case([fill, *(step(rows, table, "ordinary" if how == "wild" else how) for rows in STEPS.values())])


@cache
def wanted(dim: int, group: int, n_kv: int, how: str, scale: float | None = None) -> Outputs:
    return expected(case(dim, group, n_kv, how, scale))


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_attention(shape: tuple[int, int, int], isa: str) -> None:
    how = ("ordinary", "hostile", "wild")[SHAPES.index(shape) % 3]
    for threads in THREADS:
        check(case(*shape, how), wanted(*shape, how), isa, threads)


@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("scale", [0.0, -3.0, 1e30])
def test_other_scales(scale: float, isa: str) -> None:
    for threads in (1, 4):
        check(case(16, 1, 8, "ordinary", scale), wanted(16, 1, 8, "ordinary", scale), isa, threads)


def test_the_cases_say_something() -> None:
    for shape in ((16, 1, 8), (80, 4, 2)):
        assert finite_share(wanted(*shape, "ordinary"), case(*shape, "ordinary")) == 1
    assert 0.2 < finite_share(wanted(64, 3, 1, "wild"), case(64, 3, 1, "wild")) < 1
    assert finite_share(wanted(32, 8, 1, "hostile"), case(32, 8, 1, "hostile")) > 0.9


@pytest.mark.slow
@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("dim", [8, 16, 24, 32, 40, 64, 80, 96, 112, 128, 192, 256])
def test_attention_of_all_shapes(dim: int, isa: str) -> None:
    for group, (n_kv, how) in product(range(1, 9), ((1, "ordinary"), (3, "hostile"), (8, "wild"))):
        small = case(dim, group, n_kv, how)
        want = expected(small)
        for threads in THREADS:
            check(small, want, isa, threads)


@pytest.mark.slow
@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("shape", [(MAX_HEAD_DIM, 2, 1), (MAX_HEAD_DIM - 1, 1, 1), (16, MAX_GROUP, 1)], ids=str)
def test_the_widest_heads_that_a_model_may_have(shape: tuple[int, int, int], isa: str) -> None:
    check(case(*shape, "ordinary"), wanted(*shape, "ordinary"), isa, 2)
