"""Blocks that guess the token behind the next one, in float64 (DeepSeek-V3 2024, section 2.2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tests.models.families import deepseek2, glm, kimi_linear, mamba, mixtures, qwen35
from tests.models.families.build import N_VOCAB, Case, Shapes, drafting_shapes, norm_shapes
from tests.models.families.common import Net

BLOCKS: dict[str, Callable[[Net, np.ndarray, str], np.ndarray]] = {
    "qwen35": qwen35.draft_block,
    "qwen35moe": qwen35.draft_block,
    "qwen3next": qwen35.draft_block,
    "glm4": glm.glm4_block,
    "glm4moe": glm.draft_block,
    "deepseek2": deepseek2.draft_block,
    "deepseek32": deepseek2.draft_block,
    "glm-dsa": deepseek2.draft_block,
    "bailingmoe2": mixtures.draft_block,
    "bailingmoe3": kimi_linear.block,
    "nemotron_h_moe": mamba.nemotron_draft_block,
    "mimo2": mixtures.draft_block,
    "step35": mixtures.draft_block,
}
"""What the block computes between its input and its norm, by architecture."""

WRONG = ("halves", "token norm", "prior norm", "head norm", "next hidden")
"""What `head` can do wrongly."""


def head(net: Net, tokens: list[int], prior: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Hidden states and logits of a text's rows: that of position p has the token there and the state before it."""
    layer = net.number("block_count") - net.number("nextn_predict_layers")
    p = f"blk.{layer}."
    own = f"{p}nextn.embed_tokens.weight"
    token = net[own if net.has(own) else "token_embd.weight"][tokens]
    token = net.norm(token, f"{p}nextn.enorm") if net.does("token norm") else token
    prior = net.norm(prior, f"{p}nextn.hnorm") if net.does("prior norm") else prior
    both = (token, prior) if net.does("halves") else (prior, token)
    x = BLOCKS[net.made.case.architecture](net, net.product(np.concatenate(both, axis=1), f"{p}nextn.eh_proj"), p)
    norms = [f"{p}{name}" for name in ("nextn.shared_head_norm", "layer_output_norm") if net.has(f"{p}{name}.weight")]
    before = x
    if net.made.case.architecture == "nemotron_h_moe":  # a layer norm
        before = x - x.mean(axis=1, keepdims=True)
    h = net.norm(before, norms[0]) if norms and net.does("head norm") else net.norm(x, "output_norm")
    own = f"{p}nextn.shared_head_head"
    logits = net.product(h, own) if net.has(f"{own}.weight") else net.head(h)
    return h if net.does("next hidden") else x, logits


def with_block(
    case: Case, *, own: bool = False, like: Sequence[int] = (-1,), norm: str = "nextn.shared_head_norm",
    more: Sequence[str] = (),
) -> Case:  # fmt: skip
    """The model with one more block, as its last one, that drafts. own: it has an embedding and a head of its own.
    like: the blocks whose parts it has. norm: the name of the one before its logits. more: norms of it alone.
    """
    n = case.keys["block_count"]
    shapes: Shapes = {}
    for model in (f"blk.{block % n}." for block in like):
        shapes |= {name.replace(model, ""): shape for name, shape in case.shapes.items() if name.startswith(model)}
    n_embd = case.keys["embedding_length"]
    shapes |= drafting_shapes(n_embd, norm) | norm_shapes(n_embd, *more)
    if own:
        shapes |= {f"nextn.{name}.weight": (N_VOCAB, n_embd) for name in ("embed_tokens", "shared_head_head")}
        del shapes["nextn.shared_head_norm.weight"]
    lists = {key: v for key, v in case.keys.items() if isinstance(v, list) and len(v) == n}
    keys = case.keys | {key: [*v, max(v[block] for block in like)] for key, v in lists.items()}
    keys |= {"block_count": n + 1, "nextn_predict_layers": 1}
    return replace(case, keys=keys, shapes=case.shapes | {f"blk.{n}.{name}": s for name, s in shapes.items()})
