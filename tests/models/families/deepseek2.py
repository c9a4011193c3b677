"""DeepSeek 2 as GLM-4.7-Flash uses it: keys and values of all heads come from one latent vector (DeepSeek-V2 2024)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.models.families.build import Case, Shapes, base_keys, ffn_shapes, model_shapes, moe_shapes, norm_shapes
from tests.models.families.common import Net, Rope, sigmoid


def attention(net: Net, h: np.ndarray, p: str, rope: Rope | None, *, sparse: bool = True) -> np.ndarray:
    """Written with the latent vector as the one key and value of all heads, as the cache holds it. sparse: of positions
    that an indexer chooses, where there is one.
    """
    heads, rank, turned = (
        net.number(k) for k in ("attention.head_count", "attention.kv_lora_rank", "rope.dimension_count")
    )
    d = net.number("attention.key_length_mla")
    n, plain = len(h), d - turned
    if net.has(f"{p}attn_q_a.weight"):
        q = net.product(net.norm(net.product(h, f"{p}attn_q_a"), f"{p}attn_q_a_norm"), f"{p}attn_q_b")
    else:
        q = net.product(h, f"{p}attn_q")
    q = q.reshape(n, heads, d)
    both = net.product(h, f"{p}attn_kv_a_mqa")
    latent, k_turned = net.norm(both[:, :rank], f"{p}attn_kv_a_norm"), both[:, None, rank:]
    q_turned = q[..., plain:]
    if rope is not None:
        q_turned, k_turned = net.turn(q_turned, rope), net.turn(k_turned, rope)
    if net.has(f"{p}attn_kv_b.weight"):  # keys and values of each head, as the cache holds them
        kv = net.product(latent, f"{p}attn_kv_b").reshape(n, heads, -1)
        k = np.concatenate([kv[..., :plain], np.repeat(k_turned, heads, axis=1)], axis=2)
        q = np.concatenate([q[..., :plain], q_turned], axis=2)
        o = net.attend(q, k, kv[..., plain:], 1 / math.sqrt(d), net.visible(n, None))
        return net.product(o.reshape(n, -1), f"{p}attn_output")
    wk, wv = net[f"{p}attn_k_b.weight"], net[f"{p}attn_v_b.weight"]  # [head, rank, plain], [head, value, rank]
    q_latent = np.stack([net.seen(q[:, i, :plain], f"{p}attn_k_b.weight") @ wk[i].T for i in range(heads)], axis=1)
    q = np.concatenate([q_latent, q_turned], axis=2)
    if "attention.temperature_scale" in net.keys and net.does("temperature"):
        steps = np.arange(n) // net.number("attention.temperature_length")
        q = q * (1 + net.keys["attention.temperature_scale"] * np.log(steps + 1))[:, None, None]
    k = np.concatenate([latent[:, None], k_turned], axis=2)
    seen = net.visible(n, None)
    sparse = sparse and "attention.indexer.top_k" in net.keys
    if sparse and net.has(f"{p}indexer.proj.weight"):
        net.chosen = choice(net, h, p, rope)
    elif sparse and not net.does("shared choice"):
        net.chosen = seen
    if sparse and net.does("choice"):
        seen = net.chosen
    scale = 1 / math.sqrt(d)
    if net.keys.get("rope.scaling.type") == "yarn" and net.does("scale of yarn"):
        m = net.keys["rope.scaling.yarn_log_multiplier"] / 0.1
        scale *= (1 + 0.1 * m * math.log(net.keys["rope.scaling.factor"])) ** 2
    o = net.attend(q, k, latent[:, None], scale, seen).reshape(n, heads, rank)
    o = np.stack([net.seen(o[:, i], f"{p}attn_v_b.weight") @ wv[i].T for i in range(heads)], axis=1)
    if net.has(f"{p}attn_gate.weight") and net.does("gate of heads"):
        o = o * sigmoid(net.product(h, f"{p}attn_gate"))[:, :, None]
    return net.product(o.reshape(n, -1), f"{p}attn_output")


def choice(net: Net, h: np.ndarray, p: str, rope: Rope) -> np.ndarray:
    """The positions that each row sees, bool[n, n]: the best by the indexer (DeepSeek-V3.2 2025), of equal ones the
    first.
    """
    heads, d, top_k = (net.number(f"attention.indexer.{k}") for k in ("head_count", "key_length", "top_k"))
    n = len(h)
    latent = net.norm(net.product(h, f"{p}attn_q_a"), f"{p}attn_q_a_norm")
    q = net.product(latent, f"{p}indexer.attn_q_b").reshape(n, heads, d)
    k = net.product(h, f"{p}indexer.attn_k")
    k = k - k.mean(axis=1, keepdims=True)
    k = k / np.sqrt((k * k).mean(axis=1, keepdims=True) + 1e-6)
    k = k * net[f"{p}indexer.k_norm.weight"] + net[f"{p}indexer.k_norm.bias"]
    turning = Rope(rope.frequencies, (net.made.case.architecture == "deepseek32") == net.does("indexer pairs"))
    q, k = net.turn(q, turning), net.cached(net.turn(k[:, None], turning)[:, 0])
    w = net.product(h, f"{p}indexer.proj") / math.sqrt(heads * d)
    if not net.does("weights of heads"):
        w = np.ones_like(w)
    products = np.einsum("nhd,sd->nsh", q, k)
    scores = np.einsum("nsh,nh->ns", np.maximum(products, 0) if net.does("relu") else products, w)
    seen = np.zeros((n, n), bool)
    for row in range(n):
        order = np.argsort(-scores[row, : row + 1], kind="stable")
        net.note_choice(scores[row, order], top_k)
        seen[row, order[:top_k]] = True
    return seen


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    rope = net.rope(net.number("rope.dimension_count"), halves=False, magnitude=1.0)
    x = net["token_embd.weight"][tokens]
    for layer in range(net.number("block_count") - net.keys.get("nextn_predict_layers", 0)):
        x = block(net, x, f"blk.{layer}.", rope, dense=layer < net.number("leading_dense_block_count"))
    return net.head(net.norm(x, "output_norm"))


def block(net: Net, x: np.ndarray, p: str, rope: Rope, *, dense: bool, sparse: bool = True) -> np.ndarray:
    x = x + attention(net, net.norm(x, f"{p}attn_norm"), p, rope, sparse=sparse)
    f = net.norm(x, f"{p}ffn_norm")
    if dense:
        return x + net.ffn(f, p)
    gating = {1: "softmax", 2: "sigmoid"}[net.keys.get("expert_gating_func", 1)]
    groups = (net.keys.get("expert_group_count", 1), net.keys.get("expert_group_used_count", 1))
    normalise, scale = net.keys["expert_weights_norm"], net.keys["expert_weights_scale"]
    y = net.moe(f, p, gating=gating, normalise=normalise, scale=scale, groups=groups)
    return x + (y + net.ffn(f, p, suffix="_shexp") if net.does("shared expert") else y)


def draft_block(net: Net, x: np.ndarray, p: str) -> np.ndarray:
    rope = net.rope(net.number("rope.dimension_count"), halves=False, magnitude=1.0)
    return block(net, x, p, rope, dense=False, sparse=False)


def attention_block(
    n_embd: int, heads: int, rank: int, plain: int, turned: int, value: int, *, q_rank: int | None
) -> Shapes:
    d = plain + turned
    if q_rank is None:
        queries: Shapes = {"attn_q.weight": (heads * d, n_embd)}
    else:
        queries = {
            "attn_q_a.weight": (q_rank, n_embd),
            "attn_q_a_norm.weight": (q_rank,),
            "attn_q_b.weight": (heads * d, q_rank),
        }
    return queries | {
        "attn_kv_a_mqa.weight": (rank + turned, n_embd),
        "attn_kv_a_norm.weight": (rank,),
        "attn_k_b.weight": (heads, rank, plain),
        "attn_v_b.weight": (heads, value, rank),
        "attn_output.weight": (n_embd, heads * value),
    }


def case(
    *, lite: bool = False, bias: bool = False, norm: bool = True, scale: float = 1.8, wrong: tuple[str, ...] = (),
    n_layers: int = 3, n_experts: int = 8, seed: int = 1, name: str = "deepseek2", fused: bool = False, **more: Any,
) -> Case:  # fmt: skip
    n_embd, heads, rank, q_rank, plain, turned, value = 64, 3, 64, 32, 32, 16, 32
    keys = base_keys(
        n_layers=n_layers, n_embd=n_embd, heads=heads, kv_heads=1, head_dim=rank + turned, n_ff=96,
        attention__value_length=rank, attention__kv_lora_rank=rank, attention__key_length_mla=plain + turned,
        attention__value_length_mla=value, attention__q_lora_rank=None if lite else q_rank,
        rope__dimension_count=turned, leading_dense_block_count=1, expert_count=n_experts, expert_used_count=3,
        expert_feed_forward_length=32, expert_shared_count=2, expert_weights_scale=scale, expert_weights_norm=norm,
        **more,
    )  # fmt: skip
    latent = attention_block(n_embd, heads, rank, plain, turned, value, q_rank=None if lite else q_rank)
    common = norm_shapes(n_embd, "attn_norm", "ffn_norm") | latent
    if name in ("deepseek32", "glm-dsa"):
        keys |= {"attention.indexer.head_count": 12, "attention.indexer.key_length": 64, "attention.indexer.top_k": 5}
        wrong += ("choice", "indexer pairs", "weights of heads", "relu")
    indexer: Shapes = {
        "indexer.attn_q_b.weight": (12 * 64, q_rank), "indexer.attn_k.weight": (64, n_embd),
        "indexer.k_norm.weight": (64,), "indexer.k_norm.bias": (64,), "indexer.proj.weight": (12, n_embd),
    }  # fmt: skip
    routed = common | moe_shapes(n_embd, 32, n_experts, fused=fused) | ffn_shapes(n_embd, 64, suffix="_shexp")
    if bias:
        routed |= {"exp_probs_b.bias": (n_experts,)}
    blocks = [common | ffn_shapes(n_embd, 96), *[routed] * (n_layers - 1)]
    chooses = more.get("attention__indexer__types", [name in ("deepseek32", "glm-dsa")] * n_layers)
    blocks = [block | indexer if own else block for block, own in zip(blocks, chooses, strict=True)]
    right = ("rope pairs", "shared expert", "router normalised", *wrong, *["router scaled"] * (scale != 1))
    right += ("selection bias",) * bias
    return Case(name, keys, model_shapes(n_embd, blocks), forward, right, n_tokens=16, seed=seed)


CASES = {
    "deepseek2": case(bias=True, expert_gating_func=2),
    "deepseek2-groups": case(
        bias=True, expert_gating_func=2, n_experts=12, expert_group_count=4, expert_group_used_count=2,
        wrong=("groups",), seed=2,
    ),
    "deepseek2-yarn": case(
        seed=25, norm=False, scale=1.0, wrong=("rope scaling", "scale of yarn"), rope__scaling__type="yarn",
        rope__scaling__factor=40.0, rope__scaling__original_context_length=16,
        rope__scaling__yarn_log_multiplier=0.0707,
    ),
    "deepseek2-lite": case(lite=True, seed=3),
    "mistral4": case(
        seed=4, name="mistral4", fused=True, scale=1.0, expert_gating_func=1,
        wrong=("temperature", "scale of yarn"), attention__temperature_scale=0.3, attention__temperature_length=5,
        rope__scaling__type="yarn", rope__scaling__factor=32.0, rope__scaling__original_context_length=16,
        rope__scaling__yarn_log_multiplier=0.1,
    ),
    "deepseek32": case(bias=True, expert_gating_func=2, name="deepseek32"),
    "glm-dsa": case(
        bias=True, expert_gating_func=2, name="glm-dsa", attention__indexer__types=[1, 0, 1], wrong=("shared choice",),
    ),
}  # fmt: skip
LITE_AS_SOLD = {"deepseek2-lite-of-27-layers": case(lite=True, n_layers=27)}
"""llama.cpp knows the lite models by their number of layers."""
