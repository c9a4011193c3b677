"""Products of one row with signs as weights: sums of four activations are looked up, not computed for each weight.

Four weights of a row of the matrix are four bits, an index into the 16 sums of their columns' activations. Such a sum
has 10 bits: tables hold its lower five and the rest, and those of four lookups add up in bytes.
"""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import (
    add_pairs,
    bitcast,
    concat,
    dot2,
    high,
    load,
    lookup16,
    low,
    shuffle,
    signed_like,
    splat,
    store,
    table,
    unroll,
    zeros,
)
from zinc_rt.lang.types import i8, i16, i32, ptr, u8, vec

TABLE_BYTES = 256
"""Of a group: 32 bytes of lower bits, 32 of upper ones, for each j and n of `store_tables`."""
LOW_BITS = 5
LOWER = (1 << LOW_BITS) - 1


@inline
def signs(FIRST: int, SECOND: int):
    """The signs of two columns in 8 words, twice: bits FIRST and SECOND of a word's place; bit 3 is 0, bit 4 is 1."""
    return load(
        table(i8, tuple(2 * (p // 2 % 8 + 16 >> (SECOND if p % 2 else FIRST) & 1) - 1 for p in range(32))), lanes=32
    )


@inline
def store_tables(t: ptr[u8], q):
    """The tables of a group's 32 integers q: for bytes 2j and 2j + 1 of rows, 16 entries each, and their halves n.

    Bit i of half n (low or high) of byte b is the weight of column 16n + 4i + b. Bit 0 of an index is the byte in a
    word of the table, the other bits are the word's place.
    """
    ones = splat(u8(1), 32)
    for j in unroll(2):
        for n in unroll(2):
            columns = tuple(16 * n + 2 * j + p // 16 for p in range(32))
            middle = shuffle(q, tuple(columns[p] + (8 if p % 2 else 4) for p in range(32)))
            outer = shuffle(q, tuple(columns[p] + (0 if p % 2 else 12) for p in range(32)))
            sums = dot2(ones, signed_like(middle, signs(0, 1)))
            even = sums + dot2(ones, signed_like(outer, signs(2, 3)))
            odd = sums + dot2(ones, signed_like(outer, signs(2, 4)))
            store(t, bitcast((even & LOWER) | (odd & LOWER) << 8, vec[u8, 32]), (2 * j + n) * 64)
            upper = (even >> LOW_BITS & 255) | odd >> LOW_BITS << 8
            store(t, bitcast(upper, vec[u8, 32]), (2 * j + n) * 64 + 32)


@inline
def sums_of_fours(w: ptr[u8], t: ptr[u8], isum):
    """isum[h] = the integer sums of rows 8h to 8h + 7 of a group, whose bits are at w, from its tables."""
    lower = zeros(vec[i8, 32])
    upper = zeros(vec[i8, 32])
    for j in unroll(2):
        bits = load(w, j * 32, lanes=32)
        for n in unroll(2):
            index = bits & 15 if n == 0 else bits >> 4
            at = (2 * j + n) * 64
            lower = lower + lookup16(i8, bitcast(load(t, at, lanes=32, align=32), vec[i8, 32]), index)
            upper = upper + lookup16(i8, bitcast(load(t, at + 32, lanes=32, align=32), vec[i8, 32]), index)
    units = load(table(u8, (1, 1 << LOW_BITS) * 16), lanes=32)
    # Of eight rows each: those of byte 2j of all j, then those of byte 2j + 1.
    first = dot2(units, shuffle(lower, upper, tuple(p // 16 * 16 + p % 16 // 2 + p % 2 * 32 for p in range(32))))
    second = dot2(units, shuffle(lower, upper, tuple(p // 16 * 16 + p % 16 // 2 + p % 2 * 32 + 8 for p in range(32))))
    words = concat(low(first), low(second)) + concat(high(first), high(second))
    for h in unroll(2):
        chosen = load(table(i16, (1 - h, h) * 8), lanes=16)
        isum[h] = add_pairs(zeros(vec[i32, 8]), words, chosen)
