"""Int8 dot products, exact on every target, by the target's own instructions where it has them."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from zinc_rt.lang import ops
from zinc_rt.lang.arith import binary, compare, negate
from zinc_rt.lang.convert import convert
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.lower.registry import lowers, vector, want_static, want_val
from zinc_rt.lang.lower.vectors import bitcast, pick, select
from zinc_rt.lang.target import EMULATED
from zinc_rt.lang.types import Int, Vec, elem_of, i8, i16, i32, lanes_of, u8
from zinc_rt.lang.values import Val, literal

Step = Callable[[Any, Val, Val, Val], Val]


def _add(c: Any, a: Val, b: Val) -> Val:
    return binary(c.f, ast.Add(), a, b)


def _bytes(value: int, kind: Int, n: int) -> Val:
    return literal(value, Vec(kind, n))


@lowers(ops.dot4)
def _dot4(c: Any, acc: Any, a: Any, b: Any, a_max: Any) -> Val:
    total, x, y = (want_val(v, "an argument of dot4") for v in (acc, a, b))
    n = lanes_of(total.type)
    if elem_of(total.type) != i32:
        raise Reject(f"the sum must be of i32, got {total.type}")
    for v, kinds in ((x, (u8, i8)), (y, (i8,))):
        if not isinstance(v.type, Vec) or v.type.elem not in kinds or v.type.lanes != 4 * n:
            raise Reject(f"a sum of {total.type} takes {4 * n} lanes of {' or '.join(map(str, kinds))}, got {v.type}")
    assert isinstance(x.type, Vec)
    bound = want_static(a_max, int, "a_max")
    if not 1 <= bound <= 255:
        raise Reject(f"a_max must be 1 to 255, got {bound}")
    native, step = _choose(c, n, x.type.elem == i8, bound)
    if native in (0, n):
        return step(c, total, x, y)
    parts = []
    for at in range(0, n, native):
        operands = (
            _lanes_from(c, total, at, native),
            _lanes_from(c, x, 4 * at, 4 * native),
            _lanes_from(c, y, 4 * at, 4 * native),
        )
        parts.append(step(c, *operands))
    return _join(c, parts, n)


def _lanes_from(c: Any, v: Val, at: int, count: int) -> Val:
    """Take `count` lanes from lane `at`; those beyond the end are undefined and never read."""
    if not isinstance(v.type, Vec):
        kind = c.f.type(Vec(i32, count))
        return Val(Vec(i32, count), c.f.value(f"insertelement {kind} poison, i32 {v.ref}, i64 0"))
    lanes = v.type.lanes
    return pick(c.f, v, None, [i if i < lanes else -1 for i in range(at, at + count)])


def _join(c: Any, parts: Sequence[Val], n: int) -> Val:
    """The first `n` lanes of the parts in a row."""
    while len(parts) > 1:
        nothing = Val(parts[0].type, "poison")
        pairs = [(parts[i], parts[i + 1] if i + 1 < len(parts) else nothing) for i in range(0, len(parts), 2)]
        parts = [pick(c.f, a, b, range(2 * lanes_of(a.type))) for a, b in pairs]
    return parts[0] if lanes_of(parts[0].type) == n else pick(c.f, parts[0], None, range(n))


def _choose(c: Any, n: int, signed: bool, bound: int) -> tuple[int, Step]:
    """The i32 lanes of the target's instruction (0: any) and how to emit it."""
    isa, arch = c.target.isa, c.target.arch
    if arch == "x86_64":
        wide = 16 if n % 16 == 0 and "avx512" in isa else 8 if n % 8 == 0 else 4
        if "vnni" in isa or ("avxvnni" in isa and wide < 16):
            return wide, _vnni_signed if signed else _vnni
        if signed:
            return min(wide, 8), _maddubs_signed
        return wide, _maddubs if bound <= 128 else _maddwd
    if arch == "aarch64" and "i8mm" in isa and not signed:
        return 4, _usdot
    if arch == "aarch64" and "dotprod" in isa:
        return 4, _sdot if signed else _sdot_small if bound <= 127 else _sdot_biased
    if arch == "aarch64":
        return 4, _smull if signed else _smull_small if bound <= 127 else _smull_biased
    if c.f.machine is not None:
        return 0, partial(_on_gpu, signed=signed)
    return 0, _portable


def _vnni(c: Any, acc: Val, a: Val, b: Val) -> Val:
    """Any u8, and sums that wrap around."""
    if EMULATED in c.target.isa:
        return _maddwd(c, acc, a, b)
    n = lanes_of(acc.type)
    kind = c.f.type(acc.type)
    operands = [(kind, acc.ref), (c.f.type(a.type), a.ref), (c.f.type(b.type), b.ref)]
    return Val(acc.type, c.f.call(f"llvm.x86.avx512.vpdpbusd.{32 * n}", acc.type, operands))


def _vnni_signed(c: Any, acc: Val, a: Val, b: Val) -> Val:
    """The left side is unsigned there: add 128 to it, and take 128 times the right side away."""
    n = 4 * lanes_of(acc.type)
    shifted = binary(c.f, ast.BitXor(), bitcast(c, a, Vec(u8, n)), _bytes(128, u8, n))
    extra = _vnni(c, literal(0, acc.type), _bytes(128, u8, n), b)
    return binary(c.f, ast.Sub(), _vnni(c, acc, shifted, b), extra)


def _pairs(c: Any, acc: Val, words: Val, factors: Val | None = None) -> Val:
    """Add neighbouring i16, times their factors, to the sum."""
    n = lanes_of(acc.type)
    name = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}[n]
    if factors is None:
        factors = literal(1, words.type)
    kind = c.f.type(words.type)
    return _add(c, acc, Val(acc.type, c.f.call(name, acc.type, [(kind, words.ref), (kind, factors.ref)])))


def _byte_pairs(c: Any, a: Val, b: Val) -> Val:
    """i16 sums of two neighbouring products of u8 up to 128 and i8: nothing saturates."""
    n = lanes_of(a.type) // 2
    name = {
        8: "llvm.x86.ssse3.pmadd.ub.sw.128",
        16: "llvm.x86.avx2.pmadd.ub.sw",
        32: "llvm.x86.avx512.pmaddubs.w.512",
    }[n]
    out = Vec(i16, n)
    return Val(out, c.f.call(name, out, [(c.f.type(a.type), a.ref), (c.f.type(b.type), b.ref)]))


def _maddubs(c: Any, acc: Val, a: Val, b: Val) -> Val:
    return _pairs(c, acc, _byte_pairs(c, a, b))


@lowers(ops.dot8)
def _dot8(c: Any, acc: Any, a: Any, b: Any) -> Val:
    total, x, y = (want_val(v, "an argument of dot8") for v in (acc, a, b))
    if total.type != Vec(i32, 4) or x.type not in (Vec(u8, 16), Vec(i8, 16)) or y.type != Vec(i8, 16):
        raise Reject(f"dot8 takes 4 lanes of i32, 16 of u8 or i8, 16 of i8, got {total.type}, {x.type} and {y.type}")
    if c.target.arch == "aarch64" and "i8mm" in c.target.isa:
        name = "smmla" if elem_of(x.type) == i8 else "usmmla"
        operands = [(c.f.type(v.type), v.ref) for v in (total, x, y)]
        return Val(total.type, c.f.call(f"llvm.aarch64.neon.{name}.v4i32.v16i8", total.type, operands))
    rows = [range(8 * i, 8 * i + 8) for i in range(2)]
    left = convert(c.f, pick(c.f, x, None, [*rows[0], *rows[0], *rows[1], *rows[1]]), i32)
    right = convert(c.f, pick(c.f, y, None, [*rows[0], *rows[1]] * 2), i32)
    products = binary(c.f, ast.Mult(), left, right)
    for j in range(8):
        total = _add(c, total, pick(c.f, products, None, range(j, 32, 8)))
    return total


@lowers(ops.dot2)
def _dot2(c: Any, a: Any, b: Any) -> Val:
    x, y = want_val(a, "the first argument of dot2"), want_val(b, "the second argument of dot2")
    n = lanes_of(x.type)
    if elem_of(x.type) != u8 or elem_of(y.type) != i8 or n != lanes_of(y.type) or n % 2:
        raise Reject(f"dot2 takes vectors of u8 and i8 with equal, even lanes, got {x.type} and {y.type}")
    if c.target.arch == "x86_64" and n in ((16, 32, 64) if "avx512" in c.target.isa else (16, 32)):
        return _byte_pairs(c, x, y)
    products = binary(c.f, ast.Mult(), convert(c.f, x, i16), convert(c.f, y, i16))
    return _add(c, pick(c.f, products, None, range(0, n, 2)), pick(c.f, products, None, range(1, n, 2)))


@lowers(ops.add_pairs)
def _add_pairs(c: Any, acc: Any, words: Any, factors: Any) -> Val:
    total, x = want_val(acc, "the sum"), want_val(words, "the words")
    y = None if factors is None else want_val(factors, "the factors")
    n = lanes_of(total.type)
    for v in (x,) if y is None else (x, y):
        if elem_of(total.type) != i32 or elem_of(v.type) != i16 or lanes_of(v.type) != 2 * n:
            raise Reject(f"add_pairs takes i32 lanes and twice as many of i16, got {total.type} and {v.type}")
    if c.target.arch == "x86_64" and n in ((4, 8, 16) if "avx512" in c.target.isa else (4, 8)):
        return _pairs(c, total, x, y)
    wide = convert(c.f, x, i32)
    if y is not None:
        wide = binary(c.f, ast.Mult(), wide, convert(c.f, y, i32))
    pairs = _add(c, pick(c.f, wide, None, range(0, 2 * n, 2)), pick(c.f, wide, None, range(1, 2 * n, 2)))
    return _add(c, total, pairs)


def _maddubs_signed(c: Any, acc: Val, a: Val, b: Val) -> Val:
    """|a| times b with a's sign; |a| is at most 128, as a u8."""
    n = 4 * lanes_of(acc.type)
    size = c.f.call(f"llvm.abs.v{n}i8", a.type, [(c.f.type(a.type), a.ref), ("i1", "false")])
    return _maddubs(c, acc, Val(Vec(u8, n), size), _sign(c, b, a))


def _sign(c: Any, x: Val, y: Val) -> Val:
    """psignb of 16 or 32 bytes."""
    name = "llvm.x86.avx2.psign.b" if lanes_of(x.type) == 32 else "llvm.x86.ssse3.psign.b.128"
    return Val(x.type, c.f.call(name, x.type, [(c.f.type(x.type), x.ref), (c.f.type(y.type), y.ref)]))


@lowers(ops.signed_like)
def _signed_like(c: Any, x: Any, y: Any) -> Val:
    size, sign = want_val(x, "the first argument of signed_like"), want_val(y, "the second argument of signed_like")
    if elem_of(size.type) != i8 or size.type != sign.type:
        raise Reject(f"signed_like takes two values of i8 with equal lanes, got {size.type} and {sign.type}")
    n = lanes_of(size.type)
    if c.target.arch == "x86_64" and n in (16, 32):
        return _sign(c, size, sign)
    zero = literal(0, size.type)
    turned = select(c, compare(c.f, ast.Lt(), sign, zero), negate(c.f, size), size)
    return select(c, compare(c.f, ast.Eq(), sign, zero), zero, turned)


def _maddwd(c: Any, acc: Val, a: Val, b: Val) -> Val:
    """Any u8: widened to i16, which pmaddwd multiplies exactly; even and odd pairs of bytes apart."""
    n = lanes_of(acc.type)
    x, y = convert(c.f, a, i16), convert(c.f, b, i16)
    name = {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}[n]
    halves = []
    for side in (0, 1):
        # lane i of the result takes words 4i + 2*side and the next
        lanes = [4 * i + 2 * side + j for i in range(n) for j in (0, 1)]
        p, q = pick(c.f, x, None, lanes), pick(c.f, y, None, lanes)
        kind = c.f.type(p.type)
        halves.append(Val(acc.type, c.f.call(name, acc.type, [(kind, p.ref), (kind, q.ref)])))
    return _add(c, _add(c, acc, halves[0]), halves[1])


def _sdot(c: Any, acc: Val, a: Val, b: Val) -> Val:
    kind = c.f.type(b.type)
    operands = [(c.f.type(acc.type), acc.ref), (kind, a.ref), (kind, b.ref)]
    return Val(acc.type, c.f.call("llvm.aarch64.neon.sdot.v4i32.v16i8", acc.type, operands))


def _sdot_small(c: Any, acc: Val, a: Val, b: Val) -> Val:
    return _sdot(c, acc, bitcast(c, a, Vec(i8, 16)), b)


def _sdot_biased(c: Any, acc: Val, a: Val, b: Val) -> Val:
    """u8 - 128 is an i8; give 128 times the right side back."""
    shifted = binary(c.f, ast.BitXor(), bitcast(c, a, Vec(i8, 16)), _bytes(-128, i8, 16))
    sums = _sdot(c, literal(0, acc.type), _bytes(1, i8, 16), b)
    extra = binary(c.f, ast.LShift(), sums, literal(7, acc.type))
    return _add(c, _sdot(c, acc, shifted, b), extra)


def _neon(c: Any, name: str, out: Vec, *operands: Val) -> Val:
    kinds = f".{_suffix(out)}" if name in ("smull", "addp") else f".{_suffix(out)}.{_suffix(operands[0].type)}"
    given = [(c.f.type(v.type), v.ref) for v in operands]
    return Val(out, c.f.call(f"llvm.aarch64.neon.{name}{kinds}", out, given))


def _suffix(kind: Any) -> str:
    return f"v{lanes_of(kind)}i{elem_of(kind).size * 8}"


def _products(c: Any, a: Val, b: Val) -> list[Val]:
    """i16 products of 16 bytes, the first 8 and the last."""
    return [_neon(c, "smull", Vec(i16, 8), *(pick(c.f, v, None, range(at, at + 8)) for v in (a, b))) for at in (0, 8)]


def _smull_small(c: Any, acc: Val, a: Val, b: Val) -> Val:
    """Two products of u8 up to 127 and i8 fit i16."""
    pairs = _neon(c, "addp", Vec(i16, 8), *_products(c, bitcast(c, a, Vec(i8, 16)), b))
    return _add(c, acc, _neon(c, "saddlp", Vec(i32, 4), pairs))


def _smull(c: Any, acc: Val, a: Val, b: Val) -> Val:
    """Two products of -128 and -128 do not: neighbours are added in i32."""
    pairs = (_neon(c, "saddlp", Vec(i32, 4), half) for half in _products(c, a, b))
    return _add(c, acc, _neon(c, "addp", Vec(i32, 4), *pairs))


def _smull_biased(c: Any, acc: Val, a: Val, b: Val) -> Val:
    """u8 - 128 is an i8; give 128 times the right side back."""
    shifted = binary(c.f, ast.BitXor(), bitcast(c, a, Vec(i8, 16)), _bytes(-128, i8, 16))
    sums = _neon(c, "saddlp", Vec(i32, 4), _neon(c, "saddlp", Vec(i16, 8), b))
    return _add(c, _smull(c, acc, shifted, b), binary(c.f, ast.LShift(), sums, literal(7, acc.type)))


def _usdot(c: Any, acc: Val, a: Val, b: Val) -> Val:
    operands = [(c.f.type(acc.type), acc.ref), (c.f.type(a.type), a.ref), (c.f.type(b.type), b.ref)]
    return Val(acc.type, c.f.call("llvm.aarch64.neon.usdot.v4i32.v16i8", acc.type, operands))


def _on_gpu(c: Any, acc: Val, a: Val, b: Val, signed: bool) -> Val:
    """The machine's product of words: one lane at a time, since a lane of the GPU is a whole thread."""
    n = lanes_of(acc.type)
    words = [bitcast(c, v, vector(i32, n)) for v in (a, b)]
    out = Val(acc.type, "poison")
    for i in range(n):
        x, y, total = (v.ref if n == 1 else pick(c.f, v, None, [i]).ref for v in (*words, acc))
        dot = c.f.machine.dot4(c, total, x, y, signed)
        kind = c.f.type(acc.type)
        out = (
            Val(i32, dot) if n == 1 else Val(acc.type, c.f.value(f"insertelement {kind} {out.ref}, i32 {dot}, i64 {i}"))
        )
    return out


def _portable(c: Any, acc: Val, a: Val, b: Val) -> Val:
    """Widen, multiply, add four neighbours."""
    n = lanes_of(acc.type)
    products = binary(c.f, ast.Mult(), convert(c.f, a, i32), convert(c.f, b, i32))
    for j in range(4):
        acc = _add(c, acc, pick(c.f, products, None, range(j, 4 * n, 4)))
    return acc
