"""Gemma 2: norms around each part, GELU, a window on every other layer, soft caps of scores and logits."""

from __future__ import annotations

import math

import numpy as np

from tests.models.families.build import Case, attention_shapes, base_keys, ffn_shapes, model_shapes, norm_shapes
from tests.models.families.common import Net


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    heads, kv, d = (net.number(f"attention.{k}") for k in ("head_count", "head_count_kv", "key_length"))
    n, rope = len(tokens), net.rope(d, halves=True)
    near, before = net.visible(n, net.number("attention.sliding_window")), net.visible(n, None)
    x = net["token_embd.weight"][tokens] * math.sqrt(net.number("embedding_length"))
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        q, k, v = net.qkv(net.norm(x, f"{p}attn_norm"), p, (heads * d, kv * d, kv * d))
        q, k = net.turn(q.reshape(n, heads, d), rope), net.turn(k.reshape(n, kv, d), rope)
        seen = near if (layer % 2 == 0) == net.does("which layers") else before
        cap = float(net.keys["attn_logit_softcapping"]) if net.does("soft cap of scores") else None
        a = net.attend(q, k, v.reshape(n, kv, d), 1 / math.sqrt(d), seen, cap=cap)
        x = x + net.norm(net.product(a, f"{p}attn_output"), f"{p}post_attention_norm")
        f = net.ffn(net.norm(x, f"{p}ffn_norm"), p, net.geglu)
        x = x + net.norm(f, f"{p}post_ffw_norm")
    logits, cap = net.head(net.norm(x, "output_norm")), float(net.keys["final_logit_softcapping"])
    return cap * np.tanh(logits / cap) if net.does("soft cap of logits") else logits


def case() -> Case:
    block = (
        norm_shapes(64, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        | attention_shapes(64, 6, 2, 24)
        | ffn_shapes(64, 96)
    )
    keys = base_keys(
        n_layers=4,
        heads=6,
        kv_heads=2,
        head_dim=24,
        attention__sliding_window=9,
        attn_logit_softcapping=1.5,
        final_logit_softcapping=8.0,
    )
    wrong = ("rope pairs", "window", "which layers", "soft cap of scores", "soft cap of logits")
    return Case(
        "gemma2", keys, model_shapes(64, [block] * 4, tied=True), forward, wrong, n_tokens=28, seed=2, gelu=True
    )


CASES = {"gemma2": case()}
