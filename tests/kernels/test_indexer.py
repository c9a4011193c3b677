"""The choice of positions: scores, ties, blocks, and attention over what was chosen, on every backend."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend
from tests.backends.amdgpu.stage import check as check_gpu
from tests.backends.cpu.both import Case, Net, Outputs, Step, check, expected, on_levels
from tests.helpers import soon
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.indexer import best_candidates, candidates_kept, index_scores
from zinc_rt.kernels.reference.attention import Scores, attend_rows

HEADS, DIM, KV, GROUP, WIDTH = 3, 8, 2, 2, 8
"""Of the indexer; of the attention."""
N_CTX = 600


@cache
def choosing(top_k: int, block: int, latent: bool, weighted: bool, ends: tuple[int, ...] = (300, 541)) -> Case:
    """Queries and keys of few different values, so that many scores are equal, and attention over the choice.

    Steps: positions of one sequence up to the first end and 18 of another; a row each; then more of the first up to the
    second end.
    """
    rng = np.random.default_rng([top_k, block])
    net = Net(340, n_ctx=N_CTX, n_slots=2, n_pages=42)
    first, last = ends
    q, k = net.rows("index_q", HEADS * DIM), net.rows("index_k", DIM)
    where = net.where()
    keys = net.cache(1, DIM)
    net.node(Op.KV_WRITE, [k, *where], [keys], n_kv_heads=1, key_dim=DIM)
    scores = net.b.buffer("scores", "temp", "f32", ["n_rows", "max_pages", 16])
    chosen = net.b.buffer("chosen", "temp", "i32", ["n_rows", "max_pages"])
    weights = [net.rows("weights", HEADS)] if weighted else []
    net.node(
        Op.INDEX_SCORES, [q, keys, *where, *weights], [scores], n_heads=HEADS, head_dim=DIM, scale=0.25, block=block
    )
    net.node(Op.INDEX_CHOICE, [scores, where[0]], [chosen], top_k=top_k, block=block)
    widths = {"index_q": HEADS * DIM, "index_k": DIM, "weights": HEADS}
    n_heads = 1 * GROUP if latent else KV * GROUP
    if latent:
        widths |= {"q": n_heads * WIDTH, "q_rope": n_heads * WIDTH, "k": WIDTH, "v": WIDTH}
        sources = [net.rows(name, widths[name]) for name in ("q", "q_rope", "k", "v")]
        caches = [net.cache(1, 2 * WIDTH)]
        sizes = {"n_kv_heads": 1, "latent_dim": WIDTH, "rope_dim": WIDTH}
    else:
        widths |= {"q": n_heads * WIDTH, "k": KV * WIDTH, "v": KV * WIDTH}
        sources = [net.rows(name, widths[name]) for name in ("q", "k", "v")]
        caches = net.caches(KV, WIDTH)
        sizes = {"n_kv_heads": KV, "head_dim": WIDTH}
    net.node(Op.KV_WRITE, [*sources[-2:], *where], caches, **sizes)
    net.node(
        Op.FLASH_ATTN, [*sources[:-2], *caches, *where, chosen], [net.out("y", n_heads * WIDTH)], scale=0.5,
        n_heads=n_heads, chosen=True, **sizes,
    )  # fmt: skip
    pages = rng.permutation(42)
    table = np.zeros((2, 38), np.int32)
    table[0, :37], table[1, :5] = pages[:37], pages[37:]
    steps = []
    for rows in (
        [(0, p) for p in range(first)] + [(1, p) for p in range(18)],
        [(1, 18), (0, first)],
        [(0, p) for p in range(first + 1, last)],
    ):
        slots, positions = np.array(rows).T
        acts = {name: rng.standard_normal((len(rows), width)) for name, width in widths.items()}
        acts |= {name: rng.integers(-1, 2, (len(rows), widths[name])) for name in ("index_q", "index_k", "weights")}
        inputs = {name: np.asarray(x, np.float32) for name, x in acts.items() if name != "weights" or weighted}
        steps.append(Step(len(rows), {**inputs, "positions": positions, "slots": slots, "page_table": table}))
    return net.case(steps)


SHAPES = {
    "positions": (20, 1, True, True),
    "blocks": (22, 4, False, False),
    "all": (N_CTX, 1, True, True),
    "long blocks": (70, 32, False, True),
}


@cache
def wanted(name: str) -> Outputs:
    return expected(choosing(*SHAPES[name]))


@pytest.mark.parametrize(("name", "isa"), on_levels(SHAPES, ["positions"], ["positions", "blocks"]))
def test_the_cpu(name: str, isa: str) -> None:
    check(choosing(*SHAPES[name]), wanted(name), isa, 2)


@pytest.mark.parametrize("ends", soon([(17, 20)], [(17, 20), (300, 341)]))
@pytest.mark.parametrize("name", ["positions", "blocks"])
def test_the_gpu(name: str, ends: tuple[int, int]) -> None:
    case = choosing(9, *SHAPES[name][1:], ends)
    with amd_backend() as (backend, _):
        check_gpu(backend, case, expected(case))


def test_ties_go_to_the_lowest_position() -> None:
    rng = np.random.default_rng(3)
    for n, count in ((40, 7), (5, 5), (6, 9), (64, 63)):
        scores = rng.integers(-2, 3, n).astype(np.float32) * rng.choice(np.float32([1, -0.0, np.nan]), n)
        in_order = sorted(range(n), key=lambda i: (np.isnan(scores[i]), -np.nan_to_num(scores[i]), i))
        assert np.flatnonzero(best_candidates(scores, count)).tolist() == sorted(in_order[:count])


def test_scores_are_those_of_the_formula() -> None:
    rng = np.random.default_rng(4)
    q, keys, w = rng.standard_normal((5, 3, 8)), rng.standard_normal((9, 8)), rng.standard_normal((5, 3))
    keys = keys.astype(np.float16)
    products = np.maximum(np.einsum("nhd,sd->nhs", q, keys.astype(float)), 0)
    for weights, want in ((w, np.einsum("nhs,nh->ns", products, w)), (None, products.sum(axis=1))):
        given = None if weights is None else np.float32(weights)
        np.testing.assert_allclose(index_scores(np.float32(q), keys, given, 0.5), want * 0.5, atol=1e-5)


@pytest.mark.parametrize("block", [1, 4])
def test_whole_blocks_and_no_more_positions_than_allowed(block: int) -> None:
    """A row keeps at most top_k + block - 1 positions: its last ones behind the blocks, and whole blocks."""
    for position in range(60):
        tail = (position + 1) % block
        kept = candidates_kept(position, 20, block) * block + tail
        assert kept <= 20 + block - 1 < kept + block


@pytest.mark.parametrize("n", [40, 300])
def test_attention_over_a_choice(n: int) -> None:
    """All chosen: the bits of attention without a choice. Some: the softmax over those."""
    rng = np.random.default_rng(n)
    q, k, v = (rng.standard_normal((n, 2, 8)).astype(np.float32) for _ in range(3))
    k, v = k.astype(np.float16), v.astype(np.float16)
    positions = np.arange(n)
    everything = attend_rows(q, k, v, positions, Scores(0.5))
    same = attend_rows(q, k, v, positions, Scores(0.5, chosen=np.ones((n, n), bool)))
    np.testing.assert_array_equal(everything.view(np.uint32), same.view(np.uint32))
    chosen = (rng.random((n, n)) < 0.1) | np.eye(n, dtype=bool)
    chosen[n - 1, : n - 1] = False  # splits without a chosen position
    got = attend_rows(q, k, v, positions, Scores(0.5, chosen=chosen))
    scores = np.einsum("nhd,shd->nhs", q.astype(float), k.astype(float)) * 0.5
    scores = np.where((chosen & np.tri(n, dtype=bool))[:, None], scores, -np.inf)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    want = np.einsum("nhs,shd->nhd", weights / weights.sum(axis=2, keepdims=True), v.astype(float))
    np.testing.assert_allclose(got, want, atol=1e-5)
