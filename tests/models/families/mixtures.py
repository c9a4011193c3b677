"""Decoders with experts that are put together of known parts, and Muse Glimmer, which has the same parts but experts.

One forward pass for all; `Ways` says which parts an architecture has, from its model card.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from tests.models.families.build import (
    Case,
    Shapes,
    attention_shapes,
    base_keys,
    drafting_shapes,
    ffn_shapes,
    model_shapes,
    moe_shapes,
    norm_shapes,
)
from tests.models.families.common import Gated, Net, sigmoid, swiglu
from tests.models.truth import rms


@dataclass(frozen=True)
class Ways:
    """halves: of the rotation's pairs. norm: of queries and keys: "", "heads", "whole" or "turned" (of heads, behind
    the rotation). local: layers with a window. turning: layers with a rotation. dense: layers without experts. scaled:
    whether the file's scale of weights counts. post_eps: of norms behind branches. early: the router reads what the
    layer reads.
    near_base: layers with a window have another base of the rotation; halved: the others turn half as many elements as
    the file says.
    """

    halves: bool = True
    norm: str = "heads"
    local: Callable[[int], bool] = lambda layer: False
    turning: Callable[[int], bool] = lambda layer: True
    dense: Callable[[int], bool] = lambda layer: False
    gating: str = "sigmoid"
    normalise: bool = True
    scaled: bool = True
    act: Gated = swiglu
    post_eps: float | None = None
    embedding: Callable[[Net, np.ndarray], np.ndarray] = lambda net, x: x
    early: bool = False
    near_base: bool = False
    halved: bool = False


def attention(net: Net, h: np.ndarray, layer: int, ways: Ways) -> np.ndarray:
    p = f"blk.{layer}."
    d, d_value, n = net.number("attention.key_length"), net.number("attention.value_length"), len(h)
    heads = net[f"{p}attn_output.weight"].shape[1] // d_value
    rows = net[f"{p}attn_qkv.weight"].shape[0] if net.has(f"{p}attn_qkv.weight") else 0
    kv = (rows - heads * d) // (d + d_value)
    q, k, v = net.qkv(h, p, (heads * d, kv * d, kv * d_value))
    if ways.norm == "whole" and net.does("qk norm"):
        q, k = net.norm(q, f"{p}attn_q_norm"), net.norm(k, f"{p}attn_k_norm")
    q, k, v = q.reshape(n, -1, d), k.reshape(n, -1, d), v.reshape(n, -1, d_value)
    turned = ways.norm == "turned" and net.does("norm after rope")
    if ways.norm in ("heads", "turned") and not turned and net.does("qk norm"):
        q, k = net.norm(q, f"{p}attn_q_norm"), net.norm(k, f"{p}attn_k_norm")
    if ways.turning(layer) or not net.does("no rotation"):
        near, turned_dims = ways.local(layer), net.keys.get("rope.dimension_count", d)
        if ways.halved and net.does("half of the rotation"):
            turned_dims = net.number("rope.dimension_count_swa") if near else turned_dims // 2
        base = net.keys["rope.freq_base_swa"] if ways.near_base and near and net.does("local rope") else None
        factors = None if near or not net.has("rope_freqs.weight") else net["rope_freqs.weight"][: turned_dims // 2]
        rope = net.rope(turned_dims, halves=ways.halves, base=base, factors=factors)
        q, k = net.turn(q, rope), net.turn(k, rope)
    if turned:
        q, k = net.norm(q, f"{p}attn_q_norm"), net.norm(k, f"{p}attn_k_norm")
    window = net.number("attention.sliding_window") if ways.local(layer) else None
    sinks = net[f"{p}attn_sinks.weight"] if net.has(f"{p}attn_sinks.weight") else None
    a = net.attend(q, k, v, 1 / math.sqrt(d), net.visible(n, window), sinks)
    if net.has(f"{p}attn_gate.weight") and net.does("gate"):
        gate = sigmoid(net.product(h, f"{p}attn_gate"))
        a = a * np.repeat(gate, a.shape[1] // gate.shape[1], axis=1)
    if net.does("value scale"):
        a = a * net.keys.get("attention.value_scale", 1.0)
    return net.product(a, f"{p}attn_output")


def limited(net: Net, key: str, layer: int, act: Gated) -> Gated:
    """The activation with its two factors held under the layer's limit."""
    limits = net.keys.get(key)
    if limits is None or limits[layer] < 1e-6 or not net.does("limits"):
        return act
    c = limits[layer]
    return lambda gate, up: np.minimum(act(gate, np.ones_like(up)), c) * np.clip(up, -c, c)


def feed_forward(net: Net, f: np.ndarray, layer: int, ways: Ways, x: np.ndarray) -> np.ndarray:
    """f: what experts read. x: the layer's input."""
    p = f"blk.{layer}."
    shared_act = limited(net, "swiglu_clamp_shexp", layer, ways.act)
    if ways.dense(layer):
        return net.ffn(f, p, shared_act)
    groups = (net.keys.get("expert_group_count", 1), net.keys.get("expert_group_used_count", 1))
    scale = net.keys.get("expert_weights_scale", 1.0) if ways.scaled else 1.0
    logits = net.product(x, f"{p}ffn_gate_inp") if ways.early and net.does("early router") else None
    y = net.moe(
        f, p, gating=ways.gating, normalise=ways.normalise, scale=scale, groups=groups, logits=logits,
        act=limited(net, "swiglu_clamp_exp", layer, ways.act),
    )  # fmt: skip
    shared = net.has(f"{p}ffn_up_shexp.weight") and net.does("shared expert")
    return y + net.ffn(f, p, shared_act, suffix="_shexp") if shared else y


def block_of(net: Net, x: np.ndarray, layer: int, ways: Ways) -> np.ndarray:
    def post(y: np.ndarray, name: str) -> np.ndarray:
        if not net.has(f"{name}.weight") or not net.does("post norms"):
            return y
        eps = net.eps if ways.post_eps is None or not net.does("post eps") else ways.post_eps
        return rms(y, net[f"{name}.weight"], eps)

    p, before = f"blk.{layer}.", x
    x = x + post(attention(net, net.norm(x, f"{p}attn_norm"), layer, ways), f"{p}post_attention_norm")
    return x + post(feed_forward(net, net.norm(x, f"{p}ffn_norm"), layer, ways, before), f"{p}post_ffw_norm")


def draft_block(net: Net, x: np.ndarray, p: str) -> np.ndarray:
    ways = {"mimo2": MIMO, "step35": STEP, "bailingmoe2": Ways()}[net.made.case.architecture]
    return block_of(net, x, int(p.split(".")[1]), ways)


def forward(ways: Ways) -> Callable[[Net, list[int]], np.ndarray]:
    def run(net: Net, tokens: list[int]) -> np.ndarray:
        x = net["token_embd.weight"][tokens]
        if net.does("embedding"):
            x = ways.embedding(net, x)
        for layer in range(net.number("block_count") - net.keys.get("nextn_predict_layers", 0)):
            x = block_of(net, x, layer, ways)
        logits = net.head(net.norm(x, "output_norm"))
        if "logit_scale" in net.keys and net.does("logit scale"):
            logits = logits * net.keys["logit_scale"]
        cap = net.keys.get("final_logit_softcapping")
        return cap * np.tanh(logits / cap) if cap and net.does("soft cap") else logits

    return run


HEADS, KV, D, E, F, N = 6, 2, 16, 64, 32, 8
"""Heads, key heads, elements of each; width of the stream and of experts; experts."""

SHARED = ffn_shapes(E, 48, suffix="_shexp")
BIAS: Shapes = {"exp_probs_b.bias": (N,)}


def common(norm: str = "heads", *norms: str, heads: int = HEADS, kv: int = KV, fused: bool = False) -> Shapes:
    """A block without its feed-forward."""
    out = norm_shapes(E, "attn_norm", "ffn_norm", *norms) | attention_shapes(E, heads, kv, D, fused=fused)
    if norm == "whole":
        return out | {"attn_q_norm.weight": (heads * D,), "attn_k_norm.weight": (kv * D,)}
    return out | {f"attn_{side}_norm.weight": (D,) for side in "qk"} if norm else out


def case(
    name: str, ways: Ways, block: Shapes, routed: Shapes, wrong: tuple[str, ...], *, n_layers: int = 2, seed: int = 1,
    drafts: int = 0, sizes: Mapping[str, float] = MappingProxyType({}), **more: Any,
) -> Case:  # fmt: skip
    keys: dict[str, Any] = {
        "n_layers": n_layers + drafts, "heads": HEADS, "kv_heads": KV, "head_dim": D, "expert_count": N,
        "expert_used_count": 3, "expert_feed_forward_length": F, "expert_gating_func": 2,
    }  # fmt: skip
    dense, experts = block | ffn_shapes(E, 96), block | moe_shapes(E, F, N) | routed
    blocks = [dense if ways.dense(layer) else experts for layer in range(n_layers)]
    blocks += [experts | drafting_shapes(E, "layer_output_norm")] * drafts
    keys |= {"nextn_predict_layers": drafts or None}
    return Case(name, base_keys(**(keys | more)), model_shapes(E, blocks), forward(ways), wrong, seed=seed, sizes=sizes)


def reglu(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    return np.asarray(np.maximum(gate, 0) * up)


def not_fourth(layer: int) -> bool:
    return layer % 4 != 3


def first(layer: int) -> bool:
    return layer == 0


def muse_glimmer() -> Case:
    ways = Ways(
        halves=False, local=not_fourth, turning=not_fourth, dense=lambda layer: True, post_eps=1e-8,
        embedding=lambda net, x: rms(x, np.ones(E), net.eps),
    )  # fmt: skip
    block = common("heads", "post_attention_norm", "post_ffw_norm") | {"attn_gate.weight": (HEADS * D, E)}
    wrong = ("rope pairs", "no rotation", "window", "gate", "post norms", "embedding", "logit scale", "soft cap")
    return case(
        "muse-glimmer", ways, block, {}, wrong, n_layers=4, expert_count=None, expert_used_count=None,
        expert_feed_forward_length=None, expert_gating_func=None, attention__sliding_window=9, logit_scale=1.5,
        final_logit_softcapping=8.0, eps=1e-5, seed=2,
    )  # fmt: skip


MIMO = Ways(norm="", local=lambda layer: layer > 0, dense=first, scaled=False, near_base=True)
STEP = Ways(local=lambda layer: layer > 0, dense=first, near_base=True, halved=True, gating="sigmoid")


def mimo2() -> Case:
    """Layers with a window have more key heads, sinks, and another base; one tensor holds q, k and v of two widths."""
    d, d_value, heads = 24, 16, 4
    local = (False, True, True)
    kv_heads = [1, 2, 2]
    blocks = []
    for layer, kv in enumerate(kv_heads):
        block = norm_shapes(E, "attn_norm", "ffn_norm") | {"attn_output.weight": (E, heads * d_value)}
        if layer == 1:
            block |= {"attn_qkv.weight": (heads * d + kv * (d + d_value), E)}
        else:
            block |= {"attn_q.weight": (heads * d, E), "attn_k.weight": (kv * d, E), "attn_v.weight": (kv * d_value, E)}
        block |= {"attn_sinks.weight": (heads,)} if local[layer] else {}
        blocks.append(block | (moe_shapes(E, F, N) | BIAS if layer else ffn_shapes(E, 96)))
    keys = base_keys(
        n_layers=3, heads=heads, kv_heads=kv_heads, head_dim=d, attention__value_length=d_value, expert_count=N,
        expert_used_count=3, expert_feed_forward_length=F, rope__dimension_count=8, rope__freq_base=1e6,
        rope__freq_base_swa=1e4, attention__value_scale=0.7, attention__sliding_window=9,
        attention__sliding_window_pattern=list(local), expert_gating_func=2,
    )  # fmt: skip
    wrong = ("router normalised", "rope pairs", "selection bias", "window", "sinks", "value scale", "local rope")
    return Case("mimo2", keys, model_shapes(E, blocks), forward(MIMO), wrong)


def step35() -> Case:
    """Layers with a window have more query heads."""
    local, n_heads, kv = (False, True, True, True), [4, 6, 6, 6], 2
    blocks = []
    for layer, heads in enumerate(n_heads):
        block = common(heads=heads, kv=kv) | {"attn_gate.weight": (heads, E)}
        blocks.append(block | (moe_shapes(E, F, N) | BIAS | SHARED if layer else ffn_shapes(E, 96)))
    keys = base_keys(
        n_layers=4, heads=n_heads, kv_heads=[kv] * 4, head_dim=D, expert_count=N, expert_used_count=3,
        expert_feed_forward_length=F, expert_shared_feed_forward_length=48, rope__dimension_count=D,
        rope__dimension_count_swa=D, rope__freq_base=1e6, rope__freq_base_swa=1e4, attention__sliding_window=9,
        attention__sliding_window_pattern=list(local), expert_weights_norm=True, expert_weights_scale=2.5,
        swiglu_clamp_exp=[0.0, 0.0, 0.5, 0.8], swiglu_clamp_shexp=[0.6, 0.0, 0.5, 0.0],
    )  # fmt: skip
    wrong = (*ROUTED, "selection bias", "router scaled", "window", "gate", "local rope", "half of the rotation")
    shapes = model_shapes(E, blocks) | {"rope_freqs.weight": (D // 2,)}
    return Case("step35", keys, shapes, forward(STEP), (*wrong, "limits", "factors"), seed=2)


ROUTED = ("router normalised", "rope pairs", "qk norm")
CASES = {
    "muse-glimmer": muse_glimmer(),
    "minimax-m2": case(
        "minimax-m2", Ways(norm="whole", scaled=False), common("whole"), BIAS, (*ROUTED, "selection bias"),
        rope__dimension_count=8, n_ff=F, expert_weights_scale=2.0,
    ),
    "dots1": case(
        "dots1", Ways(dense=first), common(kv=HEADS), BIAS | ffn_shapes(E, 2 * F, suffix="_shexp"),
        (*ROUTED, "selection bias", "shared expert", "router scaled"), kv_heads=HEADS, leading_dense_block_count=1,
        expert_shared_count=2, expert_weights_norm=True, expert_weights_scale=2.5,
    ),
    "bailingmoe2": case(
        "bailingmoe2", Ways(dense=first), common(heads=4, fused=True), BIAS | ffn_shapes(E, 96, suffix="_shexp"),
        (*ROUTED, "selection bias", "shared expert", "router scaled", "groups"), leading_dense_block_count=1,
        expert_shared_count=2, expert_shared_feed_forward_length=48, expert_weights_norm=True,
        expert_weights_scale=2.5, rope__dimension_count=8, expert_group_count=4, expert_group_used_count=2, heads=4,
        drafts=1,
    ),
    "olmoe": case(
        "olmoe", Ways(norm="whole", gating="softmax", normalise=False), common("whole", heads=4, kv=4), {}, ROUTED,
        heads=4, kv_heads=4, n_ff=F, expert_feed_forward_length=None, expert_gating_func=None,
    ),
    "ernie4_5-moe": case(
        "ernie4_5-moe", Ways(halves=False, norm="", gating="softmax", scaled=False, dense=first),
        common(""), BIAS | SHARED, ("router normalised", "rope pairs", "selection bias", "shared expert"),
        leading_dense_block_count=1, interleave_moe_layer_step=1, expert_shared_feed_forward_length=48,
        expert_weights_scale=3.0, expert_gating_func=None,
    ),
    "hunyuan-moe": case(
        "hunyuan-moe", Ways(norm="turned", gating="softmax"), common(), SHARED,
        ("router normalised", "rope pairs", "norm after rope", "shared expert"), n_ff=F,
        expert_shared_feed_forward_length=48, expert_gating_func=None, seed=2,
    ),
    "exaone-moe": case(
        "exaone-moe", Ways(local=not_fourth, turning=not_fourth, dense=first), common(),
        BIAS | ffn_shapes(E, F, suffix="_shexp"), (*ROUTED, "selection bias", "shared expert", "window", "no rotation"),
        n_layers=4, leading_dense_block_count=1, expert_shared_count=1, expert_weights_norm=True,
        expert_weights_scale=2.5, attention__sliding_window=9,
    ),
    "afmoe": case(
        "afmoe", Ways(local=not_fourth, turning=not_fourth, dense=first, embedding=lambda net, x: x * math.sqrt(E)),
        common("heads", "post_attention_norm", "post_ffw_norm") | {"attn_gate.weight": (HEADS * D, E)},
        BIAS | ffn_shapes(E, F, suffix="_shexp"),
        (*ROUTED, "selection bias", "shared expert", "window", "no rotation", "gate", "embedding", "post norms"),
        n_layers=4, leading_dense_block_count=1, expert_shared_count=1, expert_weights_norm=True,
        expert_weights_scale=2.826, attention__sliding_window=9, expert_gating_func=None, seed=2,
    ),
    "smallthinker": case(
        "smallthinker",
        Ways(norm="", local=lambda i: i % 4 != 0, turning=lambda i: i % 4 != 0, act=reglu, early=True, scaled=False),
        common(""), {}, ("router normalised", "rope pairs", "early router", "no rotation"), n_layers=5,
        attention__sliding_window=4096, sizes={"ffn_gate_inp": 0.25}, seed=2,
    ),
    "mimo2": mimo2(),
    "step35": step35(),
}  # fmt: skip
