"""Every operator and arithmetic word over arrays, for every type and a scalar and a vector width."""

# The names of the language all at once; annotations may name a kernel's constants.
# ruff: noqa: F403, F405

from __future__ import annotations

from zinc_rt.lang import *

INTS = (i8, i16, i32, i64, u8, u16, u32, u64)
FLOATS = (f32, f64)
WIDTHS = (1, 8)

INT_OPS = (
    "+", "-", "*", "&", "|", "^", "<<", ">>", "neg", "~", "abs", "max", "min", "popcount", "ctz", "<", "<=", "==", "!=",
    "select", "by 3", "<< 3", ">> 3", "literal",
)  # fmt: skip
UNSIGNED_OPS = ("//", "%", "// 7", "% 7")
FLOAT_OPS = (
    "+", "-", "*", "/", "neg", "abs", "max", "min", "sqrt", "rint", "floor", "fma", "a*b+c", "<", "<=", "==", "!=", ">",
    ">=", "literal",
)  # fmt: skip


@kernel
def int_ops(a: ptr[T], b: ptr[T], out: ptr[T], n: i64, T: type, W: int):
    """out[k * n + i] = the k-th of INT_OPS, then of UNSIGNED_OPS, of a[i] and b[i]."""
    for i in range(i64(0), n, W):
        x = load(a, i, lanes=W)
        y = load(b, i, lanes=W)
        zero = x - x
        one = zero + 1
        results = (
            x + y, x - y, x * y, x & y, x | y, x ^ y, x << y, x >> y, -x, ~x, absolute(x), maximum(x, y), minimum(x, y),
            popcount(x), count_trailing_zeros(x), select(x < y, one, zero), select(x <= y, one, zero),
            select(x == y, one, zero), select(x != y, one, zero), select(x > y, x, y), x * 3, x << 3, x >> 3, 100 - x,
        )  # fmt: skip
        for k, r in enumerate(results):
            store(out, r, n * k + i)
        if not T.signed:
            for k, r in enumerate((x // y, x % y, x // 7, x % 7)):
                store(out, r, n * (len(results) + k) + i)


@kernel
def float_ops(a: ptr[T], b: ptr[T], c: ptr[T], out: ptr[T], n: i64, T: type, W: int):
    """out[k * n + i] = the k-th of FLOAT_OPS of a[i], b[i] and c[i]."""
    for i in range(i64(0), n, W):
        x = load(a, i, lanes=W)
        y = load(b, i, lanes=W)
        z = load(c, i, lanes=W)
        zero = zeros(vec[T, W])
        one = zero + 1.0
        results = (
            x + y, x - y, x * y, x / y, -x, absolute(x), maximum(x, y), minimum(x, y), sqrt(x), rint(x), floor(x),
            fma(x, y, z), x * y + z, select(x < y, one, zero), select(x <= y, one, zero), select(x == y, one, zero),
            select(x != y, one, zero), select(x > y, one, zero), select(x >= y, one, zero), x * 0.1,
        )  # fmt: skip
        for k, r in enumerate(results):
            store(out, r, n * k + i)


NUMBERS = (*INTS, *FLOATS)
HALVES = (f16, bf16)
TO = {str(s): tuple(d for d in NUMBERS if d is not s) for s in NUMBERS}
TO |= {"f32": (*TO["f32"], *HALVES), "f64": (*TO["f64"], *HALVES), "f16": FLOATS, "bf16": FLOATS}


@kernel
def convert(a: ptr[S], out: ptr[u8], n: i64, S: type, W: int):
    """The k-th of TO[S] of every a[i], from byte 8 * n * k on."""
    for i in range(i64(0), n, W):
        x = load(a, i, lanes=W)
        for k, kind in enumerate(TO[str(S)]):
            store(cast(out + n * (8 * k), ptr[kind]), kind(x), i)


SPECS = [
    *(Spec(int_ops, {"T": t, "W": w}) for t in INTS for w in WIDTHS),
    *(Spec(float_ops, {"T": t, "W": w}) for t in FLOATS for w in WIDTHS),
    *(Spec(convert, {"S": s, "W": w}) for s in (*NUMBERS, *HALVES) for w in WIDTHS),
]
