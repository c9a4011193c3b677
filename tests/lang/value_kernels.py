"""Vectors, memory, dot products: one kernel for each thing that is checked."""

# The names of the language all at once; annotations may name a kernel's constants.
# ruff: noqa: F403, F405

from __future__ import annotations

from typing import NamedTuple

from zinc_rt.lang import *

TYPES = (i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64)
COPY_LANES = (1, 2, 3, 4, 5, 8, 12, 16, 32, 64)
REDUCE_LANES = (2, 4, 8, 16, 64)
DOT_LANES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
PAIR_LANES = (1, 3, 4, 8, 12, 16, 32)
TABLE_LANES = (16, 32, 48, 64)
LOOKUP_LANES = (2, 4, 16, 20, 32, 48, 64, 96, 128, 256)
GATHER_LANES = (1, 2, 3, 8, 16, 32)
GATHERED = ((u8, tuple(range(256))), (i32, tuple(range(-(2**31), 2**31, 2**24))), (i64, (-(2**63), 2**63 - 1) * 128))
TABLES = ((u8, tuple(range(3, 243, 15))), (i8, tuple(range(-128, 112, 15))))
BOUNDS = ((u8, 63), (u8, 127), (u8, 128), (u8, 255), (i8, 255))


@kernel
def copies(a: ptr[T], out: ptr[T], T: type):
    """Vectors of many widths, moved as they are; the k-th at element 64 * k of both."""
    for k, n in enumerate(COPY_LANES):
        store(out, load(a, 64 * k, lanes=n), 64 * k)


class Sizes(NamedTuple):
    """Constants that belong together."""

    N: int
    DOUBLED: bool


@inline
def part(a, out, S: Sizes):
    """Elements of a, or twice them."""
    for i in unroll(S.N):
        out[i] = a[i] + a[i] if S.DOUBLED else a[i]


@kernel
def by_record(a: ptr[f32], out: ptr[f32], S: Sizes):
    """The first of S.N elements, by a helper that gets the record."""
    part(a, out, S)


@kernel
def aligned(a: ptr[f32], out: ptr[f32]):
    """64 elements by aligned, then 64 by non-temporal, then 64 by prefetched accesses."""
    for i in unroll(0, 64, 16):
        store(out, load(a, i, lanes=16, align=64), i, align=64)
    for i in unroll(64, 128, 16):
        store(out, load(a, i, lanes=16, align=64, nontemporal=True), i, nontemporal=True)
    for i in range(128, 192, 8):
        for locality in unroll(4):
            prefetch(a, i + 4096, locality=locality)
        prefetch(out, i, write=True)
        store(out, load(a, i, lanes=8), i)


@kernel
def rearranged(a: ptr[T], b: ptr[T], out: ptr[T], T: type, N: int):
    """Eight results of 2 * N elements each."""
    x = load(a, lanes=N)
    y = load(b, lanes=N)
    results = (
        concat(x, y),
        shuffle(x, y, tuple(i // 2 + i % 2 * N for i in range(2 * N))),
        shuffle(x, range(N - 1, -1, -1)),
        insert(x, N - 1, y[0]),
        low(x),
        high(x),
        splat(x[1], 2 * N),
        concat(x[0], y[N - 1]),
    )
    for k, r in enumerate(results):
        store(out, r, k * 2 * N)


@kernel
def chosen_lane(a: ptr[i32], out: ptr[i32], at: i64, N: int):
    """out[0] = lane `at`, modulo N; then the vector with that lane negated."""
    x = load(a, lanes=N)
    out[0] = x[at]
    store(out, insert(x, at, -x[at]), 1)


@kernel
def made(out: ptr[i32], N: int):
    """iota, zeros, splat, lanes."""
    store(out, iota(i32, N), 0)
    store(out, zeros(vec[i32, N]), N)
    store(out, splat(lanes(iota(i32, N)) + out[0], N), 2 * N)


@kernel
def masks(a: ptr[f32], b: ptr[f32], out: ptr[u32], floats: ptr[f32]):
    """Masks of 16 lanes: their bits, any, all, select, the mask made from bits, masks of masks."""
    x = load(a, lanes=16)
    y = load(b, lanes=16)
    less = x < y
    out[0] = u32(bitcast(less, u16))
    out[1] = select(any_of(less), u32(1), 0)
    out[2] = u32(1) if all_of(less) else 0
    out[3] = u32(bitcast(less ^ (x == y), u16))
    out[4] = u32(bitcast(~less & (x > 0.0), u16))
    store(floats, select(less, x, y))
    store(floats, select(bitcast(u16(0xA5C3), vec[bool, 16]), x, 0.0), 16)
    store(floats, select(out[5] == 1, x, y), 32)
    out[6] = reduce_or(select(less, iota(u32, 16), 0))
    out[7] = u32(u8(less[3]))


@kernel
def reductions(a: ptr[T], out: ptr[T], T: type):
    """Sum, greatest and least of the first N elements for every N of REDUCE_LANES."""
    for k, n in enumerate(REDUCE_LANES):
        x = load(a, lanes=n)
        out[3 * k] = reduce_add(x)
        out[3 * k + 1] = reduce_max(x)
        out[3 * k + 2] = reduce_min(x)


@kernel
def dots(acc: ptr[i32], a: ptr[T], b: ptr[i8], out: ptr[i32], T: type, BOUND: int):
    """For the k-th of DOT_LANES, from element 64 * k of the sums on."""
    for k, n in enumerate(DOT_LANES):
        total = load(acc, 64 * k, lanes=n)
        store(out, dot4(total, load(a, 256 * k, lanes=4 * n), load(b, 256 * k, lanes=4 * n), a_max=BOUND), 64 * k)


@kernel
def squares(acc: ptr[i32], a: ptr[T], b: ptr[i8], out: ptr[i32], T: type):
    store(out, dot8(load(acc, lanes=4), load(a, lanes=16), load(b, lanes=16)))


@kernel
def pairs(acc: ptr[i32], a: ptr[u8], b: ptr[i8], sums: ptr[i16], out: ptr[i32]):
    """dot2 and add_pairs for the k-th of PAIR_LANES (of i32), from element 64 * k of the sums on."""
    for k, n in enumerate(PAIR_LANES):
        words = dot2(load(a, 256 * k, lanes=4 * n), load(b, 256 * k, lanes=4 * n))
        store(sums, words, 128 * k)
        store(out, add_pairs(load(acc, 64 * k, lanes=n), words), 64 * k)


@kernel
def weighed_pairs(acc: ptr[i32], words: ptr[i16], factors: ptr[i16], out: ptr[i32]):
    """add_pairs with factors for the k-th of PAIR_LANES (of i32), from element 64 * k of the sums on."""
    for k, n in enumerate(PAIR_LANES):
        x, y = load(words, 128 * k, lanes=2 * n), load(factors, 128 * k, lanes=2 * n)
        store(out, add_pairs(load(acc, 64 * k, lanes=n), x, y), 64 * k)


@kernel
def with_signs(x: ptr[i8], y: ptr[i8], out: ptr[i8]):
    """signed_like for the k-th of DOT_LANES (of i8), from element 64 * k on."""
    for k, n in enumerate(DOT_LANES):
        store(out, signed_like(load(x, 64 * k, lanes=n), load(y, 64 * k, lanes=n)), 64 * k)


@kernel
def looked_up(indices: ptr[u8], out: ptr[T], T: type, TABLE: tuple):
    """lookup16 for the k-th of LOOKUP_LANES, from element 256 * k on."""
    for k, n in enumerate(LOOKUP_LANES):
        store(out, lookup16(T, TABLE, load(indices, 256 * k, lanes=n)), 256 * k)


@kernel
def looked_up_in_lanes(indices: ptr[u8], tables: ptr[i8], out: ptr[i8]):
    """lookup16 in lanes for the k-th of TABLE_LANES, from element 64 * k on."""
    for k, n in enumerate(TABLE_LANES):
        store(out, lookup16(i8, load(tables, 64 * k, lanes=n), load(indices, 64 * k, lanes=n)), 64 * k)


@kernel
def gathered(indices: ptr[u8], p: ptr[T], out: ptr[T], T: type, VALUES: tuple):
    """Elements of a table and of memory for the k-th of GATHER_LANES, from elements 64 * k and 1024 + 64 * k on."""
    for k, n in enumerate(GATHER_LANES):
        at = load(indices, 64 * k, lanes=n)
        store(out, gather(table(T, VALUES), at), 64 * k)
        store(out, gather(p, u32(at)), 1024 + 64 * k)


@struct
class Inner:
    a: i8
    b: f64
    c: u16
    d: ptr[f32]
    e: f16
    f: i32


@kernel
def fields(s: ptr[Inner], n: i64):
    """Reads and writes fields of every struct of an array, and through the pointer it holds."""
    for i in range(n):
        it = s[i]
        it.f = i32(it.a) + i32(it.c)
        it.b = it.b * 2.0
        it.d[1] = f32(it.b)
        it.a += 1
        it.e = f16(f32(it.e) + 1.0)


@kernel
def read_only(s: ptr[Inner, Space.CONSTANT], out: ptr[f64]):
    """The same struct through a pointer to constant memory."""
    q: ptr[f32, Space.CONSTANT] = cast(cast(s, ptr[f32]), ptr[f32, Space.CONSTANT])
    out[0] = s.b
    out[1] = f64(s.d[0])
    out[2] = f64(load(q, 2, lanes=2)[0])


@kernel
def pointers(p: ptr[i32], out: ptr[u64], n: i8):
    """Pointer arithmetic in elements, differences by u64, casts, comparisons, pointers to pointers."""
    q = p + 3
    out[0] = cast(q, u64) - cast(p, u64)
    out[1] = cast(q - n, u64) - cast(p, u64)
    out[2] = u64(cast(q, ptr[u8])[1])
    out[3] = u64(u8(p < q)) + u64(u8(q == p + 3)) * 2
    out[4] = u64(u32(cast(cast(q, u64) + 4, ptr[i32])[0]))
    holder = array(ptr[i32], 2)
    holder[1] = q
    out[5] = u64(u32(holder[1][0]))
    out[6] = cast(holder[0], u64)


@kernel
def arrays(out: ptr[i32], n: i32):
    """Stack memory is zero at first, at every turn of a loop."""
    for i in range(n):
        small = array(i32, 5)
        large = array(i32, 2000)
        small[i & 3] += i + 1
        large[i & 1023] += i + 1
        total: i32 = 0
        for j in range(5):
            total += small[j]
        for j in range(2000):
            total += large[j]
        out[i] = total


@kernel
def registers(a: ptr[f32], out: ptr[f32], n: i32, N: int):
    """Numbered variables, zero at first."""
    acc = regs(vec[f32, 4], N)
    for i in range(0, n, 4 * N):
        for j in unroll(N):
            acc[j] += load(a, i + 4 * j, lanes=4)
    for j in unroll(N):
        store(out, acc[j], 4 * j)


@kernel
def flags(yes: bool, a: boolean, b: boolean, out: ptr[u8]) -> boolean:
    """Truth values as arguments, results and constants."""
    out[0] = u8(a)
    out[1] = u8(a and b) + u8(a or b) * 2 + u8(not a) * 4 + u8(a ^ b) * 8
    return (a == b) if yes else (a != b)


RECORDS = (Sizes(5, False), Sizes(3, True))
SPECS = [
    *(Spec(by_record, {"S": sizes}) for sizes in RECORDS),
    *(Spec(copies, {"T": t}) for t in TYPES),
    Spec(aligned),
    *(Spec(rearranged, {"T": t, "N": n}) for t in TYPES for n in (2, 4, 6, 16)),
    *(Spec(chosen_lane, {"N": n}) for n in (3, 4, 16)),
    *(Spec(made, {"N": n}) for n in (2, 3, 16, 64)),
    Spec(masks),
    *(Spec(reductions, {"T": t}) for t in TYPES if t not in (f16, bf16)),
    *(Spec(dots, {"T": t, "BOUND": b}) for t, b in BOUNDS),
    *(Spec(squares, {"T": t}) for t in (u8, i8)),
    *(Spec(gathered, {"T": t, "VALUES": values}) for t, values in GATHERED),
    *(Spec(looked_up, {"T": t, "TABLE": table}) for t, table in TABLES),
    *(Spec(k) for k in (pairs, weighed_pairs, with_signs, looked_up_in_lanes, fields, read_only, pointers, arrays)),
    *(Spec(registers, {"N": n}) for n in (1, 3)),
    *(Spec(flags, {"yes": y}) for y in (False, True)),
]
