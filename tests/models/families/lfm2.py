"""LFM 2: short gated convolutions between layers of attention; experts after some dense layers in the larger ones."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.models.families.build import (
    Case,
    Shapes,
    attention_shapes,
    base_keys,
    ffn_shapes,
    model_shapes,
    moe_shapes,
    norm_shapes,
)
from tests.models.families.common import Net, Rope


def short_conv(net: Net, h: np.ndarray, p: str) -> np.ndarray:
    b, c, u = np.split(net.product(h, f"{p}shortconv.in_proj"), 3, axis=1)
    if not net.does("thirds"):
        b, c = c, b
    taps = net[f"{p}shortconv.conv.weight"]  # [channel, tap], the last tap is the present
    if not net.does("taps"):
        taps = taps[:, ::-1]
    width = taps.shape[1]
    padded = np.concatenate([np.zeros((width - 1, h.shape[1])), b * u])
    y = sum(padded[j : j + len(h)] * taps[:, j] for j in range(width))
    return net.product(c * y, f"{p}shortconv.out_proj")


def attention(net: Net, h: np.ndarray, p: str, kv: int, rope: Rope) -> np.ndarray:
    heads = net.number("attention.head_count")
    n, d = len(h), net.number("embedding_length") // heads
    q, k, v = net.qkv(h, p, (heads * d, kv * d, kv * d))
    q, k = (net.norm(y.reshape(n, -1, d), f"{p}attn_{side}_norm") for y, side in ((q, "q"), (k, "k")))
    seen = net.visible(n, net.keys.get("attention.sliding_window"))
    a = net.attend(net.turn(q, rope), net.turn(k, rope), v.reshape(n, kv, d), 1 / math.sqrt(d), seen)
    return net.product(a, f"{p}attn_output")


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    rope = net.rope(net.number("embedding_length") // net.number("attention.head_count"), halves=True)
    x = net["token_embd.weight"][tokens]
    for layer, kv in enumerate(net.keys["attention.head_count_kv"]):
        p = f"blk.{layer}."
        h = net.norm(x, f"{p}attn_norm")
        x = x + (attention(net, h, p, kv, rope) if kv else short_conv(net, h, p))
        f = net.norm(x, f"{p}ffn_norm")
        routed = net.has(f"{p}ffn_gate_inp.weight")
        x = x + (net.moe(f, p, gating="sigmoid") if routed else net.ffn(f, p))
    return net.head(net.norm(x, "token_embd_norm"))


def case(name: str, *, window: int | None = None, seed: int = 1) -> Case:
    n_embd, heads, kv_heads = 96, 6, [0, 2, 0, 2]
    moe, d = name == "lfm2moe", n_embd // heads
    more: dict[str, Any] = {"attention__key_length": None, "attention__value_length": None}
    wrong = ["rope pairs", "thirds", "taps"]
    if window is not None:
        more["attention__sliding_window"] = window
        wrong.append("window")
    if moe:
        more |= {
            "leading_dense_block_count": 2,
            "expert_count": 8,
            "expert_used_count": 3,
            "expert_gating_func": 2,
            "expert_feed_forward_length": 32,
        }
        wrong += ["selection bias", "router normalised"]
    keys = base_keys(n_layers=4, n_embd=n_embd, heads=heads, kv_heads=kv_heads, n_ff=128, eps=1e-5,
                     rope__freq_base=1e4, shortconv__l_cache=3, **more)  # fmt: skip
    blocks: list[Shapes] = []
    for layer, kv in enumerate(kv_heads):
        conv = {
            "shortconv.in_proj.weight": (3 * n_embd, n_embd),
            "shortconv.conv.weight": (n_embd, 3),
            "shortconv.out_proj.weight": (n_embd, n_embd),
        }
        mixer = attention_shapes(n_embd, heads, kv, d, norms=True) if kv else conv
        routed = moe_shapes(n_embd, 32, 8) | {"exp_probs_b.bias": (8,)}
        ffn = routed if moe and layer >= 2 else ffn_shapes(n_embd, 128)
        blocks.append(norm_shapes(n_embd, "attn_norm", "ffn_norm") | mixer | ffn)
    shapes = model_shapes(n_embd, blocks, tied=True, final="token_embd_norm")
    return Case(name, keys, shapes, forward, wrong, seed=seed)


CASES = {"lfm2": case("lfm2"), "lfm2-window": case("lfm2", window=7), "lfm2moe": case("lfm2moe", seed=2)}
