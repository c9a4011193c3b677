"""Keys of blocks of positions, and attention over them beside a window, on every backend."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend
from tests.backends.amdgpu.stage import check as check_gpu
from tests.backends.cpu.both import Case, Net, Outputs, Step, check, expected, on_levels
from tests.helpers import soon
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.blocks import pool_rows
from zinc_rt.ir.ops.kv_cache import entries_of_page
from zinc_rt.kernels.reference.attention import attend_apart

HEADS, DIM, TURNED, N_CTX = 6, 16, 8, 600


@cache
def attending(block: int, overlap: bool, picks: bool, window: int, ends: tuple[int, int, int] = (0, 300, 541)) -> Case:
    """Two sequences: the first up to the second end and 18 rows of the second; a row of each; more of the first.

    ends: its first position, before which its cache is as it was made, and two ends.
    """
    rng = np.random.default_rng([block, window])
    net = Net(340, n_ctx=N_CTX, n_slots=2, n_pages=42)
    begin, first, last = ends
    width = DIM * (1 + overlap)
    widths = {"q": HEADS * DIM, "k": DIM, "values": width, "scores": width}
    q, k, values, scores = (net.rows(name, n) for name, n in widths.items())
    where = net.where()
    angles = rng.standard_normal((N_CTX, TURNED // 2))
    table = net.table(np.stack([np.cos(angles), np.sin(angles)], axis=-1))
    near, far = (
        net.b.buffer(name, "state", "f16", ["n_pages", n, 1, DIM])
        for name, n in (("near", 16), ("far", entries_of_page(block)))
    )
    state = net.b.buffer("pool_state", "state", "f32", ["n_slots", 3 * (1 + overlap), DIM])
    pooled = net.out("pooled", DIM)
    offsets = net.vector(rng.standard_normal((block, width)))
    net.node(Op.POOL_BLOCKS, [values, scores, offsets, state, *where[:2]], [pooled, state], block=block)
    for source, cached, n in ((k, near, 1), (pooled, far, block)):
        turned = net.temp(DIM)
        how = {"interleaved": True, "begin": DIM - TURNED, "n_heads": 1, "head_dim": DIM}
        net.node(Op.ROPE, [source, where[0], table], [turned], **how)
        net.node(Op.KV_WRITE, [turned, *where], [cached], n_kv_heads=1, entry_dim=DIM, block=n)
    sinks = net.vector(np.array([0.5, -1, np.nan, 3, np.inf, -np.inf]))
    attrs = {"window": window, "scale": 0.25, "n_heads": HEADS, "head_dim": DIM}
    net.node(Op.BLOCK_ATTN, [q, near, *where, sinks], [net.out("alone", HEADS * DIM)], **attrs)
    chosen = [net.b.buffer("chosen", "input", "i32", ["n_rows", "max_pages"])] if picks else []
    inputs = [q, near, *where, sinks, far, *chosen]
    net.node(Op.BLOCK_ATTN, inputs, [net.out("both", HEADS * DIM)], **attrs, block=block)
    pages = rng.permutation(42)
    page_table = np.zeros((2, 38), np.int32)
    page_table[0, :37], page_table[1, :5] = pages[:37], pages[37:]
    steps = []
    for rows in (
        [(0, p) for p in range(begin, first)] + [(1, p) for p in range(18)],
        [(1, 18), (0, first)],
        [(0, p) for p in range(first + 1, last)],
    ):
        slots, positions = np.array(rows).T
        acts = {name: np.float32(rng.standard_normal((len(rows), n))) for name, n in widths.items()}
        words = rng.integers(0, 1 << 16, (len(rows), 38))
        words[::3, :20] = 0  # rows that see no block, or none of the first of them
        given = {"chosen": words.astype(np.int32)} if picks else {}
        place = {"positions": positions, "slots": slots, "page_table": page_table}
        steps.append(Step(len(rows), {**acts, **place, **given}))
    return net.case(steps)


SHAPES = {
    "chosen": (4, True, True, 7),
    "many": (2, False, True, 300),
    "long": (32, False, False, 20),
}
CPU_ENDS = {"chosen": (0, 300, 541), "many": (500, 540, 560), "long": (0, 300, 541)}


@cache
def wanted(name: str) -> Outputs:
    return expected(attending(*SHAPES[name], CPU_ENDS[name]))


@pytest.mark.parametrize(("name", "isa"), on_levels(SHAPES, ["chosen"], ["chosen", "many"]))
def test_the_cpu(name: str, isa: str) -> None:
    check(attending(*SHAPES[name], CPU_ENDS[name]), wanted(name), isa, 2)


ENDS = {"chosen": (0, 13, 16), "many": (250, 290, 300), "many blocks": (580, 586, 588)}
"""Rows of the GPU's cases. All of "many", from 0 to 541, are right, too, but take the emulator 5 minutes, its limit."""


@pytest.mark.parametrize("name", soon(["chosen"], ENDS))
def test_the_gpu(name: str) -> None:
    """Windows and lists of blocks of more than a split, and rows that see no block."""
    case = attending(*SHAPES[name.split(maxsplit=1)[0]], ENDS[name])
    with amd_backend() as (backend, _):
        check_gpu(backend, case, expected(case))


@pytest.mark.parametrize("overlap", [False, True])
def test_the_key_of_a_block_is_a_softmax_of_its_places(overlap: bool) -> None:
    rng = np.random.default_rng(1)
    n, block, rows = 5, 4, 12
    values, scores, offsets = (rng.standard_normal((m, n * (1 + overlap))) for m in (rows, rows, block))
    state = np.full((1, 3 * (1 + overlap), n), np.nan, np.float32)
    at, slots = np.arange(rows), np.zeros(rows, np.int32)
    got = pool_rows(*map(np.float32, (values, scores, offsets)), state, at, slots, block, overlap)
    scores = scores + np.tile(offsets, (rows // block, 1))
    for b in range(rows // block):
        own = slice(b * block, (b + 1) * block)
        v, s = values[own, -n:], scores[own, -n:]
        if overlap and b:
            before = slice((b - 1) * block, b * block)
            v, s = np.concatenate([values[before, :n], v]), np.concatenate([scores[before, :n], s])
        e = np.exp(s)
        np.testing.assert_allclose(got[own.stop - 1], (e / e.sum(axis=0) * v).sum(axis=0), rtol=1e-5, atol=1e-6)


def test_one_softmax_over_both_lists() -> None:
    rng = np.random.default_rng(2)
    q, near, far = rng.standard_normal((2, 8)), rng.standard_normal((300, 8)), rng.standard_normal((270, 8))
    near, far = near.astype(np.float16), far.astype(np.float16)
    seen = rng.random(270) < 0.1
    sinks = np.float32([0.5, np.nan])
    got = attend_apart(np.float32(q), [(near, np.ones(300, bool)), (far, seen)], 0.5, sinks)
    keys = np.concatenate([near, far[seen]]).astype(float)
    e = np.exp(q @ keys.T * 0.5)
    want = e @ keys / (e.sum(axis=1) + np.exp([0.5, -np.inf]))[:, None]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
