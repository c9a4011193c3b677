"""Activation vectors as int8: one scale per group of 32, the left operand of every quantised matrix product."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.kernels.reference.arith import F32
from zinc_rt.numerics import GROUP, MIN_NORMAL, QUANT_MAX

_MIN_NORMAL = np.float32(MIN_NORMAL)


@dataclass(frozen=True)
class QuantActivations:
    """Rows of activations, `n_groups = n_in / 32` groups each.

    q: f32[n_rows, n_groups, 32], integers in -127..127 (float32 so that BLAS may multiply them; exact)
    d: f32[n_rows, n_groups], the scale: x is about q * d
    s: f32[n_rows, n_groups], the integer sum of q over the group
    """

    q: F32
    d: F32
    s: F32


def quantize_activations(x: F32) -> QuantActivations:
    """Quantise f32[n_rows, n_in], n_in a multiple of 32: d = amax / 127, q = rint(x * (1 / d)) half to even.

    A group whose d is zero or subnormal counts as all zeros (1 / d could overflow): d = 0, q = 0.
    A group that holds an infinity or a NaN keeps d = inf or NaN with q = 0, so its products are NaN.
    """
    grouped = x.reshape(x.shape[0], x.shape[1] // GROUP, GROUP)
    with np.errstate(all="ignore"):
        d = np.max(np.abs(grouped), axis=2) / np.float32(QUANT_MAX)
        d = np.where(d < _MIN_NORMAL, np.float32(0.0), d)
        q = np.rint(grouped * (np.float32(1.0) / d)[:, :, None])
    usable = (d > 0.0) & np.isfinite(d)
    if not usable.all():
        q = np.where(usable[:, :, None], q, np.float32(0.0))
    return QuantActivations(q, d, q.sum(axis=2, dtype=np.float32))
