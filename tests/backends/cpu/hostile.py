"""Numbers that break kernels, many at once: a kind for each group of 32 columns."""

from __future__ import annotations

import numpy as np

GROUP = 32
SPECIAL = np.float32([0, -0.0, 1e-45, -1e-45, 1.1754942e-38, 1.1754944e-38, 3.4028235e38, -3.4028235e38, 65504, 65536])
NOT_FINITE = np.float32([np.nan, np.inf, -np.inf])


def ordinary(rng: np.random.Generator, n_rows: int, n: int) -> np.ndarray:
    """f32[n_rows, n]: every group of 32 with a size of its own."""
    sizes = np.repeat(2.0 ** rng.integers(-6, 7, (n_rows, -(-n // GROUP))), GROUP, axis=1)[:, :n]
    return (rng.standard_normal((n_rows, n)) * sizes).astype(np.float32)


def hostile(rng: np.random.Generator, n_rows: int, n: int, *, finite: bool = True) -> np.ndarray:
    """f32[n_rows, n]: ordinary groups, and groups of zeros, subnormals, ties of the int8 rounding, huge and lopsided
    values, sizes about the smallest scale, special values; not finite: some hold infinities and NaN.
    """
    groups = -(-n // GROUP)
    shape = (n_rows, groups, GROUP)
    base = ordinary(rng, n_rows, groups * GROUP).reshape(shape)
    sign = rng.choice(np.float32([-1, 1]), shape)
    step = np.ldexp(np.float32(1), rng.integers(-20, 20, (n_rows, groups, 1))).astype(np.float32)
    ties = (rng.integers(-126, 127, shape) + 0.5).astype(np.float32)
    ties[..., 0] = 127.0  # the scale is a power of two, so x / d are exact halves
    lonely = base.copy()
    np.put_along_axis(lonely, rng.integers(0, GROUP, (n_rows, groups, 1)), np.float32(3.4028235e38), axis=2)
    edge = sign * np.float32(127 * 2.0**-126) * rng.choice(np.float32([1.0, 0.999]), (n_rows, groups, 1))
    kinds = [
        base,
        np.zeros(shape, np.float32) * sign,
        sign * np.float32(2.0**-149) * rng.integers(0, 1 << 20, shape).astype(np.float32),
        ties * step,
        sign * np.float32(3.4e38) * rng.random(shape).astype(np.float32),
        lonely,
        edge,  # about the rule for small scales
        np.broadcast_to(np.float32(-1.5) * step, shape),  # all at the maximum
        np.ldexp(base, rng.integers(-140, 0, shape)).astype(np.float32),
        rng.choice(SPECIAL, shape),
    ]
    if not finite:
        bad = base.copy()
        np.put_along_axis(
            bad, rng.integers(0, GROUP, (n_rows, groups, 1)), rng.choice(NOT_FINITE, (n_rows, groups, 1)), axis=2
        )
        kinds.append(bad)
    picked = rng.integers(0, len(kinds), (n_rows, groups))
    out = np.choose(picked[..., None], kinds)
    return np.ascontiguousarray(out.reshape(n_rows, groups * GROUP)[:, :n], np.float32)


def rows(rng: np.random.Generator, n_rows: int, n: int) -> np.ndarray:
    """Activations of a step: ordinary rows, hostile ones, some with NaN and infinity, now and then one of zeros."""
    kinds = rng.integers(0, 8, n_rows)[:, None]
    out = np.where(kinds < 4, ordinary(rng, n_rows, n), hostile(rng, n_rows, n))
    out = np.where(kinds == 6, hostile(rng, n_rows, n, finite=False), out)
    return np.where(kinds == 7, np.float32(0), out)
