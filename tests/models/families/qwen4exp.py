"""Qwen3.8-Flash-Next: Qwen3.5's layers between several streams, blocks of positions chosen by an indexer, and an
embedding of n-grams.
"""

from __future__ import annotations

import math

import numpy as np

from tests.helpers import random_tokens
from tests.models.families import qwen35
from tests.models.families.build import (
    N_VOCAB,
    Case,
    Shapes,
    base_keys,
    ffn_shapes,
    model_shapes,
    moe_shapes,
)
from tests.models.families.common import Net, Rope, rms, sigmoid, silu

STREAMS, RANK, BLOCK = 4, 16, 4
SIZES = [31, 37, 41, 43]


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    rope = net.rope(net.number("rope.dimension_count"), halves=True)
    x = np.repeat(net["token_embd.weight"][tokens][:, None], STREAMS, axis=1)  # [n, stream, n_embd]
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        if layer in net.keys["ple.layers"] and net.does("n-grams"):
            x = ngrams(net, x, tokens, p)
        h, normed = mixed(net, x, f"{p}hc_attn")
        if net.has(f"{p}indexer.k_proj.weight"):
            seen = chosen(net, h, p, rope) if net.does("choice") else None
            y = qwen35.attention(net, h, p, rope, seen)
        else:
            y = qwen35.delta_net(net, h, p)
        x = written(net, x, normed, y, f"{p}hc_attn")
        h, normed = mixed(net, x, f"{p}hc_ffn")
        x = written(net, x, normed, qwen35.experts(net, h, p), f"{p}hc_ffn")
    return net.head(mixed(net, x, "output_hc")[0])


def stream_norm(net: Net, x: np.ndarray, name: str) -> np.ndarray:
    weights = net[f"{name}.weight"].reshape(STREAMS, -1)
    return rms(x, weights if net.does("own weights") else weights[:1], net.eps)


def mixed(net: Net, x: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray]:
    normed = stream_norm(net, x, f"{name}_norm")
    flat = normed.reshape(len(x), -1)
    gate = sigmoid(net.product(silu(net.product(flat, f"{name}_down") / STREAMS), f"{name}_up"))
    if not net.does("gate of streams"):
        gate = np.ones_like(gate)
    return (normed * gate.reshape(x.shape)).mean(axis=1), flat


def written(net: Net, x: np.ndarray, normed: np.ndarray, y: np.ndarray, name: str) -> np.ndarray:
    share = 2 * sigmoid(net.product(normed, f"{name}_inject") / STREAMS)
    if not net.does("shares of streams"):
        share = np.ones_like(share)
    return x + share[:, :, None] * y[:, None]


def chosen(net: Net, h: np.ndarray, p: str, rope: Rope) -> np.ndarray:
    """The positions that each row sees, bool[n, n]: those after its last whole block, and the best whole blocks."""
    heads, d, top_k = (net.number(f"attention.indexer.{k}") for k in ("head_count", "key_length", "top_k"))
    n, blocks = len(h), len(h) // BLOCK
    q = rms(net.product(h, f"{p}indexer.q_proj").reshape(n, heads, d), net[f"{p}indexer.q_norm.weight"], net.eps)
    q = net.turn(q, rope)
    k = net.product(h, f"{p}indexer.k_proj")[: blocks * BLOCK].reshape(blocks, BLOCK, d).mean(axis=1)
    k = rms(k, net[f"{p}indexer.k_norm.weight"], net.eps)
    first = np.zeros((n, 1, d))  # a block's key turns by its first position
    first[: blocks * BLOCK : BLOCK, 0] = k
    k = net.cached(net.turn(first, rope)[: blocks * BLOCK : BLOCK, 0])
    products = np.einsum("nhd,bd->nbh", q, k)
    scores = (np.maximum(products, 0) if net.does("relu") else products).sum(axis=2)
    seen = np.zeros((n, n), bool)
    for row in range(n):
        whole, tail = divmod(row + 1, BLOCK)
        seen[row, whole * BLOCK : row + 1] = True
        order = np.argsort(-scores[row, :whole], kind="stable")
        count = (top_k + BLOCK - 1 - tail) // BLOCK
        net.note_choice(scores[row, order], count)
        for block in order[:count]:
            seen[row, block * BLOCK : (block + 1) * BLOCK] = True
    return seen


def table_rows(net: Net, tokens: list[int]) -> np.ndarray:
    """In Python's integers: int[n, heads]."""
    eos, n = net.keys["ple.eos_token_id"], net.keys["ple.ngram_size"]
    multipliers, offsets, sizes = (
        [int(v) for v in net.keys[f"ple.{k}"]] for k in ("layer_multipliers", "head_offsets", "head_vocab_sizes")
    )
    heads = net.keys["ple.heads_per_ngram"]
    out = np.zeros((len(tokens), len(sizes)), np.int64)
    for at, token in enumerate(tokens):
        context = [token]
        for j in range(1, n):
            ended = at - j < 0 or (context[-1] == eos and j > 1)
            context.append(eos if ended and net.does("ends of texts") else tokens[max(at - j, 0)])
        for m in range(2, n + 1):
            z = 0
            for j in range(m):
                z ^= context[j] * multipliers[j] % 2**64
            for head in range((m - 2) * heads, (m - 1) * heads):
                out[at, head] = z % sizes[head] + offsets[head]
    return out


def ngrams(net: Net, x: np.ndarray, tokens: list[int], p: str) -> np.ndarray:
    n, n_embd = len(x), x.shape[2]
    e = net["per_layer_token_embd.weight"][table_rows(net, tokens)].reshape(n, -1)
    key = stream_norm(net, net.product(e, f"{p}ple_key").reshape(x.shape), f"{p}ple_norm_key")
    query = stream_norm(net, x, f"{p}ple_norm_query")
    s = (key * query).sum(axis=2) / math.sqrt(n_embd)
    gate = sigmoid(np.sign(s) * np.sqrt(np.maximum(np.abs(s), 1e-6)))
    g = (
        net.product(e, f"{p}ple_value")[:, None]
        * (gate if net.does("gate of n-grams") else np.ones_like(gate))[..., None]
    )
    normed = stream_norm(net, g, f"{p}ple_norm_conv").reshape(n, -1)
    taps = net[f"{p}ple_conv1d.weight"]
    apart = net.keys["ple.ngram_size"] if net.does("dilation") else 1
    mixed_ = np.zeros_like(normed)
    for j in range(taps.shape[1]):
        back = (taps.shape[1] - 1 - j) * apart
        mixed_[back:] += normed[: n - back] * taps[:, j]
    return x + g + silu(mixed_).reshape(x.shape)


def hyper_shapes(n_embd: int, name: str, *, end: bool = False) -> Shapes:
    wide = STREAMS * n_embd
    made: Shapes = {
        f"{name}_norm.weight": (wide,),
        f"{name}_down.weight": (RANK, wide),
        f"{name}_up.weight": (wide, RANK),
    }
    return made if end else made | {f"{name}_inject.weight": (STREAMS, wide)}


def case(seed: int = 28) -> Case:
    n_embd, d, k_heads, v_heads, n_tokens = 64, 32, 2, 4, 23
    text = random_tokens(5, n_tokens, N_VOCAB - 2)
    keys = base_keys(
        n_layers=3, n_embd=n_embd, heads=6, kv_heads=2, head_dim=24, n_ff=96, rope__dimension_count=16,
        rope__dimension_sections=[3, 3, 2, 0], full_attention_interval=3, ssm__conv_kernel=4, ssm__state_size=d,
        ssm__group_count=k_heads, ssm__time_step_rank=v_heads, ssm__inner_size=v_heads * d, expert_count=8,
        expert_used_count=3, expert_feed_forward_length=32, expert_shared_feed_forward_length=64,
        attention__indexer__head_count=8, attention__indexer__key_length=32, attention__indexer__top_k=8,
        attention__compress_ratios=[0, 0, BLOCK], hyper_connection__count=STREAMS, hyper_connection__low_rank=RANK,
        embedding_length_per_layer_input=16, ple__layers=[1], ple__ngram_size=3, ple__heads_per_ngram=2,
        ple__conv_kernel=4, ple__eos_token_id=text[9],
        ple__layer_multipliers=np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64),
        ple__head_offsets=np.cumsum([0, *SIZES[:-1]]).astype(np.uint64),
        ple__head_vocab_sizes=np.array(SIZES, np.uint64),
    )  # fmt: skip
    ffn = moe_shapes(n_embd, 32, 8) | ffn_shapes(n_embd, 64, suffix="_shexp") | {"ffn_gate_inp_shexp.weight": (n_embd,)}
    both = hyper_shapes(n_embd, "hc_attn") | hyper_shapes(n_embd, "hc_ffn") | ffn
    linear = both | qwen35.delta_block(n_embd, k_heads, v_heads, d, 4, next_=False)
    wide = STREAMS * n_embd
    ple: Shapes = {
        "ple_key.weight": (wide, n_embd), "ple_value.weight": (n_embd, n_embd), "ple_norm_key.weight": (wide,),
        "ple_norm_query.weight": (wide,), "ple_norm_conv.weight": (wide,), "ple_conv1d.weight": (wide, 4),
    }  # fmt: skip
    indexer: Shapes = {
        "indexer.q_proj.weight": (8 * 32, n_embd), "indexer.k_proj.weight": (32, n_embd),
        "indexer.q_norm.weight": (32,), "indexer.k_norm.weight": (32,),
    }  # fmt: skip
    full = both | qwen35.attention_block(n_embd, 6, 2, 24, fused=False) | indexer
    shapes = model_shapes(n_embd, [linear, linear | ple, full])
    del shapes["output_norm.weight"]
    shapes |= hyper_shapes(n_embd, "output_hc", end=True) | {"per_layer_token_embd.weight": (sum(SIZES), 16)}
    wrong = (
        "choice", "relu", "n-grams", "own weights", "gate of streams", "shares of streams", "ends of texts",
        "gate of n-grams", "dilation", "output gate",
    )  # fmt: skip
    return Case("qwen4exp", keys, shapes, forward, wrong, n_tokens=n_tokens, seed=seed)


CASES = {"qwen4exp": case()}
