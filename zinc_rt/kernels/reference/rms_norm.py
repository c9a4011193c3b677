"""RMS norm, plain and with the residual addition in front."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arith import F32, fma_chain, fold_lanes
from zinc_rt.numerics import NORM_LANES


def rms_norm_rows(x: F32, weight: F32, eps: float) -> F32:
    """Norm over the last axis: f32[..., n] with f32[n].

    256 lanes, lane l chains fma(x, x, acc) over l, l + 256, ...; pairwise at distance 128 ... 1; then
    (x * (1 / sqrt(sum / n + eps))) * weight.
    """
    n = x.shape[-1]
    with np.errstate(all="ignore"):
        flat = x.reshape(-1, n)
        if n > NORM_LANES:
            # A missing element changes nothing: fma(0, 0, acc) = acc.
            chains = np.zeros((n + -n % NORM_LANES, flat.shape[0]), np.float32)
            chains[:n] = flat.T
            chains = chains.reshape(-1, NORM_LANES, flat.shape[0])
            lanes = fma_chain(chains, chains)
        else:
            lanes = (flat * flat).T  # a chain of one step
        total = fold_lanes(lanes, NORM_LANES)
        scale = np.float32(1.0) / np.sqrt(total / np.float32(n) + np.float32(eps))
        return np.asarray((flat * scale[:, None]) * weight).reshape(x.shape)
