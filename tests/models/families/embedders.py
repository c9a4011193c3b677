"""Models whose answer is a vector: BERT (Devlin 2019), Nomic's with rotations, EmbeddingGemma, Qwen3-Embedding.

Their `forward` gives the last hidden rows; `vector` pools them to one of length 1.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from tests.models.families import dense, gemma3
from tests.models.families.build import N_VOCAB, Case, Shapes, base_keys, norm_shapes
from tests.models.families.common import Net

MEAN, FIRST, LAST = 1, 2, 3


def vector(net: Net, tokens: list[int]) -> np.ndarray:
    """f64[n_embd], of length 1."""
    rows = net.logits(tokens)
    pooling = (
        net.keys["pooling_type"]
        if net.does("pooling")
        else {MEAN: LAST, FIRST: MEAN, LAST: MEAN}[net.keys["pooling_type"]]
    )
    one = {MEAN: rows.mean(axis=0), FIRST: rows[0], LAST: rows[-1]}[pooling]
    for name in ("dense_2", "dense_3"):
        if net.has(f"{name}.weight") and net.does("dense layers"):
            one = net.product(one, name)
    return one / np.linalg.norm(one)


def layer_norm(net: Net, x: np.ndarray, name: str) -> np.ndarray:
    centred = x - x.mean(axis=-1, keepdims=True) if net.does("mean") else x
    eps = float(np.float32(net.keys["attention.layer_norm_epsilon"]))
    y = centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + eps) * net[f"{name}.weight"]
    return y + net[f"{name}.bias"] if net.does("norm biases") else y


def bert(net: Net, tokens: list[int]) -> np.ndarray:
    n, n_embd, heads = len(tokens), net.number("embedding_length"), net.number("attention.head_count")
    d = n_embd // heads
    rope = net.rope(d, halves=True) if net.made.case.architecture == "nomic-bert" else None
    x = net["token_embd.weight"][tokens] + net["token_types.weight"][0]
    if net.has("position_embd.weight") and net.does("positions"):
        x = x + net["position_embd.weight"][:n]
    x = layer_norm(net, x, "token_embd_norm")
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        q, k, v = (y.reshape(n, heads, d) for y in net.qkv(x, p, (n_embd, n_embd, n_embd)))
        if rope is not None:
            q, k = net.turn(q, rope), net.turn(k, rope)
        seen = net.visible(n, None, causal=not net.does("both ways"))
        a = net.product(net.attend(q, k, v, 1 / math.sqrt(d), seen), f"{p}attn_output")
        x = layer_norm(net, x + a, f"{p}attn_output_norm")
        if net.has(f"{p}ffn_gate.weight"):
            f = net.ffn(x, p)
        else:
            f = net.product(net.gelu(net.product(x, f"{p}ffn_up")), f"{p}ffn_down")
        x = layer_norm(net, x + f, f"{p}layer_output_norm")
    return x


def bert_case(name: str, pooling: int) -> Case:
    n_embd, heads, n_ff, n_ctx = 96, 6, 128, 64
    nomic = name == "nomic-bert"
    more: dict[str, Any] = {"rope__freq_base": 1000.0} if nomic else {"rope__freq_base": None}
    keys = base_keys(
        n_embd=n_embd, heads=heads, kv_heads=heads, n_ff=n_ff, n_ctx=n_ctx, attention__key_length=None,
        attention__value_length=None, attention__layer_norm_rms_epsilon=None, attention__layer_norm_epsilon=1e-5,
        attention__causal=False, pooling_type=pooling, **more,
    )  # fmt: skip
    parts: Shapes = {f"attn_{part}.weight": (n_embd, n_embd) for part in ("q", "k", "v", "output")}
    if nomic:
        parts = {
            "attn_qkv.weight": (3 * n_embd, n_embd),
            "attn_output.weight": (n_embd, n_embd),
            "ffn_gate.weight": (n_ff, n_embd),
        }
    parts |= {"ffn_up.weight": (n_ff, n_embd), "ffn_down.weight": (n_embd, n_ff)}
    if not nomic:
        parts |= {part.replace("weight", "bias"): shape[:1] for part, shape in parts.items()}
    parts |= both_of("attn_output_norm", n_embd) | both_of("layer_output_norm", n_embd)
    shapes: Shapes = {"token_embd.weight": (N_VOCAB, n_embd), "token_types.weight": (2, n_embd)}
    shapes |= both_of("token_embd_norm", n_embd)
    if not nomic:
        shapes["position_embd.weight"] = (n_ctx, n_embd)
    shapes |= {f"blk.{i}.{part}": shape for i in range(2) for part, shape in parts.items()}
    wrong = ["pooling", "mean", "norm biases", "both ways", "rope pairs" if nomic else "positions"]
    return Case(name, keys, shapes, bert, wrong + ["biases"] * (not nomic), gelu=not nomic)


def both_of(name: str, n: int) -> Shapes:
    return norm_shapes(n, name) | {f"{name}.bias": (n,)}


def gemma_rows(net: Net, tokens: list[int]) -> np.ndarray:
    return gemma3.hidden(net, tokens, causal=not net.does("both ways"))


def gemma_case(*, dense_layers: bool = False) -> Case:
    plain = gemma3.case(rope__freq_base=1e6, attention__causal=False, pooling_type=MEAN)
    keys, shapes = dict(plain.keys), dict(plain.shapes)
    wrong = ["window", "both ways", "pooling", "rope pairs"]
    if dense_layers:
        keys |= {"dense_2_feat_in": 64, "dense_2_feat_out": 128, "dense_3_feat_in": 128, "dense_3_feat_out": 64}
        shapes |= {"dense_2.weight": (128, 64), "dense_3.weight": (64, 128)}
        wrong.append("dense layers")
    return replace(plain, architecture="gemma-embedding", keys=keys, shapes=shapes, forward=gemma_rows, wrong=wrong)


def qwen3_case() -> Case:
    plain = dense.case("qwen3", norms=True, head_dim=24, tied=True, pooling_type=LAST)
    return replace(plain, forward=dense.hidden, wrong=["rope pairs", "qk norm", "causal", "pooling"])


EMBEDDERS = {
    "bert-first": bert_case("bert", FIRST),
    "bert-mean": bert_case("bert", MEAN),
    "nomic-bert": bert_case("nomic-bert", MEAN),
    "gemma-embedding": gemma_case(),
    "gemma-embedding-dense": gemma_case(dense_layers=True),
    "qwen3-embedding": qwen3_case(),
}
