"""Hyper-connections and n-gram hashes: values against formulas, and every backend alike."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend
from tests.backends.amdgpu.stage import check as check_gpu
from tests.backends.cpu.both import Case, Net, Outputs, Step, check, expected, on_levels
from tests.backends.cpu.hostile import rows
from tests.kernels.material import T, packed_rows
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.ngrams import as_constant, ngram_rows

STREAMS = 4
EOS = 7
MULTIPLIERS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 3], np.uint64)
SIZES, OFFSETS = np.array([5, 7, 11, 4], np.uint64), np.array([0, 5, 12, 23], np.uint64)


@cache
def streams(n: int) -> Case:
    """All that is done to streams of n elements; hostile values, and an ordinary text for the hashes."""
    rng = np.random.default_rng(n)
    net = Net(9, n_ctx=64, n_slots=3)
    wide, attrs = STREAMS * n, {"n_streams": STREAMS}
    x, y, gates, mix = net.rows("x", wide), net.rows("y", n), net.rows("gates", STREAMS), net.rows("mix", STREAMS**2)
    weight = net.vector(rng.standard_normal(wide))
    net.node(Op.STREAM_NORM, [x, weight], [net.out("norm", wide)], eps=1e-5, **attrs)
    net.node(Op.STREAM_SUM, [x], [net.out("mean", n)], **attrs)
    net.node(Op.STREAM_SUM, [x, gates], [net.out("sum", n)], **attrs)
    net.node(Op.STREAM_ADD, [y], [net.out("copy", wide)], **attrs)
    net.node(Op.STREAM_ADD, [y, x, gates], [net.out("open", wide)], scale=0.25, **attrs)
    net.node(Op.STREAM_ADD, [y, x, gates, mix], [net.out("mixed", wide)], **attrs)
    logits, base = net.rows("logits", STREAMS * (2 + STREAMS)), rng.standard_normal(STREAMS * (2 + STREAMS))
    outs = [net.out(name, m) for name, m in (("reads", STREAMS), ("writes", STREAMS), ("shares", STREAMS**2))]
    given = [logits, net.vector(base), net.vector(rng.standard_normal(3))]
    net.node(Op.STREAM_MIX, given, outs, eps=1e-6, iterations=20, **attrs)
    given = [gates, net.vector(base[:STREAMS]), net.vector(rng.standard_normal(1))]
    net.node(Op.STREAM_MIX, given, [net.out("last", STREAMS)], eps=1e-6, **attrs)
    net.node(Op.STREAM_GATE, [x, net.rows("key", wide), y], [net.out("gated", wide)], **attrs)
    ids, positions, slots = (net.indices(name, "n_rows") for name in ("token_ids", "positions", "slots"))
    numbers = as_constant(np.concatenate([MULTIPLIERS, OFFSETS, SIZES]))
    table = net.b.buffer("numbers", "constant", "f32", [len(numbers)])
    net.constants["numbers"] = numbers
    state = net.b.buffer("state", "state", "f32", ["n_slots", 2])
    found = net.b.buffer("found", "temp", "i32", ["n_rows", 4])
    net.node(Op.NGRAM_IDS, [ids, table, state, positions, slots], [found, state], ngram=3, n_heads=4, eos=EOS)
    for kind in (T.F32, T.Q8_0):
        plain = rng.standard_normal((27, 32)).astype(np.float32).view(np.uint8)
        packed = plain if kind is T.F32 else np.ascontiguousarray(packed_rows(kind, rng, 27, 32))
        matrix = net.matrix(kind, packed)
        net.node(Op.EMBED, [found, matrix], [net.out(f"rows of {kind.name}", 4 * 32)], per_row=4)
    steps = []
    for slots_, starts in (((0,) * 5 + (2,) * 4, (0, 0)), ((2, 0, 0), (5, 4)), ((1, 2), (0, 5))):
        at = dict(zip(dict.fromkeys(slots_), starts, strict=True))
        where = [(at[s] + slots_[:i].count(s)) for i, s in enumerate(slots_)]
        n_rows = len(slots_)
        acts = {name: rows(rng, n_rows, width) for name, width in (("x", wide), ("y", n), ("key", wide))}
        acts |= {"gates": rows(rng, n_rows, STREAMS), "mix": rows(rng, n_rows, STREAMS**2)}
        acts["logits"] = rng.standard_normal((n_rows, STREAMS * (2 + STREAMS))).astype(np.float32)
        tokens = rng.choice([EOS, 1, 2, 300_000], n_rows)
        steps.append(Step(n_rows, {**acts, "token_ids": tokens, "positions": where, "slots": slots_}))
    return net.case(steps)


@cache
def wanted(n: int) -> Outputs:
    return expected(streams(n))


@pytest.mark.parametrize(("n", "isa"), on_levels([40, 300], [40], [300]))
def test_the_cpu(n: int, isa: str) -> None:
    check(streams(n), wanted(n), isa, 2)


def test_the_gpu() -> None:
    with amd_backend() as (backend, _):
        check_gpu(backend, streams(40), wanted(40))


def test_hashes_are_those_of_whole_numbers() -> None:
    """In Python's integers, which do not overflow; from an end of a text on there are only ends."""
    rng = np.random.default_rng(2)
    for _ in range(50):
        context = rng.integers(0, 300_000, 3)
        got = ngram_rows(context.astype(np.uint64), MULTIPLIERS, OFFSETS, SIZES)
        products = [int(t) * int(m) % 2**64 for t, m in zip(context, MULTIPLIERS, strict=True)]
        two = products[0] ^ products[1]
        hashes = [two, two, two ^ products[2], two ^ products[2]]
        assert got.tolist() == [h % int(s) + int(o) for h, s, o in zip(hashes, SIZES, OFFSETS, strict=True)]
