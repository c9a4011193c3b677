"""Kimi Linear and Ling 3: Kimi delta attention, whose decays are those of key channels, between latent attention."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tests.models.families import deepseek2
from tests.models.families.build import Case, Shapes, base_keys, ffn_shapes, model_shapes, moe_shapes, norm_shapes
from tests.models.families.common import Gated, Net, rms, sigmoid, silu, softplus, swiglu


def conv(net: Net, u: np.ndarray, name: str) -> np.ndarray:
    """A causal convolution of each channel; the last tap is the present."""
    taps = net[f"{name}.weight"].reshape(u.shape[1], -1)
    if not net.does("taps"):
        taps = taps[:, ::-1]
    width = taps.shape[1]
    padded = np.concatenate([np.zeros((width - 1, u.shape[1])), u])
    return silu(sum(padded[j : j + len(u)] * taps[:, j] for j in range(width)))


def low_rank(net: Net, h: np.ndarray, name: str) -> np.ndarray:
    y = net.product(h, f"{name}_a")
    return net.product(y, f"{name}_b") if net.has(f"{name}_b.weight") else y


def delta(net: Net, h: np.ndarray, p: str) -> np.ndarray:
    n, heads, d = len(h), net.number("attention.head_count"), net.number("kda.head_dim")
    made = net.qkv(h, p, (heads * d,) * 3)
    q, k, v = (conv(net, x, f"{p}ssm_conv1d_{part}").reshape(n, heads, d) for part, x in zip("qkv", made, strict=True))

    def unit(x: np.ndarray) -> np.ndarray:
        return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + net.eps)

    q, k = unit(q) / math.sqrt(d), unit(k)
    x = (low_rank(net, h, f"{p}ssm_f") + (net[f"{p}ssm_dt.bias"] if net.does("dt bias") else 0)).reshape(n, heads, d)
    a = net[f"{p}ssm_a"].reshape(heads, 1)
    soft = net.has(f"{p}ssm_f_b.weight")
    g = a * softplus(x) if soft else net.keys["kda.gate_lower_bound"] * sigmoid(a * x)
    if not net.does("decays of channels"):
        g = np.repeat(g.mean(axis=-1, keepdims=True), d, axis=-1)
    beta = sigmoid(net.product(h, f"{p}ssm_beta")) if net.does("beta") else np.ones((n, heads))
    state, out = np.zeros((heads, d, d)), np.empty((n, heads, d))  # [head, key, value]
    for t in range(n):
        state = state * np.exp(g[t])[:, :, None]
        known = np.einsum("hkv,hk->hv", state, k[t])
        state = state + np.einsum("hk,hv->hkv", k[t], beta[t][:, None] * (v[t] - known))
        out[t] = np.einsum("hkv,hk->hv", state, q[t])
    z = low_rank(net, h, f"{p}ssm_g").reshape(n, heads, d)
    gate = sigmoid(z) if net.does("sigmoid gate") else silu(z)
    return net.product((rms(out, net[f"{p}ssm_norm.weight"], net.eps) * gate).reshape(n, -1), f"{p}attn_output")


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count") - net.keys.get("nextn_predict_layers", 0)):
        x = block(net, x, f"blk.{layer}.")
    return net.head(net.norm(x, "output_norm"))


def block(net: Net, x: np.ndarray, p: str) -> np.ndarray:
    layer, ling = int(p.split(".")[1]), net.made.case.architecture == "bailingmoe3"
    rope = net.rope(net.number("rope.dimension_count"), halves=False) if ling == net.does("rotation") else None
    h = net.norm(x, f"{p}attn_norm")
    kv = net.keys["attention.head_count_kv"][layer]
    x = x + (deepseek2.attention(net, h, p, rope) if kv else delta(net, h, p))
    f = net.norm(x, f"{p}ffn_norm")
    if layer < net.number("leading_dense_block_count"):
        return x + net.ffn(f, p, limited(net, "shexp", layer))
    return x + experts(net, f, p)


def experts(net: Net, f: np.ndarray, p: str) -> np.ndarray:
    normalise = net.keys.get("expert_weights_norm", True)
    scale, layer = net.keys["expert_weights_scale"], int(p.split(".")[1])
    y = net.moe(f, p, gating="sigmoid", normalise=normalise, scale=scale, act=limited(net, "exp", layer))
    return y + net.ffn(f, p, limited(net, "shexp", layer), suffix="_shexp") if net.does("shared expert") else y


def limited(net: Net, part: str, layer: int) -> Gated:
    """SwiGLU, whose factors are held under a limit where the layer has one."""
    limit = net.keys.get(f"swiglu_clamp_{part}", [0.0] * (layer + 1))[layer]
    if not limit or not net.does("limits"):
        return swiglu
    return lambda gate, up: np.minimum(silu(gate), limit) * np.clip(up, -limit, limit)


def case(
    name: str, *, fused: bool = False, together: bool = False, wrong: Sequence[str] = (), seed: int = 1, **more: Any
) -> Case:  # fmt: skip
    ling = name == "bailingmoe3"
    n_embd, heads, d, rank, turned, plain, value, taps = 64, 3, 32, 64, 16, 32, 32, 4
    width, kv_heads = heads * d, [0, 1, 0]
    if ling:
        more = {"kda__gate_lower_bound": -5.0, "kda__safe_gate": True, "expert_weights_norm": True} | more
        more["attention__q_lora_rank"] = 32
    keys = base_keys(
        n_layers=3, n_embd=n_embd, heads=heads, kv_heads=kv_heads, head_dim=rank + turned, n_ff=96, eps=1e-5,
        attention__value_length=rank, attention__kv_lora_rank=rank, attention__key_length_mla=plain + turned,
        attention__value_length_mla=value, rope__dimension_count=turned, kda__head_dim=d, ssm__conv_kernel=taps,
        leading_dense_block_count=1, expert_count=8, expert_used_count=3, expert_feed_forward_length=32,
        expert_shared_count=1, expert_weights_scale=2.446, expert_gating_func=2, **more,
    )  # fmt: skip
    qkv: Shapes = {f"attn_{part}.weight": (width, n_embd) for part in "qkv"}
    mixer: Shapes = {"attn_qkv.weight": (3 * width, n_embd)} if fused else qkv
    mixer |= {f"ssm_conv1d_{part}.weight": (1, width, 1, taps) if fused else (width, 1, taps) for part in "qkv"}
    for part in "fg":
        if ling:
            mixer[f"ssm_{part}_a.weight"] = (width, n_embd)
        else:
            mixer |= {f"ssm_{part}_a.weight": (d, n_embd), f"ssm_{part}_b.weight": (width, d)}
    mixer |= {
        "ssm_dt.bias": (width,),
        "ssm_a": (1, 1, heads, 1) if fused else (heads, 1),
        "ssm_beta.weight": (heads, n_embd),
        "ssm_norm.weight": (d,),
        "attn_output.weight": (n_embd, width),
    }
    latent = deepseek2.attention_block(n_embd, heads, rank, plain, turned, value, q_rank=32 if ling else None)
    if ling:
        latent["attn_gate.weight"] = (heads, n_embd)
    if together:
        for part in ("attn_k_b.weight", "attn_v_b.weight"):
            del latent[part]
        latent["attn_kv_b.weight"] = (heads * (plain + value), rank)
    norms = norm_shapes(n_embd, "attn_norm", "ffn_norm")
    routed = moe_shapes(n_embd, 32, 8) | {"exp_probs_b.bias": (8,)} | ffn_shapes(n_embd, 32, suffix="_shexp")
    blocks = [
        norms | (latent if kv else mixer) | (routed if layer else ffn_shapes(n_embd, 96))
        for layer, kv in enumerate(kv_heads)
    ]
    wrong = [*wrong, "taps", "dt bias", "decays of channels", "beta", "sigmoid gate", "rotation", "selection bias",
             "router normalised", "router scaled", "shared expert"]  # fmt: skip
    if ling:
        wrong += ["rope pairs", "gate of heads"]
    given = {}
    if ling:  # A_log's exponential as it is, not turned as in others
        rng = np.random.default_rng(seed)
        given = {
            f"blk.{i}.ssm_a": np.exp(rng.standard_normal(heads) / 2).reshape(mixer["ssm_a"]).tolist() for i in (0, 2)
        }
    return Case(name, keys, model_shapes(n_embd, blocks), forward, wrong, seed=seed, given=given)


CASES = {
    "kimi-linear": case("kimi-linear"),
    "kimi-linear-fused-qkv": case("kimi-linear", fused=True),
    "kimi-linear-kv-together": case("kimi-linear", together=True),
    "bailingmoe3": case("bailingmoe3", seed=8),
    "bailingmoe3-limits": case(
        "bailingmoe3", wrong=("limits",), seed=3, swiglu_clamp_exp=[0.0, 0.5, 0.7], swiglu_clamp_shexp=[0.6, 0.0, 0.5]
    ),
}
