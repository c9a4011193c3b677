"""The small model that drafts for Gemma 4 from its hidden states, keys and values, in float64 (model card, 2026)."""

from __future__ import annotations

import math

import numpy as np

from tests.models.families.build import Case, Shapes, base_keys, ffn_shapes, model_shapes
from tests.models.families.build import norm_shapes as norms
from tests.models.families.common import Net, softmax

WRONG = ("halves", "position", "window", "embedding scale", "layer scale", "next hidden", "source")
"""What `row` can do wrongly."""


class Model:
    """The large model's text: its table, and what its last layers of each kind hold."""

    def __init__(self, net: Net, caches: dict[int, tuple[np.ndarray, np.ndarray]]) -> None:
        self.table = net["token_embd.weight"]
        pattern = net.keys["attention.sliding_window_pattern"]
        self.layers = {near: [layer for layer in sorted(caches) if pattern[layer] is near] for near in (True, False)}
        self.caches = caches

    def keys_and_values(self, near: bool, last: int = -1) -> tuple[np.ndarray, np.ndarray]:
        return self.caches[self.layers[near][last]]


def row(net: Net, model: Model, token: int, prior: np.ndarray, n: int) -> tuple[np.ndarray, np.ndarray]:
    """The next hidden state f64[n_embd of the model] and logits of a row behind n positions of the model."""
    keys, width = net.keys, model.table.shape[1]
    embedded = model.table[token] * (math.sqrt(width) if net.does("embedding scale") else 1.0)
    both = (embedded, prior) if net.does("halves") else (prior, embedded)
    x = net.product(np.concatenate(both)[None], "nextn.pre_projection")
    at = n if net.does("position") else n + 3
    for layer, near in enumerate(keys["attention.sliding_window_pattern"]):
        x = block(net, model, x, f"blk.{layer}.", near, at, n)
    h = net.norm(x, "output_norm")
    y = net.product(h, "nextn.post_projection") if net.does("next hidden") else np.resize(h, (1, width))
    return y[0], net.product(h, "token_embd")[0]


def block(net: Net, model: Model, x: np.ndarray, p: str, near: bool, at: int, n: int) -> np.ndarray:
    keys, heads = net.keys, net.number("attention.head_count")
    d = keys["attention.key_length_swa" if near else "attention.key_length"]
    if near:
        rope = net.rope(keys["rope.dimension_count_swa"], halves=True, base=keys["rope.freq_base_swa"], scaled=False)
    else:
        rope = net.rope(keys["rope.dimension_count"], halves=True, factors=net["rope_freqs.weight"])
    q = net.norm(net.product(net.norm(x, f"{p}attn_norm"), f"{p}attn_q").reshape(1, heads, d), f"{p}attn_q_norm")
    q = net.turn(np.repeat(q, at + 1, axis=0), rope)[-1]
    k, v = (net.cached(part[:n]) for part in model.keys_and_values(near, -1 if net.does("source") or not near else 0))
    first = max(0, n - keys["attention.sliding_window"] + 3 * (not net.does("window"))) if near else 0
    share = heads // k.shape[1]
    out = [softmax(k[first:, i // share] @ q[i]) @ v[first:, i // share] for i in range(heads)]
    x = x + net.norm(net.product(np.concatenate(out)[None], f"{p}attn_output"), f"{p}post_attention_norm")
    f = net.ffn(net.norm(x, f"{p}ffn_norm"), p, net.geglu)
    x = x + net.norm(f, f"{p}post_ffw_norm")
    return x * net[f"{p}layer_output_scale.weight"] if net.does("layer scale") else x


def case(model: Case, *, seed: int = 1) -> Case:
    """An assistant for a made-up model."""
    large = model.keys
    width, n_embd, heads = large["embedding_length"], 32, 4
    d, d_local = large["attention.key_length"], large["attention.key_length_swa"]
    pattern = [True, True, False]
    same = (
        "attention.sliding_window",
        "attention.key_length_swa",
        "attention.value_length_swa",
        "rope.dimension_count",
    )
    same += ("rope.dimension_count_swa", "rope.freq_base", "rope.freq_base_swa")
    keys = base_keys(
        n_layers=3, n_embd=n_embd, heads=heads, kv_heads=2, head_dim=d, n_ff=64, embedding_length_out=width,
        attention__sliding_window_pattern=pattern, attention__shared_kv_layers=3, nextn_predict_layers=3,
    ) | {name: large[name] for name in same}  # fmt: skip
    blocks: list[Shapes] = []
    for near in pattern:
        rows = heads * (d_local if near else d)
        block = norms(n_embd, "attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm")
        block |= {"attn_q.weight": (rows, n_embd), "attn_q_norm.weight": (d_local if near else d,)}
        block |= {"attn_output.weight": (n_embd, rows), "layer_output_scale.weight": (1,)}
        blocks.append(block | ffn_shapes(n_embd, 64))
    shapes = model_shapes(n_embd, blocks, tied=True) | {
        "rope_freqs.weight": (d // 2,),
        "nextn.pre_projection.weight": (n_embd, 2 * width),
        "nextn.post_projection.weight": (width, n_embd),
        "masked_embd_centroids.weight": (16, n_embd),
    }
    given = {"rope_freqs.weight": model.given["rope_freqs.weight"]}
    return Case("gemma4-assistant", keys, shapes, lambda net, tokens: np.empty(0), seed=seed, given=given)
