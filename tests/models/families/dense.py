"""Dense decoders of one shape: attention and a gated feed-forward part, each after a norm, with what families change.

Llama, Qwen 2 and 3 (and the text part of Qwen3-VL), SmolLM 3, Mistral 3, Phi 3 and 4, Granite (with experts, too).
"""

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

HALVES = ("qwen2", "qwen2vl", "qwen3", "qwen3vl", "phi3")


def rotation(net: Net) -> Rope:
    """Phi's factors are the long ones where the context in use is longer than the original one."""
    name, factors = net.made.case.architecture, None
    if name == "phi3" and net.has("rope_factors_long.weight"):
        long = net.number("rope.scaling.original_context_length") < CONTEXT_IN_USE
        factors = net[f"rope_factors_{'long' if long == net.does('long factors') else 'short'}.weight"]
    dim = net.keys.get("rope.dimension_count", net.number("attention.key_length"))
    return net.rope(dim, halves=name in HALVES, factors=factors)


CONTEXT_IN_USE = 512
"""Positions that tests open these models with."""


def hidden(net: Net, tokens: list[int]) -> np.ndarray:
    """f64[n, n_embd] after the last norm."""
    k, n = net.keys, len(tokens)
    rope = rotation(net)
    residual = k.get("residual_scale", 1.0) if net.does("residual scale") else 1.0
    x = net["token_embd.weight"][tokens]
    if net.does("embedding scale"):
        x = x * k.get("embedding_scale", 1.0)
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        # SmolLM 3 has no positions in every fourth layer.
        turns = net.made.case.architecture != "smollm3" or (layer + 1) % 4 != 0 or not net.does("layers without rope")
        turns = turns and (k.get("rope.scaling.finetuned", True) or not net.does("no rope"))
        a = attention(net, net.norm(x, f"{p}attn_norm"), p, rope if turns else None, np.arange(n))
        x = x + residual * net.product(a, f"{p}attn_output")
        x = x + residual * feed_forward(net, net.norm(x, f"{p}ffn_norm"), p)
        x = net.behind(layer, x)
    return net.norm(x, "output_norm")


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    logits = net.head(hidden(net, tokens))
    return logits / net.keys.get("logit_scale", 1.0) if net.does("logit scale") else logits


def attention(net: Net, h: np.ndarray, p: str, rope: Rope | None, positions: np.ndarray) -> np.ndarray:
    heads, kv, d = (net.number(f"attention.{k}") for k in ("head_count", "head_count_kv", "key_length"))
    n = len(h)
    q, k, v = net.qkv(h, p, (heads * d, kv * d, kv * d))
    q, k, v = q.reshape(n, heads, d), k.reshape(n, kv, d), v.reshape(n, kv, d)
    if net.has(f"{p}attn_q_norm.weight") and net.does("qk norm"):
        q, k = net.norm(q, f"{p}attn_q_norm"), net.norm(k, f"{p}attn_k_norm")
    if rope is not None:
        q, k = net.turn(q, rope), net.turn(k, rope)
    temperature = net.keys.get("attention.temperature_scale", 0.0)
    if temperature and net.does("temperature"):
        original = net.number("rope.scaling.original_context_length")
        q = q * (1 + temperature * np.log(positions // original + 1))[:, None, None]
    scale = net.keys.get("attention.scale", 0.0) if net.does("attention scale") else 0.0
    window = None if net.made.case.architecture == "phi3" else net.keys.get("attention.sliding_window")
    return net.attend(q, k, v, scale or 1 / math.sqrt(d), net.visible(n, window))


def feed_forward(net: Net, f: np.ndarray, p: str) -> np.ndarray:
    if not net.has(f"{p}ffn_gate_inp.weight"):
        return net.ffn(f, p)
    y = net.moe(f, p)
    if net.has(f"{p}ffn_up_shexp.weight") and net.does("shared expert"):
        y = y + net.ffn(f, p, suffix="_shexp")
    return y


def case(
    architecture: str, *, n_layers: int = 2, wrong: tuple[str, ...] = (), tied: bool = False, norms: bool = False,
    biases: bool = False, fused: bool = False, fused_ffn: bool = False, extra: Shapes | None = None,
    ffn: Shapes | None = None, n_embd: int = 64, heads: int = 6, kv_heads: int = 2, head_dim: int = 16,
    n_tokens: int = 24, seed: int = 1, **keys: Any,
) -> Case:  # fmt: skip
    block = (
        norm_shapes(n_embd, "attn_norm", "ffn_norm")
        | attention_shapes(n_embd, heads, kv_heads, head_dim, norms=norms, biases=biases, fused=fused)
        | (ffn_shapes(n_embd, 96, fused=fused_ffn) if ffn is None else ffn)
    )
    every = base_keys(n_layers=n_layers, n_embd=n_embd, heads=heads, kv_heads=kv_heads, head_dim=head_dim, **keys)
    shapes = model_shapes(n_embd, [block] * n_layers, tied=tied) | (extra or {})
    turns = every.get("rope.scaling.finetuned", True)
    return Case(architecture, every, shapes, forward, ("rope pairs",) * turns + wrong, n_tokens, seed)


def granite(*, seed: int = 1, experts: bool = False, shared: bool = False, **keys: Any) -> Case:
    ffn = None
    wrong: tuple[str, ...] = ("residual scale", "embedding scale", "logit scale", "attention scale")
    if experts:
        ffn = moe_shapes(64, 96, 8)
        keys |= {"expert_count": 8, "expert_used_count": 3}
        wrong += ("router normalised",)
    if shared:
        ffn = (ffn or {}) | ffn_shapes(64, 64, suffix="_shexp")
        keys["expert_shared_feed_forward_length"] = 64
        wrong += ("shared expert",)
    return case(
        "granitemoe" if experts else "granite", tied=True, ffn=ffn, wrong=wrong, embedding_scale=3.0,
        residual_scale=0.4, attention__scale=0.15, logit_scale=2.5, seed=seed, **keys,
    )  # fmt: skip


YARN: dict[str, Any] = {
    "rope__scaling__type": "yarn",
    "rope__scaling__factor": 16.0,
    "rope__scaling__original_context_length": 16,
}
PHI: dict[str, Any] = {
    "n_embd": 96,
    "fused": True,
    "fused_ffn": True,
    "tied": True,
    "rope__dimension_count": 12,
    "rope__scaling__attn_factor": 1.19,
    "rope__scaling__type": "longrope",
    "extra": {"rope_factors_long.weight": (6,), "rope_factors_short.weight": (6,)},
}
SECTIONS = [4, 4, 4, 0]

CASES = {
    "llama": case("llama", wrong=("causal", "shared heads")),
    "llama-fused-qkv": case("llama", fused=True),
    "llama-windows": case("llama", wrong=("window",), attention__sliding_window=9),
    "qwen2": case("qwen2", n_embd=96, biases=True, wrong=("biases",)),
    "qwen2-fused-qkv": case("qwen2", n_embd=96, biases=True, fused=True, wrong=("biases",)),
    "qwen2vl": case(
        "qwen2vl", n_embd=144, biases=True, head_dim=24, rope__dimension_sections=SECTIONS, wrong=("biases",),
    ),
    "qwen3": case("qwen3", norms=True, head_dim=24, wrong=("qk norm",)),
    "qwen3-biases": case("qwen3", norms=True, biases=True, head_dim=24, wrong=("qk norm", "biases")),
    "qwen3-fused-qkv": case("qwen3", norms=True, fused=True, head_dim=24, wrong=("qk norm", "shared heads")),
    "qwen3-fused-qkv-biases": case("qwen3", norms=True, fused=True, biases=True, head_dim=24, wrong=("biases",)),
    "qwen3vl": case(
        "qwen3vl", norms=True, head_dim=24, rope__dimension_sections=SECTIONS, n_deepstack_layers=3, n_layers=4,
        wrong=("qk norm",),
    ),
    "smollm3": case("smollm3", n_layers=4, tied=True, wrong=("layers without rope",), rope__freq_base=500.0),
    "mistral3": case(
        "mistral3", tied=True, head_dim=24, n_tokens=40, wrong=("temperature", "rope scaling"),
        attention__temperature_scale=0.4, rope__scaling__yarn_log_multiplier=1.0, **YARN,
    ),
    "mistral3-windows": case("mistral3", wrong=("window",), attention__sliding_window=9),
    "phi3": case("phi3", n_embd=96, fused=True, fused_ffn=True, wrong=("gate first",)),
    "phi3-long": case(
        "phi3", wrong=("long factors", "factors", "gate first"), rope__scaling__original_context_length=128, **PHI
    ),
    "phi3-short": case(
        "phi3", wrong=("long factors", "factors"), rope__scaling__original_context_length=512, **PHI
    ),
    "granite": granite(),
    "granite-no-rope": case(
        "granite", tied=True, logit_scale=2.0, rope__scaling__finetuned=False, wrong=("no rope",)
    ),
    "granitemoe": granite(experts=True, seed=5),
    "granitemoe-shared": granite(experts=True, shared=True, seed=43),
}  # fmt: skip
