"""Attention: bits against the scalar definition, values against float64, what a row sees, paged caches, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.kernels import oracle
from tests.kernels.oracle import same_bits
from zinc_rt import kernels
from zinc_rt.ir.ops.kv_cache import kv_write_rows
from zinc_rt.kernels.reference import attention as module
from zinc_rt.kernels.reference.attention import Scores, attend_rows, flash_attn_paged
from zinc_rt.seed.kernels.errors import EmptyInput, ShapeMismatch

LENGTHS = [1, 15, 16, 17, 255, 256, 257, 600]


def cache(rng: np.random.Generator, length: int, n_kv: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """f16[length, n_kv, dim] twice, with scores large enough that the softmax is far from even."""
    k = (rng.standard_normal((length, n_kv, dim)) * 1.5).astype(np.float16)
    return k, rng.standard_normal((length, n_kv, dim)).astype(np.float16)


def queries(rng: np.random.Generator, n: int, heads: int, dim: int) -> np.ndarray:
    return (rng.standard_normal((n, heads, dim)) * 2).astype(np.float32)


def oracle_row(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    position: int,
    scale: float,
    sinks: np.ndarray | None = None,
    window: int = 1 << 30,
) -> list[list[float]]:
    """One query token, f32[heads, dim]: each head against the key-value head of its group."""
    group = len(q) // k.shape[1]
    scale = float(np.float32(scale))
    return [
        oracle.attend(
            q[h].tolist(),
            k[: position + 1, h // group].tolist(),
            v[: position + 1, h // group].tolist(),
            scale,
            math.nan if sinks is None else float(sinks[h]),
            max(0, position + 1 - window),
        )
        for h in range(len(q))
    ]


def run_single(q: np.ndarray, k: np.ndarray, v: np.ndarray, sinks: np.ndarray | None = None) -> np.ndarray:
    heads, dim = q.shape
    out = np.full(heads * dim, 7.0, np.float32)
    kernels.flash_attn(q.reshape(-1), k.reshape(-1), v.reshape(-1), out, heads, k.shape[1], dim, len(k), sinks)
    return out.reshape(heads, dim)


@pytest.mark.parametrize("length", LENGTHS)
def test_bit_for_bit(length: int) -> None:
    rng = np.random.default_rng(length)
    (k, v), q = cache(rng, length, 2, 6), queries(rng, 1, 4, 6)[0]
    same_bits(run_single(q, k, v), oracle_row(q, k, v, length - 1, 1 / math.sqrt(6)))


@pytest.mark.parametrize(("heads", "n_kv"), [(1, 1), (3, 3), (6, 2), (4, 1)])
def test_heads_share_keys(heads: int, n_kv: int) -> None:
    rng = np.random.default_rng(heads)
    (k, v), q = cache(rng, 40, n_kv, 8), queries(rng, 1, heads, 8)[0]
    same_bits(run_single(q, k, v), oracle_row(q, k, v, 39, 1 / math.sqrt(8)))


@pytest.mark.parametrize("length", [1, 33, 260])
def test_sinks(length: int) -> None:
    rng = np.random.default_rng(length)
    (k, v), q = cache(rng, length, 2, 8), queries(rng, 1, 4, 8)[0]
    for sinks in ([0.5, math.nan, 50.0, -3.0], [-1e30, 1e30, 0.0, 2.0]):
        given = np.float32(sinks)
        same_bits(run_single(q, k, v, given), oracle_row(q, k, v, length - 1, 1 / math.sqrt(8), given))
    same_bits(run_single(q, k, v, np.float32([math.nan] * 4)), run_single(q, k, v))


def test_a_sink_takes_its_share() -> None:
    """A sink as large as the only score halves the output."""
    k, v = np.ones((1, 1, 4), np.float16), np.full((1, 1, 4), 3.0, np.float16)
    q = np.ones((1, 4), np.float32)
    np.testing.assert_allclose(run_single(q, k, v, np.float32([2.0])), 1.5)


@pytest.mark.parametrize("length", LENGTHS)
def test_against_float64(length: int) -> None:
    """Scores of size s are off by dim 2^-24 |q||k|: with 8 and these sizes about 1e-5, which the exponential keeps."""
    rng = np.random.default_rng(length + 1)
    (k, v), q = cache(rng, length, 2, 8), queries(rng, 1, 4, 8)[0]
    got = run_single(q, k, v)
    for h in range(4):
        scores = k[:, h // 2].astype(np.float64) @ q[h].astype(np.float64) / math.sqrt(8)
        p = np.exp(scores - scores.max())
        want = (p / p.sum()) @ v[:, h // 2].astype(np.float64)
        np.testing.assert_allclose(got[h], want, atol=3e-5)


def batch(rng: np.random.Generator, positions: list[int], length: int, dim: int = 4) -> tuple[np.ndarray, ...]:
    k, v = cache(rng, length, 2, dim)
    return queries(rng, len(positions), 4, dim), k, v, np.array(positions)


BATCHES = [
    list(range(20)),
    list(range(250, 262)),
    [0, 1, 255, 256, 257, 511, 512, 599],
    list(range(506, 516)),
    [255],
    [3, 3, 3],
]


@pytest.mark.parametrize("positions", BATCHES, ids=lambda p: f"{p[0]}-{p[-1]}")
@pytest.mark.parametrize("tile", [1, 1 << 22])
def test_rows_in_a_batch_are_rows_alone(positions: list[int], tile: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(positions[0])
    q, k, v, at = batch(rng, positions, 600)
    alone = [
        attend_rows(q[i : i + 1], k[: p + 1], v[: p + 1], at[i : i + 1], Scores(0.3))[0]
        for i, p in enumerate(positions)
    ]
    monkeypatch.setattr(module, "_TILE", tile)
    got = attend_rows(q, k, v, at, Scores(0.3))
    same_bits(got, alone)
    last = positions.index(max(positions))
    if positions[last] < 300:
        same_bits(got[last], oracle_row(q[last], k, v, positions[last], 0.3))


def test_a_batch_against_the_oracle() -> None:
    rng = np.random.default_rng(9)
    positions = [0, 15, 16, 255, 257]
    q, k, v, at = batch(rng, positions, 258, dim=8)
    same_bits(
        attend_rows(q, k, v, at, Scores(0.25)), [oracle_row(q[i], k, v, p, 0.25) for i, p in enumerate(positions)]
    )


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("planted", [5, 256, 299])
def test_rows_do_not_see_what_comes_after_them(bad: float, planted: int) -> None:
    """Positions ahead of a row may hold anything: the rows behind them keep their bits."""
    rng = np.random.default_rng(planted)
    positions = [0, 4, 5, 6, 100, 255, 256, 298, 299]
    q, k, v, at = batch(rng, positions, 300)
    clean = attend_rows(q, k, v, at, Scores(0.3))
    for target in (k, v):
        spoiled = target.copy()
        spoiled[planted] = bad
        pair = (spoiled, v) if target is k else (k, spoiled)
        got = attend_rows(q, *pair, at, Scores(0.3))
        before = at < planted
        same_bits(got[before], clean[before])
        i = int(np.argmin(before))  # the first row that does see it
        if target is v:
            same_bits(got[i], oracle_row(q[i], *pair, positions[i], 0.3))
        assert not np.isfinite(got[~before]).any() or not math.isnan(bad)


def test_scores_that_overflow() -> None:
    rng = np.random.default_rng(10)
    (k, v), q = cache(rng, 270, 1, 4), queries(rng, 1, 2, 4)[0]
    q[0] = np.sign(q[0]) * np.float32(1e38)  # some scores are infinite, of either sign
    got = run_single(q, k, v)
    same_bits(got, oracle_row(q, k, v, 269, 0.5))
    assert np.isnan(got[0]).all()
    assert np.isfinite(got[1]).all()


def test_scores_far_apart() -> None:
    """All weight on one position: the others' exponentials are zero or subnormal, also across splits."""
    k, v = cache(np.random.default_rng(11), 300, 1, 4)
    q = np.full((1, 4), 30.0, np.float32)
    for peak in (0, 100, 255, 256, 299):
        k[:] = np.float16(-1.0)
        k[peak] = np.float16(1.0)
        got = run_single(q, k, v)
        same_bits(got, oracle_row(q, k, v, 299, 0.5))
        np.testing.assert_allclose(got[0], v[peak, 0].astype(np.float32), rtol=1e-6)


def test_float32_keys_are_taken_as_they_are() -> None:
    rng = np.random.default_rng(12)
    k, v = (rng.standard_normal((20, 1, 8)).astype(np.float32) for _ in range(2))
    q = queries(rng, 1, 2, 8)[0]
    same_bits(run_single(q, k, v), oracle_row(q, k, v, 19, 1 / math.sqrt(8)))


# Windows, soft caps, values of another width.


@pytest.mark.parametrize("window", [1, 2, 31, 256, *(pytest.param(n, marks=pytest.mark.slow) for n in (255, 257, 300))])
def test_windows(window: int) -> None:
    """At, before and behind the splits' edges; rows of a batch begin at different splits."""
    rng = np.random.default_rng(window)
    positions = [0, 1, 30, 254, 255, 256, 257, 300, 510, 511, 512, 513, 599]
    q, k, v, at = batch(rng, positions, 600)
    sinks = np.float32([0.5, math.nan, -2.0, 1.0])
    got = attend_rows(q, k, v, at, Scores(0.25, window=window, sinks=sinks))
    same_bits(got, [oracle_row(q[i], k, v, p, 0.25, sinks, window) for i, p in enumerate(positions)])
    same_bits(got[5:6], attend_rows(q[5:6], k, v, at[5:6], Scores(0.25, window=window, sinks=sinks)))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_rows_do_not_see_what_their_window_left_behind(bad: float) -> None:
    rng = np.random.default_rng(3)
    q, k, v, at = batch(rng, [270, 271, 511, 520, 560], 600)
    how = Scores(0.3, window=12)
    clean = attend_rows(q, k, v, at, how)
    for target in (k, v):
        spoiled = target.copy()
        spoiled[[0, 100, 255, 258, 500, 548, 561]] = bad  # 270 - 12 = 258 and 560 - 12 = 548 are just out of sight
        same_bits(
            attend_rows(q, *((spoiled, v) if target is k else (k, spoiled)), at, how)[[0, 1, 4]], clean[[0, 1, 4]]
        )
        spoiled[259] = spoiled[549] = bad
        got = attend_rows(q, *((spoiled, v) if target is k else (k, spoiled)), at, how)
        assert not np.isfinite(got[[0, 4]]).any()


def formula(q: np.ndarray, k: np.ndarray, v: np.ndarray, at: int, scale: float, window: int, cap: float, sink: float):
    """float64: a query head over the positions that it sees."""
    seen = slice(max(0, at + 1 - window), at + 1)
    scores = cap * np.tanh(k[seen].astype(np.float64) @ q.astype(np.float64) * scale / cap)
    top = max(scores.max(), sink)
    p = np.exp(scores - top)
    return p / (p.sum() + np.exp(sink - top)) @ v[seen].astype(np.float64)


@pytest.mark.parametrize("window", [5, 255, 256, 257, 300])
def test_windows_caps_and_sinks_against_float64(window: int) -> None:
    """And a window one wider, another cap, a sink less are seen to differ."""
    rng = np.random.default_rng(window + 1)
    positions = [3, 255, 400, 599]
    k, v = cache(rng, 600, 1, 8)
    v, q, cap, sink = v[:, :, :6], queries(rng, 4, 2, 8), 4.0, 1.5
    got = attend_rows(q, k, v, np.array(positions), Scores(0.35, cap, window, np.full(2, sink, np.float32)))

    def worst(window: int, cap: float, sink: float) -> float:
        want = [
            [formula(q[i, h], k[:, 0], v[:, 0], p, 0.35, window, cap, sink) for h in (0, 1)]
            for i, p in enumerate(positions)
        ]
        return float(np.abs(got - want).max())

    assert worst(window, cap, sink) < 5e-6
    assert min(worst(window + 1, cap, sink), worst(window - 1, cap, sink), worst(window, 4.1, sink)) > 5e-5
    assert worst(window, cap, -math.inf) > 1e-4


@pytest.mark.parametrize("window", [None, 1, 200])
def test_sinks_that_are_not_finite(window: int | None) -> None:
    """-inf adds nothing, +inf leaves no number, NaN is none."""
    rng = np.random.default_rng(5)
    q, k, v, at = batch(rng, [0, 257], 300)
    plain = attend_rows(q, k, v, at, Scores(0.3, window=window))
    got = attend_rows(q, k, v, at, Scores(0.3, window=window, sinks=np.float32([-np.inf, np.nan, np.inf, np.nan])))
    same_bits(got[:, [0, 1, 3]], plain[:, [0, 1, 3]])
    assert np.isnan(got[:, 2]).all()


# Pages.


def paged_case(
    seed: int, lengths: list[int]
) -> tuple[np.random.Generator, np.ndarray, list[np.ndarray], list[np.ndarray], np.ndarray, np.ndarray]:
    """Sequences of these lengths written position by position, in shuffled rows, over scattered pages."""
    rng = np.random.default_rng(seed)
    max_pages = -(-max(lengths) // 16)
    n_pages = max_pages * len(lengths) + 3
    pages = rng.permutation(n_pages)
    table = np.zeros((len(lengths), max_pages), np.int32)
    for slot, length in enumerate(lengths):
        need = -(-length // 16)
        table[slot, :need], pages = pages[:need], pages[need:]
    k_cache, v_cache = (np.full((n_pages, 16, 2, 8), np.nan, np.float16) for _ in range(2))
    keys, values = ([rng.standard_normal((n, 2, 8)).astype(np.float32) for n in lengths] for _ in range(2))
    slots = np.concatenate([np.full(n, s) for s, n in enumerate(lengths)])
    positions = np.concatenate([np.arange(n) for n in lengths])
    order = rng.permutation(len(slots))
    kv_write_rows(
        np.concatenate(keys)[order],
        np.concatenate(values)[order],
        positions[order],
        slots[order],
        table,
        k_cache,
        v_cache,
    )
    return rng, table, keys, values, k_cache, v_cache


def test_paged_attention_is_that_over_contiguous_positions() -> None:
    lengths = [5, 16, 40, 270]
    rng, table, keys, values, k_cache, v_cache = paged_case(13, lengths)
    rows = [(s, p) for s, n in enumerate(lengths) for p in {0, n // 2, n - 1}]
    rng.shuffle(rows)
    slots, positions = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    q = queries(rng, len(rows), 4, 8)
    got = flash_attn_paged(q, k_cache, v_cache, positions, slots, table, Scores(0.3))
    for i, (s, p) in enumerate(rows):
        k, v = keys[s].astype(np.float16), values[s].astype(np.float16)
        same_bits(got[i], attend_rows(q[i : i + 1], k, v, np.array([p]), Scores(0.3))[0])


def test_keys_and_values_are_rounded_to_float16_half_even() -> None:
    tie = 1.0 + 2.0**-11
    x = np.float32([tie, tie + 2.0**-20, 3 * tie, 1e6, -1e6, 2.0**-25, 2.0**-24 * 1.5, 65519.0]).reshape(1, 1, 8)
    k_cache, v_cache = (np.zeros((2, 16, 1, 8), np.float16) for _ in range(2))
    table = np.array([[1]], np.int32)
    kv_write_rows(x, -x, np.array([3], np.int32), np.array([0], np.int32), table, k_cache, v_cache)
    want = [1.0, 1.0 + 2.0**-10, 3.0 + 2.0**-9, math.inf, -math.inf, 0.0, 2.0**-23, 65504.0]
    assert k_cache[1, 3, 0].tolist() == want
    assert v_cache[1, 3, 0].tolist() == [-w for w in want]
    k_cache[1, 3] = v_cache[1, 3] = 0.0
    assert not k_cache.any()
    assert not v_cache.any()


def test_errors() -> None:
    q, kv, out = np.zeros(8, np.float32), np.zeros(12, np.float16), np.zeros(8, np.float32)

    def call(**changes: object) -> None:
        given = {
            "q": q, "kv_k": kv, "kv_v": kv, "output": out, "n_heads": 2, "n_kv_heads": 1, "head_dim": 4, "seq_len": 3,
        }  # fmt: skip
        kernels.flash_attn(**{**given, **changes})  # type: ignore[arg-type]

    call()
    with pytest.raises(EmptyInput, match="q is empty"):
        call(q=[])
    for changes in ({"seq_len": 0}, {"n_kv_heads": 0}, {"head_dim": 0}, {"n_heads": 3, "n_kv_heads": 2}):
        with pytest.raises(ShapeMismatch, match="multiple"):
            call(**changes)
    for name, value in (("q", q[:-1]), ("output", out[:-1]), ("kv_k", kv[:-1]), ("kv_v", kv[:-4])):
        with pytest.raises(ShapeMismatch, match=f"flash_attn: {name} has"):
            call(**{name: value})
    with pytest.raises(ShapeMismatch, match="attn_sinks has 3"):
        call(attn_sinks=[0.0] * 3)
    for name in ("scratch_scores", "scratch_probs"):
        call(**{name: np.zeros(3, np.float32)})
        with pytest.raises(ShapeMismatch, match=f"{name} holds 2"):
            call(**{name: np.zeros(2, np.float32)})
