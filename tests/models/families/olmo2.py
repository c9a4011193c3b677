"""OLMo 2 and 3: norms after the parts instead of before, QK-norm over all heads together, windows in OLMo 3."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.models.families.build import Case, attention_shapes, base_keys, ffn_shapes, model_shapes, norm_shapes
from tests.models.families.common import Net


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    heads, kv, d = (net.number(f"attention.{k}") for k in ("head_count", "head_count_kv", "key_length"))
    n, window = len(tokens), net.keys.get("attention.sliding_window")
    full_rope, local_rope = net.rope(d, halves=True), net.rope(d, halves=True, scaled=not net.does("local rope"))
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        local = window is not None and layer % 4 != 3
        q, k, v = net.qkv(x, p, (heads * d, kv * d, kv * d))
        if net.does("qk norm"):
            q, k = net.norm(q, f"{p}attn_q_norm"), net.norm(k, f"{p}attn_k_norm")
        q, k, v = q.reshape(n, heads, d), k.reshape(n, kv, d), v.reshape(n, kv, d)
        rope = local_rope if local else full_rope
        seen = net.visible(n, window if local else None)
        a = net.attend(net.turn(q, rope), net.turn(k, rope), v, 1 / math.sqrt(d), seen)
        x = x + net.norm(net.product(a, f"{p}attn_output"), f"{p}post_attention_norm")
        x = x + net.norm(net.ffn(x, p), f"{p}post_ffw_norm")
    return net.head(net.norm(x, "output_norm"))


def case(n_layers: int, wrong: tuple[str, ...] = (), **keys: Any) -> Case:
    heads, kv, d = 6, 2, 16
    block = attention_shapes(96, heads, kv, d) | ffn_shapes(96, 128)
    block |= {"attn_q_norm.weight": (heads * d,), "attn_k_norm.weight": (kv * d,)}
    block |= norm_shapes(96, "post_attention_norm", "post_ffw_norm")
    every = base_keys(n_layers=n_layers, n_embd=96, n_ff=128, heads=heads, kv_heads=kv, head_dim=d, **keys)
    shapes = model_shapes(96, [block] * n_layers)
    return Case("olmo2", every, shapes, forward, ("rope pairs", "qk norm", *wrong), n_tokens=32, seed=2)


CASES = {
    "olmo2": case(2),
    "olmo3": case(
        4,
        ("window", "rope scaling", "local rope"),
        attention__sliding_window=9,
        rope__scaling__type="yarn",
        rope__scaling__factor=8.0,
        rope__scaling__original_context_length=64,
    ),
}
