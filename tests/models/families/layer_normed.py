"""Dense decoders with layer norms: branches one after another or side by side, feed-forwards with and without gates."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.models.families.build import Case, Shapes, attention_shapes, base_keys, model_shapes
from tests.models.families.common import Net, Rope

N_EMBD, HEADS, KV_HEADS, HEAD_DIM, N_FF = 96, 6, 2, 16, 128


def layer_norm(net: Net, x: np.ndarray, name: str) -> np.ndarray:
    """Over the last axis. The weights may be those of one head for each."""
    eps = float(np.float32(net.keys["attention.layer_norm_epsilon"]))
    d = x - x.mean(-1, keepdims=True) if net.does("mean") else x
    y: np.ndarray = d / np.sqrt((d * d).mean(-1, keepdims=True) + eps) * net[f"{name}.weight"]
    return y + net[f"{name}.bias"] if net.has(f"{name}.bias") and net.does("bias of norms") else y


def attention(net: Net, h: np.ndarray, p: str, rope: Rope | None, window: int | None) -> np.ndarray:
    n, d = len(h), net.number("attention.key_length")
    heads, kv = net.number("attention.head_count"), net.number("attention.head_count_kv")
    q, k, v = net.qkv(h, p, (heads * d, kv * d, kv * d))
    q, k, v = q.reshape(n, heads, d), k.reshape(n, kv, d), v.reshape(n, kv, d)
    if net.has(f"{p}attn_q_norm.weight") and net.does("qk norm"):
        q, k = layer_norm(net, q, f"{p}attn_q_norm"), layer_norm(net, k, f"{p}attn_k_norm")
    if rope is not None:
        q, k = net.turn(q, rope), net.turn(k, rope)
    return net.product(net.attend(q, k, v, 1 / math.sqrt(d), net.visible(n, window)), f"{p}attn_output")


def feed_forward(net: Net, f: np.ndarray, p: str) -> np.ndarray:
    if net.has(f"{p}ffn_gate.weight"):
        return net.ffn(f, p)
    up = net.product(f, f"{p}ffn_up")
    if net.made.case.architecture == "nemotron":
        act = np.maximum(up, 0) ** (2 if net.does("square") else 1)
    else:
        act = net.gelu(up)
    return net.product(act, f"{p}ffn_down")


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    name, width = net.made.case.architecture, net.keys.get("attention.sliding_window")
    dim = net.keys.get("rope.dimension_count", net.number("attention.key_length"))
    rope = net.rope(dim, halves=name != "cohere2")
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        local = width is not None and layer % 4 != 3
        turns = width is None or local or not net.does("layers without rope")
        window = width if local else None
        h = layer_norm(net, x, f"{p}attn_norm")
        if not net.has(f"{p}ffn_norm.weight") or net.keys.get("use_parallel_residual", False):
            first = layer_norm(net, x, f"{p}attn_norm_2") if net.has(f"{p}attn_norm_2.weight") else h
            second = layer_norm(net, x, f"{p}ffn_norm") if net.has(f"{p}ffn_norm.weight") else h
            if not net.does("which norm"):
                first, second = second, first
            y = x + attention(net, first, p, rope if turns else None, window)
            x = y + feed_forward(net, second if net.does("side by side") else layer_norm(net, y, f"{p}attn_norm"), p)
        else:
            x = x + attention(net, h, p, rope, width)
            x = x + feed_forward(net, layer_norm(net, x, f"{p}ffn_norm"), p)
    logits = net.head(layer_norm(net, x, "output_norm"))
    return logits * net.keys.get("logit_scale", 1.0) if net.does("logit scale") else logits


def case(
    name: str, *wrong: str, norms: tuple[str, ...] = ("attn_norm", "ffn_norm"), norm_bias: bool = True,
    biases: bool = False, fused: bool = False, gated: bool = False, tied: bool = False, head_norms: bool = False,
    kv_heads: int = KV_HEADS, n_layers: int = 2, seed: int = 1, **keys: Any,
) -> Case:  # fmt: skip
    every = ("mean", "rope pairs", *["bias of norms"] * norm_bias, *wrong)
    block: Shapes = attention_shapes(N_EMBD, HEADS, kv_heads, HEAD_DIM, biases=biases, fused=fused)
    block |= {"ffn_up.weight": (N_FF, N_EMBD), "ffn_down.weight": (N_EMBD, N_FF)}
    if gated:
        block["ffn_gate.weight"] = (N_FF, N_EMBD)
    if biases:
        block |= {"attn_output.bias": (N_EMBD,), "ffn_up.bias": (N_FF,), "ffn_down.bias": (N_EMBD,)}
        every += ("biases",)
    for norm in norms:
        block |= {f"{norm}.weight": (N_EMBD,)} | ({f"{norm}.bias": (N_EMBD,)} if norm_bias else {})
    if head_norms:
        block |= {"attn_q_norm.weight": (HEADS, HEAD_DIM), "attn_k_norm.weight": (kv_heads, HEAD_DIM)}
    shapes = model_shapes(N_EMBD, [block] * n_layers, tied=tied)
    if norm_bias:
        shapes["output_norm.bias"] = (N_EMBD,)
    metadata = base_keys(
        n_layers=n_layers, n_embd=N_EMBD, heads=HEADS, kv_heads=kv_heads, head_dim=HEAD_DIM, n_ff=N_FF,
        attention__layer_norm_rms_epsilon=None, attention__layer_norm_epsilon=1e-5, **keys,
    )  # fmt: skip
    gelu = not gated and name != "nemotron"
    return Case(name, metadata, shapes, forward, every, n_tokens=14, seed=seed, gelu=gelu)


PARTLY: dict[str, Any] = {"rope__dimension_count": 8}
CASES = {
    "cohere2": case(
        "cohere2", "window", "layers without rope", "logit scale", "side by side", norms=("attn_norm",),
        norm_bias=False, gated=True, tied=True, n_layers=4, attention__sliding_window=9, logit_scale=0.25,
    ),
    "starcoder2": case("starcoder2", biases=True),
    "starcoder2-windows": case("starcoder2", "window", biases=True, attention__sliding_window=6),
    "stablelm": case("stablelm", gated=True, **PARTLY),
    "stablelm-parallel": case(
        "stablelm", "qk norm", "side by side", gated=True, norms=("attn_norm",), head_norms=True, **PARTLY
    ),
    "nemotron": case("nemotron", "square", **PARTLY),
    "gptneox": case(
        "gptneox", "which norm", biases=True, fused=True, kv_heads=HEADS, use_parallel_residual=True, **PARTLY
    ),
    "gptneox-serial": case(
        "gptneox", biases=True, fused=True, kv_heads=HEADS, use_parallel_residual=False, **PARTLY
    ),
    "falcon": case("falcon", "side by side", norms=("attn_norm",), fused=True, kv_heads=1, tied=True),
    "falcon-40b": case("falcon", "which norm", norms=("attn_norm", "attn_norm_2"), fused=True),
}  # fmt: skip
