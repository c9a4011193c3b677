"""Blocks behind a model's own that draft further tokens (`nextn`): no step needs them, so they are left aside."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zinc_rt.models.errors import InvalidKey
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts

_EVERY: Final = (
    "attn_norm", "attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "ffn_gate_inp", "ffn_gate_exps",
    "ffn_up_exps", "ffn_gate_up_exps", "ffn_down_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp",
    "nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "nextn.embed_tokens", "nextn.shared_head_head",
    "nextn.shared_head_norm",
)  # fmt: skip
"""Weights of a block that drafts, whatever its attention."""
GROUPED: Final = (
    "post_attention_norm", "attn_k", "attn_v", "attn_qkv", "attn_q_norm", "attn_k_norm", "ffn_gate_inp_shexp",
)  # fmt: skip
"""The others where attention is grouped-query attention."""
GROUPED_BIASES: Final = ("attn_q", "attn_k", "attn_v", "attn_qkv", "exp_probs_b")


def count_drafts(keys: Keys, n_blocks: int) -> int:
    """How many of the file's blocks draft tokens; they are the last ones. Raises `InvalidKey` where it is all."""
    n_drafts = keys.integer("nextn_predict_layers", 0, least=0, most=n_blocks)
    if n_drafts == n_blocks:
        raise InvalidKey(f"{keys.name('nextn_predict_layers')} is {n_drafts}, of {n_blocks} blocks in all")
    return n_drafts


def leave_drafts(
    parts: GraphParts, n_drafts: int, *, others: Sequence[str] = GROUPED, biases: Sequence[str] = GROUPED_BIASES
) -> None:
    """Name the tensors of the blocks behind the model's own as known and not needed.

    others: weights beside those that all have; biases: tensors that end in `.bias`.
    """
    first = parts.info.n_layers
    for layer in range(first, first + n_drafts):
        parts.leave(f"blk.{layer}.{name}.weight" for name in (*_EVERY, *others))
        parts.leave(f"blk.{layer}.{name}.bias" for name in biases)
