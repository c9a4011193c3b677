"""The other kernels of a decode step on the emulated shader core: the reference's bits."""

from __future__ import annotations

import numpy as np
import pytest

from tests.kernels import material as m
from tests.kernels.gpu.listing import ATTENTION, HEADS, HEADS_FORMS
from tests.kernels.gpu.stage import Block, Stage, same
from zinc_rt.gguf import GGMLType, blocks
from zinc_rt.ir.ops.argmax import argmax_rows
from zinc_rt.ir.ops.kv_cache import kv_write_rows
from zinc_rt.ir.ops.norms import rms_norm_rows
from zinc_rt.ir.ops.rope import rope_rows, rope_table
from zinc_rt.kernels.amd.catalogue import KERNELS
from zinc_rt.kernels.gpu.attention import GpuAttentionArgs
from zinc_rt.kernels.gpu.catalogue import attention_kernel, head_form, heads_kernel
from zinc_rt.kernels.gpu.heads import GpuHeadsArgs
from zinc_rt.kernels.reference.activations import quantize_activations
from zinc_rt.kernels.reference.attention import Scores, attend_rows
from zinc_rt.kernels.reference.mathfn import silu

SIZES = (1, 7, 255, 257, 1000)
PAGE = 16
NOT_CLAMPED = (0.0, 0.0)
"""alpha and limit, which no other activation than the clamped one reads."""


@pytest.mark.parametrize("n", SIZES)
def test_norms(gpu: Stage, rng: np.random.Generator, n: int) -> None:
    x = m.adversarial_activations(rng, 3, n, finite=n != 257)
    residual, w = m.adversarial_activations(rng, 3, n), m.activations(rng, 1, n)[0]
    y, total = np.zeros_like(x), np.zeros_like(x)
    gpu.run(KERNELS["rms_norm"], 3, x, w, y, n, 1e-5)
    assert same(y, rms_norm_rows(x, w, 1e-5))
    gpu.run(KERNELS["residual_rms_norm"], 3, x, residual, w, total, y, n, 1e-6)
    with np.errstate(all="ignore"):
        assert same(total, x + residual)
    assert same(y, rms_norm_rows(total, w, 1e-6))


def test_order_of_a_norm(gpu: Stage, rng: np.random.Generator) -> None:
    """Rows of ordinary numbers, enough of them that another order of the sum would show."""
    x, w = rng.standard_normal((150, 700)).astype(np.float32), np.ones(700, np.float32)
    y = np.zeros_like(x)
    gpu.run(KERNELS["rms_norm"], 150, x, w, y, 700, 1e-5)
    assert same(y, rms_norm_rows(x, w, 1e-5))


@pytest.mark.parametrize("n", SIZES)
def test_elementwise(gpu: Stage, rng: np.random.Generator, n: int) -> None:
    a, b = (m.adversarial_activations(rng, 2, n, finite=False) for _ in range(2))
    a[:, ::3] = rng.uniform(-110, 110, a[:, ::3].shape)  # where exp is neither 0 nor infinity
    groups = -(-2 * n // 1024)
    with np.errstate(all="ignore"):
        wants = {"add": a + b, "swiglu": silu(a) * b, "add_row": a + b[0]}
    rest = {"swiglu": NOT_CLAMPED}
    for name, want in wants.items():
        y = np.full((3, n), 55, np.float32)
        if name == "add_row":
            gpu.run(KERNELS[name], (-(-n // 256), 2), a, b[0].copy(), y, n)
        else:
            gpu.run(KERNELS[name], groups, a, b, y, 2 * n, *rest.get(name, ()))
        assert same(y[:2], want), name
        assert (y[2] == 55).all(), name


def quantised(n_rows: int, n: int) -> tuple[np.ndarray, ...]:
    """Room for rows as int8: quants, scales, sums."""
    return (
        np.full((n_rows, n), 9, np.int8),
        np.zeros((n_rows, n // 32), np.float32),
        np.zeros((n_rows, n // 32), np.uint32),
    )


def same_quantised(got: tuple[np.ndarray, ...], x: np.ndarray) -> None:
    """What the reference's quantisation of x gives."""
    want = quantize_activations(x)
    q, d, s = got
    assert same(d, want.d)
    assert (q.reshape(want.q.shape) == want.q).all()
    halves = want.q.astype(np.int64).reshape(*want.d.shape, 2, 16).sum(-1)
    assert (s == ((halves[..., 0] & 0xFFFF) | (halves[..., 1] & 0xFFFF) << 16)).all()


@pytest.mark.parametrize("n", [32, 224, 1024, 2080])
def test_norms_and_swiglu_as_int8(gpu: Stage, rng: np.random.Generator, n: int) -> None:
    x = m.adversarial_activations(rng, 3, n, finite=n != 224)
    residual, w = m.adversarial_activations(rng, 3, n), m.activations(rng, 1, n)[0]
    total = np.zeros_like(x)
    out = quantised(3, n)
    gpu.run(KERNELS["norm_quantized"], 3, x, w, *out, n, 1e-5)
    same_quantised(out, rms_norm_rows(x, w, 1e-5))
    out = quantised(3, n)
    gpu.run(KERNELS["residual_norm_quantized"], 3, x, residual, w, total, *out, n, 1e-6)
    with np.errstate(all="ignore"):
        assert same(total, x + residual)
    same_quantised(out, rms_norm_rows(total, w, 1e-6))
    out = quantised(3, n)
    gpu.run(KERNELS["swiglu_quantized"], -(-3 * n // 1024), x, residual, *out, 3 * n, *NOT_CLAMPED)
    with np.errstate(all="ignore"):
        same_quantised(out, silu(x) * residual)


@pytest.mark.parametrize("n", [1, 5, 1024, 3333])
def test_move(gpu: Stage, rng: np.random.Generator, n: int) -> None:
    x, y = rng.integers(0, 1 << 32, n + 1, np.uint32), np.full(n + 1, 7, np.uint32)
    gpu.run(KERNELS["move"], -(-n // 1024), x, y, n)
    assert y[:n].tolist() == x[:n].tolist()
    assert y[n] == 7


@pytest.mark.parametrize("n", [1, 2048, 2049, 5000])
def test_argmax_in_parts(gpu: Stage, rng: np.random.Generator, n: int) -> None:
    x = rng.choice(np.float32([1, 2, 2, np.nan, -np.inf, np.inf, 0, -0.0, -1]), (4, n)).astype(np.float32)
    x[0], x[1, : n - 1] = np.nan, -np.inf
    x[2] = rng.standard_normal(n)
    parts = -(-n // 2048)
    tops, places, y = np.zeros((4, parts), np.float32), np.zeros((4, parts), np.uint32), np.full(4, -5, np.int32)
    gpu.run(KERNELS["argmax_parts"], (parts, 4), x, tops, places, n, parts)
    gpu.run(KERNELS["argmax_merge"], 4, tops, places, y, parts)
    assert y.tolist() == argmax_rows(x).tolist()


@pytest.mark.parametrize("n", [*SIZES, 2048, 4100])
def test_argmax(gpu: Stage, rng: np.random.Generator, n: int) -> None:
    x = rng.choice(np.float32([1, 2, 2, np.nan, -np.inf, np.inf, 0, -0.0, -1]), (5, n)).astype(np.float32)
    x[0], x[1] = np.nan, -np.inf
    x[2] = np.where(np.arange(n) % 3 == 2, -np.inf, np.nan)
    x[3] = rng.standard_normal(n)
    y = np.full(5, -5, np.int32)
    gpu.run(KERNELS["argmax"], 5, x, y, n)
    assert y.tolist() == argmax_rows(x).tolist()


@pytest.mark.parametrize("kind", m.by_kind([*m.QUANTISED, *m.FLOATS]))
def test_embedding(gpu: Stage, rng: np.random.Generator, kind: GGMLType) -> None:
    n, ids = 512, np.array([3, 0, 4], np.int32)
    if kind in m.QUANTISED:
        w, span = m.adversarial_rows(kind, rng, 5, n, m.WILD_F16), 2048
    else:
        w, span = np.ascontiguousarray(m.float_rows(kind, m.activations(rng, 5, n))), 256
    y = np.full((4, n), 55, np.float32)
    gpu.run(KERNELS[f"embed_{kind.name.lower()}"], (-(-n // span), 3), w, ids, y, n)
    assert same(y[:3], blocks.dequantize(kind, np.ascontiguousarray(w[ids])))
    assert (y[3] == 55).all()


@pytest.mark.parametrize(("dim", "pairs", "interleaved"), HEADS)
def test_heads(gpu: Stage, rng: np.random.Generator, dim: int, pairs: int, interleaved: bool) -> None:
    rows, n_heads, max_pages = 5, 3, 8
    weight = m.activations(rng, 1, dim)[0]
    positions = rng.permutation(100)[:rows].astype(np.int32)
    slots = rng.integers(0, 3, rows).astype(np.int32)
    pages = rng.permutation(3 * max_pages).astype(np.int32).reshape(3, max_pages)
    table = rope_table(np.arange(100), 1e-4 ** (np.arange(pairs) / max(pairs, 1)))
    for norm, cache in HEADS_FORMS:
        x = m.adversarial_activations(rng, rows, n_heads * dim, finite=not cache).reshape(rows, n_heads, dim)
        y, stored = np.full_like(x, 55), np.full((3 * max_pages, PAGE, n_heads, dim), 3, np.float16)
        values = {
            "x": x, "y": y, "cache": stored, "weight": weight, "positions": positions, "slots": slots,
            "table": np.ascontiguousarray(table.transpose(0, 2, 1)), "page_table": pages, "max_pages": max_pages,
            "n_heads": n_heads, "n_rows": rows, "eps": 1e-6,
        }  # fmt: skip
        entry = heads_kernel(head_form(dim, pairs, interleaved=interleaved, norm=norm, cache=cache))
        gpu.run(entry, -(-rows * n_heads // 4), Block(GpuHeadsArgs, values))
        want = rope_rows(rms_norm_rows(x, weight, 1e-6) if norm else x, table[positions], interleaved=interleaved)
        if cache:
            other = np.full_like(stored, 3)
            kv_write_rows(want, want, positions, slots, pages, other, other.copy())
            assert same(stored, other)
            assert (y == 55).all()
        else:
            assert same(y, want)
            assert (stored == 3).all()


def test_rounding_of_cached_heads(gpu: Stage, rng: np.random.Generator) -> None:
    """So many products that some lie where rounding to float32 first makes a difference in float16."""
    rows, dim = 256, 40
    x, weight = rng.standard_normal((rows, 1, dim)).astype(np.float32), rng.standard_normal(dim).astype(np.float32)
    positions = np.arange(rows, dtype=np.int32)
    slots, pages = np.zeros(rows, np.int32), np.arange(16, dtype=np.int32).reshape(1, 16)
    stored = np.zeros((16, PAGE, 1, dim), np.float16)
    values = {
        "x": x, "y": x.copy(), "cache": stored, "weight": weight, "positions": positions, "slots": slots,
        "table": np.zeros(1, np.float32), "page_table": pages, "max_pages": 16, "n_heads": 1, "n_rows": rows,
        "eps": 1e-6,
    }  # fmt: skip
    entry = heads_kernel(head_form(dim, 0, interleaved=False, norm=True, cache=True))
    gpu.run(entry, -(-rows // 4), Block(GpuHeadsArgs, values))
    want = rms_norm_rows(x, weight, 1e-6)
    assert same(stored.reshape(rows, 1, dim), want.astype(np.float16))
    scale = (want / x / weight)[:, :, :1].astype(np.float64)
    once = ((x * scale.astype(np.float32)).astype(np.float64) * weight).astype(np.float16)
    assert (once != want.astype(np.float16)).any(), "numbers that would not show it"


@pytest.mark.parametrize(
    ("dim", "n_kv", "group"),
    [pytest.param(*form, marks=pytest.mark.slow if form[0] in (80, 128) else ()) for form in ATTENTION],
)
def test_attention(gpu: Stage, rng: np.random.Generator, dim: int, n_kv: int, group: int) -> None:
    """Rows of one position, of a whole split, of one more, and of several; with and without sinks. Wide heads: less."""
    heads, max_pages, splits = n_kv * group, 40, 3
    positions = np.array([0, 255, 256, 583] if dim == 8 else [256, 583], np.int32)
    rows = len(positions)
    slots = np.array([0, 1, 2, 1][:rows], np.int32)
    pages = rng.permutation(3 * max_pages).astype(np.int32).reshape(3, max_pages)
    caches = [
        np.clip(m.activations(rng, 3 * max_pages * PAGE, n_kv * dim), -6e4, 6e4)
        .astype(np.float16)
        .reshape(-1, PAGE, n_kv, dim)
        for _ in range(2)
    ]
    q = (m.activations(rng, rows, heads * dim) / 16).reshape(rows, heads, dim)
    if dim == 8:
        q[0, 0, 0], q[2] = np.nan, q[2] * np.float32(1e30)
        caches[1][pages[1, 3], 2, 0, 1] = np.inf
    sinks = rng.standard_normal(heads).astype(np.float32)
    sinks[0] = np.nan
    y, scale = np.zeros_like(q), np.float32(dim**-0.5)
    values = {
        "q": q, "k_cache": caches[0], "v_cache": caches[1], "y": y, "sinks": sinks, "positions": positions,
        "values": np.full((rows, splits, heads, dim), np.nan, np.float32),
        "tops": np.full((rows, splits, heads, 2), np.nan, np.float32), "counters": np.zeros((rows, n_kv), np.uint32),
        "slots": slots, "page_table": pages, "max_pages": max_pages, "max_splits": splits, "n_kv": n_kv,
        "scale": scale,
    }  # fmt: skip
    for sink in (False, True) if dim == 8 else (True,):
        gpu.run(attention_kernel(dim, group, sinks=sink), (splits, n_kv, rows), Block(GpuAttentionArgs, values))
        assert not values["counters"].any()
        for r, position in enumerate(positions):
            k, v = (c[pages[slots[r]]].reshape(-1, n_kv, dim)[: position + 1] for c in caches)
            want = attend_rows(
                q[r : r + 1], k, v, positions[r : r + 1], Scores(float(scale), sinks=sinks if sink else None)
            )
            assert same(y[r : r + 1], want), (r, sink)
    if dim % 32 == 0:
        out = quantised(rows, heads * dim)
        names = dict(zip(("quants", "scales", "sums"), out, strict=True))
        entry = attention_kernel(dim, group, sinks=True, packed=True)
        gpu.run(entry, (splits, n_kv, rows), Block(GpuAttentionArgs, {**values, **names}))
        same_quantised(out, y.reshape(rows, -1))
