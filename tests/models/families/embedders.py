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
from tests.models.families.common import Net, swiglu

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
    return y + net[f"{name}.bias"] if net.has(f"{name}.bias") and net.does("norm biases") else y


def alibi(net: Net, n: int, heads: int) -> np.ndarray:
    """f64[heads, n, n]: -|i - j| / 2^(8 h / heads), of 6 heads those of 4 and then the first and third of 8."""
    power = 2 ** int(math.log2(heads))
    exponents = [8 * h / power for h in range(1, power + 1)] + [4 * h / power for h in range(1, 2 * power, 2)]
    if not net.does("slopes"):
        exponents = exponents[::-1]
    distance = np.abs(np.arange(n)[:, None] - np.arange(n))
    return np.array([-(2.0**-e) * distance for e in exponents[:heads]])


def bert(net: Net, tokens: list[int]) -> np.ndarray:
    n, n_embd, heads = len(tokens), net.number("embedding_length"), net.number("attention.head_count")
    d = n_embd // heads
    rope = net.rope(d, halves=True) if "rope.freq_base" in net.keys else None
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
        if net.has(f"{p}attn_q_norm.weight") and net.does("qk norm"):
            q, k = (
                layer_norm(net, y.reshape(n, -1), f"{p}attn_{m}_norm").reshape(y.shape) for y, m in ((q, "q"), (k, "k"))
            )
        bias = alibi(net, n, heads) if net.made.case.architecture == "jina-bert-v2" else None
        a = net.product(net.attend(q, k, v, 1 / math.sqrt(d), seen, bias=bias), f"{p}attn_output")
        y = layer_norm(net, x + a, f"{p}attn_output_norm")
        if net.has(f"{p}attn_norm_2.weight") and net.does("second norm"):
            y = layer_norm(net, y + x, f"{p}attn_norm_2")
        x = y
        if net.has(f"{p}ffn_gate_inp.weight"):
            f = net.moe(x, p, normalise=False, act=lambda gate, up: net.gelu(up))
        elif bias is not None:
            f = net.ffn(x, p, act=net.geglu if net.does("gelu") else swiglu)
        elif net.has(f"{p}ffn_gate.weight"):
            f = net.ffn(x, p)
        else:
            f = net.product(net.gelu(net.product(x, f"{p}ffn_up")), f"{p}ffn_down")
        x = layer_norm(net, x + f, f"{p}layer_output_norm")
    return x


def gelu_erf(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def modern_bert(net: Net, tokens: list[int]) -> np.ndarray:
    """ModernBERT (Warner 2024): norms before, windows of n/2 on each side with their own rotation, GEGLU."""
    n, n_embd, heads = len(tokens), net.number("embedding_length"), net.number("attention.head_count")
    d, reach = n_embd // heads, net.number("attention.sliding_window") // 2 + (not net.does("window"))
    x = layer_norm(net, net["token_embd.weight"][tokens], "token_embd_norm")
    distance = np.abs(np.arange(n)[:, None] - np.arange(n))
    for layer in range(net.number("block_count")):
        p, near = f"blk.{layer}.", layer % 3 != 0
        rope = net.rope(d, halves=True, base=10000.0 if near and net.does("local rope") else None)
        seen = net.visible(n, None, causal=not net.does("both ways")) & (~np.bool_(near) | (distance <= reach))
        h = layer_norm(net, x, f"{p}attn_norm") if layer else x
        q, k, v = (y.reshape(n, heads, d) for y in net.qkv(h, p, (n_embd, n_embd, n_embd)))
        a = net.attend(net.turn(q, rope), net.turn(k, rope), v, 1 / math.sqrt(d), seen)
        x = x + net.product(a, f"{p}attn_output")
        act = gelu_erf if net.does("gelu") else lambda gate: gate / (1 + np.exp(-gate))
        x = x + net.ffn(layer_norm(net, x, f"{p}ffn_norm"), p, act=lambda gate, up, act=act: act(gate) * up)
    return layer_norm(net, x, "output_norm")


def modern_case(pooling: int, **more: Any) -> Case:
    n_embd, heads, n_ff, n_layers = 96, 6, 128, 4
    keys = base_keys(
        n_embd=n_embd, heads=heads, kv_heads=heads, n_ff=n_ff, n_layers=n_layers, n_ctx=64, attention__key_length=None,
        attention__value_length=None, attention__layer_norm_rms_epsilon=None, attention__layer_norm_epsilon=1e-5,
        attention__causal=False, attention__sliding_window=9, rope__freq_base=160000.0, rope__freq_base_swa=10000.0,
        pooling_type=pooling, **more,
    )  # fmt: skip
    shapes: Shapes = {"token_embd.weight": (N_VOCAB, n_embd)} | norm_shapes(n_embd, "token_embd_norm", "output_norm")
    for i in range(n_layers):
        block: Shapes = {"attn_qkv.weight": (3 * n_embd, n_embd), "attn_output.weight": (n_embd, n_embd)}
        block |= {"ffn_up.weight": (2 * n_ff, n_embd), "ffn_down.weight": (n_embd, n_ff)}
        block |= norm_shapes(n_embd, *(["attn_norm"] if i else []), "ffn_norm")
        shapes |= {f"blk.{i}.{part}": shape for part, shape in block.items()}
    wrong = ["window", "local rope", "both ways", "gelu", "gate first", "mean", "rope pairs", "pooling"]
    return Case("modern-bert", keys, shapes, modern_bert, wrong)


def bert_case(name: str, pooling: int) -> Case:
    n_embd, heads, n_ff, n_ctx = 96, 6, 128, 64
    nomic, turned = name == "nomic-bert", name in ("nomic-bert", "jina-bert-v3")
    more: dict[str, Any] = {"rope__freq_base": 1000.0 if turned else None}
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
    elif turned:
        parts = {"attn_qkv.weight": (3 * n_embd, n_embd), "attn_output.weight": (n_embd, n_embd)}
    parts |= {"ffn_up.weight": (n_ff, n_embd), "ffn_down.weight": (n_embd, n_ff)}
    if not nomic:
        parts |= {part.replace("weight", "bias"): shape[:1] for part, shape in parts.items()}
    parts |= both_of("attn_output_norm", n_embd) | both_of("layer_output_norm", n_embd)
    shapes: Shapes = {"token_embd.weight": (N_VOCAB, n_embd), "token_types.weight": (2, n_embd)}
    shapes |= both_of("token_embd_norm", n_embd)
    if not turned:
        shapes["position_embd.weight"] = (n_ctx, n_embd)
    shapes |= {f"blk.{i}.{part}": shape for i in range(2) for part, shape in parts.items()}
    wrong = ["pooling", "mean", "norm biases", "both ways", "rope pairs" if turned else "positions"]
    return Case(name, keys, shapes, bert, wrong + ["biases"] * (not nomic), gelu=not nomic)


def nomic_moe_case() -> Case:
    plain = bert_case("jina-bert-v3", MEAN)
    keys = {**plain.keys, "moe_every_n_layers": 2, "expert_count": 6, "expert_used_count": 2}
    n, n_ff = plain.keys["embedding_length"], plain.keys["feed_forward_length"]
    shapes = {
        name: shape for name, shape in plain.shapes.items() if not name.startswith(("blk.1.ffn_up", "blk.1.ffn_down"))
    }
    shapes |= {"blk.1.ffn_gate_inp.weight": (6, n), "blk.1.ffn_up_exps.weight": (6, n_ff, n)}
    shapes |= {"blk.1.ffn_down_exps.weight": (6, n, n_ff)}
    wrong = [*plain.wrong, "router normalised"]
    return replace(plain, architecture="nomic-bert-moe", keys=keys, shapes=shapes, wrong=wrong)


def jina_v2_case(*, code: bool = False) -> Case:
    """The English model has 6 heads here, the one for code 4, fused gates, and norms of queries and keys."""
    heads, n_embd, n_ff = (4, 64, 128) if code else (6, 96, 128)
    plain = bert_case("jina-bert-v2", MEAN)
    keys = {**plain.keys, "attention.head_count": heads, "attention.head_count_kv": heads, "embedding_length": n_embd}
    block: Shapes = {f"attn_{part}.weight": (n_embd, n_embd) for part in ("q", "k", "v", "output")}
    block |= {name.replace("weight", "bias"): shape[:1] for name, shape in block.items()}
    block |= {"ffn_down.weight": (n_embd, n_ff), "ffn_down.bias": (n_embd,)}
    block |= both_of("attn_output_norm", n_embd) | both_of("layer_output_norm", n_embd)
    if code:
        block |= {"ffn_up.weight": (2 * n_ff, n_embd)} | both_of("attn_q_norm", n_embd) | both_of("attn_k_norm", n_embd)
        block |= both_of("attn_norm_2", n_embd)
    else:
        block |= {"ffn_up.weight": (n_ff, n_embd), "ffn_gate.weight": (n_ff, n_embd)}
    shapes: Shapes = {"token_embd.weight": (N_VOCAB, n_embd), "token_types.weight": (2, n_embd)}
    shapes |= both_of("token_embd_norm", n_embd)
    shapes |= {f"blk.{i}.{part}": shape for i in range(2) for part, shape in block.items()}
    wrong = ["pooling", "mean", "norm biases", "both ways", "biases", "slopes", "gelu"]
    return replace(plain, keys=keys, shapes=shapes, wrong=wrong + ["qk norm", "second norm", "gate first"] * code)


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
    "jina-bert-v3": bert_case("jina-bert-v3", MEAN),
    "jina-bert-v2": jina_v2_case(),
    "jina-bert-v2-code": jina_v2_case(code=True),
    "nomic-bert-moe": nomic_moe_case(),
    "modern-bert": modern_case(MEAN),
    "gemma-embedding": gemma_case(),
    "gemma-embedding-dense": gemma_case(dense_layers=True),
    "qwen3-embedding": qwen3_case(),
}
