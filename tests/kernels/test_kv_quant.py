"""A cache of Q8_0 blocks: bits against the scalar definition, what is kept, what awkward numbers become."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.kernels import oracle
from tests.kernels.oracle import same_bits
from zinc_rt.ir.ops.kv_cache import kv_write_rows
from zinc_rt.kernels.reference.attention import Scores, flash_attn_paged
from zinc_rt.kernels.reference.kv_quant import BLOCK_BYTES, elements_of, pack_heads, unpack_heads

AWKWARD = (
    [0.0] * 32,
    [-0.0] * 31 + [1e-45],
    [3e-6] * 32,  # a scale that float16 rounds to zero
    [4e-6 * (i + 1) for i in range(32)],  # one that is subnormal there
    [65504.0, -65504.0] * 16,
    [8.4e6] * 32,  # one beyond float16
    [math.inf] + [1.0] * 31,
    [math.nan] + [1.0] * 31,
    [0.5 * (-1) ** i * (i % 5) for i in range(32)],
    [127.0, 0.5, 1.5, 2.5] * 8,  # ties
)


def blocks(raw: np.ndarray) -> list[tuple[float, list[int]]]:
    """The blocks of a head's bytes, as the oracle has them."""
    made = raw.reshape(-1, BLOCK_BYTES)
    return [(float(b[:2].view("<f2")[0]), b[2:].view(np.int8).tolist()) for b in made]


@pytest.mark.parametrize("x", [*AWKWARD, None])
def test_a_group_is_the_definitions(x: list[float] | None) -> None:
    x = np.random.default_rng(5).standard_normal(32).tolist() if x is None else x
    given = np.float32(x)
    ((d, q),) = blocks(pack_heads(given.reshape(1, 1, 32)))
    want_d, want_q = oracle.cached_group(given.tolist())
    assert (d == want_d or (math.isnan(d) and math.isnan(want_d)), q) == (True, want_q)


def test_what_comes_back_is_near() -> None:
    """Half a step of the scale, and what rounding the scale to float16 adds: 127 * 2^-11 of it at the most."""
    x = np.random.default_rng(6).standard_normal((50, 3, 96)).astype(np.float32)
    rows = unpack_heads(pack_heads(x))
    error = np.abs(elements_of(rows) - x).reshape(50, 3, 3, 32)
    assert (error <= (0.5 + 0.07) * rows.d[..., None]).all()
    assert error.max() > 0


@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("length", [1, 17, 260])
def test_attention_bit_for_bit(length: int, window: int | None) -> None:
    rng = np.random.default_rng(length)
    n_kv, dim, value_dim, heads = 2, 64, 32, 4
    k = (rng.standard_normal((length, n_kv, dim)) * 1.5).astype(np.float32)
    v = rng.standard_normal((length, n_kv, value_dim)).astype(np.float32)
    q = (rng.standard_normal((1, heads, dim)) * 2).astype(np.float32)
    n_pages = -(-length // 16)
    caches = [np.full((n_pages, 16, n_kv, width // 32 * BLOCK_BYTES), 0xAB, np.uint8) for width in (dim, value_dim)]
    table = rng.permutation(n_pages).astype(np.int32)[None]
    zeros = np.zeros(length, np.int32)
    kv_write_rows(k, v, np.arange(length, dtype=np.int32), zeros, table, *caches)
    sinks = np.float32([0.5, math.nan, 3.0, -1.0])
    how = Scores(0.125, window=window, sinks=sinks)
    got = flash_attn_paged(q, *caches, np.int32([length - 1]), zeros[:1], table, how)
    for h in range(heads):
        at = h // 2
        keys = [[oracle.cached_group(key[at, g : g + 32].tolist()) for g in range(0, dim, 32)] for key in k]
        values = [[d * i for d, q8 in [oracle.cached_group(x[at].tolist())] for i in q8] for x in v]
        first = max(0, length - (window or length))
        want = oracle.attend(q[0, h].tolist(), keys, values, 0.125, float(sinks[h]), first, oracle.cached_product)
        same_bits(got[0, h], want)
