"""Blocks behind a model's own that draft further tokens (`nextn`). A step does not run them; each becomes a graph of
its own.

A head guesses the token after the next one. Its row of position p takes the token at p and the model's hidden state of
position p - 1, the state from which the model computes logits. When a draft goes on, the head's own hidden state takes
its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zinc_rt.models.blocks import Layer, Residual
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.errors import ModelError
from zinc_rt.models.hidden import hidden_beside
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts

PRIOR: Final = "prior_hidden"
"""The step input of a head: f32[n_rows, n_embd], the hidden state of the position before each row's."""

_EVERY: Final = (
    "attn_norm", "attn_q", "attn_output", "ffn_gate", "ffn_up", "ffn_down", "ffn_gate_inp", "ffn_gate_exps",
    "ffn_up_exps", "ffn_gate_up_exps", "ffn_down_exps", "ffn_gate_shexp", "ffn_up_shexp", "ffn_down_shexp",
    "nextn.eh_proj", "nextn.enorm", "nextn.hnorm", "nextn.embed_tokens", "nextn.shared_head_head",
    "nextn.shared_head_norm",
)  # fmt: skip
"""Weights of a block that drafts, whatever its attention."""
GROUPED: Final = (
    "post_attention_norm",
    "ffn_norm",
    "post_ffw_norm",
    "layer_output_norm",
    "attn_k",
    "attn_v",
    "attn_qkv",
    "attn_q_norm",
    "attn_k_norm",
    "ffn_gate_inp_shexp",
    "attn_gate",
    "attn_sinks",
    "ffn_latent_down",
    "ffn_latent_up",
)
"""The others where attention is grouped-query attention."""
DRAFT_LATENT: Final = (
    "attn_q_a", "attn_q_a_norm", "attn_q_b", "attn_kv_a_mqa", "attn_kv_a_norm", "attn_k_b", "attn_v_b", "ffn_norm",
    "attn_gate", "layer_output_norm", "indexer.attn_q_b", "indexer.attn_k", "indexer.k_norm", "indexer.proj",
)  # fmt: skip
"""The others where attention is latent."""
GROUPED_BIASES: Final = ("attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "exp_probs_b")


def count_drafts(keys: Keys, n_blocks: int) -> int:
    """How many of the file's blocks draft tokens; they are the last ones. Raises `ModelError` where it is all."""
    n_drafts = keys.integer("nextn_predict_layers", 0, minimum=0, maximum=n_blocks)
    if n_drafts == n_blocks:
        raise ModelError(f"{keys.name('nextn_predict_layers')} is {n_drafts}, of {n_blocks} blocks in all")
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


def draft_head(parts: GraphParts, block: Layer, *, layer_norm_eps: float | None = None) -> ModelDefinition:
    """The graph of the first block that drafts: logits and hidden states (`hidden`) of tokens and `PRIOR`.

    Its matrices of embeddings and logits are the model's, where it has none of its own. Of several blocks each would
    draft one token; the first drafts all of them.

    Args:
        parts: with the constants declared that `block` uses, and nothing emitted.
        block: of the kind that drafts.
        layer_norm_eps: of the norm behind the block, where it is a layer norm without a bias; None for a usual one.

    Raises:
        ModelError, UnsupportedTensorType: a tensor is missing, or is not as the metadata has it.
    """
    n_embd, layer = parts.info.n_embd, parts.info.n_layers
    p = f"blk.{layer}.nextn"
    own = parts.has(f"{p}.embed_tokens.weight")
    token = parts.norm(parts.embed(f"{p}.embed_tokens" if own else "token_embd"), f"{p}.enorm")
    prior = parts.norm(parts.given(PRIOR, n_embd), f"{p}.hnorm")
    # The rows of both, put together, times a matrix: the sum of two products.
    halves = [parts.weight_columns(f"{p}.eh_proj.weight", (n_embd, 2 * n_embd), i, 2) for i in range(2)]
    x = Residual(parts, parts.product(token, halves[0], f"{p}.e_proj"))
    x.add(parts.product(prior, halves[1], f"{p}.h_proj"), f"{p}.eh_sum")
    block.emit(parts, x, layer)
    own_norms = (f"{p}.shared_head_norm", f"blk.{layer}.layer_output_norm")
    norm = next((name for name in own_norms if parts.has(f"{name}.weight")), "output_norm")
    last = x.value()
    if layer_norm_eps is None:
        h = parts.norm(last, norm)
    else:
        h = parts.layer_norm(last, norm, eps=layer_norm_eps, bias=False)
    parts.head(h, matrix=f"{p}.shared_head_head.weight")
    return hidden_beside(parts.finish())
