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

_LOW_BITS = np.int64((1 << 29) - 1)  # of a float64's 52 mantissa bits float32 lacks the lowest 29
_HALFWAY = np.int64(1 << 28)  # those bits when the value lies halfway between two float32
_BLOCK = 1 << 16  # float64 elements worked on at a time: half of a 1 MiB second-level cache
# A sum below the float32 normals can only be inexact in float64 where a product is below 2^-131: a product of
# float32 has 48 bits, the accumulator no bit below 2^-149, and float64 holds 53.
_TINY_PRODUCT = 2.0**-131
_MIN_NORMAL = 2.0**-126


def fma_chain(
    a: npt.NDArray[np.floating],
    b: npt.NDArray[np.floating],
    first_row: I64 | None = None,
    stop_row: I64 | None = None,
) -> F32:
    """Fold `acc = fma(a_i, b_i, acc)` over the first axis, starting from +0.0.

    a, b: float16, float32 or float64 holding such values, broadcast against each other to [n, rows, ...].
    first_row: i64[n], rising, or None. Step i touches rows `first_row[i]:` only; the causal mask of attention, where
        rows are queries in ascending position and step i is a key that only later queries may see.
    stop_row: i64[n], rising, with first_row. Step i touches no rows from `stop_row[i]` on: those whose window has
        left the key behind.
    Returns f32[rows, ...].
    """
    shape = np.broadcast_shapes(a.shape, b.shape)
    n = shape[0]
    acc = np.zeros(shape[1:], np.float32)
    wide = np.zeros(shape[1:], np.float64)
    tiny = _smallest(a) * _smallest(b) < _TINY_PRODUCT
    block = min(n, max(1, _BLOCK // max(1, acc.size)))
    products = np.empty((block, *shape[1:]), np.float64)
    sums = np.empty_like(products)
    redo: list[I64] = []
    for start in range(0, n, block):
        steps = slice(start, min(n, start + block))
        m = steps.stop - start
        wide_a, wide_b = (np.asarray(x[steps], np.float64) for x in (a, b))  # before they are broadcast
        np.multiply(wide_a, wide_b, out=products[:m])
        before = wide.copy()
        for i in range(m):
            product, total = products[i], sums[i]
            r = 0 if first_row is None else int(first_row[start + i])
            stop = shape[1] if stop_row is None else int(stop_row[start + i])
            if r or stop_row is not None:
                product[:r] = 0.0  # leaves these rows' sums exact, so they are never in doubt
                product[stop:] = 0.0
                np.add(product, wide, out=total)
                acc[r:stop] = total[r:stop]
                wide[r:stop] = acc[r:stop]
            else:
                np.add(product, wide, out=total)
                acc[...] = total
                wide[...] = acc
        doubtful = _doubtful_columns(products[:m], sums[:m], before, tiny)
        if doubtful is not None:
            redo.append(doubtful)
    if redo:
        columns = np.unique(np.concatenate(redo))
        at = np.unravel_index(columns, shape[1:])
        a, b = (np.moveaxis(np.broadcast_to(x, shape), 0, -1)[at].T for x in (a, b))
        active = None if first_row is None else at[0][None, :] >= first_row[:, None]
        if active is not None and stop_row is not None:
            active &= at[0][None, :] < stop_row[:, None]
        acc[at] = _exact_chain(np.multiply(a, b, dtype=np.float64), active)
    return acc


def fma(a: npt.NDArray[np.floating], b: npt.NDArray[np.floating], c: F32) -> F32:
    """a * b + c rounded once, elementwise; float32 values, broadcast against each other."""
    product = np.multiply(a, b, dtype=np.float64)
    return round_to_odd_sum(product, c.astype(np.float64)).astype(np.float32)


def _smallest(x: npt.NDArray[np.floating]) -> float:
    """The smallest magnitude that is not zero; infinity where there is none."""
    sizes = np.abs(x, dtype=np.float64)
    return float(np.min(sizes, where=sizes > 0.0, initial=np.inf))


def _doubtful_columns(products: F64, sums: F64, before: F64, tiny: bool) -> I64 | None:
    """Indices of the chains in which a sum was inexact in float64 and near a float32 boundary; None for none.

    before: f64[...], the accumulator ahead of the first step. tiny: float32 subnormals must be looked for.
    """
    n = sums.shape[0]
    flat = sums.reshape(n, -1)
    near = (flat.view(np.int64) & _LOW_BITS) == _HALFWAY
    if tiny:
        near |= (np.abs(flat) < _MIN_NORMAL) & (flat != 0.0)
    found = np.flatnonzero(near)
    if found.size == 0:
        return None
    step, column = np.divmod(found, flat.shape[1])
    earlier = flat[np.maximum(step - 1, 0), column].astype(np.float32)
    acc = np.where(step == 0, before.reshape(-1)[column], earlier)
    inexact = _lost(products.reshape(n, -1)[step, column], acc, flat[step, column]) != 0.0
    return np.unique(column[inexact]) if inexact.any() else None


def _exact_chain(products: F64, active: npt.NDArray[np.bool_] | None) -> F32:
    """The chain over f64[n, columns] with each sum rounded to odd in float64 and then once to float32."""
    acc = np.zeros(products.shape[1], np.float32)
    for i, p in enumerate(products):
        step = round_to_odd_sum(p, acc.astype(np.float64)).astype(np.float32)
        acc = step if active is None else np.where(active[i], step, acc)
    return acc


def _lost(a: F64, b: F64, s: F64) -> F64:
    """What rounding lost in s = a + b, exactly (TwoSum, Knuth); NaN where s is not finite."""
    t = s - a
    return (a - (s - t)) + (b - t)


def round_to_odd_sum(a: F64, b: F64) -> F64:
    """`a + b` rounded to odd: exact sums stay, others take the neighbour whose last mantissa bit is 1.

    A value rounded to odd with 53 bits rounds once more to 24 bits without error (Boldo and Melquiond, 2008).
    """
    s = a + b
    err = _lost(a, b, s)
    bits = s.view(np.int64)
    move = (err != 0.0) & np.isfinite(s) & ((bits & 1) == 0)
    toward = np.where((err > 0.0) == (s > 0.0), 1, -1)
    return np.where(move, bits + toward, bits).view(np.float64)


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
