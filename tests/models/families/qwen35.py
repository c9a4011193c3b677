"""Qwen3.5 and Qwen3-Next: gated delta net layers (Yang 2024) between layers of gated attention."""

from __future__ import annotations

import math

import numpy as np

from tests.models.families.build import (
    Case,
    Shapes,
    base_keys,
    drafting_shapes,
    ffn_shapes,
    model_shapes,
    moe_shapes,
    norm_shapes,
)
from tests.models.families.common import Net, Rope, rms, sigmoid, silu, softplus


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    rope = net.rope(net.number("rope.dimension_count"), halves=True)
    interval = net.number("full_attention_interval")
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count") - net.keys.get("nextn_predict_layers", 0)):
        x = block(net, x, f"blk.{layer}.", rope, full=(layer + 1) % interval == 0)
    return net.head(net.norm(x, "output_norm"))


def block(net: Net, x: np.ndarray, p: str, rope: Rope, *, full: bool) -> np.ndarray:
    h = net.norm(x, f"{p}attn_norm")
    x = x + (attention(net, h, p, rope) if full else delta_net(net, h, p))
    f = net.norm(x, f"{p}post_attention_norm")
    return x + (experts(net, f, p) if net.has(f"{p}ffn_gate_inp.weight") else net.ffn(f, p))


def draft_block(net: Net, x: np.ndarray, p: str) -> np.ndarray:
    return block(net, x, p, net.rope(net.number("rope.dimension_count"), halves=True), full=True)


def attention(net: Net, h: np.ndarray, p: str, rope: Rope, seen: np.ndarray | None = None) -> np.ndarray:
    """seen: the positions that each row sees, where they are not all."""
    heads, kv, d = (net.number(f"attention.{k}") for k in ("head_count", "head_count_kv", "key_length"))
    n = len(h)
    q, k, v = net.qkv(h, p, (2 * heads * d, kv * d, kv * d))
    q, k, v = q.reshape(n, heads, 2 * d), k.reshape(n, kv, d), v.reshape(n, kv, d)
    q, gate = (q[..., :d], q[..., d:]) if net.does("query first") else (q[..., d:], q[..., :d])
    q, k = net.norm(q, f"{p}attn_q_norm"), net.norm(k, f"{p}attn_k_norm")
    seen = net.visible(n, None) if seen is None else seen
    a = net.attend(net.turn(q, rope), net.turn(k, rope), v, 1 / math.sqrt(d), seen)
    if net.does("attention gate"):
        a = a * sigmoid(gate.reshape(n, -1))
    return net.product(a, f"{p}attn_output")


def conv(net: Net, u: np.ndarray, p: str) -> np.ndarray:
    """A causal convolution of each channel; the last tap is the present."""
    taps = net[f"{p}ssm_conv1d.weight"]
    width = taps.shape[1]
    padded = np.concatenate([np.zeros((width - 1, u.shape[1])), u])
    if not net.does("taps"):
        taps = taps[:, ::-1]
    return silu(sum(padded[j : j + len(u)] * taps[:, j] for j in range(width)))


def decay_and_strength(net: Net, h: np.ndarray, p: str) -> tuple[np.ndarray, np.ndarray]:
    """What says how much of the state stays, and how much is written: f64[n, value heads] each, before activation."""
    if not net.has(f"{p}ssm_ba.weight"):
        return net.product(h, f"{p}ssm_alpha"), net.product(h, f"{p}ssm_beta")
    k_heads, v_heads = net.number("ssm.group_count"), net.number("ssm.time_step_rank")
    both = net.product(h, f"{p}ssm_ba").reshape(len(h), k_heads, 2, v_heads // k_heads)
    strength, decay = (both[:, :, i].reshape(len(h), v_heads) for i in range(2))
    return decay, strength


def delta_net(net: Net, h: np.ndarray, p: str) -> np.ndarray:
    n, d = len(h), net.number("ssm.state_size")
    k_heads, v_heads = net.number("ssm.group_count"), net.number("ssm.time_step_rank")
    u = conv(net, net.product(h, f"{p}attn_qkv"), p)
    q, k, v = np.split(u, [k_heads * d, 2 * k_heads * d], axis=1)
    z = net.product(h, f"{p}attn_gate").reshape(n, v_heads, d)
    decay, strength = decay_and_strength(net, h, p)

    def unit(x: np.ndarray) -> np.ndarray:
        x = x.reshape(n, k_heads, d)
        return x / np.sqrt((x * x).sum(axis=-1, keepdims=True) + net.eps)

    neighbours = (net.made.case.architecture == "qwen3next") == net.does("head pairs")
    pair = np.arange(v_heads) // (v_heads // k_heads) if neighbours else np.arange(v_heads) % k_heads
    q, k, v = (unit(q) / math.sqrt(d))[:, pair], unit(k)[:, pair], v.reshape(n, v_heads, d)
    beta = sigmoid(strength) if net.does("beta") else np.ones_like(strength)
    dt = net[f"{p}ssm_dt.bias"] if net.does("dt bias") else 0.0
    keep = np.exp(net[f"{p}ssm_a"] * softplus(decay + dt))
    state = np.zeros((v_heads, d, d))  # [head, key, value]
    out = np.empty((n, v_heads, d))
    for t in range(n):
        state = state * keep[t][:, None, None]
        known = np.einsum("hkv,hk->hv", state, k[t])
        state = state + np.einsum("hk,hv->hkv", k[t], beta[t][:, None] * (v[t] - known))
        out[t] = np.einsum("hkv,hk->hv", state, q[t])
    sigmoid_gate = net.made.case.architecture == "qwen4exp" and net.does("output gate")
    gated = rms(out, net[f"{p}ssm_norm.weight"], net.eps) * (sigmoid(z) if sigmoid_gate else silu(z))
    return net.product(gated.reshape(n, -1), f"{p}ssm_out")


def experts(net: Net, f: np.ndarray, p: str) -> np.ndarray:
    y = net.moe(f, p)
    gate = sigmoid(f @ net[f"{p}ffn_gate_inp_shexp.weight"])[:, None] if net.does("shared gate") else 1.0
    return y + net.ffn(f, p, suffix="_shexp") * gate


def attention_block(n_embd: int, heads: int, kv: int, d: int, *, fused: bool) -> Shapes:
    q = {"attn_q.weight": (2 * heads * d, n_embd)}
    kv_rows = {f"attn_{part}.weight": (kv * d, n_embd) for part in "kv"}
    made = {"attn_qkv.weight": (2 * heads * d + 2 * kv * d, n_embd)} if fused else q | kv_rows
    norms = {"attn_q_norm.weight": (d,), "attn_k_norm.weight": (d,)}
    return made | norms | {"attn_output.weight": (n_embd, heads * d)}


def delta_block(n_embd: int, k_heads: int, v_heads: int, d: int, taps: int, *, next_: bool) -> Shapes:
    channels, values = (2 * k_heads + v_heads) * d, v_heads * d
    if next_:
        inputs: Shapes = {"ssm_ba.weight": (2 * v_heads, n_embd)}
    else:
        inputs = {"ssm_alpha.weight": (v_heads, n_embd), "ssm_beta.weight": (v_heads, n_embd)}
    return inputs | {
        "attn_qkv.weight": (channels, n_embd),
        "attn_gate.weight": (values, n_embd),
        "ssm_conv1d.weight": (channels, taps),
        "ssm_dt.bias": (v_heads,),
        "ssm_a": (v_heads,),
        "ssm_norm.weight": (d,),
        "ssm_out.weight": (n_embd, values),
    }


def case(
    name: str, *, fused_experts: bool = False, fused_qkv: bool = False, ratio: int = 3, mtp: bool = False, seed: int = 1
) -> Case:
    """ratio: value heads to a key head. mtp: a block follows that drafts tokens, and takes no part in the logits."""
    n_embd, d, k_heads = 64, 32, 2
    v_heads, interval = ratio * k_heads, 3
    keys = base_keys(
        n_layers=3, n_embd=n_embd, heads=6, kv_heads=2, head_dim=24, n_ff=96, rope__freq_base=1e4,
        rope__dimension_count=16, full_attention_interval=interval, ssm__conv_kernel=4, ssm__state_size=d,
        ssm__group_count=k_heads, ssm__time_step_rank=v_heads, ssm__inner_size=v_heads * d,
    )  # fmt: skip
    if name != "qwen3next":
        # Streams of positions take turns over the pairs, and are all equal in texts. With other shares llama.cpp leaves
        # some pairs to a fourth stream that stands still; the models' own code does not.
        keys["rope.dimension_sections"] = [3, 3, 2, 0]
    if name == "qwen35":
        ffn = ffn_shapes(n_embd, 96)
    else:
        keys |= {
            "expert_count": 8,
            "expert_used_count": 3,
            "expert_feed_forward_length": 32,
            "expert_shared_feed_forward_length": 64,
        }
        ffn = moe_shapes(n_embd, 32, 8, fused=fused_experts)
        ffn |= ffn_shapes(n_embd, 64, suffix="_shexp") | {"ffn_gate_inp_shexp.weight": (n_embd,)}
    norms = norm_shapes(n_embd, "attn_norm", "post_attention_norm")
    linear = norms | delta_block(n_embd, k_heads, v_heads, d, 4, next_=name == "qwen3next") | ffn
    full = norms | attention_block(n_embd, 6, 2, 24, fused=fused_qkv) | ffn
    wrong = ["rope pairs", "query first", "attention gate", "taps", "beta", "dt bias"]
    if ratio > 1:
        wrong.append("head pairs")
    if name != "qwen35":
        wrong += ["router normalised", "shared gate"]
    if fused_experts:
        wrong.append("gate first")
    blocks = [linear, linear, full]
    if mtp:
        keys |= {"block_count": 4, "nextn_predict_layers": 1}
        blocks.append(full | drafting_shapes(n_embd))
    return Case(name, keys, model_shapes(n_embd, blocks), forward, wrong, seed=seed)


CASES = {
    "qwen35": case("qwen35"),
    "qwen35-fused-qkv": case("qwen35", fused_qkv=True, ratio=1),
    "qwen35-mtp": case("qwen35", mtp=True),
    "qwen35moe": case("qwen35moe", seed=46),
    "qwen35moe-fused-experts": case("qwen35moe", fused_experts=True, seed=111),
    # Of these weights no activation of the text lies where int8 may round either way: a delta net would keep that.
    "qwen3next": case("qwen3next", seed=11),
}
