"""Phi-3.5-MoE as its published code computes it: layer norms with biases, and a sparse mixer of two experts."""

from __future__ import annotations

import math

import numpy as np

from tests.models.families.build import N_VOCAB, Case, Shapes, attention_shapes, base_keys, model_shapes, moe_shapes
from tests.models.families.common import Net, swiglu

N_EMBD, HEADS, KV_HEADS, HEAD_DIM, N_FF, EXPERTS = 64, 4, 2, 16, 48, 8
JITTER = 0.01


def layer_norm(net: Net, x: np.ndarray, name: str) -> np.ndarray:
    d = x - x.mean(-1, keepdims=True) if net.does("mean") else x
    y: np.ndarray = d / np.sqrt((d * d).mean(-1, keepdims=True) + net.eps) * net[f"{name}.weight"]
    return y + net[f"{name}.bias"] if net.does("bias of norms") else y


def shares(net: Net, scores: np.ndarray) -> list[tuple[int, float]]:
    """The two experts of a row with their weights: the best, and the best of the rest, each among those near it."""
    found, left = [], scores.copy()
    for _ in range(2):
        best = int(left.argmax())
        far = (left[best] - scores) / np.maximum(np.abs(scores), left[best]) > 2 * JITTER
        near = np.where(far if net.does("mixer") else np.zeros_like(far), -np.inf, left)
        weights = np.exp(near - near.max())
        found.append((best, float(weights[best] / weights.sum())))
        left[best] = -np.inf
    return found


def experts(net: Net, f: np.ndarray, p: str) -> np.ndarray:
    logits, out = net.product(f, f"{p}ffn_gate_inp"), np.zeros_like(f)
    gate, up, down = (net[f"{p}ffn_{x}_exps.weight"] for x in ("gate", "up", "down"))
    for row, scores in enumerate(logits):
        net.note_choice(-np.sort(-scores), 2)
        for e, weight in shares(net, scores):
            h = net.seen(f[row], f"{p}ffn_gate_exps.weight")
            act = net.seen(swiglu(gate[e] @ h, up[e] @ h), f"{p}ffn_down_exps.weight")
            out[row] += weight * (down[e] @ act)
    return out


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    x, rope, n = net["token_embd.weight"][tokens], net.rope(HEAD_DIM, halves=True), len(tokens)
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        h = layer_norm(net, x, f"{p}attn_norm")
        q, k, v = net.qkv(h, p, (HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM))
        q, k, v = q.reshape(n, HEADS, -1), k.reshape(n, KV_HEADS, -1), v.reshape(n, KV_HEADS, -1)
        a = net.attend(net.turn(q, rope), net.turn(k, rope), v, 1 / math.sqrt(HEAD_DIM), net.visible(n, None))
        x = x + net.product(a, f"{p}attn_output")
        x = x + experts(net, layer_norm(net, x, f"{p}ffn_norm"), p)
    return net.product(layer_norm(net, x, "output_norm"), "output")


def case() -> Case:
    block: Shapes = attention_shapes(N_EMBD, HEADS, KV_HEADS, HEAD_DIM, biases=True) | {"attn_output.bias": (N_EMBD,)}
    block |= moe_shapes(N_EMBD, N_FF, EXPERTS)
    for norm in ("attn_norm", "ffn_norm"):
        block |= {f"{norm}.weight": (N_EMBD,), f"{norm}.bias": (N_EMBD,)}
    shapes = model_shapes(N_EMBD, [block] * 2) | {"output_norm.bias": (N_EMBD,), "output.bias": (N_VOCAB,)}
    keys = base_keys(
        n_embd=N_EMBD, heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, n_ff=N_FF, expert_count=EXPERTS,
        expert_used_count=2,
    )  # fmt: skip
    rng, given = np.random.default_rng(9), {}
    for layer in range(2):  # pairs of experts whose logits are near each other
        rows = rng.standard_normal((EXPERTS // 2, N_EMBD)) / math.sqrt(N_EMBD)
        given[f"blk.{layer}.ffn_gate_inp.weight"] = np.concatenate([rows, rows * 0.99]).tolist()
    wrong = ("mean", "bias of norms", "mixer", "biases", "rope pairs")
    return Case("phimoe", keys, shapes, forward, wrong, seed=3, given=given)


CASES = {"phimoe": case()}
