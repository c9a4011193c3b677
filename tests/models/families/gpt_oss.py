"""gpt-oss: sinks beside the scores, windows on every second layer, experts with biases and a clamped gate."""

from __future__ import annotations

import math

import numpy as np

from tests.models.families.build import Case, attention_shapes, base_keys, model_shapes, moe_shapes, norm_shapes
from tests.models.families.common import Net, sigmoid

LIMIT, ALPHA = 7.0, 1.702


def clamped(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    gate, up = np.minimum(gate, LIMIT), np.clip(up, -LIMIT, LIMIT)
    return gate * sigmoid(ALPHA * gate) * (up + 1)


def without_limits(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    return gate * sigmoid(ALPHA * gate) * (up + 1)


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    heads, kv, d = (net.number(f"attention.{k}") for k in ("head_count", "head_count_kv", "key_length"))
    n, window = len(tokens), net.number("attention.sliding_window")
    rope = net.rope(d, halves=True)
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        q, k, v = net.qkv(net.norm(x, f"{p}attn_norm"), p, (heads * d, kv * d, kv * d))
        q, k, v = q.reshape(n, heads, d), k.reshape(n, kv, d), v.reshape(n, kv, d)
        seen = net.visible(n, window if layer % 2 == 0 else None)
        sinks = net[f"{p}attn_sinks.weight"]
        a = net.attend(net.turn(q, rope), net.turn(k, rope), v, 1 / math.sqrt(d), seen, sinks)
        x = x + net.product(a, f"{p}attn_output")
        act = clamped if net.does("limits") else without_limits
        x = x + net.moe(net.norm(x, f"{p}post_attention_norm"), p, gating="chosen", normalise=False, act=act)
    return net.head(net.norm(x, "output_norm"))


def case(seed: int) -> Case:
    n_embd, n_ff, n_experts = 64, 32, 8
    keys = base_keys(
        n_layers=3, heads=6, kv_heads=2, head_dim=16, n_ff=n_ff, eps=1e-5, attention__sliding_window=9,
        expert_count=n_experts, expert_used_count=3, expert_feed_forward_length=n_ff, rope__freq_base=150000.0,
        rope__scaling__type="yarn", rope__scaling__factor=32.0, rope__scaling__original_context_length=16,
    )  # fmt: skip
    attention = attention_shapes(n_embd, 6, 2, 16, biases=True)
    experts = moe_shapes(n_embd, n_ff, n_experts)
    block = norm_shapes(n_embd, "attn_norm", "post_attention_norm") | attention | experts
    block |= {"attn_output.bias": (n_embd,), "ffn_gate_inp.bias": (n_experts,), "attn_sinks.weight": (6,)}
    block |= {f"{name.removesuffix('.weight')}.bias": shape[:2] for name, shape in experts.items() if "exps" in name}
    wrong = ("rope pairs", "rope scaling", "window", "sinks", "biases", "expert biases", "limits")
    sizes = {"gate_exps": 3.0, "up_exps": 3.0, "down_exps": 0.2}  # so that the limits act
    shapes = model_shapes(n_embd, [block] * 3)
    return Case("gpt-oss", keys, shapes, forward, wrong, n_tokens=20, seed=seed, sizes=sizes)


CASES = {"gpt-oss": case(1)}
