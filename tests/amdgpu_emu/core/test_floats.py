"""Float instructions, against exact fractions that are rounded once, here."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from tests.amdgpu_emu.core.one import (
    INF,
    NAN,
    SPECIAL,
    SPECIAL32,
    Encoding,
    rounded,
    rows,
    same,
    value,
    vector,
)


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
        (0x3F800001, 0x3F800001, 0x33800000),
        (one, 0x33800000, one),
        (0x3F800800, 0x3F800800, 0x00000001),
        (0x3F800800, 0x3F800800, 0x80000001),
        (one, 0x4B800000, 0x3F800000),
        (0x4B7FFFFF, 0x3F800001, 0x2F000000),
        (0x00800000, 0x3F000001, 0x00000001),
        (0x00000003, 0x3F000000, 0),
        (0x1E3CE508, 0x1E3CE508, 0x80000001),
    ]
    rng = np.random.default_rng(2)
    for _ in range(2000):  # a b is a boundary of the sum with c, plus the least that there is
        a, b = ((int(x) << 12) | 0x3F800000 for x in rng.integers(0, 1 << 11, 2))
        cases.append((a, b, int(rng.integers(0, 0x20)) << 23 | int(rng.integers(0, 2)) << 31 | 1))
    columns = [[c[k] for c in cases] for k in range(3)]
    got = vector("v_fma_f32", columns, [32] * 3)
    fmac = vector("v_fmac_f32", [columns[0], columns[1]], [32, 32], form=Encoding.VOP2, old=columns[2][0])
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


def divide(a: list[int], b: list[int], width: int) -> list[int]:
    """The sequence that LLVM emits for a correctly rounded division, of binary32 and of binary64."""
    f, one = f"f{width}", (0x3F800000 if width == 32 else 0x3FF0 << 48)
    w = [width] * 3
    d, _ = vector(f"v_div_scale_{f}", [b, b, a], w, width, masks=1, form=Encoding.VOP3SD)
    n, flag = vector(f"v_div_scale_{f}", [a, b, a], w, width, masks=1, form=Encoding.VOP3SD)
    minus = [{"neg": True}, {}, {}]

    def fma(x: list[int], y: list[int], z: list[int], sign: bool = False) -> list[int]:
        found: list[int] = vector(f"v_fma_{f}", [x, y, z], w, width, sources=minus if sign else None)
        return found

    ones = [one] * len(a)
    r = vector(f"v_rcp_{f}", [d], [width], width, form=Encoding.VOP1)
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
