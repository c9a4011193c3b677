"""Softmax in the project's fixed order."""

from __future__ import annotations

import numpy as np

from zinc_rt.kernels.reference.arith import F32, lane_tree_sum
from zinc_rt.kernels.reference.mathfn import exp
from zinc_rt.numerics import TREE_LANES


def softmax(x: F32) -> F32:
    """Over the last axis: exp(x - max), a 32-lane tree sum, one division per element."""
    with np.errstate(all="ignore"):
        p = exp(x - np.max(x, axis=-1, keepdims=True))
        total = lane_tree_sum(np.moveaxis(p, -1, 0), TREE_LANES)
        return np.asarray(p / total[..., None])
