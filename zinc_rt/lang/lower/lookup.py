"""Lookups in a table of sixteen bytes, by the target's byte shuffles."""

from __future__ import annotations

import ast
from functools import partial
from typing import Any

from zinc_rt.lang import ops
from zinc_rt.lang.arith import binary
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.lower.registry import lowers, want_val
from zinc_rt.lang.lower.vectors import bitcast, pick
from zinc_rt.lang.types import Vec, i8, lanes_of, u8, u32
from zinc_rt.lang.values import Val, describe, literal

ENTRIES = 16


@lowers(ops.lookup16)
def _lookup16(c: Any, kind: Any, table: Any, indices: Any) -> Val:
    if kind not in (u8, i8):
        raise Reject(f"the entries of lookup16 are u8 or i8, got {describe(kind)}")
    v = want_val(indices, "the indices")
    if not isinstance(v.type, Vec) or v.type.elem != u8:
        raise Reject(f"the indices must be a vector of u8, got {v.type}")
    n = v.type.lanes
    if isinstance(table, Val):
        _check_vector(c, kind, table, n)
    else:
        _check_numbers(kind, table)
    arch = c.target.arch
    if c.f.machine is not None:
        if n % 4:
            raise Reject(f"a GPU looks up whole words of 4 indices, got {v.type}")
        return bitcast(c, _by_words(c, table, v), Vec(kind, n))
    if arch not in ("x86_64", "aarch64"):
        raise Reject(f"lookup16: target {c.target.name} has no byte shuffle that this compiler knows")
    masked = binary(c.f, ast.BitAnd(), v, literal(ENTRIES - 1, v.type))
    return bitcast(c, _by_shuffles(c, table, masked), Vec(kind, n))


def _check_numbers(kind: Any, table: Any) -> None:
    low, high = kind.limits
    numbers = isinstance(table, tuple | list) and all(type(x) is int for x in table)
    if not numbers or len(table) != ENTRIES:
        raise Reject(f"the table must be a compile-time tuple of {ENTRIES} integers, or lanes, got {describe(table)}")
    if not all(low <= x <= high for x in table):
        raise Reject(f"the table's integers must be {low} to {high}, as {kind} has them")


def _check_vector(c: Any, kind: Any, table: Val, n: int) -> None:
    if table.type != Vec(kind, n) or n % ENTRIES:
        raise Reject(f"a table of lanes has {kind} for each index, {ENTRIES} or more, got {table.type} for {n} indices")
    if c.f.machine is not None:
        raise Reject("a GPU has no lookup in lanes; the table must be a compile-time tuple")


def _by_shuffles(c: Any, table: tuple[int, ...] | Val, v: Val) -> Val:
    """vpshufb looks up within each 16 bytes, tbl in 16: numbers are repeated. v: below 16."""
    n = lanes_of(v.type)
    x86, wide = c.target.arch == "x86_64", "avx512" in c.target.isa
    size = 64 if x86 and wide and n % 64 == 0 else 32 if x86 and n % 32 == 0 else 16
    part = Vec(u8, size)
    kind = c.f.type(part)
    out: Val | None = None
    for at in range(0, n, size):
        lanes = [i if i < n else -1 for i in range(at, at + size)]
        here = v if n == size else pick(c.f, v, None, lanes)
        if isinstance(table, Val):
            entries = (table if n == size else pick(c.f, table, None, lanes)).ref
        else:
            entries = f"<{', '.join(f'i8 {x & 255}' for x in table * (size // ENTRIES))}>"
        name = {64: "avx512.pshuf.b.512", 32: "avx2.pshuf.b", 16: "ssse3.pshuf.b.128"}[size]
        call = f"llvm.x86.{name}" if x86 else "llvm.aarch64.neon.tbl1.v16i8"
        found = Val(part, c.f.call(call, part, [(kind, entries), (kind, here.ref)]))
        out = found if out is None else _after(c, out, found)
    assert out is not None
    return out if lanes_of(out.type) == n else pick(c.f, out, None, range(n))


def _after(c: Any, a: Val, b: Val) -> Val:
    """The lanes of a, then those of b, which may be fewer."""
    m, n = lanes_of(a.type), lanes_of(b.type)
    if m > n:
        b = pick(c.f, b, None, [i if i < n else -1 for i in range(m)])
    return pick(c.f, a, b, range(m + n))


def _by_words(c: Any, table: tuple[int, ...], v: Val) -> Val:
    """Four bytes of eight are picked at once: in each half of the table, then of what both gave."""
    n = lanes_of(v.type) // 4
    words = bitcast(c, v, Vec(u32, n) if n > 1 else u32)
    entries = [int.from_bytes(bytes(x & 255 for x in table[i : i + 4]), "little") for i in range(0, ENTRIES, 4)]

    perm = partial(c.f.machine.pick_bytes, c)
    out = words if n == 1 else Val(words.type, "poison")
    for i in range(n):
        word = words.ref if n == 1 else pick(c.f, words, None, [i]).ref
        inside = c.f.value(f"and i32 {word}, {0x07070707}")
        first = perm(str(entries[1]), str(entries[0]), inside)
        second = perm(str(entries[3]), str(entries[2]), inside)
        # Bit 3 of an index says which of the two holds its entry: byte k of the first, or byte k of the second.
        half = c.f.value(f"lshr i32 {word}, 1")
        upper = c.f.value(f"and i32 {half}, {0x04040404}")
        chosen = perm(second, first, c.f.value(f"or i32 {upper}, {0x03020100}"))
        if n == 1:
            return Val(u32, chosen)
        kind = c.f.type(words.type)
        out = Val(words.type, c.f.value(f"insertelement {kind} {out.ref}, i32 {chosen}, i64 {i}"))
    return out
