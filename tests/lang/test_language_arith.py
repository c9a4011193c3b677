"""What compiled arithmetic gives, bit for bit, at every level: wrapping, shifts, comparisons, rounding, NaN, zeros."""

from __future__ import annotations

import itertools
import math
import struct
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.lang import arith_kernels as k
from tests.lang.levels import LEVELS, kernels
from tests.lang.rounding import convert, fused, saturated
from zinc_rt.lang.types import Float, Int

Array = npt.NDArray[Any]
QUICK = settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
BITS = {"f32": np.uint32, "f64": np.uint64, "f16": np.uint16, "bf16": np.uint16}


def dtype(kind: Int | Float) -> Any:
    if isinstance(kind, Float):
        return {"f16": np.float16, "bf16": np.uint16, "f32": np.float32, "f64": np.float64}[kind.name]
    return np.dtype(f"{'i' if kind.signed else 'u'}{kind.size}")


def padded(values: Array, n: int = 8) -> Array:
    """A whole number of vectors."""
    return np.resize(values, -(-len(values) // n) * n)


def same(actual: Array, wanted: Array, what: str) -> None:
    """Equal bits; one NaN is like another."""
    if actual.dtype.kind == "f":
        bits = BITS[f"f{actual.dtype.itemsize * 8}"]
        ok = (actual.view(bits) == wanted.view(bits)) | (np.isnan(actual) & np.isnan(wanted))
    else:
        ok = actual == wanted
    if not ok.all():
        i = int(np.flatnonzero(~ok)[0])
        pytest.fail(f"{what}: element {i} is {actual[i]!r}, expected {wanted[i]!r} ({(~ok).sum()} differ)")


# -- integers -------------------------------------------------------------------------------------------------------


def int_oracle(a: Array, b: Array, kind: Int) -> dict[str, Array]:
    """NumPy's arithmetic on arrays wraps."""
    counts = (b.view(f"u{kind.size}") & np.asarray(kind.bits - 1, f"u{kind.size}")).astype(a.dtype)
    bits = a.view(f"u{kind.size}")
    three = a.dtype.type(3)
    out = {
        "+": a + b, "-": a - b, "*": a * b, "&": a & b, "|": a | b, "^": a ^ b, "<<": a << counts, ">>": a >> counts,
        "neg": a.dtype.type(0) - a, "~": ~a, "abs": np.where(a < 0, a.dtype.type(0) - a, a),
        "max": np.where(a > b, a, b), "min": np.where(a < b, a, b), "popcount": np.bitwise_count(bits),
        "ctz": [(int(x) & -int(x)).bit_length() - 1 if x else kind.bits for x in bits], "<": a < b, "<=": a <= b,
        "==": a == b, "!=": a != b, "select": np.where(a > b, a, b), "by 3": a * three, "<< 3": a << three,
        "literal": a.dtype.type(100) - a, ">> 3": a >> three,
    }  # fmt: skip
    if not kind.signed:
        pairs = [(int(x), int(y)) for x, y in zip(a, b, strict=True)]
        out["//"] = [x // y if y else 0 for x, y in pairs]
        out["%"] = [x % y if y else x for x, y in pairs]
        out["// 7"], out["% 7"] = a // a.dtype.type(7), a % a.dtype.type(7)
    return {name: np.array(v, a.dtype) for name, v in out.items()}


def check_ints(level: str, kind: Int, a: Array, b: Array) -> None:
    names = (*k.INT_OPS, *(() if kind.signed else k.UNSIGNED_OPS))
    with np.errstate(all="ignore"):
        wanted = int_oracle(a, b, kind)
    for width in k.WIDTHS:
        out = np.zeros((len(names), len(a)), a.dtype)
        kernels(k.__name__, level)(k.int_ops, T=kind, W=width)(a, b, out, len(a))
        for row, name in zip(out, names, strict=True):
            same(row, wanted[name], f"{kind} {name}, {width} lanes")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", k.INTS, ids=str)
def test_integers_at_their_limits(level: str, kind: Int) -> None:
    low, high = kind.limits
    edges = {low, low + 1, -1, 0, 1, 2, 3, 7, kind.bits - 1, kind.bits, kind.bits + 1, high // 2, high - 1, high}
    values = sorted(v for v in edges if low <= v <= high)
    a, b = (np.array(side, dtype(kind)) for side in zip(*itertools.product(values, values), strict=True))
    check_ints(level, kind, padded(a), padded(b))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", k.INTS, ids=str)
def test_integers(level: str, kind: Int) -> None:
    numbers = st.lists(st.integers(*kind.limits), min_size=8, max_size=8)

    @QUICK
    @given(numbers, numbers)
    def check(a: list[int], b: list[int]) -> None:
        check_ints(level, kind, np.array(a, dtype(kind)), np.array(b, dtype(kind)))

    check()


# -- floats ---------------------------------------------------------------------------------------------------------


def extreme(a: Array, b: Array, sign: int) -> Array:
    """The greater (sign 1) or the lesser: NaN where either is, -0.0 below +0.0."""
    first = ((a > b) if sign > 0 else (a < b)) | ((a == b) & (np.signbit(a) == (sign < 0)))
    out = np.where(first, a, b)
    return np.where(np.isnan(a) | np.isnan(b), a.dtype.type(np.nan), out).astype(a.dtype)


def float_oracle(a: Array, b: Array, c: Array, kind: Float) -> dict[str, Array]:
    triples = zip(a.tolist(), b.tolist(), c.tolist(), strict=True)
    out = {
        "+": a + b, "-": a - b, "*": a * b, "/": a / b, "neg": -a, "abs": np.abs(a), "max": extreme(a, b, 1),
        "min": extreme(a, b, -1), "sqrt": np.sqrt(a), "rint": np.rint(a), "floor": np.floor(a),
        "fma": [fused(*t, kind.name) for t in triples], "a*b+c": a * b + c, "<": a < b, "<=": a <= b, "==": a == b,
        "!=": a != b, ">": a > b, ">=": a >= b, "literal": a * a.dtype.type(0.1),
    }  # fmt: skip
    return {name: np.array(v, a.dtype) for name, v in out.items()}


def check_floats(level: str, kind: Float, a: Array, b: Array, c: Array) -> None:
    with np.errstate(all="ignore"):
        wanted = float_oracle(a, b, c, kind)
    for width in k.WIDTHS:
        out = np.zeros((len(k.FLOAT_OPS), len(a)), a.dtype)
        kernels(k.__name__, level)(k.float_ops, T=kind, W=width)(a, b, c, out, len(a))
        for row, name in zip(out, k.FLOAT_OPS, strict=True):
            same(row, wanted[name], f"{kind} {name}, {width} lanes")


def edges(kind: Float) -> list[float]:
    info = np.finfo(dtype(kind))
    tiny, small = float(info.smallest_subnormal), float(info.smallest_normal)
    positive = [0.0, tiny, 3 * tiny, small - tiny, small, 0.5, 1.0, 1 + float(info.eps), 1.5, 2.5, 8388607.5]
    positive += [float(info.max), math.inf]
    return [*positive, *(-x for x in positive), math.nan]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", k.FLOATS, ids=str)
def test_floats_at_their_limits(level: str, kind: Float) -> None:
    values = edges(kind)
    a, b = (np.array(side, dtype(kind)) for side in zip(*itertools.product(values, values), strict=True))
    for c in (1.0, -0.0, -float(np.finfo(dtype(kind)).smallest_subnormal)):
        check_floats(level, kind, padded(a), padded(b), np.full(len(padded(a)), c, dtype(kind)))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", k.FLOATS, ids=str)
def test_floats(level: str, kind: Float) -> None:
    numbers = st.lists(st.floats(width=kind.bits), min_size=8, max_size=8)  # type: ignore[arg-type]

    @QUICK
    @given(numbers, numbers, numbers)
    def check(a: list[float], b: list[float], c: list[float]) -> None:
        check_floats(level, kind, *(np.array(v, dtype(kind)) for v in (a, b, c)))

    check()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", k.FLOATS, ids=str)
def test_fma_rounds_once_where_two_roundings_differ(level: str, kind: Float) -> None:
    """a * b is just off a tie, and the rounded product hides it."""
    info = np.finfo(dtype(kind))
    eps = float(info.eps)
    a = np.full(8, 1 + eps, dtype(kind))
    b = np.full(8, 1 - eps / 2 if kind.bits == 32 else 1 - eps, dtype(kind))
    c = -(a * b)
    check_floats(level, kind, a, b, c)
    assert (c + a * b == 0).all()
    assert fused(float(a[0]), float(b[0]), float(c[0]), kind.name) != 0


# -- conversions ----------------------------------------------------------------------------------------------------


def converted(x: Any, kind: Int | Float) -> Any:
    """One number in another type; bf16 as the float of its value."""
    if isinstance(kind, Int):
        low, high = kind.limits
        if isinstance(x, float):
            return saturated(x, low, high)
        return (int(x) - low) % (1 << kind.bits) + low
    if isinstance(x, int):
        from tests.lang.rounding import nearest

        return nearest(Fraction(x), kind.name)
    return convert(x, kind.name)


def bf16_bits(x: float) -> int:
    return struct.unpack("<I", struct.pack("<f", x))[0] >> 16


def run_conversions(level: str, source: Int | Float, a: Array, width: int) -> dict[Int | Float, Array]:
    targets = k.TO[str(source)]
    out = np.zeros((len(targets), 8 * len(a)), np.uint8)
    kernels(k.__name__, level)(k.convert, S=source, W=width)(a, out, len(a))
    return {kind: row[: len(a) * kind.size].view(dtype(kind)) for kind, row in zip(targets, out, strict=True)}


def check_conversions(level: str, source: Int | Float, a: Array) -> None:
    values = a.tolist()
    for width in k.WIDTHS:
        for kind, row in run_conversions(level, source, a, width).items():
            wanted = [converted(x, kind) for x in values]
            if str(kind) == "bf16":
                number = np.array([math.isnan(x) for x in wanted])
                assert (((row & 0x7F80) == 0x7F80) & ((row & 0x7F) != 0))[number].all()
                same(row[~number], np.array([bf16_bits(x) for x in wanted], np.uint16)[~number], f"bf16({source})")
            else:
                same(row, np.array(wanted, dtype(kind)), f"{kind}({source}), {width} lanes")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("source", k.NUMBERS, ids=str)
def test_conversions(level: str, source: Int | Float) -> None:
    if isinstance(source, Int):
        low, high = source.limits
        powers = [s * (1 << e) + d for e in range(64) for d in (-1, 0, 1) for s in (-1, 1)]
        # Integers that lie between two floats, or just off the middle of them.
        powers += [
            s * ((1 << e) + (1 << (e - b)) + d)
            for e in range(30, 64)
            for b in (24, 53)
            if e > b
            for d in (-1, 0, 1)
            for s in (-1, 1)
        ]
        values: list[Any] = [v for v in powers if low <= v <= high]
    else:
        limits = [float(v) for i in k.INTS for v in (i.limits[0], i.limits[1], i.limits[1] + 1)]
        around = [math.nextafter(v, d) for v in limits for d in (-math.inf, v, math.inf)]
        values = [
            *edges(source),
            *around,
            0.49999997,
            0.5,
            1.5,
            -0.5,
            -0.999,
            65519.99,
            65520.0,
            2.0**-25,
            3.3961775e38,
        ]
    check_conversions(level, source, padded(np.array(values, dtype(source))))


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("source", k.NUMBERS, ids=str)
def test_conversions_of_any_number(level: str, source: Int | Float) -> None:
    numbers = st.integers(*source.limits) if isinstance(source, Int) else st.floats(width=source.bits)  # type: ignore[arg-type]

    @QUICK
    @given(st.lists(numbers, min_size=8, max_size=8))
    def check(values: list[Any]) -> None:
        check_conversions(level, source, np.array(values, dtype(source)))

    check()


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("width", k.WIDTHS)
def test_all_half_patterns_widen(level: str, width: int) -> None:
    patterns = np.arange(1 << 16, dtype=np.uint32).astype(np.uint16)
    wide = run_conversions(level, k.f16, patterns.view(np.float16), width)
    same(wide[k.f32], patterns.view(np.float16).astype(np.float32), "f32(f16)")
    same(wide[k.f64], patterns.view(np.float16).astype(np.float64), "f64(f16)")
    wide = run_conversions(level, k.bf16, patterns, width)
    brain = (patterns.astype(np.uint32) << 16).view(np.float32)
    same(wide[k.f32], brain, "f32(bf16)")
    with np.errstate(invalid="ignore"):
        same(wide[k.f64], brain.astype(np.float64), "f64(bf16)")


def between(values: Array) -> Array:
    """Every value of a format (ascending, in a wider type), the middles between them, and their neighbours."""
    middles = values[:-1] + (values[1:] - values[:-1]) / 2
    points = np.concatenate([values, middles])
    points = np.concatenate([points, np.nextafter(points, points.dtype.type(np.inf)), np.nextafter(points, 0)])
    return padded(np.concatenate([points, -points]))


def nearest_bf16(x: Array) -> Array:
    """The bits of the nearest bfloat16 of finite numbers, by scaling to whole numbers of its last place."""
    wide = x.astype(np.float64)
    unit = np.maximum(np.frexp(wide)[1] - 8, -133)
    kept = np.ldexp(np.rint(np.ldexp(wide, -unit)), unit)
    kept = np.where(np.abs(kept) >= 2.0**128, np.copysign(np.inf, kept), kept)
    return (np.copysign(kept, wide).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("wide", k.FLOATS, ids=str)
def test_halves_round_to_nearest_even_around_every_value(level: str, wide: Float) -> None:
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(dtype(wide))
    x = between(np.append(halves, dtype(wide)(65536.0)))
    brains = (np.arange(0x7F80, dtype=np.uint32) << 16).view(np.float32).astype(dtype(wide))
    y = between(brains)
    with np.errstate(over="ignore"):
        for width in k.WIDTHS:
            same(run_conversions(level, wide, x, width)[k.f16], x.astype(np.float16), f"f16({wide})")
            same(run_conversions(level, wide, y, width)[k.bf16], nearest_bf16(y), f"bf16({wide})")
