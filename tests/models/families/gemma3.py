"""Gemma 3: norms around each part, GELU, windows with a rotation of their own on five layers of six."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.models.families.build import Case, attention_shapes, base_keys, ffn_shapes, model_shapes, norm_shapes
from tests.models.families.common import Net

PERIOD = 6


def hidden(net: Net, tokens: list[int], *, causal: bool = True) -> np.ndarray:
    """f64[n, n_embd] after the last norm."""
    heads, kv, d = (net.number(f"attention.{k}") for k in ("head_count", "head_count_kv", "key_length"))
    n, window = len(tokens), net.number("attention.sliding_window")
    base = net.keys.get("rope.freq_base_swa", 10000.0)
    full_rope = net.rope(d, halves=True)
    local_rope = net.rope(d, halves=True, base=base, scaled=False) if net.does("local rope") else full_rope
    near = net.visible(n, window)
    if not causal:
        distance = np.abs(np.arange(n)[:, None] - np.arange(n))
        near = distance <= window // 2 + (not net.does("window"))
    x = net["token_embd.weight"][tokens]
    if net.does("embedding scale"):
        x = x * math.sqrt(net.number("embedding_length"))
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        local = layer % PERIOD != PERIOD - 1
        q, k, v = net.qkv(net.norm(x, f"{p}attn_norm"), p, (heads * d, kv * d, kv * d))
        q, k = (net.norm(y.reshape(n, -1, d), f"{p}attn_{side}_norm") for y, side in ((q, "q"), (k, "k")))
        rope = local_rope if local else full_rope
        seen = near if local else net.visible(n, None, causal=causal)
        a = net.attend(net.turn(q, rope), net.turn(k, rope), v.reshape(n, kv, d), 1 / math.sqrt(d), seen)
        a = net.product(a, f"{p}attn_output")
        x = x + (net.norm(a, f"{p}post_attention_norm") if net.does("post norms") else a)
        f = net.ffn(net.norm(x, f"{p}ffn_norm"), p, net.geglu)
        x = x + net.norm(f, f"{p}post_ffw_norm")
    return net.norm(x, "output_norm")


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    logits = net.head(hidden(net, tokens))
    cap = net.keys.get("final_logit_softcapping", 0.0)
    return cap * np.tanh(logits / cap) if cap and net.does("soft cap") else logits


def shapes(n_layers: int, *, n_embd: int = 64) -> dict[str, tuple[int, ...]]:
    block = (
        norm_shapes(n_embd, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        | attention_shapes(n_embd, 6, 2, 24, norms=True)
        | ffn_shapes(n_embd, 96)
    )
    return model_shapes(n_embd, [block] * n_layers, tied=True)


def case(wrong: tuple[str, ...] = (), **keys: Any) -> Case:
    every = base_keys(n_layers=7, heads=6, kv_heads=2, head_dim=24, attention__sliding_window=9, **keys)
    right = ("rope pairs", "window", "local rope", "embedding scale", "post norms", *wrong)
    return Case("gemma3", every, shapes(7), forward, right, n_tokens=28, seed=2, gelu=True)


CASES = {
    "gemma3": case(rope__freq_base=1e6),
    "gemma3-scaled-cap": case(
        ("rope scaling", "soft cap"),
        rope__freq_base=1e3,
        rope__scaling__type="linear",
        rope__scaling__factor=8.0,
        final_logit_softcapping=8.0,
        rope__freq_base_swa=500.0,
    ),
}
