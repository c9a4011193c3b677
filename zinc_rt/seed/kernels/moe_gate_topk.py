"""Mixture-of-experts router: expert logits, the best k, their weights."""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.softmax import softmax
from zinc_rt.seed.kernels.checks import as_f32, exact_length
from zinc_rt.seed.kernels.errors import InvalidTopK, TooManyExperts
from zinc_rt.seed.kernels.projection import RawBytes, lm_head

MAX_EXPERTS = 256


class RoutingRule(StrEnum):
    """Where the softmax stands: over all experts before the pick, or over the picked ones after it."""

    softmax_all = "softmax_all"
    softmax_selected = "softmax_selected"


def moe_gate_topk(
    raw_data: RawBytes,
    tensor_type: GGMLType,
    hidden: npt.ArrayLike,
    row_scratch: F32,
    logits: F32,
    k: int,
    output_ids: npt.NDArray[np.integer],
    output_weights: F32,
    rule: RoutingRule = RoutingRule.softmax_all,
) -> None:
    """Write the k best experts in falling order of their logit (ties: the lower index) and their weights.

    logits: f32[n_experts], filled. `softmax_all` weights are not renormalised over the pick.
    Raises `EmptyInput`, `TooManyExperts`, `InvalidTopK`, `ShapeMismatch`.
    """
    (x,) = as_f32("moe_gate_topk", hidden=hidden)
    as_f32("moe_gate_topk", logits=logits)
    if logits.size > MAX_EXPERTS:
        raise TooManyExperts(f"moe_gate_topk: {logits.size} experts, at most {MAX_EXPERTS} are supported")
    if not 1 <= k <= logits.size:
        raise InvalidTopK(f"moe_gate_topk: k = {k} must be between 1 and the {logits.size} experts")
    exact_length("moe_gate_topk", "output_ids", output_ids, k)
    exact_length("moe_gate_topk", "output_weights", output_weights, k)
    lm_head(raw_data, tensor_type, x, row_scratch, logits)
    bad = np.isnan(logits)
    order = np.lexsort((-np.where(bad, np.float32(0.0), logits), bad))[:k]  # stable; NaN after every number
    output_ids[...] = order
    output_weights[...] = softmax(logits)[order] if rule == RoutingRule.softmax_all else softmax(logits[order])
