"""The two reductions everything else is made of: the fused multiply-add chain and the lane tree.

NumPy has no fused multiply-add. The product of two float32 is exact in float64, so a chain step
`acc = fma(a, b, acc)` needs only the sum `a*b + acc` rounded *once* to float32. Rounding it to float64 first
and to float32 second is wrong only where the float64 sum is inexact and lands on a float32 rounding boundary.
`fma_chain` therefore runs the cheap double rounding, looks for sums that could have been harmed (none, but
for about one in 2^29), and redoes just those chains with round-to-odd, which is immune to double rounding.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

_BELOW_F32 = np.uint32(3)  # the 29 float64 mantissa bits that float32 lacks sit in the low word, shifted by 3
_TIE = np.uint32(0x8000_0000)
_MIN_NORMAL = 2.0**-126


def exact_products(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating]) -> F64:
    """`a * b` with broadcasting, float64, exact for float16 and float32 operands."""
    return np.multiply(a, b, dtype=np.float64)


def fma_chain(products: F64, first_row: I64 | None = None) -> F32:
    """Fold `acc = fma(a_i, b_i, acc)` over the first axis, starting from +0.0.

    products: f64[n, rows, ...], each element an exact product of two float32 (see `exact_products`).
    first_row: i64[n] or None. Step i touches rows `first_row[i]:` only; the causal mask of attention, where
        rows are queries in ascending position and step i is a key that only later queries may see.
    Returns f32[rows, ...].
    """
    n = products.shape[0]
    sums = np.empty(products.shape, np.float64)
    acc = np.zeros(products.shape[1:], np.float32)
    wide = np.zeros(products.shape[1:], np.float64)
    for i in range(n):
        r = 0 if first_row is None else int(first_row[i])
        sums[i, :r] = 0.0
        np.add(products[i, r:], wide[r:], out=sums[i, r:])
        acc[r:] = sums[i, r:]
        wide[r:] = acc[r:]
    if n > 1:
        doubtful = _doubtful(sums)
        if doubtful is not None:
            flat = products.reshape(n, -1)
            columns = np.flatnonzero(doubtful)
            active = None
            if first_row is not None:
                per_row = flat.shape[1] // products.shape[1]
                active = (columns // per_row)[None, :] >= first_row[:, None]
            acc.reshape(-1)[columns] = _exact_chain(flat[:, columns], active)
    return acc


def _doubtful(sums: F64) -> npt.NDArray[np.bool_] | None:
    """bool[columns]: chains in which some double rounding may differ from one rounding; None if there are none."""
    low_words = sums.view(np.uint32)[..., 0::2] if np.little_endian else sums.view(np.uint32)[..., 1::2]
    ties = (low_words << _BELOW_F32) == _TIE
    small = np.abs(sums) < _MIN_NORMAL  # float32 subnormals round elsewhere; zeros are exact
    any_small = bool(small.any())
    if any_small:
        small &= sums != 0.0
        any_small = bool(small.any())
    if not any_small and not ties.any():
        return None
    bad = ties | small if any_small else ties
    return np.asarray(bad.reshape(sums.shape[0], -1).any(axis=0))


def _exact_chain(products: F64, active: npt.NDArray[np.bool_] | None) -> F32:
    """The chain over f64[n, columns] with each sum rounded to odd in float64 and then once to float32."""
    acc = np.zeros(products.shape[1], np.float32)
    for i, p in enumerate(products):
        step = round_to_odd_sum(p, acc.astype(np.float64)).astype(np.float32)
        acc = step if active is None else np.where(active[i], step, acc)
    return acc


def round_to_odd_sum(a: F64, b: F64) -> F64:
    """`a + b` rounded to odd: exact sums stay, others take the neighbour whose last mantissa bit is 1.

    A value rounded to odd with 53 bits rounds once more to 24 bits without error (Boldo and Melquiond, 2008).
    """
    s = a + b
    t = s - a  # TwoSum (Knuth): s + err == a + b exactly
    err = (a - (s - t)) + (b - t)
    bits = s.view(np.int64)
    move = (err != 0.0) & np.isfinite(s) & ((bits & 1) == 0)
    toward = np.where((err > 0.0) == (s > 0.0), 1, -1)
    return np.where(move, bits + toward, bits).view(np.float64)


def fma(a: F32, b: F32, c: F32) -> F32:
    """`a * b + c` in float32 with one rounding, elementwise with broadcasting."""
    p = exact_products(a, b)
    p, wide = np.broadcast_arrays(p, np.asarray(c, np.float64))
    return np.asarray(round_to_odd_sum(p.copy(), wide.copy()).astype(np.float32))


def lane_tree_sum(values: F32, lanes: int) -> F32:
    """Sum over the first axis by the fixed tree of `lanes` lanes (a power of two).

    Lane l adds values[l], values[l + lanes], ... in that order from +0.0; then lanes combine pairwise at distance
    lanes/2, ..., 1. Lanes without an element hold +0.0, and since no lane can hold -0.0 adding them changes
    nothing: they are left out.
    """
    n = values.shape[0]
    acc = values[:lanes] + np.float32(0.0)
    for start in range(lanes, n, lanes):
        rest = values[start : start + lanes]
        acc[: rest.shape[0]] += rest
    return fold_lanes(acc, lanes)


def fold_lanes(acc: F32, lanes: int) -> F32:
    """Combine lane sums f32[<= lanes, ...] pairwise at distance lanes/2, ..., 1; overwrites `acc`."""
    live = acc.shape[0]
    distance = lanes // 2
    while distance:
        if live > distance:
            acc[: live - distance] += acc[distance:live]
            live = distance
        distance //= 2
    return np.asarray(acc[0])
