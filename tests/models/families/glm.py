"""GLM-4 (norms before and after each part) and GLM-4.5 (experts after some dense layers)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.models.families.build import (
    Case,
    attention_shapes,
    base_keys,
    drafting_shapes,
    ffn_shapes,
    model_shapes,
    moe_shapes,
    norm_shapes,
)
from tests.models.families.common import Net, Rope


def attention(net: Net, h: np.ndarray, p: str, rope: Rope) -> np.ndarray:
    heads, kv, d = (net.number(f"attention.{k}") for k in ("head_count", "head_count_kv", "key_length"))
    n = len(h)
    q, k, v = net.qkv(h, p, (heads * d, kv * d, kv * d))
    q, k, v = q.reshape(n, heads, d), k.reshape(n, kv, d), v.reshape(n, kv, d)
    if net.has(f"{p}attn_q_norm.weight") and net.does("qk norm"):
        q, k = net.norm(q, f"{p}attn_q_norm"), net.norm(k, f"{p}attn_k_norm")
    a = net.attend(net.turn(q, rope), net.turn(k, rope), v, 1 / math.sqrt(d), net.visible(n, None))
    return net.product(a, f"{p}attn_output")


def glm4(net: Net, tokens: list[int]) -> np.ndarray:
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count") - net.keys.get("nextn_predict_layers", 0)):
        x = glm4_block(net, x, f"blk.{layer}.")
    return net.head(net.norm(x, "output_norm"))


def glm4_block(net: Net, x: np.ndarray, p: str) -> np.ndarray:
    rope = net.rope(net.number("rope.dimension_count"), halves=False)
    a = attention(net, net.norm(x, f"{p}attn_norm"), p, rope)
    x = x + (net.norm(a, f"{p}post_attention_norm") if net.does("post norms") else a)
    return x + net.norm(net.ffn(net.norm(x, f"{p}ffn_norm"), p), f"{p}post_ffw_norm")


def glm4moe(net: Net, tokens: list[int]) -> np.ndarray:
    rope = net.rope(net.number("rope.dimension_count"), halves=True)
    trunk = net.number("block_count") - net.keys.get("nextn_predict_layers", 0)
    x = net["token_embd.weight"][tokens]
    for layer in range(trunk):
        x = glm4moe_block(net, x, f"blk.{layer}.", rope, dense=layer < net.number("leading_dense_block_count"))
    return net.head(net.norm(x, "output_norm"))


def glm4moe_block(net: Net, x: np.ndarray, p: str, rope: Rope, *, dense: bool) -> np.ndarray:
    x = x + attention(net, net.norm(x, f"{p}attn_norm"), p, rope)
    f = net.norm(x, f"{p}post_attention_norm")
    if dense:
        return x + net.ffn(f, p)
    y = net.moe(
        f, p, gating="sigmoid", normalise=net.keys["expert_weights_norm"], scale=net.keys["expert_weights_scale"]
    )
    return x + (y + net.ffn(f, p, suffix="_shexp") if net.does("shared expert") else y)


def draft_block(net: Net, x: np.ndarray, p: str) -> np.ndarray:
    return glm4moe_block(net, x, p, net.rope(net.number("rope.dimension_count"), halves=True), dense=False)


def glm4_case() -> Case:
    block = (
        norm_shapes(64, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        | attention_shapes(64, 6, 2, 16, biases=True)
        | ffn_shapes(64, 96, fused=True)
    )
    keys = base_keys(heads=6, kv_heads=2, head_dim=16, rope__dimension_count=8)
    wrong = ("rope pairs", "biases", "post norms", "gate first")
    return Case("glm4", keys, model_shapes(64, [block, block]), glm4, wrong)


def glm4moe_case(*, norms: bool, scale: float, mtp: bool = False, seed: int = 1) -> Case:
    common = norm_shapes(64, "attn_norm", "post_attention_norm")
    common |= attention_shapes(64, 6, 2, 16, norms=norms, biases=True)
    dense = common | ffn_shapes(64, 96)
    routed = common | moe_shapes(64, 32, 8) | ffn_shapes(64, 64, suffix="_shexp") | {"exp_probs_b.bias": (8,)}
    more: dict[str, Any] = {
        "rope__dimension_count": 8, "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 32,
        "expert_shared_count": 2, "leading_dense_block_count": 1, "expert_weights_norm": True,
        "expert_weights_scale": scale, "expert_gating_func": 2, "nextn_predict_layers": 0,
    }  # fmt: skip
    keys = base_keys(n_layers=3, heads=6, kv_heads=2, head_dim=16, **more)
    wrong = ["rope pairs", "biases", "shared expert", "selection bias", "router normalised"]
    wrong += ["qk norm"] * norms + ["router scaled"] * (scale != 1)
    blocks = [dense, routed, routed]
    if mtp:  # a block that drafts tokens, and takes no part in the logits
        keys |= {"block_count": 4, "nextn_predict_layers": 1}
        blocks.append(routed | drafting_shapes(64))
    return Case("glm4moe", keys, model_shapes(64, blocks), glm4moe, wrong, seed=seed)


CASES = {
    "glm4": glm4_case(),
    "glm4moe": glm4moe_case(norms=False, scale=1.0, seed=5),
    "glm4moe-mtp": glm4moe_case(norms=False, scale=1.0, mtp=True, seed=5),
    "glm4moe-norms-scale": glm4moe_case(norms=True, scale=2.5),
}
