"""Selective state space models: Mamba 2 (Dao 2024) alone, and between or beside attention."""

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
from tests.models.families.common import Net, Rope, rms, silu, softplus
from tests.models.families.dense import feed_forward


def conv(net: Net, u: np.ndarray, p: str) -> np.ndarray:
    """A causal convolution of each channel, its bias, silu; the last tap is the present."""
    taps = net[f"{p}ssm_conv1d.weight"]
    width = taps.shape[1]
    padded = np.concatenate([np.zeros((width - 1, u.shape[1])), u])
    if not net.does("taps"):
        taps = taps[:, ::-1]
    y = sum(padded[j : j + len(u)] * taps[:, j] for j in range(width))
    return silu(y + net[f"{p}ssm_conv1d.bias"] if net.does("conv bias") else y)


def mamba2(net: Net, h: np.ndarray, p: str) -> np.ndarray:
    sizes = ("inner_size", "time_step_rank", "group_count", "state_size")
    inner, heads, groups, size = (net.number(f"ssm.{key}") for key in sizes)
    n, dim = len(h), inner // heads
    z, u, dt = np.split(net.product(h, f"{p}ssm_in"), [inner, 2 * inner + 2 * groups * size], axis=1)
    x, b, c = np.split(conv(net, u, p), [inner, inner + groups * size], axis=1)
    x, b, c = x.reshape(n, heads, dim), b.reshape(n, groups, size), c.reshape(n, groups, size)
    pair = np.arange(heads) // (heads // groups) if net.does("groups of heads") else np.arange(heads) % groups
    dt = softplus(dt + (net[f"{p}ssm_dt.bias"] if net.does("dt bias") else 0.0))
    a, d = net[f"{p}ssm_a"][:, 0], net[f"{p}ssm_d"][:, 0]
    state, y = np.zeros((heads, dim, size)), np.empty((n, heads, dim))
    for t in range(n):
        before = state
        state = np.exp(dt[t] * a)[:, None, None] * state
        state = state + (dt[t][:, None] * x[t])[:, :, None] * b[t, pair][:, None, :]
        y[t] = np.einsum("hpn,hn->hp", state if net.does("present state") else before, c[t, pair])
        if net.does("skip"):
            y[t] += d[:, None] * x[t]
    return net.product(gated(net, y.reshape(n, inner), z, p, groups), f"{p}ssm_out")


def gated(net: Net, y: np.ndarray, z: np.ndarray, p: str, groups: int) -> np.ndarray:
    """The gate, then the norm of groups where there is one."""
    if not net.has(f"{p}ssm_norm.weight"):
        return y * silu(z)
    weight = net[f"{p}ssm_norm.weight"].reshape(groups, -1)

    def norm(v: np.ndarray) -> np.ndarray:
        return rms(v.reshape(len(v), groups, -1), weight, net.eps).reshape(len(v), -1)

    return norm(y * silu(z)) if net.does("gate first") else norm(y) * silu(z)


def mamba2_shapes(n_embd: int, inner: int, heads: int, groups: int, size: int, *, norm: bool = True) -> Shapes:
    channels = inner + 2 * groups * size
    return {
        "ssm_in.weight": (inner + channels + heads, n_embd),
        "ssm_conv1d.weight": (channels, 4),
        "ssm_conv1d.bias": (channels,),
        "ssm_dt.bias": (heads,),
        "ssm_a": (heads, 1),
        "ssm_d": (heads, 1),
        **({"ssm_norm.weight": (groups, inner // groups)} if norm else {}),
        "ssm_out.weight": (n_embd, inner),
    }


def ssm_keys(inner: int, heads: int, groups: int, size: int) -> dict[str, Any]:
    return {
        "ssm__conv_kernel": 4,
        "ssm__inner_size": inner,
        "ssm__state_size": size,
        "ssm__time_step_rank": heads,
        "ssm__group_count": groups,
    }


WRONG = ("taps", "conv bias", "dt bias", "present state", "skip")


SIZES = (128, 8, 2, 48)
"""Channels, heads, groups, elements of the state."""


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        x = x + mamba2(net, net.norm(x, f"{p}attn_norm"), p)
    return net.head(net.norm(x, "output_norm"))


def attention(net: Net, h: np.ndarray, p: str, kv: int, rope: Rope | None) -> np.ndarray:
    heads, d = (net.number(f"attention.{k}") for k in ("head_count", "key_length"))
    n = len(h)
    q, k, v = net.qkv(h, p, (heads * d, kv * d, kv * d))
    q, k, v = q.reshape(n, heads, d), k.reshape(n, kv, d), v.reshape(n, kv, d)
    if rope is not None:
        q, k = net.turn(q, rope), net.turn(k, rope)
    scale = net.keys.get("attention.scale", 0.0) or 1 / math.sqrt(d)
    return net.product(net.attend(q, k, v, scale, net.visible(n, None)), f"{p}attn_output")


def granite(net: Net, tokens: list[int]) -> np.ndarray:
    k = net.keys
    rope = net.rope(net.number("attention.key_length"), halves=False) if k["rope.scaling.finetuned"] else None
    residual = k["residual_scale"] if net.does("residual scale") else 1.0
    x = net["token_embd.weight"][tokens] * k["embedding_scale"]
    for layer, kv in enumerate(k["attention.head_count_kv"]):
        p = f"blk.{layer}."
        h = net.norm(x, f"{p}attn_norm")
        x = x + residual * (attention(net, h, p, kv, rope) if kv else mamba2(net, h, p))
        f = net.norm(x, f"{p}ffn_norm")
        x = x + residual * (feed_forward(net, f, p))
    logits = net.head(net.norm(x, "output_norm"))
    return logits / k["logit_scale"] if net.does("logit scale") else logits


def falcon(net: Net, tokens: list[int]) -> np.ndarray:
    rope = net.rope(net.number("attention.key_length"), halves=True)
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        h = net.norm(x, f"{p}attn_norm")
        x = x + attention(net, h, p, net.number("attention.head_count_kv"), rope)
        x = x + mamba2(net, h if net.does("side by side") else net.norm(x, f"{p}attn_norm"), p)
        x = x + net.ffn(rms(x, net[f"{p}ffn_norm"], net.eps), p)
    return net.head(net.norm(x, "output_norm"))


def falcon_case(*, norm: bool) -> Case:
    sizes = (96, 6, 2, 48)  # channels are not twice the embedding
    block = norm_shapes(64, "attn_norm") | attention_shapes(64, 6, 2, 16) | mamba2_shapes(64, *sizes, norm=norm)
    block |= {"ffn_norm": (64,)} | ffn_shapes(64, 96)
    wrong = ("rope pairs", "groups of heads", "side by side", *WRONG, *(("gate first",) if norm else ()))
    keys = base_keys(rope__freq_base=1e11, **ssm_keys(*sizes))
    return Case("falcon-h1", keys, model_shapes(64, [block] * 2), falcon, wrong)


def mamba2_case(*, seed: int = 1) -> Case:
    keys = {
        key: value
        for key, value in base_keys(n_ff=0, **ssm_keys(*SIZES)).items()
        if not key.startswith(("attention.head", "attention.key", "attention.value", "rope."))
    }
    block = norm_shapes(64, "attn_norm") | mamba2_shapes(64, *SIZES)
    wrong = (*WRONG, "groups of heads", "gate first")
    return Case("mamba2", keys, model_shapes(64, [block] * 2), forward, wrong, seed=seed)


def granite_case(*, experts: bool, rope: bool, seed: int = 1) -> Case:
    kv_heads = [0, 2, 0]
    more: dict[str, Any] = {}
    ffn, wrong = ffn_shapes(64, 96), (*WRONG, "gate first", "residual scale", "logit scale")
    if experts:
        ffn = moe_shapes(64, 96, 8) | ffn_shapes(64, 64, suffix="_shexp")
        more = {"expert_count": 8, "expert_used_count": 3, "expert_shared_feed_forward_length": 64}
        wrong += ("router normalised", "shared expert")
    keys = base_keys(
        n_layers=3, kv_heads=kv_heads, embedding_scale=3.0, residual_scale=0.4, attention__scale=0.15, logit_scale=2.5,
        rope__scaling__finetuned=rope, **ssm_keys(128, 8, 1, 48), **more,
    )  # fmt: skip
    blocks = [
        norm_shapes(64, "attn_norm", "ffn_norm")
        | (attention_shapes(64, 6, kv, 16) if kv else mamba2_shapes(64, 128, 8, 1, 48))
        | ffn
        for kv in kv_heads
    ]
    return Case("granitehybrid", keys, model_shapes(64, blocks, tied=True), granite, wrong, seed=seed)


CASES = {
    "mamba2": mamba2_case(),
    "granitehybrid": granite_case(experts=True, rope=False, seed=26),
    "granitehybrid-dense": granite_case(experts=False, rope=True),
    "falcon-h1": falcon_case(norm=False),
    "falcon-h1-norm": falcon_case(norm=True),
}
