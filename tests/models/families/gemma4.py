"""Gemma 4: embeddings for each layer, layers that read an earlier layer's cache, experts beside a dense part."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.models.families.build import N_VOCAB, Case, Shapes, base_keys, ffn_shapes, model_shapes, moe_shapes
from tests.models.families.build import norm_shapes as norms
from tests.models.families.common import Net, rms


class Layer:
    """The sizes of one layer, from the keys."""

    def __init__(self, net: Net, i: int) -> None:
        k = net.keys
        self.p, self.local = f"blk.{i}.", bool(k["attention.sliding_window_pattern"][i])
        kv = k["attention.head_count_kv"]
        self.kv_heads = kv[i] if isinstance(kv, list) else kv
        self.d = k["attention.key_length_swa" if self.local else "attention.key_length"]
        own = k["block_count"] - k.get("attention.shared_kv_layers", 0)
        self.reads = i if i < own else own - 2 if self.local else own - 1


def layer_inputs(net: Net, x: np.ndarray, tokens: list[int]) -> np.ndarray:
    """f64[n, n_layers, width]: what each layer gets besides the stream."""
    width, n_layers = net.number("embedding_length_per_layer_input"), net.number("block_count")
    own = net["per_layer_token_embd.weight"][tokens].reshape(len(tokens), n_layers, width) * math.sqrt(width)
    made = net.product(x, "per_layer_model_proj") / math.sqrt(x.shape[1])
    made = net.norm(made.reshape(len(tokens), n_layers, width), "per_layer_proj_norm")
    return (made + own) / math.sqrt(2) if net.does("both inputs") else made


def feed_forward(net: Net, a: np.ndarray, p: str) -> np.ndarray:
    dense = net.ffn(net.norm(a, f"{p}ffn_norm"), p, net.geglu)
    if not net.has(f"{p}ffn_gate_inp.weight"):
        return dense
    dense = net.norm(dense, f"{p}post_ffw_norm_1")
    routed = rms(a, 1.0, net.eps) / math.sqrt(a.shape[1]) if net.does("router scaled") else a
    logits = net.product(routed * net[f"{p}ffn_gate_inp.scale"], f"{p}ffn_gate_inp")
    m = net.moe(net.norm(a, f"{p}pre_ffw_norm_2"), p, act=net.geglu, logits=logits)
    return dense + net.norm(m, f"{p}post_ffw_norm_2")


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    logits = net.head(hidden_and_caches(net, tokens)[0])
    cap = net.keys["final_logit_softcapping"]
    return cap * np.tanh(logits / cap) if net.does("soft cap") else logits


def hidden_and_caches(net: Net, tokens: list[int]) -> tuple[np.ndarray, dict[int, tuple[np.ndarray, np.ndarray]]]:
    """The rows that logits are made of, and keys and values by layer."""
    n, n_embd, heads = len(tokens), net.number("embedding_length"), net.number("attention.head_count")
    k = net.keys
    full_rope = net.rope(k["rope.dimension_count"], halves=True, factors=net["rope_freqs.weight"])
    local_rope = net.rope(k["rope.dimension_count_swa"], halves=True, base=k["rope.freq_base_swa"], scaled=False)
    near, all_before = net.visible(n, net.number("attention.sliding_window")), net.visible(n, None)
    x = net["token_embd.weight"][tokens] * math.sqrt(n_embd)
    inputs = layer_inputs(net, x, tokens) if k.get("embedding_length_per_layer_input", 0) else None
    caches: dict[int, tuple[np.ndarray, np.ndarray]] = {}
    for i in range(net.number("block_count")):
        layer = Layer(net, i)
        p, rope = layer.p, local_rope if layer.local else full_rope
        h = net.norm(x, f"{p}attn_norm")
        q = net.norm(net.product(h, f"{p}attn_q").reshape(n, heads, layer.d), f"{p}attn_q_norm")
        if layer.reads == i:
            raw_k = net.product(h, f"{p}attn_k").reshape(n, layer.kv_heads, layer.d)
            has_v = net.has(f"{p}attn_v.weight")
            raw_v = net.product(h, f"{p}attn_v").reshape(raw_k.shape) if has_v else raw_k
            v = rms(raw_v, 1.0, net.eps) if net.does("value norm") else raw_v
            caches[i] = net.turn(net.norm(raw_k, f"{p}attn_k_norm"), rope), v
        reads = layer.reads if net.does("shared layer") or layer.reads == i else layer.reads - 3
        scale = 1.0 if net.does("attention scale") else 1 / math.sqrt(layer.d)
        a = net.attend(net.turn(q, rope), *caches[reads], scale, near if layer.local else all_before)
        a = x + net.norm(net.product(a, f"{p}attn_output"), f"{p}post_attention_norm")
        x = a + net.norm(feed_forward(net, a, p), f"{p}post_ffw_norm")
        if inputs is not None:
            gated = net.gelu(net.product(x, f"{p}inp_gate")) * inputs[:, i]
            x = x + net.norm(net.product(gated, f"{p}proj"), f"{p}post_norm")
        if net.has(f"{p}layer_output_scale.weight") and net.does("layer scale"):
            x = x * net[f"{p}layer_output_scale.weight"]
    return net.norm(x, "output_norm"), caches


def attention_shapes(n_embd: int, heads: int, kv: int, d: int, *, own: bool = True, values: bool = True) -> Shapes:
    out: Shapes = {"attn_q.weight": (heads * d, n_embd), "attn_q_norm.weight": (d,)}
    if own:
        out |= {"attn_k.weight": (kv * d, n_embd), "attn_k_norm.weight": (d,)}
    if own and values:
        out |= {"attn_v.weight": (kv * d, n_embd)}
    return out | {"attn_output.weight": (n_embd, heads * d)}


def case(*, experts: bool, inputs: bool = True, d_local: int = 16, seed: int = 1) -> Case:
    """Like E4B, with inputs for each layer and shared caches; or like 26B-A4B, with experts and no v on full layers.

    inputs: False for one like E4B without those for each layer. d_local: elements of a head with a window.
    """
    n_embd, heads, d_full, per_layer = 64, 6, 32, 32 * (inputs and not experts)
    pattern = [True, True, False] * (1 if experts else 2) + [True, False] * (not experts)
    n_layers, shared = len(pattern), 0 if experts else 2
    kv: Any = [2 if local else 1 for local in pattern] if experts else 2
    widths: Any = 96 if experts else [96] * (n_layers - shared) + [192] * shared
    more: dict[str, Any] = {
        "attention__sliding_window": 9,
        "attention__sliding_window_pattern": pattern,
        "attention__key_length_swa": d_local,
        "attention__value_length_swa": d_local,
        "rope__dimension_count": d_full,
        "rope__dimension_count_swa": d_local,
        "rope__freq_base_swa": 1e4,
        "final_logit_softcapping": 8.0,
        "attention__shared_kv_layers": shared,
        "embedding_length_per_layer_input": per_layer,
    }
    wrong = ["rope pairs", "window", "value norm", "attention scale", "layer scale", "soft cap", "factors"]
    if experts:
        more |= {"expert_count": 8, "expert_used_count": 3, "expert_feed_forward_length": 32}
        wrong += ["router scaled", "expert scales"]  # a norm follows, so the sum of the weights does not show
    else:
        wrong += ["shared layer"] + ["both inputs"] * inputs
    keys = base_keys(n_layers=n_layers, n_embd=n_embd, heads=heads, kv_heads=kv, head_dim=d_full, n_ff=widths,
                     rope__freq_base=1e3, **more)  # fmt: skip
    blocks: list[Shapes] = []
    for i, local in enumerate(pattern):
        d = d_local if local else d_full
        own, width = i < n_layers - shared, widths if experts else widths[i]
        block = norms(n_embd, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        block |= attention_shapes(
            n_embd, heads, kv[i] if experts else kv, d, own=own, values=not experts or local
        ) | ffn_shapes(n_embd, width)
        if experts:
            block |= moe_shapes(n_embd, 32, 8, fused=True)
            block |= {"ffn_gate_inp.scale": (n_embd,), "ffn_down_exps.scale": (8,)}
            block |= norms(n_embd, "post_ffw_norm_1", "pre_ffw_norm_2", "post_ffw_norm_2")
        if per_layer:
            block |= {"inp_gate.weight": (per_layer, n_embd), "proj.weight": (n_embd, per_layer)}
            block |= norms(n_embd, "post_norm")
        blocks.append(block | {"layer_output_scale.weight": (1,)})
    shapes = model_shapes(n_embd, blocks, tied=True) | {"rope_freqs.weight": (d_full // 2,)}
    if per_layer:
        shapes |= {
            "per_layer_token_embd.weight": (N_VOCAB, per_layer * n_layers),
            "per_layer_model_proj.weight": (per_layer * n_layers, n_embd),
            "per_layer_proj_norm.weight": (per_layer,),
        }
    factors = [1.0] * (d_full // 8) + [1e30] * (d_full // 2 - d_full // 8)  # a quarter of the pairs turns
    given = {"rope_freqs.weight": factors}
    sizes = {"gate_inp.weight": 8.0}  # so that the experts' weights differ
    return Case("gemma4", keys, shapes, forward, wrong, seed=seed, given=given, sizes=sizes, gelu=True)


CASES = {"gemma4": case(experts=False), "gemma4-experts": case(experts=True, seed=203)}
