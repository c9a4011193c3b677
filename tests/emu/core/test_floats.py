"""Float instructions, against exact fractions that are rounded once, here."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tests.emu.core.one import (
    INF,
    NAN,
    SPECIAL,
    SPECIAL16,
    SPECIAL32,
    Format,
    is_nan,
    literal,
    rounded,
    rows,
    same,
    signed,
    value,
    vector,
)

TINY = {16: 2.0**-14, 32: 2.0**-126, 64: 2.0**-1022}


def exact(kind: str, xs: list[float], width: int, mode: int = 0) -> int | float:
    """Bits of x + y, x * y, or x * y + z; nan."""
    if any(map(math.isnan, xs)):
        return NAN
    a, b, c = xs if kind == "fma" else (xs[0], xs[1], -0.0) if kind == "mul" else (xs[0], 1.0, xs[1])
    infinite = bits_of_inf(width)
    if math.isinf(a) or math.isinf(b) or math.isinf(c):
        if (math.isinf(a) or math.isinf(b)) and (a == 0 or b == 0):
            return NAN
        p = math.copysign(INF, a) * math.copysign(1, b) if math.isinf(a) or math.isinf(b) else 0.0
        if math.isinf(p) and math.isinf(c) and p != c:
            return NAN
        negative = (p if math.isinf(p) else c) < 0
        return infinite | negative << (width - 1)
    product_negative = math.copysign(1, a) * math.copysign(1, b) < 0
    total = Fraction(a) * Fraction(b) + (0 if kind == "mul" else Fraction(c))
    if kind == "mul":
        return rounded(total, width, mode, product_negative)
    zero_negative = (product_negative and math.copysign(1, c) < 0) or (
        mode == 2 and (product_negative or math.copysign(1, c) < 0 or (total == 0 and Fraction(c) != 0))
    )
    return rounded(total, width, mode, zero_negative)


def bits_of_inf(width: int) -> int:
    return {16: 0x7C00, 32: 0x7F800000, 64: 0x7FF0 << 48}[width]


def mode_of(rounding: int, denorm: int = 3) -> int:
    return rounding | rounding << 2 | denorm << 4 | denorm << 6


@pytest.mark.parametrize("rounding", range(4))
@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize(("name", "kind"), [("v_add", "add"), ("v_mul", "mul"), ("v_fma", "fma")])
def test_arithmetic_rounds_once_in_every_mode(name: str, kind: str, width: int, rounding: int) -> None:
    n = 3 if kind == "fma" else 2
    columns = rows(SPECIAL[width], n, width, width + rounding, limit=500, random=100)
    if kind == "fma":  # sums that lie near a boundary of the result
        rng = np.random.default_rng(1)
        some = rng.integers(0, len(SPECIAL[width]), (3, 200))
        for column, index in zip(columns, some, strict=True):
            column += [SPECIAL[width][i] for i in index]
    got = vector(f"{name}_f{width}", columns, [width] * n, width, mode=mode_of(rounding))
    for k, row in enumerate(zip(*columns, strict=True)):
        want = exact(kind, [value(x, width) for x in row], width, rounding)
        assert same(got[k], want, width), (name, rounding, [hex(x) for x in row], hex(got[k]), want)


def test_fma_is_not_rounded_twice() -> None:
    """Sums that binary64 rounds onto a boundary of binary32."""
    one = 0x3F800000
    cases = [
        (0x3F800001, 0x3F800001, 0x33800000), (one, 0x33800000, one), (0x3F800800, 0x3F800800, 0x00000001),
        (0x3F800800, 0x3F800800, 0x80000001), (one, 0x4B800000, 0x3F800000), (0x4B7FFFFF, 0x3F800001, 0x2F000000),
        (0x00800000, 0x3F000001, 0x00000001), (0x00000003, 0x3F000000, 0), (0x1E3CE508, 0x1E3CE508, 0x80000001),
    ]  # fmt: skip
    rng = np.random.default_rng(2)
    for _ in range(2000):  # a b is a boundary of the sum with c, plus the least that there is
        a, b = ((int(x) << 12) | 0x3F800000 for x in rng.integers(0, 1 << 11, 2))
        cases.append((a, b, int(rng.integers(0, 0x20)) << 23 | int(rng.integers(0, 2)) << 31 | 1))
    columns = [[c[k] for c in cases] for k in range(3)]
    got = vector("v_fma_f32", columns, [32] * 3)
    fmac = vector("v_fmac_f32", [columns[0], columns[1]], [32, 32], form=Format.VOP2, old=columns[2][0])
    for k, row in enumerate(cases):
        assert same(got[k], exact("fma", [value(x, 32) for x in row], 32), 32), [hex(x) for x in row]
    assert same(fmac[0], exact("fma", [value(x, 32) for x in cases[0]], 32), 32)


def test_subnormals_are_flushed_where_mode_says_so() -> None:
    a, b = rows(SPECIAL32, 2, 32, 5)
    for denorm in range(4):
        got = vector("v_add_f32", [a, b], [32, 32], mode=mode_of(0, denorm))
        for k, (x, y) in enumerate(zip(a, b, strict=True)):
            if not denorm & 1:
                x, y = (v & 0x80000000 if 0 < v & 0x7FFFFFFF < 0x800000 else v for v in (x, y))
            want = exact("add", [value(x, 32), value(y, 32)], 32)
            if isinstance(want, int) and not denorm & 2 and 0 < want & 0x7FFFFFFF < 0x800000:
                want &= 0x80000000
            assert same(got[k], want, 32), (denorm, hex(x), hex(y))


def number(x: int, width: int) -> tuple[float, int]:
    """Order with -0 below +0."""
    return value(x, width), 0 if x >> (width - 1) else 1


def pick(kind: str, a: int, b: int, width: int) -> int | float:
    nans = [is_nan(x, width) for x in (a, b)]
    if any(nans):
        if kind in ("minimum", "maximum") or all(nans):
            return NAN
        return b if nans[0] else a
    return (min if kind.startswith("min") else max)((a, b), key=lambda x: number(x, width))


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("kind", ["min_num", "max_num", "minimum", "maximum"])
def test_least_and_greatest(kind: str, width: int) -> None:
    columns = rows(SPECIAL[width], 2, width, 6)
    got = vector(f"v_{kind}_f{width}", columns, [width] * 2, width)
    for k, (a, b) in enumerate(zip(*columns, strict=True)):
        assert same(got[k], pick(kind, a, b, width), width), (hex(a), hex(b), hex(got[k]))


@pytest.mark.parametrize(("name", "first", "second"), [
    ("v_min3_num_f32", "min_num", "min_num"), ("v_max3_num_f32", "max_num", "max_num"),
    ("v_maxmin_num_f32", "max_num", "min_num"), ("v_minmax_num_f32", "min_num", "max_num"),
    ("v_minimum3_f32", "minimum", "minimum"), ("v_maximum3_f32", "maximum", "maximum"),
    ("v_minimummaximum_f32", "minimum", "maximum"), ("v_maximumminimum_f32", "maximum", "minimum"),
])  # fmt: skip
def test_least_and_greatest_of_three(name: str, first: str, second: str) -> None:
    columns = rows(SPECIAL32[::2], 3, 32, 7)
    got = vector(name, columns, [32] * 3)
    for k, (a, b, c) in enumerate(zip(*columns, strict=True)):
        between = pick(first, a, b, 32)
        want = pick(second, between if isinstance(between, int) else 0x7FC00000, c, 32)
        assert same(got[k], want, 32), (hex(a), hex(b), hex(c), hex(got[k]))


def test_median() -> None:
    columns = rows(SPECIAL32[::2], 3, 32, 8)
    got = vector("v_med3_num_f32", columns, [32] * 3)
    for k, row in enumerate(zip(*columns, strict=True)):
        numbers = [x for x in row if not is_nan(x, 32)]
        if len(numbers) == 3:
            want: int | float = sorted(row, key=lambda x: number(x, 32))[1]
        else:
            want = min(numbers, key=lambda x: number(x, 32)) if numbers else NAN
        assert same(got[k], want, 32), [hex(x) for x in row]


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize(("name", "define"), [
    ("trunc", math.trunc), ("ceil", math.ceil), ("floor", math.floor), ("rndne", round),
])  # fmt: skip
def test_whole_numbers(name: str, define: Callable[[float], int], width: int) -> None:
    halves = [
        int(np.array([k / 2], {16: "f2", 32: "f4", 64: "f8"}[width]).view(f"u{width // 8}")[0]) for k in range(-9, 10)
    ]
    (a,) = rows((*SPECIAL[width], *halves), 1, width, 9)
    got = vector(f"v_{name}_f{width}", [a], [width], width, form=Format.VOP1)
    for k, bits in enumerate(a):
        x = value(bits, width)
        want: int | float
        want = bits if not math.isfinite(x) else rounded(Fraction(define(x)), width, 0, math.copysign(1, x) < 0)
        assert same(got[k], want, width), (name, hex(bits))


def test_fraction_and_exponent_and_scaling() -> None:
    (a,) = rows(SPECIAL32, 1, 32, 10)
    mantissa = vector("v_frexp_mant_f32", [a], [32], form=Format.VOP1)
    power = vector("v_frexp_exp_i32_f32", [a], [32], form=Format.VOP1)
    fract = vector("v_fract_f32", [a], [32], form=Format.VOP1)
    for k, bits in enumerate(a):
        x = value(bits, 32)
        if math.isfinite(x):
            m, e = math.frexp(x)
            assert (value(mantissa[k], 32), signed(power[k], 32)) == (m, e)
            part = rounded(Fraction(x) - math.floor(x), 32)
            assert value(fract[k], 32) == min(value(part, 32), 1 - 2.0**-24)
        else:
            assert power[k] == 0
    x, n = rows((0, 1, 10, 150, 300, 0xFFFFFFFF, 0xFFFFFF6A, 0xFFFFFED4, 127, 128), 2, 32, 11, random=0)
    x = [SPECIAL32[k % len(SPECIAL32)] for k in range(len(n))]
    for rounding in range(4):
        got = vector("v_ldexp_f32", [x, n], [32, 32], mode=mode_of(rounding))
        for k, bits in enumerate(x):
            v = value(bits, 32)
            want = bits
            if math.isfinite(v) and v:
                want = rounded(Fraction(v) * Fraction(2) ** signed(n[k], 32), 32, rounding, v < 0)
            assert same(got[k], want, 32), (rounding, hex(bits), n[k])


@pytest.mark.parametrize("name", ["rcp", "sqrt", "rsq", "exp", "log", "sin", "cos"])
def test_approximations_are_within_one_unit(name: str) -> None:
    (a,) = rows(SPECIAL32, 1, 32, 12, random=500)
    a += [int(x) for x in np.linspace(-20, 20, 300).astype("f4").view("u4")]
    got = vector(f"v_{name}_f32", [a], [32], form=Format.VOP1)

    def define(x: float) -> float:
        if name == "rcp":
            return math.copysign(INF, x) if x == 0 else 1 / x
        if name == "rsq":
            return math.copysign(INF, x) if x == 0 else NAN if x < 0 else 1 / math.sqrt(x)
        if name == "sqrt":
            return x if x == 0 else NAN if x < 0 else math.sqrt(x)
        if name == "log":
            return -INF if x == 0 else NAN if x < 0 else math.log2(x)
        if name == "exp":
            return INF if x > 200 else 0.0 if x < -200 else math.exp2(x) if hasattr(math, "exp2") else 2.0**x
        turn = math.fmod(x, 1.0) * 2 * math.pi
        return math.sin(turn) if name == "sin" else math.cos(turn)

    for k, bits in enumerate(a):
        if 0 < bits & 0x7FFFFFFF < 0x800000:
            bits &= 0x80000000  # subnormals count as zero
        x = value(bits, 32)
        if math.isnan(x) or (name in ("sin", "cos") and math.isinf(x)):
            assert is_nan(got[k], 32)
            continue
        want = define(x)
        if math.isnan(want) or math.isinf(want):
            assert same(got[k], NAN if math.isnan(want) else bits_of_inf(32) | (want < 0) << 31, 32), (name, x)
        elif abs(want) < TINY[32]:
            assert got[k] & 0x7FFFFFFF <= 0x800000
        elif abs(want) >= 2.0**128:
            assert got[k] & 0x7FFFFFFF == 0x7F800000
        else:
            unit = 2.0 ** (math.frexp(want)[1] - 24)
            limit = 0.5 if name in ("rcp", "sqrt") else 0.51
            if name in ("sin", "cos"):
                assert abs(value(got[k], 32) - want) < 1e-6
            else:
                assert abs(value(got[k], 32) - want) <= limit * unit, (name, x)


def as_f(x: float) -> int:
    return int(np.array([x], np.float32).view(np.uint32)[0])


def divide(a: list[int], b: list[int], width: int) -> list[int]:
    """The sequence that LLVM emits for a correctly rounded division, of binary32 and of binary64."""
    f, one = f"f{width}", (0x3F800000 if width == 32 else 0x3FF0 << 48)
    w = [width] * 3
    d, _ = vector(f"v_div_scale_{f}", [b, b, a], w, width, masks=1, form=Format.VOP3SD)
    n, flag = vector(f"v_div_scale_{f}", [a, b, a], w, width, masks=1, form=Format.VOP3SD)
    minus = [{"neg": True}, {}, {}]

    def fma(x: list[int], y: list[int], z: list[int], sign: bool = False) -> list[int]:
        found: list[int] = vector(f"v_fma_{f}", [x, y, z], w, width, sources=minus if sign else None)
        return found

    ones = [one] * len(a)
    r = vector(f"v_rcp_{f}", [d], [width], width, form=Format.VOP1)
    r = fma(fma(d, r, ones, True), r, r)
    if width == 64:
        r = fma(fma(d, r, ones, True), r, r)
    q = vector(f"v_mul_{f}", [n, r], w[:2], width)
    if width == 32:
        q = fma(fma(d, q, n, True), r, q)
    rest = fma(d, q, n, True)
    last = vector(f"v_div_fmas_{f}", [rest, r, q], w, width, vcc_in=flag)
    found: list[int] = vector(f"v_div_fixup_{f}", [last, b, a], w, width)
    return found


@pytest.mark.parametrize("width", [32, 64])
def test_division_sequence_rounds_correctly(width: int) -> None:
    a, b = rows(SPECIAL[width], 2, width, 13, limit=900, random=600 if width == 32 else 150)
    got = divide(a, b, width)
    for k, (x, y) in enumerate(zip(a, b, strict=True)):
        p, q = value(x, width), value(y, width)
        negative = (x ^ y) >> (width - 1)
        want: int | float
        if math.isnan(p) or math.isnan(q) or (p == 0 and q == 0) or (math.isinf(p) and math.isinf(q)):
            want = NAN
        elif math.isinf(p) or q == 0:
            want = bits_of_inf(width) | negative << (width - 1)
        elif math.isinf(q):
            want = negative << (width - 1)
        else:
            want = rounded(Fraction(p) / Fraction(q), width, 0, bool(negative))
        assert same(got[k], want, width), (hex(x), hex(y), hex(got[k]), want)


CONDITIONS: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "lg": lambda a, b: a < b or a > b, "ge": lambda a, b: a >= b,
    "o": lambda a, b: not (math.isnan(a) or math.isnan(b)),
    "u": lambda a, b: math.isnan(a) or math.isnan(b), "nge": lambda a, b: not a >= b,
    "nlg": lambda a, b: not (a < b or a > b),
    "ngt": lambda a, b: not a > b, "nle": lambda a, b: not a <= b, "neq": lambda a, b: a != b,
    "nlt": lambda a, b: not a < b,
}  # fmt: skip


@pytest.mark.parametrize("width", [16, 32, 64])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_compare(condition: str, width: int) -> None:
    columns = rows(SPECIAL[width], 2, width, 14, limit=400, random=60)
    _, got = vector(f"v_cmp_{condition}_f{width}", columns, [width] * 2, 0, masks=1)
    for k, (a, b) in enumerate(zip(*columns, strict=True)):
        assert got[k] == CONDITIONS[condition](value(a, width), value(b, width)), (hex(a), hex(b))


@pytest.mark.parametrize("width", [16, 32, 64])
def test_classes(width: int) -> None:
    mantissa = {16: 10, 32: 23, 64: 52}[width]

    def kind(bits: int) -> int:
        x, sign = value(bits, width), bits >> (width - 1)
        if math.isnan(x):
            return 1 if bits >> (mantissa - 1) & 1 else 0
        if math.isinf(x):
            return 2 if sign else 9
        if x == 0:
            return 5 if sign else 6
        small = abs(x) < TINY[width]
        return (4 if small else 3) if sign else (7 if small else 8)

    for bit in range(10):
        a = list(SPECIAL[width])
        _, got = vector(
            f"v_cmp_class_f{width}", [a, [1 << bit] * len(a)], [width, 16 if width == 16 else 32], 0, masks=1
        )
        assert got == [kind(x) == bit for x in a], bit


def to_int(x: float, low: int, high: int) -> int:
    return 0 if math.isnan(x) else high if x >= high else low if x <= low else math.trunc(x)


@pytest.mark.parametrize(("name", "source", "low", "high"), [
    ("v_cvt_i32_f32", 32, -(1 << 31), (1 << 31) - 1), ("v_cvt_u32_f32", 32, 0, (1 << 32) - 1),
    ("v_cvt_i32_f64", 64, -(1 << 31), (1 << 31) - 1), ("v_cvt_u32_f64", 64, 0, (1 << 32) - 1),
    ("v_cvt_i16_f16", 16, -(1 << 15), (1 << 15) - 1), ("v_cvt_u16_f16", 16, 0, (1 << 16) - 1),
])  # fmt: skip
def test_to_integers(name: str, source: int, low: int, high: int) -> None:
    (a,) = rows(SPECIAL[source], 1, source, 15)
    width = 16 if "16_" in name else 32
    got = vector(name, [a], [source], width, form=Format.VOP1)
    assert got == [to_int(value(x, source), low, high) & (1 << width) - 1 for x in a]


@pytest.mark.parametrize("rounding", range(4))
@pytest.mark.parametrize(("name", "source", "result"), [
    ("v_cvt_f32_i32", -32, 32), ("v_cvt_f32_u32", 32, 32), ("v_cvt_f64_i32", -32, 64), ("v_cvt_f64_u32", 32, 64),
    ("v_cvt_f16_u16", 16, 16), ("v_cvt_f16_i16", -16, 16),
])  # fmt: skip
def test_from_integers(name: str, source: int, result: int, rounding: int) -> None:
    bits = abs(source)
    (a,) = rows((0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFF7F, 0x1000001, 0x8000, 0xFFFF, 0x7FF), 1, 32, 16)
    a = [x & (1 << bits) - 1 for x in a]
    got = vector(name, [a], [bits], result, form=Format.VOP1, mode=mode_of(rounding))
    for k, x in enumerate(a):
        n = signed(x, bits) if source < 0 else x
        assert got[k] == rounded(Fraction(n), result, rounding), (name, n)


@pytest.mark.parametrize("rounding", range(4))
@pytest.mark.parametrize(("source", "result"), [(32, 16), (16, 32), (64, 32), (32, 64)])
def test_between_floats(source: int, result: int, rounding: int) -> None:
    (a,) = rows(SPECIAL[source], 1, source, 17)
    if source == 32:  # ties and subnormals of binary16
        a += [
            0x33000000,
            0x33000001,
            0x33800000,
            0x387FE000,
            0x387FF000,
            0x477FEFFF,
            0x477FF000,
            0x3F801000,
            0x3F803000,
        ]
    got = vector(f"v_cvt_f{result}_f{source}", [a], [source], result, form=Format.VOP1, mode=mode_of(rounding))
    for k, bits in enumerate(a):
        x = value(bits, source)
        want: int | float = NAN
        if math.isinf(x):
            want = bits_of_inf(result) | (x < 0) << (result - 1)
        elif not math.isnan(x):
            want = rounded(Fraction(x), result, rounding, math.copysign(1, x) < 0)
        assert same(got[k], want, result), (hex(bits), hex(got[k]))


def test_pairs_of_halves_and_toward_zero() -> None:
    a, b = rows(SPECIAL32, 2, 32, 18)
    got = vector("v_cvt_pk_rtz_f16_f32", [a, b], [32, 32])
    for k, pair in enumerate(zip(a, b, strict=True)):
        for half, bits in enumerate(pair):
            x = value(bits, 32)
            want: int | float = NAN
            if math.isinf(x):
                want = 0x7C00 | (x < 0) << 15
            elif not math.isnan(x):
                want = rounded(Fraction(x), 16, 3, math.copysign(1, x) < 0)
            assert same(got[k] >> 16 * half & 0xFFFF, want, 16)


@pytest.mark.parametrize(("name", "kind"), [("v_pk_add_f16", "add"), ("v_pk_mul_f16", "mul"), ("v_pk_fma_f16", "fma")])
def test_packed_halves_with_signs_and_selection(name: str, kind: str) -> None:
    n = 3 if kind == "fma" else 2
    rng = np.random.default_rng(19)
    count = 400
    columns = [
        [int(SPECIAL16[i]) | int(SPECIAL16[j]) << 16 for i, j in rng.integers(0, len(SPECIAL16), (count, 2))]
        for _ in range(n)
    ]
    for low_pick, high_pick, neg_low, neg_high in product((0, 1), repeat=4):
        how = {"op_sel": low_pick | high_pick << 1, "neg": bool(neg_low), "abs": bool(neg_high)}
        sources = [how, *[{"op_sel": 2}] * (n - 1)]
        got = vector(name, columns, [32] * n, form=Format.VOP3P, sources=sources)
        for k, row in enumerate(zip(*columns, strict=True)):
            for half in (0, 1):
                first = row[0] >> 16 * (high_pick if half else low_pick) & 0xFFFF
                first ^= 0x8000 * (neg_high if half else neg_low)
                xs = [value(first, 16), *(value(x >> 16 * half & 0xFFFF, 16) for x in row[1:])]
                assert same(got[k] >> 16 * half & 0xFFFF, exact(kind, xs, 16), 16), (how, half, [hex(x) for x in row])


def test_output_modifiers() -> None:
    """clamp to 0 … 1, NaN as 0; omod only where subnormal results are flushed."""
    (a,) = rows(SPECIAL32, 1, 32, 20)
    zero = [0x80000000] * len(a)
    got = vector("v_add_f32", [a, zero], [32, 32], modifiers={"clamp": 1})
    for k, bits in enumerate(a):
        x = value(bits, 32)
        assert value(got[k], 32) == (0 if math.isnan(x) else min(max(x, 0), 1))
    one = as_f(1.0)
    kept = vector("v_mul_f32", [[one], [one]], [32, 32], modifiers={"omod": 1}, mode=mode_of(0, 3))
    flushed = vector("v_mul_f32", [[one], [one]], [32, 32], modifiers={"omod": 1}, mode=mode_of(0, 0))
    assert (value(kept[0], 32), value(flushed[0], 32)) == (1.0, 2.0)


def test_source_modifiers() -> None:
    (a,) = rows(SPECIAL32, 1, 32, 21)
    for absolute, negative in product((False, True), repeat=2):
        got = vector(
            "v_mul_f32", [a], [32], sources=[{"abs": absolute, "neg": negative}], extra=[literal(as_f(1.0))]
        )  # fmt: skip
        for k, bits in enumerate(a):
            want = bits & 0x7FFFFFFF if absolute else bits
            want ^= 0x80000000 * negative
            assert same(got[k], want, 32)


def test_mixed_precision() -> None:
    """v_fma_mix: a source of 16 bits is a half, op_sel says which one."""
    rng = np.random.default_rng(22)
    a = [SPECIAL16[i] | SPECIAL16[j] << 16 for i, j in rng.integers(0, len(SPECIAL16), (300, 2))]
    b = [SPECIAL32[i] for i in rng.integers(0, len(SPECIAL32), 300)]
    c = [SPECIAL32[i] for i in rng.integers(0, len(SPECIAL32), 300)]
    for half in (0, 1):
        for name, width in (("v_fma_mix_f32", 32), ("v_fma_mixlo_f16", 16)):
            sources = [{"op_sel": half}, {"op_sel": 0}, {"op_sel": 0}]
            got = vector(name, [a, b, c], [16, 32, 32], width, form=Format.VOP3P, sources=sources)
            for k in range(300):
                xs = [value(a[k] >> 16 * half & 0xFFFF, 16), value(b[k], 32), value(c[k], 32)]
                assert same(got[k], exact("fma", xs, width), width), (name, half, hex(a[k]), hex(b[k]), hex(c[k]))
