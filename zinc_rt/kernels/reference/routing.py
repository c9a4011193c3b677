"""Choosing experts by the router's logits, in the project's fixed order."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.mathfn import sigmoid, softplus
from zinc_rt.kernels.reference.softmax import softmax
from zinc_rt.numerics import LEAST_EXPERT_WEIGHTS, MIXER_OUT, MIXER_REACH

I32 = npt.NDArray[np.int32]


_PROBABILITIES: dict[str, Callable[[F32], F32]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "sqrt_softplus": lambda logits: np.sqrt(softplus(logits)),
}


def descending(x: F32) -> npt.NDArray[np.intp]:
    """Places of the last axis by value, the largest first; ties by place, NaN last."""
    missing = np.isnan(x)
    places = np.broadcast_to(np.arange(x.shape[-1]), x.shape)
    return np.lexsort((places, np.where(missing, np.float32(0.0), -x), missing), axis=-1)


def choose_experts(
    logits: F32, k: int, *, gating: str = "softmax", bias: F32 | None = None, expert_scale: F32 | None = None,
    normalise: bool = False, scale: float = 1.0, n_groups: int = 1, n_groups_used: int = 1, given: F32 | None = None,
) -> tuple[I32, F32]:  # fmt: skip
    """The k experts of each row in increasing id, i32[R, k], and their weights, f32[R, k].

    logits: f32[R, E]. given: f32[R, k], the experts where they are chosen already. The rest: see "Mixture of experts"
    in docs/how/numerics.md.
    """
    with np.errstate(all="ignore"):
        probs: F32 = _PROBABILITIES[gating](logits) if gating in _PROBABILITIES else logits
        choice: F32 = probs if bias is None else probs + bias
        allowed = _allowed(choice, n_groups, n_groups_used)
        order = descending(choice)
        # Experts of other groups go behind all that may be chosen.
        order = np.take_along_axis(order, np.argsort(~np.take_along_axis(allowed, order, 1), 1, kind="stable"), 1)
        ids = np.sort(order[:, :k] if given is None else given, axis=1).astype(np.int32)
        weights: F32 = np.take_along_axis(probs, ids, 1)
        if gating == "softmax_chosen":
            weights = softmax(weights)
        elif gating == "sigmoid_chosen":
            weights = sigmoid(weights)
        elif gating == "sparse_mixer":
            weights = np.take_along_axis(_mixed(logits, order[:, :k]), ids, 1)
        if normalise:
            total = np.zeros(len(logits), np.float32)
            for j in range(k):
                total = total + weights[:, j]
            weights = np.asarray(weights / np.maximum(total, np.float32(LEAST_EXPERT_WEIGHTS))[:, None], np.float32)
        weights = np.asarray(weights * np.float32(scale))
        if expert_scale is not None:
            weights = np.asarray(weights * expert_scale[ids])
    return ids, weights


def _mixed(logits: F32, order: npt.NDArray[np.intp]) -> F32:
    """A weight for each chosen expert, f32[R, E]: its softmax among those near it that were not chosen before.

    order: [R, k], the chosen ones, the best first.
    """
    out, gone = np.zeros_like(logits), np.zeros(logits.shape, np.bool_)
    for chosen in order.T[:, :, None]:
        top = np.take_along_axis(logits, chosen, 1)
        near = top - logits <= np.maximum(np.maximum(logits, -logits), top) * np.float32(MIXER_REACH)
        left = np.where(near & ~gone, logits, np.float32(MIXER_OUT))
        np.put_along_axis(out, chosen, np.take_along_axis(softmax(left), chosen, 1), 1)
        np.put_along_axis(gone, chosen, True, 1)
    return out


def _allowed(choice: F32, n_groups: int, n_groups_used: int) -> npt.NDArray[np.bool_]:
    """Which experts belong to the best groups: those with the largest sums of their two best experts."""
    if n_groups_used == n_groups:
        return np.ones(choice.shape, np.bool_)
    grouped = choice.reshape(len(choice), n_groups, choice.shape[1] // n_groups)
    best = np.take_along_axis(grouped, descending(grouped)[:, :, :2], 2)
    score: Any = best[:, :, 0] if best.shape[2] == 1 else best[:, :, 0] + best[:, :, 1]
    used = np.zeros(score.shape, np.bool_)
    np.put_along_axis(used, descending(score)[:, :n_groups_used], True, 1)
    return np.repeat(used, grouped.shape[2], axis=1)
