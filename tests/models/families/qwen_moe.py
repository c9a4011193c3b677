"""Qwen 3 and Qwen 2 with experts: QK-norm and normalised weights, or biases and a gated shared expert."""

from __future__ import annotations

import math

import numpy as np

from tests.models.families.build import (
    Case,
    attention_shapes,
    base_keys,
    ffn_shapes,
    model_shapes,
    moe_shapes,
    norm_shapes,
)
from tests.models.families.common import Net, sigmoid


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    heads, kv, d = (net.number(f"attention.{k}") for k in ("head_count", "head_count_kv", "key_length"))
    n = len(tokens)
    rope, seen = net.rope(d, halves=True), net.visible(n, None)
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        h = net.norm(x, f"{p}attn_norm")
        q, k, v = net.qkv(h, p, (heads * d, kv * d, kv * d))
        q, k, v = q.reshape(n, heads, d), k.reshape(n, kv, d), v.reshape(n, kv, d)
        if net.has(f"{p}attn_q_norm.weight") and net.does("qk norm"):
            q, k = net.norm(q, f"{p}attn_q_norm"), net.norm(k, f"{p}attn_k_norm")
        a = net.attend(net.turn(q, rope), net.turn(k, rope), v, 1 / math.sqrt(d), seen)
        x = x + net.product(a, f"{p}attn_output")
        f = net.norm(x, f"{p}ffn_norm")
        x = x + experts(net, f, p)
    return net.head(net.norm(x, "output_norm"))


def experts(net: Net, f: np.ndarray, p: str) -> np.ndarray:
    qwen2 = net.made.case.architecture == "qwen2moe"
    y = net.moe(f, p, normalise=not qwen2)
    if net.has(f"{p}ffn_gate_inp_shexp.weight") and net.does("shared expert"):
        gate = sigmoid(f @ net[f"{p}ffn_gate_inp_shexp.weight"])[:, None] if net.does("shared gate") else 1.0
        y = y + net.ffn(f, p, suffix="_shexp") * gate
    return y


def qwen3moe(*, fused_qkv: bool = False, name: str = "qwen3moe") -> Case:
    keys = base_keys(heads=6, kv_heads=2, head_dim=24, n_ff=96, rope__freq_base=1e6, expert_count=8,
                     expert_used_count=3, expert_feed_forward_length=32)  # fmt: skip
    if name.startswith("qwen3vl"):
        keys |= {"rope.dimension_sections": [4, 4, 4, 0], "n_deepstack_layers": 0}
    block = (
        norm_shapes(64, "attn_norm", "ffn_norm")
        | attention_shapes(64, 6, 2, 24, norms=True, fused=fused_qkv)
        | moe_shapes(64, 32, 8)
    )
    wrong = ["rope pairs", "qk norm", "router normalised", "causal", "shared heads"]
    return Case(name, keys, model_shapes(64, [block, block]), forward, wrong, seed=10)


def qwen2moe() -> Case:
    keys = base_keys(heads=4, kv_heads=4, head_dim=16, n_ff=96, expert_count=6, expert_used_count=2,
                     expert_feed_forward_length=32, expert_shared_feed_forward_length=96)  # fmt: skip
    block = (
        norm_shapes(64, "attn_norm", "ffn_norm")
        | attention_shapes(64, 4, 4, 16, biases=True)
        | moe_shapes(64, 32, 6)
        | ffn_shapes(64, 96, suffix="_shexp")
        | {"ffn_gate_inp_shexp.weight": (64,)}
    )
    wrong = ["rope pairs", "biases", "router normalised", "shared expert", "shared gate"]
    return Case("qwen2moe", keys, model_shapes(64, [block, block]), forward, wrong, seed=7)


def wide() -> Case:
    """Rows of 256 elements, which super-blocks fill."""
    keys = base_keys(n_embd=256, heads=6, kv_heads=2, head_dim=24, n_ff=256, expert_count=4, expert_used_count=2,
                     expert_feed_forward_length=256)  # fmt: skip
    block = norm_shapes(256, "attn_norm", "ffn_norm") | attention_shapes(256, 6, 2, 24, norms=True)
    return Case("qwen3moe", keys, model_shapes(256, [block | moe_shapes(256, 256, 4)] * 2), forward, n_tokens=12)


CASES = {
    "qwen3moe": qwen3moe(),
    "qwen3moe-fused-qkv": qwen3moe(fused_qkv=True),
    "qwen2moe": qwen2moe(),
    "qwen3vlmoe": qwen3moe(name="qwen3vlmoe"),
}
