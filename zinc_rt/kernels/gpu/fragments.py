"""What a lane holds of a product of 16 x 16 elements, for each kind of matrix instruction.

A wave multiplies 16 rows of activations by 16 rows of weights, 32 columns at once. Both come in the same form, a
fragment: eight words of each row, in local memory as the lanes load them.

- "wmma" (AMD, gfx12): 16 x 16 x 16. Lane l has weight row l % 16 and activation rows 8 (l / 16) to 8 (l / 16) + 7.
- "mma" (NVIDIA): 16 x 8 x 32, twice. Weights are its 16 rows. Lane l has weight rows l / 4 and l / 4 + 8, and
  activation rows 2 (l % 4), 2 (l % 4) + 1, and these + 8.

A row's words lie in pairs, because lanes load pairs: for "wmma" words 2p and 2p + 1 are pair p, for "mma" words p and
p + 4. For "mma" pairs change places by bits of the row, so that neither stores nor loads meet in one bank.
"""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import (
    bitcast,
    concat,
    high,
    lane_id,
    load,
    low,
    mma_s8,
    splat,
    static_assert,
    target_has,
    wmma_iu8,
)
from zinc_rt.lang.types import f32, i32, ptr, u32, vec
from zinc_rt.numerics import GROUP

SUBTILE = 16
"""Rows of a fragment."""
WORDS = SUBTILE * GROUP // 4
"""Words of a fragment."""
PAIRS = 4
"""Pairs of words of a row."""


@inline
def pair_place(row: u32, p):
    """The place of pair p of a row in its fragment."""
    if target_has("mma"):
        return ((row & 7) * PAIRS + (p ^ (row >> 1 & 3))) * 4 + (row >> 3) * 2
    return p * (SUBTILE * 2) + row * 2


@inline
def pairs_of(words):
    """The pairs of a row's eight words, each vec[i32, 2]."""
    if target_has("mma"):
        return tuple(bitcast(concat(words[p], words[p + 4]), vec[i32, 2]) for p in range(PAIRS))
    return tuple(bitcast(concat(words[2 * p], words[2 * p + 1]), vec[i32, 2]) for p in range(PAIRS))


@inline
def one_pair(row: ptr[i32], p):
    """Pair p of a row of eight words in memory."""
    if target_has("mma"):
        return concat(row[p], row[p + 4])
    return load(row, p * 2, lanes=2, align=8)


@inline
def two_pairs(row: ptr[i32], half):
    """Pairs 2 half and 2 half + 1 of a row of eight words in memory."""
    if target_has("mma"):
        a, b = load(row, half * 2, lanes=2, align=8), load(row, half * 2 + 4, lanes=2, align=8)
        return concat(a[0], b[0]), concat(a[1], b[1])
    words = load(row, half * 4, lanes=4, align=16)
    return low(words), high(words)


@inline
def row_of_piece(piece: u32):
    """The first row of a fragment that has a share in its n-th 16 bytes."""
    return piece >> 2 if target_has("mma") else (piece & 7) * 2


@inline
def fragment(p):
    """A lane's words of a fragment: those of its first 16 columns, and those of its last, each vec[i32, 2]."""
    if target_has("mma"):
        words = load(p, ((lane_id() >> 2) * PAIRS + (lane_id() & 3 ^ lane_id() >> 3 & 3)) * 4, lanes=4, align=16)
        return concat(words[0], words[2]), concat(words[1], words[3])
    at = lane_id() * 2
    return load(p, at, lanes=2, align=8), load(p, at + WORDS // 2, lanes=2, align=8)


@inline
def weight_rows():
    """How many rows of weights a lane has; its i-th is row `first_weight() + 8 i`."""
    return 2 if target_has("mma") else 1


@inline
def first_weight():
    """The first row of weights that this lane has, of 16."""
    return lane_id() >> 2 if target_has("mma") else lane_id() & 15


@inline
def activation_rows():
    """How many rows of activations a lane has: as many side by side, and the rest 8 rows behind."""
    return (2, 4) if target_has("mma") else (8, 8)


@inline
def first_activation():
    """The first row of activations that this lane has, of 16."""
    return (lane_id() & 3) * 2 if target_has("mma") else (lane_id() >> 4) * 8


@inline
def of_activations(p):
    """A lane's numbers of 16 rows of activations, in the order of its rows."""
    if target_has("mma"):
        return concat(load(p, first_activation(), lanes=2, align=8), load(p, first_activation() + 8, lanes=2, align=8))
    return load(p, first_activation(), lanes=8, align=16)


@inline
def together():
    """How many products of 16 x 16 a wave computes together: NVIDIA's lanes have too few registers for more."""
    return 1 if target_has("mma") else 2


@inline
def start_of(bits: i32):
    """An accumulator of these bits everywhere."""
    return splat(bits, 4) if target_has("mma") else splat(bits, 8)


@inline
def multiplied(start, x, w, HALVES: bool):
    """start plus the sums of products as floats' bits, for each of the lane's rows of weights those of its rows of
    activations; HALVES: of the first 16 columns, and of the last; else of all, and None. x, w: of `fragment`.
    """
    if target_has("mma"):
        return _by_mma(start, x, w, HALVES)
    static_assert(target_has("wmma"), "the target has no matrix instructions")
    first = wmma_iu8(start, x[0], w[0])
    if HALVES:
        return (bitcast(first, vec[f32, 8]),), (bitcast(wmma_iu8(start, x[1], w[1]), vec[f32, 8]),)
    return (bitcast(wmma_iu8(first, x[1], w[1]), vec[f32, 8]),), None


@inline
def _by_mma(start, x, w, HALVES: bool):
    if HALVES:
        both = tuple(tuple(mma_s8(start, w[h], x[h][n]) for n in range(2)) for h in range(2))
        return _rows(both[0][0], both[0][1]), _rows(both[1][0], both[1][1])
    whole = concat(w[0], w[1])
    return _rows(mma_s8(start, whole, concat(x[0][0], x[1][0])), mma_s8(start, whole, concat(x[0][1], x[1][1]))), None


@inline
def _rows(a, b):
    """The sums of two instructions, for 8 rows of activations each, by rows of weights."""
    return bitcast(concat(low(a), low(b)), vec[f32, 4]), bitcast(concat(high(a), high(b)), vec[f32, 4])
