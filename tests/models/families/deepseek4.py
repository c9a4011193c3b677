"""DeepSeek-V4: streams that sub-layers mix, attention over a window and over keys of whole blocks, experts by token."""

from __future__ import annotations

import math

import numpy as np

from tests.models.families.build import N_VOCAB, Case, Shapes, base_keys, ffn_shapes, model_shapes, moe_shapes
from tests.models.families.common import Net, Rope, rms, sigmoid, silu, softmax, softplus

STREAMS, CHOSEN = 4, 4


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    x = np.repeat(net["token_embd.weight"][tokens][:, None], STREAMS, axis=1)  # [n, stream, n_embd]
    for layer in range(net.number("block_count")):
        p = f"blk.{layer}."
        h, put, mix = mixed(net, x, f"{p}hc_attn")
        y = attention(net, net.norm(h, f"{p}attn_norm"), p, int(net.keys["attention.compress_ratios"][layer]))
        x = put[:, :, None] * y[:, None] + np.einsum("nsd,nse->nde", mix, x)
        h, put, mix = mixed(net, x, f"{p}hc_ffn")
        y = experts(net, net.norm(h, f"{p}ffn_norm"), p, tokens)
        x = put[:, :, None] * y[:, None] + np.einsum("nsd,nse->nde", mix, x)
    return net.head(net.norm(mixed(net, x, "output_hc")[0], "output_norm"))


def mixed(net: Net, x: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What is read of the streams, how they are written, and their mix [n, source, target]."""
    n, eps = len(x), net.keys["hyper_connection.epsilon"]
    flat = x.reshape(n, -1)
    m = net.product(flat / np.sqrt((flat * flat).mean(axis=1, keepdims=True) + net.eps), f"{name}_fn")
    base, scale = net[f"{name}_base.weight"], net[f"{name}_scale.weight"]
    read = sigmoid(m[:, :STREAMS] * scale[0] + base[:STREAMS]) + eps
    h = np.einsum("ns,nse->ne", read, x)
    if m.shape[1] == STREAMS:
        return h, read, read
    put = 2 * sigmoid(m[:, STREAMS : 2 * STREAMS] * scale[1] + base[STREAMS : 2 * STREAMS])
    mix = softmax((m[:, 2 * STREAMS :] * scale[2] + base[2 * STREAMS :]).reshape(n, STREAMS, STREAMS)) + eps
    if net.does("sums of targets"):
        mix = mix / (mix.sum(axis=1, keepdims=True) + eps)
        for _ in range(net.number("hyper_connection.sinkhorn_iterations") - 1):
            mix = mix / (mix.sum(axis=2, keepdims=True) + eps)
            mix = mix / (mix.sum(axis=1, keepdims=True) + eps)
    return h, put, mix if net.does("mix of streams") else np.broadcast_to(np.eye(STREAMS), mix.shape)


def turned(net: Net, x: np.ndarray, rope: Rope, positions: np.ndarray, *, back: bool = False) -> np.ndarray:
    """The last elements of heads [n, heads, d] turned by positions."""
    dim = net.number("rope.dimension_count")
    part = slice(x.shape[2] - dim, None) if net.does("last elements turn") else slice(0, dim)
    angles = positions[:, None] * rope.frequencies * (-1 if back else 1)
    c, s = np.cos(angles)[:, None], np.sin(angles)[:, None]
    out, a, b = x.copy(), x[:, :, part][:, :, ::2], x[:, :, part][:, :, 1::2]
    out[:, :, part] = np.stack([a * c - b * s, a * s + b * c], axis=-1).reshape(x[:, :, part].shape)
    return out


def rope_of(net: Net, block: int) -> Rope:
    dim = net.number("rope.dimension_count")
    if not block or not net.does("rotation of blocks"):
        return Rope(net.keys["rope.freq_base"] ** (-np.arange(0, dim, 2) / dim), False)
    base = net.keys["attention.compress_rope_freq_base"]
    frequencies = base ** (-np.arange(0, dim, 2) / dim)
    if net.keys.get("rope.scaling.type") == "yarn":
        factor, context = net.keys["rope.scaling.factor"], net.keys["rope.scaling.original_context_length"]

        def pair(rotations: float) -> float:
            return dim * math.log(context / (2 * math.pi * rotations)) / (2 * math.log(base))

        low, high = max(0, math.floor(pair(32))), min(dim - 1, math.ceil(pair(1)))
        ramp = 1 - np.clip((np.arange(dim // 2) - low) / max(0.001, high - low), 0, 1)
        frequencies = frequencies * ((1 - ramp) / factor + ramp)
    return Rope(frequencies, False)


def attention(net: Net, h: np.ndarray, p: str, block: int) -> np.ndarray:
    heads, d, window = (net.number(f"attention.{k}") for k in ("head_count", "key_length", "sliding_window"))
    n, rope, at = len(h), rope_of(net, block), np.arange(len(h))
    latent = net.norm(net.product(h, f"{p}attn_q_a"), f"{p}attn_q_a_norm")
    q = net.product(latent, f"{p}attn_q_b").reshape(n, heads, d)
    if net.does("norm of queries"):
        q = q / np.sqrt((q * q).mean(axis=2, keepdims=True) + net.eps)
    q = turned(net, q, rope, at)
    k = turned(net, net.norm(net.product(h, f"{p}attn_kv"), f"{p}attn_kv_a_norm")[:, None], rope, at)[:, 0]
    seen = net.visible(n, window)
    if block:
        keys = block_keys(net, h, f"{p}attn_compressor", block, rope, d)
        whole = (np.arange(len(keys)) + 1) * block <= at[:, None] + 1
        if block == CHOSEN and net.does("choice"):
            whole &= chosen(net, h, latent, p, rope, whole)
        if net.does("blocks"):
            k, seen = np.concatenate([k, keys]), np.concatenate([seen, whole], axis=1)
    k = net.cached(k)
    scores = np.where(seen[:, None], np.einsum("nhd,sd->nhs", q, k) / math.sqrt(d), -np.inf)
    sinks = net[f"{p}attn_sinks.weight"] if net.does("sinks") else np.full(heads, -1e9)
    scores = np.concatenate([scores, np.broadcast_to(sinks[None, :, None], (n, heads, 1))], axis=2)
    o = np.einsum("nhs,sd->nhd", softmax(scores)[..., :-1], k)
    if net.does("turned back"):
        o = turned(net, o, rope, at, back=True)
    groups, rank = net.number("attention.output_group_count"), net.number("attention.output_lora_rank")
    name = f"{p}attn_output_a.weight"
    wa, o = net[name].reshape(groups, rank, -1), net.seen(o.reshape(n, groups, -1), name)
    return net.product(np.einsum("ngi,gri->ngr", o, wa).reshape(n, -1), f"{p}attn_output_b")


def block_keys(net: Net, h: np.ndarray, name: str, block: int, rope: Rope, d: int) -> np.ndarray:
    """Keys of the whole blocks of a text, f64[blocks, d]."""
    n, overlap = len(h) // block, block == CHOSEN
    u = net.product(h, f"{name}_kv")[: n * block].reshape(n, block, -1)
    s = net.product(h, f"{name}_gate")[: n * block].reshape(n, block, -1)
    if net.does("places in blocks"):
        s = s + net[f"{name}_ape.weight"]
    out = np.empty((n, d))
    for b in range(n):
        values, scores = u[b][:, -d:], s[b][:, -d:]
        if overlap and b and net.does("block before"):
            values = np.concatenate([u[b - 1][:, :d], values])
            scores = np.concatenate([s[b - 1][:, :d], scores])
        out[b] = (softmax(scores.T).T * values).sum(axis=0)
    out = rms(out, net[f"{name}_norm.weight"], net.eps)
    return turned(net, out[:, None], rope, np.arange(n) * block)[:, 0]


def chosen(net: Net, h: np.ndarray, latent: np.ndarray, p: str, rope: Rope, whole: np.ndarray) -> np.ndarray:
    """The best blocks of those that each row may see, bool[n, blocks]."""
    heads, d, top_k = (net.number(f"attention.indexer.{k}") for k in ("head_count", "key_length", "top_k"))
    n = len(h)
    q = turned(net, net.product(latent, f"{p}indexer.attn_q_b").reshape(n, heads, d), rope, np.arange(n))
    k = net.cached(block_keys(net, h, f"{p}indexer_compressor", CHOSEN, rope, d))
    products = np.einsum("nhd,bd->nbh", q, k)
    w = net.product(h, f"{p}indexer.proj") / math.sqrt(heads * d)
    scores = np.einsum("nbh,nh->nb", np.maximum(products, 0) if net.does("relu") else products, w)
    out = np.zeros_like(whole)
    for row in range(n):
        order = np.argsort(-scores[row, : whole[row].sum()], kind="stable")
        net.note_choice(scores[row, order], top_k, row)
        out[row, order[:top_k]] = True
    return out


def experts(net: Net, h: np.ndarray, p: str, tokens: list[int]) -> np.ndarray:
    c = net.keys["swiglu_clamp_exp"]

    def act(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
        if not net.does("clamps"):
            return silu(gate) * up
        return silu(np.minimum(gate, c)) * np.clip(up, -c, c)

    probs = np.sqrt(softplus(net.product(h, f"{p}ffn_gate_inp")))
    if not net.does("root of gates"):
        probs = probs**2
    out = np.zeros_like(h)
    for row in range(len(h)):
        if net.has(f"{p}ffn_gate_tid2eid.weight"):
            ids = net[f"{p}ffn_gate_tid2eid.weight"][tokens[row]].astype(int)
            if not net.does("experts by token"):
                ids = np.arange(len(ids))
        else:
            ids = net.choose(probs[row] + net[f"{p}exp_probs_b.bias"], (1, 1), row)
        w = probs[row, ids]
        w = w / max(w.sum(), 2.0**-14) * net.keys["expert_weights_scale"]
        for expert, weight in zip(ids, w, strict=True):
            out[row] += weight * net.expert(h[row], p, int(expert), act)
    inner = act(net.product(h, f"{p}ffn_gate_shexp"), net.product(h, f"{p}ffn_up_shexp"))
    return out + net.product(inner, f"{p}ffn_down_shexp")


def hyper_shapes(n_embd: int, name: str, outputs: int, scales: int) -> Shapes:
    return {
        f"{name}_fn.weight": (outputs, STREAMS * n_embd), f"{name}_base.weight": (outputs,),
        f"{name}_scale.weight": (scales,),
    }  # fmt: skip


def compressor_shapes(n_embd: int, name: str, block: int, d: int) -> Shapes:
    width = 2 * d if block == CHOSEN else d
    return {
        f"{name}_kv.weight": (width, n_embd), f"{name}_gate.weight": (width, n_embd),
        f"{name}_ape.weight": (block, width), f"{name}_norm.weight": (d,),
    }  # fmt: skip


def case(blocks: list[int], n_tokens: int, *, top_k: int = 3, seed: int = 1, **more: object) -> Case:
    n_embd, heads, d, turns, q_rank, groups, rank, n_ff, n_experts, used, di = 64, 6, 32, 16, 32, 2, 32, 32, 8, 3, 64
    keys = base_keys(
        n_layers=len(blocks), n_embd=n_embd, heads=heads, kv_heads=1, head_dim=d, n_ff=None,
        rope__dimension_count=turns, attention__q_lora_rank=q_rank, attention__sliding_window=6,
        attention__output_group_count=groups, attention__output_lora_rank=rank,
        attention__compress_ratios=blocks, attention__compress_rope_freq_base=160000.0,
        attention__indexer__head_count=8, attention__indexer__key_length=di, attention__indexer__top_k=top_k,
        hyper_connection__count=STREAMS, hyper_connection__sinkhorn_iterations=20, hyper_connection__epsilon=1e-6,
        hash_layer_count=1, expert_count=n_experts, expert_used_count=used, expert_feed_forward_length=n_ff,
        expert_shared_count=1, expert_gating_func=4, expert_weights_norm=True, expert_weights_scale=1.5,
        swiglu_clamp_exp=1.0, rope__scaling__type="yarn", rope__scaling__factor=4.0,
        rope__scaling__original_context_length=64, **more,
    )  # fmt: skip
    layers = []
    for layer, block in enumerate(blocks):
        shapes: Shapes = {
            "attn_norm.weight": (n_embd,), "ffn_norm.weight": (n_embd,), "attn_sinks.weight": (heads,),
            "attn_q_a.weight": (q_rank, n_embd), "attn_q_a_norm.weight": (q_rank,),
            "attn_q_b.weight": (heads * d, q_rank), "attn_kv.weight": (d, n_embd), "attn_kv_a_norm.weight": (d,),
            "attn_output_a.weight": (groups * rank, heads * d // groups),
            "attn_output_b.weight": (n_embd, groups * rank),
        }  # fmt: skip
        for part in ("hc_attn", "hc_ffn"):
            shapes |= hyper_shapes(n_embd, part, STREAMS * (2 + STREAMS), 3)
        if block:
            shapes |= compressor_shapes(n_embd, "attn_compressor", block, d)
        if block == CHOSEN:
            shapes |= compressor_shapes(n_embd, "indexer_compressor", block, di)
            shapes |= {"indexer.attn_q_b.weight": (8 * di, q_rank), "indexer.proj.weight": (8, n_embd)}
        shapes |= moe_shapes(n_embd, n_ff, n_experts) | ffn_shapes(n_embd, n_ff, suffix="_shexp")
        shapes |= {"exp_probs_b.bias": (n_experts,)} if layer else {"ffn_gate_tid2eid.weight": (N_VOCAB, used)}
        layers.append(shapes)
    shapes = model_shapes(n_embd, layers) | hyper_shapes(n_embd, "output_hc", STREAMS, 1)
    rng = np.random.default_rng(seed)
    table = [rng.choice(n_experts, used, replace=False) for _ in range(N_VOCAB)]
    wrong = (
        "blocks", "choice", "relu", "block before", "places in blocks", "rotation of blocks", "last elements turn",
        "norm of queries", "sinks", "turned back", "mix of streams", "sums of targets", "experts by token", "clamps",
        "root of gates", "window",
    )  # fmt: skip
    return Case(
        "deepseek4", keys, shapes, forward, wrong, n_tokens=n_tokens, seed=seed,
        given={"blk.0.ffn_gate_tid2eid.weight": np.array(table)},
    )  # fmt: skip


CASES = {"deepseek4": case([0, CHOSEN, 8], 27, seed=8)}
AS_SOLD = {"deepseek4-as-sold": case([0, CHOSEN, 128, CHOSEN], 150, top_k=5)}
"""llama.cpp knows blocks of 4 and of 128 positions."""
