"""Argmax over logits: the first maximum wins, NaN is smaller than every number."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.reference.arith import F32


def argmax_rows(logits: F32) -> npt.NDArray[np.int32]:
    """i32[n] from f32[n, n_vocab]. A row of nothing but NaN gives 0."""
    bad = np.isnan(logits)
    best = np.argmax(np.where(bad, np.float32(-np.inf), logits), axis=-1)
    lost = np.take_along_axis(bad, best[..., None], axis=-1)[..., 0]
    if lost.any():  # nothing above -inf in these rows: the first -inf goes before any NaN
        best = np.where(lost, np.argmin(bad, axis=-1), best)
    return np.asarray(best, np.int32)
