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


def mamba1(net: Net, h: np.ndarray, p: str) -> np.ndarray:
    inner, rank, size = (net.number(f"ssm.{key}") for key in ("inner_size", "time_step_rank", "state_size"))
    x, z = np.split(net.product(h, f"{p}ssm_in"), 2, axis=1)
    if not net.does("inputs first"):
        x, z = z, x
    x = conv(net, x, p)
    dt, b, c = np.split(net.product(x, f"{p}ssm_x"), [rank, rank + size], axis=1)
    if net.keys.get("ssm.dt_b_c_rms", False) and net.does("norms"):
        dt, b, c = (rms(v, np.ones(v.shape[1]), net.eps) for v in (dt, b, c))
    if net.has(f"{p}ssm_dt_norm.weight") and net.does("norms"):
        dt, b, c = (net.norm(v, f"{p}ssm_{of}_norm") for v, of in ((dt, "dt"), (b, "b"), (c, "c")))
    dt = net.seen(dt, f"{p}ssm_dt.weight") @ net[f"{p}ssm_dt.weight"].T
    dt = softplus(dt + net[f"{p}ssm_dt.bias"] if net.does("dt bias") else dt)
    a, d = net[f"{p}ssm_a"], net[f"{p}ssm_d"]
    state, y = np.zeros((inner, size)), np.empty_like(x)
    for t in range(len(h)):
        before = state
        state = np.exp(dt[t][:, None] * a) * state + (dt[t] * x[t])[:, None] * b[t]
        y[t] = (state if net.does("present state") else before) @ c[t]
        if net.does("skip"):
            y[t] += d * x[t]
    return net.product(y * silu(z), f"{p}ssm_out")


def mamba1_shapes(n_embd: int, rank: int, size: int, *, norms: bool = False) -> Shapes:
    inner = 2 * n_embd
    made: Shapes = {
        "ssm_in.weight": (2 * inner, n_embd),
        "ssm_conv1d.weight": (inner, 4),
        "ssm_conv1d.bias": (inner,),
        "ssm_x.weight": (rank + 2 * size, inner),
        "ssm_dt.weight": (inner, rank),
        "ssm_dt.bias": (inner,),
        "ssm_a": (inner, size),
        "ssm_d": (inner,),
        "ssm_out.weight": (n_embd, inner),
    }
    return made | (norm_shapes(rank, "ssm_dt_norm") | norm_shapes(size, "ssm_b_norm", "ssm_c_norm") if norms else {})


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
    mixer = mamba2 if net.made.case.architecture == "mamba2" else mamba1
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        x = x + mixer(net, net.norm(x, f"{p}attn_norm"), p)
    return net.head(net.norm(x, "output_norm"))


def jamba(net: Net, tokens: list[int]) -> np.ndarray:
    x = net["token_embd.weight"][tokens]
    for layer, kv in enumerate(net.keys["attention.head_count_kv"]):
        p = f"blk.{layer}."
        h = net.norm(x, f"{p}attn_norm")
        x = x + (attention(net, h, p, kv, None) if kv else mamba1(net, h, p))
        f = net.norm(x, f"{p}ffn_norm")
        routed = net.has(f"{p}ffn_gate_inp.weight")
        x = x + (net.moe(f, p, normalise=False) if routed else net.ffn(f, p))
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


def squared(net: Net, x: np.ndarray, p: str, suffix: str = "") -> np.ndarray:
    up = np.maximum(net.product(x, f"{p}ffn_up{suffix}"), 0)
    return net.product(up**2 if net.does("square") else up, f"{p}ffn_down{suffix}")


def squared_experts(net: Net, h: np.ndarray, p: str) -> np.ndarray:
    latent = net.has(f"{p}ffn_latent_down.weight")
    seen = net.product(h, f"{p}ffn_latent_down") if latent else h
    y = net.moe(
        seen, p, gating="sigmoid", scale=net.keys["expert_weights_scale"],
        act=lambda gate, up: np.maximum(up, 0) ** 2, logits=net.product(h, f"{p}ffn_gate_inp"),
    )  # fmt: skip
    y = net.product(y, f"{p}ffn_latent_up") if latent else y
    return y + squared(net, h, p, "_shexp") if net.does("shared expert") else y


def nemotron(net: Net, tokens: list[int]) -> np.ndarray:
    x = net["token_embd.weight"][tokens]
    kinds = list(zip(net.keys["attention.head_count_kv"], net.keys["feed_forward_length"], strict=True))
    for layer, (kv, n_ff) in enumerate(kinds[: len(kinds) - net.keys.get("nextn_predict_layers", 0)]):
        p = f"blk.{layer}."
        h = net.norm(x, f"{p}attn_norm")
        if n_ff:
            routed = net.has(f"{p}ffn_gate_inp.weight")
            x = x + (squared_experts(net, h, p) if routed else squared(net, h, p))
        else:
            x = x + (attention(net, h, p, kv, None) if kv else mamba2(net, h, p))
    return net.head(net.norm(x, "output_norm"))


def nemotron_draft_block(net: Net, x: np.ndarray, p: str) -> np.ndarray:
    """One with attention and experts both."""
    kv = net.keys["attention.head_count_kv"][int(p.split(".")[1])]
    x = x + attention(net, net.norm(x, f"{p}attn_norm"), p, kv, None)
    return x + squared_experts(net, net.norm(x, f"{p}post_attention_norm"), p)


def nemotron_case(*, experts: bool = False, latent: int = 0, biases: bool = False, seed: int = 1) -> Case:
    kv_heads, widths = [0, 0, 2, 0, 0], [0, 96, 0, 0, 64]
    wrong = (*WRONG, "groups of heads", "gate first", "square")
    more: dict[str, Any] = {}
    if experts:
        more = {
            "expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 32, "expert_weights_norm": True,
            "expert_shared_feed_forward_length": 48, "expert_weights_scale": 2.5, "expert_gating_func": 2,
        }  # fmt: skip
        wrong += ("shared expert", "router normalised", "router scaled", "selection bias")
        if latent:
            more["moe_latent_size"] = latent

    def ffn(n_ff: int) -> Shapes:
        if not experts:
            return {"ffn_up.weight": (n_ff, 64), "ffn_down.weight": (64, n_ff)}
        d = latent or 64
        made: Shapes = {
            "ffn_gate_inp.weight": (8, 64), "exp_probs_b.bias": (8,), "ffn_up_exps.weight": (8, 32, d),
            "ffn_down_exps.weight": (8, d, 32), "ffn_up_shexp.weight": (48, 64), "ffn_down_shexp.weight": (64, 48),
        }  # fmt: skip
        return made | ({"ffn_latent_down.weight": (d, 64), "ffn_latent_up.weight": (64, d)} if latent else {})

    def block(kv: int, n_ff: int) -> Shapes:
        mixer = attention_shapes(64, 6, kv, 16) if kv else mamba2_shapes(64, *SIZES)
        mixer = ffn(n_ff) if n_ff else mixer
        if biases and (n_ff or kv):
            names = [name for name in mixer if name.endswith(".weight")]
            mixer = mixer | {name.replace("weight", "bias"): mixer[name][:1] for name in names}
        return norm_shapes(64, "attn_norm") | mixer

    keys = base_keys(
        n_layers=5, kv_heads=kv_heads, n_ff=widths, eps=1e-5, attention__layer_norm_epsilon=1e-5, rope__freq_base=None,
        **ssm_keys(*SIZES), **more,
    )  # fmt: skip
    blocks = [block(kv, n_ff) for kv, n_ff in zip(kv_heads, widths, strict=True)]
    shapes = model_shapes(64, blocks)
    wrong += ("biases",) if biases else ()
    return Case("nemotron_h_moe" if experts else "nemotron_h", keys, shapes, nemotron, wrong, seed=seed)


def without_attention(**more: Any) -> dict[str, Any]:
    """The keys of models without it."""
    left_out = ("attention.head", "attention.key", "attention.value", "rope.")
    return {key: value for key, value in base_keys(n_ff=0, **more).items() if not key.startswith(left_out)}


def mamba2_case(*, seed: int = 1) -> Case:
    block = norm_shapes(64, "attn_norm") | mamba2_shapes(64, *SIZES)
    wrong = (*WRONG, "groups of heads", "gate first")
    keys = without_attention(**ssm_keys(*SIZES))
    return Case("mamba2", keys, model_shapes(64, [block] * 2), forward, wrong, seed=seed)


def mamba1_case(*, norm: bool = False) -> Case:
    block = norm_shapes(64, "attn_norm") | mamba1_shapes(64, 8, 16)
    keys = without_attention(**ssm_keys(128, 8, 1, 16), **({"ssm__dt_b_c_rms": True} if norm else {}))
    del keys["ssm.group_count"]
    wrong = (*WRONG, "inputs first", *(("norms",) if norm else ()))
    return Case("mamba", keys, model_shapes(64, [block] * 2), forward, wrong)


def jamba_case(*, seed: int = 1) -> Case:
    kv_heads = [0, 2, 0, 0]
    keys = base_keys(
        n_layers=4,
        heads=4,
        kv_heads=kv_heads,
        rope__freq_base=None,
        expert_count=8,
        expert_used_count=2,
        **ssm_keys(128, 8, 1, 16),
    )
    del keys["ssm.group_count"]
    blocks = [
        norm_shapes(64, "attn_norm", "ffn_norm")
        | (attention_shapes(64, 4, kv, 16) if kv else mamba1_shapes(64, 8, 16, norms=True))
        | (moe_shapes(64, 96, 8) if layer % 2 else ffn_shapes(64, 96))
        for layer, kv in enumerate(kv_heads)
    ]
    wrong = (*WRONG, "inputs first", "norms", "router normalised")
    return Case("jamba", keys, model_shapes(64, blocks), jamba, wrong, seed=seed)


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
    "mamba": mamba1_case(),
    "mamba-norms": mamba1_case(norm=True),
    "jamba": jamba_case(),
    "granitehybrid": granite_case(experts=True, rope=False, seed=26),
    "granitehybrid-dense": granite_case(experts=False, rope=True),
    "falcon-h1": falcon_case(norm=False),
    "falcon-h1-norm": falcon_case(norm=True),
    "nemotron_h": nemotron_case(),
    "nemotron_h-biases": nemotron_case(biases=True),
    "nemotron_h_moe": nemotron_case(experts=True),
    "nemotron_h_moe-latent": nemotron_case(experts=True, latent=32, seed=4),
}
KINDS = ("mamba2",)
"""Those of a kind of layers that no other has; the others put it beside what other families have."""
