"""Llama 4: chunks of positions, queries that grow with the position, one expert that weighs what it reads."""

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
from tests.models.families.common import Net, sigmoid, swiglu
from tests.models.truth import rms

CHUNK = 8192
HEADS, KV, D, E, F = 4, 2, 16, 64, 32


def feed_forward(net: Net, f: np.ndarray, p: str) -> np.ndarray:
    if not net.has(f"{p}ffn_gate_inp.weight"):
        return net.ffn(f, p)
    logits = net.product(f, f"{p}ffn_gate_inp")
    out = np.empty_like(f)
    for row, x in enumerate(f):
        best = int(logits[row].argmax())
        net.note_choice(np.sort(logits[row])[::-1], 1)
        weight = sigmoid(logits[row, best])
        out[row] = (
            net.expert(weight * x, p, best, swiglu)
            if net.does("weight before")
            else weight * net.expert(x, p, best, swiglu)
        )
    return out + net.ffn(f, p, suffix="_shexp") if net.does("shared expert") else out


def forward(net: Net, tokens: list[int], chunk: int = CHUNK) -> np.ndarray:
    n, rope = len(tokens), net.rope(D, halves=False, factors=net["rope_freqs.weight"])
    i, j = np.arange(n)[:, None], np.arange(n)
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        h = net.norm(x, f"{p}attn_norm")
        q, k, v = (y.reshape(n, -1, D) for y in net.qkv(h, p, (HEADS * D, KV * D, KV * D)))
        seen = net.visible(n, None)
        if layer % 4 != 3:
            q, k = net.turn(q, rope), net.turn(k, rope)
            if net.number("expert_count") != 128 and net.does("qk norm"):
                q, k = rms(q, np.ones(D), net.eps), rms(k, np.ones(D), net.eps)
            seen = seen & (j >= i // chunk * chunk) if net.does("chunks") else seen
        elif not net.does("no rotation"):
            q, k = net.turn(q, rope), net.turn(k, rope)
        elif net.does("temperature"):
            q = q * (1 + 0.1 * np.log((np.arange(n) + 1) // chunk + 1))[:, None, None]
        x = x + net.product(net.attend(q, k, v, 1 / math.sqrt(D), seen), f"{p}attn_output")
        x = x + feed_forward(net, net.norm(x, f"{p}ffn_norm"), p)
    return net.head(net.norm(x, "output_norm"))


def case(n_experts: int, step: int, wrong: tuple[str, ...], *, seed: int = 1, fused: bool = False) -> Case:
    keys = base_keys(
        n_layers=4, heads=HEADS, kv_heads=KV, head_dim=D, expert_count=n_experts, expert_used_count=1,
        expert_feed_forward_length=F, interleave_moe_layer_step=step, rope__dimension_count=D,
    )  # fmt: skip
    common = norm_shapes(E, "attn_norm", "ffn_norm") | attention_shapes(E, HEADS, KV, D)
    routed = common | moe_shapes(E, F, n_experts, fused=fused) | ffn_shapes(E, F, suffix="_shexp")
    blocks = [common | ffn_shapes(E, 96) if (layer + 1) % step else routed for layer in range(4)]
    shapes = model_shapes(E, blocks) | {"rope_freqs.weight": (D // 2,)}
    right = ("rope pairs", "factors", "no rotation", "weight before", "shared expert", *wrong)
    return Case("llama4", keys, shapes, forward, right, seed=seed, sizes={"ffn_gate_inp": 0.5})


CASES = {"llama4": case(16, 1, ("qk norm",)), "llama4-128-experts": case(128, 2, (), seed=2)}
