"""Vectors, memory and dot products against NumPy, at every level."""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lang import value_kernels as k
from tests.lang.levels import EMULATED_VNNI, LEVELS, Kernels, kernels
from zinc_rt.lang import LangError, Spec
from zinc_rt.lang.types import Float, Int, i8, u8

Array = npt.NDArray[Any]
RNG = np.random.default_rng(7)


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Kernels:
    return kernels(k.__name__, request.param)


def dtype(kind: Int | Float) -> Any:
    if isinstance(kind, Float):
        return {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}[kind.name]
    return np.dtype(f"{'i' if kind.signed else 'u'}{kind.size}")


def any_bits(kind: Int | Float, n: int) -> Array:
    """Elements of any bit pattern, NaN included."""
    return RNG.integers(0, 256, n * kind.size, np.uint8).view(dtype(kind))


def bits(a: Array) -> Array:
    return a.view(np.uint8)


def aligned(n: int, at: int = 0) -> Array:
    """n float32 whose address is `at` beyond a multiple of 64."""
    raw = np.zeros(4 * n + 128, np.uint8)
    start = (at - raw.ctypes.data) % 64
    return raw[start : start + 4 * n].view(np.float32)


@pytest.mark.parametrize("kind", k.TYPES, ids=str)
@pytest.mark.parametrize("offset", [0, 1, 7])
def test_vectors_of_any_width_move_unchanged_from_any_address(level: Kernels, kind: Any, offset: int) -> None:
    n = 64 * len(k.COPY_LANES)
    raw = RNG.integers(0, 256, n * kind.size + 8, np.uint8)
    out = np.full_like(raw, 0xEE)
    level(k.copies, T=kind)(raw.ctypes.data + offset, out.ctypes.data + offset)
    for i, lanes in enumerate(k.COPY_LANES):
        at, end = offset + 64 * i * kind.size, offset + (64 * i + 64) * kind.size
        size = lanes * kind.size
        assert (out[at : at + size] == raw[at : at + size]).all(), lanes
        assert (out[at + size : end] == 0xEE).all(), f"{lanes} lanes wrote more"


@pytest.mark.parametrize("sizes", k.RECORDS)
def test_constants_in_a_record(level: Kernels, sizes: k.Sizes) -> None:
    a, out = RNG.standard_normal(8).astype(np.float32), np.zeros(8, np.float32)
    level(k.by_record, S=sizes)(a, out)
    assert (out[: sizes.N] == a[: sizes.N] * (1 + sizes.DOUBLED)).all()
    assert not out[sizes.N :].any()


def test_aligned_nontemporal_and_prefetched_accesses(level: Kernels) -> None:
    a, out = aligned(192), aligned(192)
    a[:] = RNG.standard_normal(192)
    level(k.aligned)(a, out)
    assert (a == out).all()


@pytest.mark.parametrize("n", [2, 4, 6, 16])
@pytest.mark.parametrize("kind", k.TYPES, ids=str)
def test_rearranging(level: Kernels, kind: Any, n: int) -> None:
    x, y = any_bits(kind, n), any_bits(kind, n)
    out = np.zeros((8, 2 * n), dtype(kind))
    level(k.rearranged, T=kind, N=n)(x, y, out)
    changed = x.copy()
    changed[n - 1] = y[0]
    wanted = [
        np.concatenate([x, y]),
        np.stack([x, y], 1).ravel(),
        x[::-1],
        changed,
        x[: n // 2],
        x[n // 2 :],
        np.repeat(x[1], 2 * n),
        np.array([x[0], y[n - 1]]),
    ]
    for row, want in zip(out, wanted, strict=True):
        assert (bits(row[: len(want)].copy()) == bits(np.ascontiguousarray(want))).all()


@pytest.mark.parametrize("n", [3, 4, 16])
def test_lane_numbers_count_modulo_the_lanes(level: Kernels, n: int) -> None:
    a = np.arange(10, 10 + n, dtype=np.int32)
    for at in (0, 1, n - 1, n, n + 1, 1000, (1 << 62) + 5):
        out = np.zeros(1 + n, np.int32)
        level(k.chosen_lane, N=n)(a, out, at)
        wanted = a.copy()
        wanted[at % n] *= -1
        assert out[0] == a[at % n]
        assert (out[1:] == wanted).all()


@pytest.mark.parametrize("n", [2, 3, 16, 64])
def test_made_vectors(level: Kernels, n: int) -> None:
    out = np.full(3 * n, 77, np.int32)
    level(k.made, N=n)(out)
    assert out.tolist() == [*range(n), *[0] * n, *[n] * n]


def test_masks(level: Kernels) -> None:
    for _ in range(20):
        a, b = (RNG.integers(-2, 3, 16).astype(np.float32) for _ in range(2))
        a[RNG.integers(0, 16)] = np.nan
        out, floats = np.zeros(8, np.uint32), np.zeros(48, np.float32)
        out[5] = RNG.integers(0, 2)
        level(k.masks)(a, b, out, floats)
        less = a < b
        number = [int((mask * (1 << np.arange(16))).sum()) for mask in (less, less ^ (a == b), ~less & (a > 0))]
        ors = int(np.bitwise_or.reduce(np.where(less, np.arange(16), 0)))
        assert out.tolist() == [number[0], less.any(), less.all(), number[1], number[2], out[5], ors, less[3]]
        chosen = np.array([0xA5C3 >> i & 1 for i in range(16)], bool)
        wanted = [np.where(less, a, b), np.where(chosen, a, 0), a if out[5] == 1 else b]
        assert (bits(floats) == bits(np.concatenate(wanted).astype(np.float32))).all()


def pairwise(x: Array) -> Any:
    """Sum at distance n/2, n/4, …, 1."""
    while len(x) > 1:
        x = x[: len(x) // 2] + x[len(x) // 2 :]
    return x[0]


@pytest.mark.parametrize("kind", [t for t in k.TYPES if str(t) not in ("f16", "bf16")], ids=str)
def test_reductions_keep_their_order(level: Kernels, kind: Any) -> None:
    for attempt in range(10):
        a = any_bits(kind, 64)
        if isinstance(kind, Float):
            a = (RNG.standard_normal(64) * 10.0 ** RNG.integers(-6, 7, 64)).astype(a.dtype)
            if attempt == 8:
                a[1] = np.nan
            if attempt == 9:
                a[:] = -0.0
                a[0] = 0.0
        out = np.zeros(3 * len(k.REDUCE_LANES), a.dtype)
        level(k.reductions, T=kind)(a, out)
        with np.errstate(all="ignore"):
            wanted = [f(a[:n]) for n in k.REDUCE_LANES for f in (pairwise, np.max, np.min)]
        if attempt == 9 and isinstance(kind, Float):  # sum, greatest and least of zeros of both signs
            assert (np.signbit(out) == [False, False, True] * len(k.REDUCE_LANES)).all()
        assert np.array_equal(out, np.array(wanted, a.dtype), equal_nan=a.dtype.kind == "f")


def dot_oracle(acc: Array, a: Array, b: Array) -> Array:
    total = acc.astype(np.int64) + (a.astype(np.int64) * b.astype(np.int64)).reshape(-1, 4).sum(1)
    return total.astype(np.int32)  # wraps


def check_dots(level: Kernels, kind: Any, bound: int, a: Array, b: Array, acc: Array) -> None:
    out = np.zeros_like(acc)
    level(k.dots, T=kind, BOUND=bound)(acc, a, b, out)
    for i, n in enumerate(k.DOT_LANES):
        sums, bytes_ = slice(64 * i, 64 * i + n), slice(256 * i, 256 * i + 4 * n)
        assert (out[sums] == dot_oracle(acc[sums], a[bytes_], b[bytes_])).all(), f"{n} lanes"
        assert (out[64 * i + n : 64 * i + 64] == 0).all()


@pytest.mark.parametrize(("kind", "bound"), k.BOUNDS, ids=str)
def test_dot_products_are_exact(level: Kernels, kind: Any, bound: int) -> None:
    size = 64 * len(k.DOT_LANES)
    # With a signed left side the right side has no -128.
    a_low, a_high, b_low = (-128, 127, -127) if kind.signed else (0, bound, -128)
    for a_value, b_value in ((a_high, 127), (a_high, b_low), (a_low, 127), (a_low, b_low), (a_high, 1)):
        a, b = np.full(4 * size, a_value, dtype(kind)), np.full(4 * size, b_value, np.int8)
        b[1::4] = -b[1::4] if b_value != -128 else 127
        for start in (0, 2**31 - 1, -(2**31)):
            check_dots(level, kind, bound, a, b, np.full(size, start, np.int32))
    for _ in range(10):
        a = RNG.integers(a_low, a_high + 1, 4 * size).astype(dtype(kind))
        b = RNG.integers(b_low, 128, 4 * size).astype(np.int8)
        check_dots(level, kind, bound, a, b, RNG.integers(-(2**31), 2**31, size).astype(np.int32))


@pytest.mark.parametrize("kind", [u8, i8], ids=str)
def test_products_of_two_rows_and_two_columns_are_exact(level: Kernels, kind: Any) -> None:
    low, high = (-128, 127) if kind.signed else (0, 255)
    for a_low, b_low in ((low, -128), (low, -128), (high, 127), (high, -128)):
        a = RNG.integers(a_low, high + 1, 16).astype(dtype(kind))
        b = RNG.integers(b_low, b_low + 1 if a_low == high else 128, 16).astype(np.int8)
        acc = RNG.integers(-(2**31), 2**31, 4).astype(np.int32)
        out = np.zeros(4, np.int32)
        level(k.squares, T=kind)(acc, a, b, out)
        total = acc.astype(np.int64) + (a.astype(np.int64).reshape(2, 8) @ b.astype(np.int64).reshape(2, 8).T).ravel()
        assert (out == total.astype(np.int32)).all()


@pytest.mark.skipif("avx2" not in LEVELS, reason="its instructions are AVX2's")
@pytest.mark.parametrize(("kind", "bound"), k.BOUNDS, ids=str)
def test_dot_products_of_avx_vnni_are_exact_where_avx2_stands_in(kind: Any, bound: int) -> None:
    test_dot_products_are_exact(emulated_dots(), kind, bound)


@cache
def emulated_dots() -> Kernels:
    return Kernels([Spec(k.dots, {"T": kind, "BOUND": bound}) for kind, bound in k.BOUNDS], EMULATED_VNNI)


def test_pairs_of_byte_products_are_exact(level: Kernels) -> None:
    size = 64 * len(k.PAIR_LANES)
    for a_low, b_low in ((128, -128), (128, 127), (0, -128), (0, -128)):
        a = RNG.integers(a_low, 129, 4 * size).astype(np.uint8)
        b = RNG.integers(b_low, 128 if b_low == 127 or a_low == 0 else -127, 4 * size).astype(np.int8)
        acc = RNG.integers(-(2**31), 2**31, size).astype(np.int32)
        sums, out = np.zeros(2 * size, np.int16), np.zeros(size, np.int32)
        level(k.pairs)(acc, a, b, sums, out)
        for i, n in enumerate(k.PAIR_LANES):
            bytes_, at = slice(256 * i, 256 * i + 4 * n), slice(64 * i, 64 * i + n)
            words = (a[bytes_].astype(np.int64) * b[bytes_]).reshape(-1, 2).sum(1)
            assert (sums[128 * i : 128 * i + 2 * n] == words).all(), n
            assert (out[at] == dot_oracle(acc[at], a[bytes_], b[bytes_])).all(), n


def test_pairs_of_words_are_multiplied_exactly(level: Kernels) -> None:
    size = 64 * len(k.PAIR_LANES)
    # Twice -32768 times itself is the one pair whose sum wraps.
    words, factors = (RNG.choice([-32768, -32767, -1, 0, 1, 255, 32767], 2 * size).astype(np.int16) for _ in range(2))
    acc = RNG.integers(-(2**31), 2**31, size).astype(np.int32)
    out = np.zeros(size, np.int32)
    level(k.weighed_pairs)(acc, words, factors, out)
    for i, n in enumerate(k.PAIR_LANES):
        of, at = slice(128 * i, 128 * i + 2 * n), slice(64 * i, 64 * i + n)
        products = (words[of].astype(np.int64) * factors[of]).reshape(-1, 2).sum(1)
        assert (out[at] == (acc[at] + products).astype(np.int32)).all(), n


def test_signs_are_taken_from_another_vector(level: Kernels) -> None:
    size = 64 * len(k.DOT_LANES)
    x, y = (RNG.choice([-128, -127, -1, 0, 1, 127], size).astype(np.int8) for _ in range(2))
    out = np.zeros(size, np.int8)
    level(k.with_signs)(x, y, out)
    for i, n in enumerate(k.DOT_LANES):
        at = slice(64 * i, 64 * i + n)
        assert (out[at] == (x[at].astype(np.int16) * np.sign(y[at])).astype(np.int8)).all(), n


@pytest.mark.parametrize(("kind", "table"), k.TABLES, ids=str)
def test_lookups_take_indices_modulo_the_entries(level: Kernels, kind: Any, table: tuple[int, ...]) -> None:
    indices = RNG.permuted(np.tile(np.arange(256, dtype=np.uint8), (len(k.LOOKUP_LANES), 1)), axis=1).reshape(-1)
    out = np.full(indices.size, 0x55, dtype(kind))
    level(k.looked_up, T=kind, TABLE=table)(indices, out)
    for i, n in enumerate(k.LOOKUP_LANES):
        here = out[256 * i : 256 * i + 256]
        assert here[:n].tolist() == [table[x % 16] for x in indices[256 * i : 256 * i + n]]
        assert (here[n:] == 0x55).all()


def test_lookups_in_lanes_stay_within_sixteen(level: Kernels) -> None:
    size = 64 * len(k.TABLE_LANES)
    indices, tables, out = RNG.integers(0, 256, size, np.uint8), any_bits(i8, size), np.zeros(size, np.int8)
    level(k.looked_up_in_lanes)(indices, tables, out)
    for i, n in enumerate(k.TABLE_LANES):
        lanes = np.arange(64 * i, 64 * i + n)
        assert (out[lanes] == tables[lanes // 16 * 16 + indices[lanes] % 16]).all(), n


@pytest.mark.parametrize(("kind", "values"), k.GATHERED, ids=lambda x: str(x)[:8])
def test_elements_of_tables_and_of_memory_are_gathered(level: Kernels, kind: Any, values: tuple[int, ...]) -> None:
    indices = RNG.integers(0, 256, 64 * len(k.GATHER_LANES), np.uint8)
    memory, out = any_bits(kind, 256), np.zeros(2048, dtype(kind))
    level(k.gathered, T=kind, VALUES=values)(indices, memory, out)
    for i, n in enumerate(k.GATHER_LANES):
        at = indices[64 * i : 64 * i + n]
        assert out[64 * i : 64 * i + n].tolist() == [values[x] for x in at]
        assert (out[1024 + 64 * i : 1024 + 64 * i + n] == memory[at]).all()


class CInner(ctypes.Structure):
    _fields_ = [
        ("a", ctypes.c_int8),
        ("b", ctypes.c_double),
        ("c", ctypes.c_uint16),
        ("d", ctypes.c_void_p),
        ("e", ctypes.c_uint16),
        ("f", ctypes.c_int32),
    ]


def test_structs_lie_as_in_c(level: Kernels) -> None:
    layout = {name: getattr(CInner, name).offset for name, *_ in CInner._fields_}
    assert k.Inner.offsets == layout
    assert (k.Inner.size, k.Inner.align) == (ctypes.sizeof(CInner), ctypes.alignment(CInner))
    s, data = np.zeros(3, k.Inner.numpy), np.zeros((3, 2), np.float32)
    s["a"], s["b"], s["c"], s["e"] = [-5, 127, 3], [0.1, -2.5, 1e300], [65535, 7, 8], [1.5, 2.25, 65504]
    s["d"] = data.ctypes.data + 8 * np.arange(3)
    before = s.copy()
    with np.errstate(over="ignore"):
        level(k.fields)(s, 3)
        assert s["f"].tolist() == [65530, 134, 11]
        assert (s["b"] == before["b"] * 2).all()
        assert (data[:, 1] == s["b"].astype(np.float32)).all()
        assert (data[:, 0] == 0).all()
        assert s["a"].tolist() == [-4, -128, 4]
        assert (s["e"] == (before["e"].astype(np.float32) + 1).astype(np.float16)).all()
    out = np.zeros(3)
    level(k.read_only)(s[1:], out)
    assert out[0] == s["b"][1]
    assert out[1] == data[1, 0]


def test_arrays_of_another_struct_are_refused(level: Kernels) -> None:
    with pytest.raises(LangError, match="takes an array of"):
        level(k.fields)(np.zeros(3, [("a", "i4")]), 3)


def test_pointers(level: Kernels) -> None:
    p = np.array([1, 2, 3, 0x0504, -9, 6], np.int32)
    out = np.zeros(7, np.uint64)
    level(k.pointers)(p, out, 5)
    assert out.tolist() == [12, (1 << 64) - 8, 5, 3, (1 << 32) - 9, 0x0504, 0]


@pytest.mark.parametrize("n", [0, 1, 9])
def test_stack_memory_is_zero_at_first(level: Kernels, n: int) -> None:
    out = np.zeros(n + 1, np.int32)
    level(k.arrays)(out, n)
    assert out.tolist() == [*(2 * (i + 1) for i in range(n)), 0]


@pytest.mark.parametrize("n", [1, 3])
def test_registers(level: Kernels, n: int) -> None:
    a, out = RNG.standard_normal(5 * 4 * n).astype(np.float32), np.zeros(4 * n, np.float32)
    level(k.registers, N=n)(a, out, 5 * 4 * n)
    wanted = np.zeros(4 * n, np.float32)
    for row in a.reshape(5, 4 * n):
        wanted += row
    assert (out == wanted).all()


@settings(max_examples=8, deadline=None)
@given(st.booleans(), st.booleans(), st.booleans())
@pytest.mark.parametrize("name", LEVELS)
def test_truth_values(name: str, yes: bool, a: bool, b: bool) -> None:
    out = np.zeros(2, np.uint8)
    result = kernels(k.__name__, name)(k.flags, yes=yes)(a, b, out)
    assert result is ((a == b) if yes else (a != b))
    assert out.tolist() == [a, (a and b) + (a or b) * 2 + (not a) * 4 + (a ^ b) * 8]
