"""Reciprocals, roots, powers, logarithms and sines against 60 decimal digits, and the special cases that the ISA
document lists. The bounds are those that docs/how/emulator.md gives.
"""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from tests.amdgpu_emu.core.defined.floats import infinity
from tests.amdgpu_emu.core.defined.harness import How, defines, flushed, run_scalar, run_vector
from tests.amdgpu_emu.core.one import FORMATS, SPECIAL, is_nan, rounded, value

NAN = math.nan
DIGITS = 60
ROOTS = ("rcp", "sqrt", "rsq")
FUNCTIONS = {16: (*ROOTS, "exp", "log", "sin", "cos"), 32: (*ROOTS, "exp", "log", "sin", "cos"), 64: ROOTS}
BOUND = {"rcp": Fraction(1, 2), "sqrt": Fraction(1, 2)}
LEAST = {16: -14, 32: -126, 64: -1022}


def decimal(x: Fraction) -> Decimal:
    return Decimal(x.numerator) / Decimal(x.denominator)


@cache
def tau() -> Decimal:
    """2 pi by Machin's formula."""

    def arctan(n: int) -> Decimal:
        total, power, k = Decimal(0), Decimal(1) / n, 0
        while abs(power) > Decimal(10) ** -(DIGITS + 8):
            total += power / (2 * k + 1)
            power /= -n * n
            k += 1
        return total

    return 8 * (4 * arctan(5) - arctan(239))


def sine(turns: Fraction) -> Decimal:
    """Of an eighth of a turn at most."""
    x = decimal(turns) * tau()
    total, term, k = Decimal(0), x, 1
    while abs(term) > Decimal(10) ** -(DIGITS + 5) * abs(x):
        total += term
        term *= -x * x / ((k + 1) * (k + 2))
        k += 2
    return total


def turned(turns: Fraction) -> Fraction:
    """sin(2 pi turns); exact at multiples of a quarter."""
    t = turns - math.floor(turns)
    sign = -1 if t > Fraction(1, 2) else 1
    t = t - Fraction(1, 2) if t > Fraction(1, 2) else t
    t = min(t, Fraction(1, 2) - t)
    if t == Fraction(1, 4):
        return Fraction(sign)
    if t <= Fraction(1, 8):
        return sign * Fraction(sine(t))
    return sign * Fraction((1 - sine(Fraction(1, 4) - t) ** 2).sqrt())


def truth(name: str, x: float) -> Fraction | float:
    """The value: exact or to 60 digits; nan, an infinity, or a zero as a float with its sign."""
    if math.isnan(x):
        return NAN
    match name:
        case "rcp":
            if x == 0 or math.isinf(x):
                return math.copysign(math.inf if x == 0 else 0.0, x)
            return 1 / Fraction(x)
        case "sqrt" | "rsq":
            if x == 0:
                return x if name == "sqrt" else math.copysign(math.inf, x)
            if x < 0:
                return NAN
            if math.isinf(x):
                return x if name == "sqrt" else 0.0
            root = Fraction(decimal(Fraction(x)).sqrt())
            return root if name == "sqrt" else 1 / root
        case "exp":
            if math.isinf(x) or abs(x) > 2000:
                return math.inf if x > 0 else 0.0
            return Fraction(2) ** int(x) if x == int(x) else Fraction((decimal(Fraction(x)) * Decimal(2).ln()).exp())
        case "log":
            if x <= 0:
                return -math.inf if x == 0 else NAN
            if math.isinf(x):
                return x
            m, e = math.frexp(x)
            return Fraction(e - 1) if m == 0.5 else Fraction(decimal(Fraction(x)).ln() / Decimal(2).ln())
        case "sin":
            return NAN if math.isinf(x) else x if x == 0 else turned(Fraction(x))
    return NAN if math.isinf(x) else turned(Fraction(x) + Fraction(1, 4))


def compare(name: str, width: int, source: int, got: int) -> None:
    where = (name, hex(source), hex(got))
    flush = width == 32  # these flush, whatever MODE says
    x = value(flushed(source, 32) if flush else source, width)
    want = truth(name, x)
    if isinstance(want, float):
        if math.isnan(want):
            assert is_nan(got, width), where
        else:
            assert got == (
                infinity(width, want < 0) if math.isinf(want) else int(math.copysign(1, want) < 0) << width - 1
            ), where
        return
    if want == 0:
        assert got == 0, where
        return
    right = rounded(want, width)
    if name in BOUND:
        assert got == (flushed(right, 32) if flush else right), where
        return
    found = value(got, width)
    if math.isinf(found):
        assert right == got, where
        return
    if flush and abs(want) < Fraction(2) ** -126:
        assert got & 0x7FFFFFFF == 0 or abs(found) == 2.0**-126, where
        return
    e = max(math.floor(math.log2(abs(want))) if abs(want) > Fraction(2) ** -1000 else -1000, LEAST[width])
    unit = Fraction(2) ** (e - FORMATS[width][1])
    assert abs(Fraction(found) - want) <= Fraction(51, 100) * unit, where


def sources(name: str, width: int, random: int) -> list[int]:
    rng = np.random.default_rng(width + len(name))
    bits = [*SPECIAL[width], *(int(x) & (1 << width) - 1 for x in rng.integers(0, 1 << 63, random))]
    kind = {16: np.float16, 32: np.float32, 64: np.float64}[width]
    near = [k / 8 for k in range(-24, 25)] + [1.0, 2.0, 1000.25, -1000.5, 1e-4, -1e-4, 0.3, 16.0, -24.0, 11.0]
    for x in np.array(near, kind):
        bits += [
            int(y.view(f"u{width // 8}")) for y in (x, np.nextafter(x, kind(np.inf)), np.nextafter(x, kind(-np.inf)))
        ]
    bits += [int(kind(x).view(f"u{width // 8}")) for x in rng.uniform(-16 if width < 64 else -1e9, 20, random)]
    return bits


def run(name: str, width: int, random: int) -> None:
    column = sources(name, width, random)
    with localcontext() as context:
        context.prec = DIGITS
        got, _, on = run_vector(f"v_{name}_f{width}", [column])
        for x, found, active in zip(column, got, on, strict=True):
            if active:
                compare(name, width, x, found)
        got, _, on = run_vector(f"v_{name}_f{width}", [column[:64]], How(lanes=64, sources=((("neg", True),),)))
        for x, found, active in zip(column, got, on, strict=False):
            if active:
                compare(name, width, x ^ 1 << width - 1, found)


@defines(*(f"v_{name}_f16" for name in FUNCTIONS[16]))
def test_of_sixteen_bits() -> None:
    for name in FUNCTIONS[16]:
        run(name, 16, 500)


@defines(*(f"v_{name}_f32" for name in FUNCTIONS[32]))
def test_of_thirty_two_bits() -> None:
    for name in FUNCTIONS[32]:
        run(name, 32, 400)


@defines(*(f"v_{name}_f64" for name in FUNCTIONS[64]))
def test_of_sixty_four_bits() -> None:
    for name in FUNCTIONS[64]:
        run(name, 64, 600)


@pytest.mark.slow
def test_of_sixteen_bits_all() -> None:
    for name in FUNCTIONS[16]:
        column = list(range(1 << 16))
        got, _, _ = run_vector(f"v_{name}_f16", [column], How(holes=False))
        with localcontext() as context:
            context.prec = DIGITS
            for x, found in zip(column, got, strict=True):
                compare(name, 16, x, found)


SCALAR = ("exp", "log", "rcp", "rsq", "sqrt")


@defines("v_rcp_iflag_f32", *(f"v_s_{name}_f{width}" for name in SCALAR for width in (16, 32)))
def test_the_same_in_scalar_registers() -> None:
    with localcontext() as context:
        context.prec = DIGITS
        for name in SCALAR:
            for width in (16, 32):
                column = sources(name, width, 40)
                zeros = [0] * len(column)
                got, _ = run_scalar(
                    f"v_s_{name}_f{width}",
                    [[x | 0xABCD0000 if width == 16 else x for x in column]],
                    scc=zeros,
                    old=zeros,
                )
                for x, found in zip(column, got, strict=True):
                    compare(name, width, x, found)
        column = sources("rcp", 32, 40)
        got, _, on = run_vector("v_rcp_iflag_f32", [column])
        for x, found, active in zip(column, got, on, strict=True):
            if active:
                compare("rcp", 32, x, found)


@pytest.mark.parametrize(("name", "source", "result"), [
    ("exp", 0xFF800000, 0), ("exp", 0x80000000, 0x3F800000), ("exp", 0x7F800000, 0x7F800000),
    ("log", 0xFF800000, NAN), ("log", 0xBF800000, NAN), ("log", 0x80000000, 0xFF800000), ("log", 0, 0xFF800000),
    ("log", 0x3F800000, 0), ("log", 0x7F800000, 0x7F800000), ("rcp", 0xFF800000, 0x80000000),
    ("rcp", 0xC0000000, 0xBF000000), ("rcp", 0x80000000, 0xFF800000), ("rcp", 0, 0x7F800000), ("rcp", 0x7F800000, 0),
    ("rsq", 0xFF800000, NAN), ("rsq", 0x80000000, 0xFF800000), ("rsq", 0, 0x7F800000), ("rsq", 0x40800000, 0x3F000000),
    ("rsq", 0x7F800000, 0), ("sqrt", 0xFF800000, NAN), ("sqrt", 0x80000000, 0x80000000), ("sqrt", 0, 0),
    ("sqrt", 0x40800000, 0x40000000), ("sqrt", 0x7F800000, 0x7F800000), ("sin", 0xFF800000, NAN),
    ("sin", 0xFF7FFFFF, 0), ("sin", 0x80000000, 0x80000000), ("sin", 0x3E800000, 0x3F800000), ("sin", 0x7F800000, NAN),
    ("cos", 0xFF800000, NAN), ("cos", 0xFF7FFFFF, 0x3F800000), ("cos", 0x80000000, 0x3F800000), ("cos", 0x3E800000, 0),
    ("cos", 0x7F800000, NAN),
])  # fmt: skip
def test_special_cases_of_the_document(name: str, source: int, result: int | float) -> None:
    (got,), _, _ = run_vector(f"v_{name}_f32", [[source]], How(holes=False))
    assert is_nan(got, 32) if isinstance(result, float) else got == result
