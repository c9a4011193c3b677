"""Dense decoders with RMS norms that differ from Llama by a few things each: norms, activations, factors, windows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.models.families.build import Case, Shapes, attention_shapes, base_keys, ffn_shapes, model_shapes, norm_shapes
from tests.models.families.common import Net, Rope

NEIGHBOURS = ("ernie4_5", "internlm2", "arcee", "minicpm")
N_EMBD, HEADS, KV_HEADS, HEAD_DIM, N_FF = 96, 6, 2, 16, 128


def rotation(net: Net, name: str) -> Rope:
    d, base = net.number("attention.key_length"), float(np.float32(net.keys["rope.freq_base"]))
    alpha = net.keys.get("rope.scaling.alpha")
    if alpha is not None and net.does("alpha"):
        base *= float(np.float32(alpha)) ** (d / (d - 2))
    factors = None
    if net.has("rope_factors_long.weight"):
        long = net.number("rope.scaling.original_context_length") < 512  # what tests open these models with
        factors = net[f"rope_factors_{'long' if long == net.does('long factors') else 'short'}.weight"]
    elif net.has("rope_freqs.weight"):
        factors = net["rope_freqs.weight"]
    return net.rope(d, halves=name not in NEIGHBOURS, base=base, factors=factors)


def attention(net: Net, h: np.ndarray, p: str, rope: Rope | None, window: int | None, *, norm_last: bool) -> np.ndarray:
    n, d = len(h), net.number("attention.key_length")
    heads, kv = net.number("attention.head_count"), net.number("attention.head_count_kv")
    q, k, v = net.qkv(h, p, (heads * d, kv * d, kv * d))
    q, k, v = q.reshape(n, heads, d), k.reshape(n, kv, d), v.reshape(n, kv, d)

    def normed(q: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not net.has(f"{p}attn_q_norm.weight") or not net.does("qk norm"):
            return q, k
        return net.norm(q, f"{p}attn_q_norm"), net.norm(k, f"{p}attn_k_norm")

    last = norm_last and net.does("norm behind the rotation")
    if not last:
        q, k = normed(q, k)
    if rope is not None:
        q, k = net.turn(q, rope), net.turn(k, rope)
    if last:
        q, k = normed(q, k)
    return net.product(net.attend(q, k, v, 1 / math.sqrt(d), net.visible(n, window)), f"{p}attn_output")


def feed_forward(net: Net, f: np.ndarray, p: str, name: str, layer: int) -> np.ndarray:
    if name not in ("arcee", "apertus"):
        return net.ffn(f, p, net.geglu) if name == "gemma" else net.ffn(f, p)
    up = net.product(f, f"{p}ffn_up")
    if name == "arcee":
        act = np.maximum(up, 0) ** (2 if net.does("square") else 1)
    else:
        a_p, a_n, beta, eps = (np.float64(XIELU[key][layer]) for key in ("alpha_p", "alpha_n", "beta", "eps"))
        a_p, a_n = np.logaddexp(0, [a_p, a_n]) if net.does("softplus") else (a_p, a_n)
        above = a_p * up**2 + beta * up
        below = (np.expm1(np.minimum(up, eps)) - up) * (a_n + (beta if net.does("beta") else 0)) + beta * up
        act = np.where(up > 0, above, below)
    return net.product(act, f"{p}ffn_down")


def forward(net: Net, tokens: list[int]) -> np.ndarray:
    name, keys = net.made.case.architecture, net.keys
    n_layers = net.number("block_count") - keys.get("nextn_predict_layers", 0)
    rope, width = rotation(net, name), net.keys.get("attention.sliding_window")
    x = net["token_embd.weight"][tokens]
    residual = 1.0
    if name == "gemma" and net.does("embedding scale"):
        x = x * math.sqrt(N_EMBD)
    if name == "minicpm":
        usual = 12.0, 1.4 / math.sqrt(n_layers)
        x = x * (keys.get("embedding_scale", usual[0]) if net.does("embedding scale") else 1.0)
        residual = keys.get("residual_scale", usual[1]) if net.does("residual scale") else 1.0
    for layer in range(n_layers):
        p = f"blk.{layer}."
        local = width is not None and layer % 4 != 3
        turns = width is None or local or not net.does("layers without rope")
        window = width if local else None

        def attend(h: np.ndarray, p: str = p, turns: bool = turns, window: int | None = window) -> np.ndarray:
            return attention(net, h, p, rope if turns else None, window, norm_last=name == "hunyuan-dense")

        if name == "exaone4":
            x = x + net.norm(attend(x), f"{p}post_attention_norm")
            x = x + net.norm(net.ffn(x, p), f"{p}post_ffw_norm")
            continue
        x = x + residual * attend(net.norm(x, f"{p}attn_norm"))
        second = "post_attention_norm" if name == "seed_oss" else "ffn_norm"
        x = x + residual * feed_forward(net, net.norm(x, f"{p}{second}"), p, name, layer)
    logits = net.head(net.norm(x, "output_norm"))
    if name == "minicpm" and net.does("logit scale"):
        logits = logits / keys.get("logit_scale", N_EMBD / 256)
    return logits


def expanded_attention(net: Net, h: np.ndarray, p: str, rope: Rope) -> np.ndarray:
    """Keys and values of each head from a latent vector; the rotated end of a key is that of all heads."""
    n, heads, d = len(h), net.number("attention.head_count"), net.number("attention.key_length")
    rank, turned = net.number("attention.kv_lora_rank"), net.number("rope.dimension_count")
    plain = d - turned
    inner = net.norm(net.product(h, f"{p}attn_q_a"), f"{p}attn_q_a_norm")
    q = net.product(inner, f"{p}attn_q_b").reshape(n, heads, d)
    both = net.product(h, f"{p}attn_kv_a_mqa")
    kv = net.product(net.norm(both[:, :rank], f"{p}attn_kv_a_norm"), f"{p}attn_kv_b").reshape(n, heads, -1)
    k_turned = np.repeat(net.turn(both[:, None, rank:], rope), heads, axis=1)
    if net.does("rotated end"):
        q = np.concatenate([q[..., :plain], net.turn(q[..., plain:], rope)], axis=2)
        k = np.concatenate([kv[..., :plain], k_turned], axis=2)
    else:
        q = np.concatenate([net.turn(q[..., :turned], rope), q[..., turned:]], axis=2)
        k = np.concatenate([k_turned, kv[..., :plain]], axis=2)
    a = net.attend(q, k, kv[..., plain:], 1 / math.sqrt(d), net.visible(n, None))
    return net.product(a, f"{p}attn_output")


def minicpm3(net: Net, tokens: list[int]) -> np.ndarray:
    n_layers, factors = net.number("block_count"), None
    if net.has("rope_factors_long.weight"):
        factors = net["rope_factors_short.weight"]
    rope = net.rope(net.number("rope.dimension_count"), halves=True, factors=factors)
    residual = 1.4 / math.sqrt(n_layers) if net.does("residual scale") else 1.0
    x = net["token_embd.weight"][tokens] * (12.0 if net.does("embedding scale") else 1.0)
    for layer in range(n_layers):
        p = f"blk.{layer}."
        x = x + residual * expanded_attention(net, net.norm(x, f"{p}attn_norm"), p, rope)
        x = x + residual * net.ffn(net.norm(x, f"{p}ffn_norm"), p)
    return net.head(net.norm(x, "output_norm")) * (256 / N_EMBD if net.does("logit scale") else 1.0)


def expanded(*, factors: bool) -> Case:
    q_rank, rank, plain, turned, value = 32, 64, 24, 16, 16
    block: Shapes = {
        "attn_q_a.weight": (q_rank, N_EMBD),
        "attn_q_a_norm.weight": (q_rank,),
        "attn_q_b.weight": (HEADS * (plain + turned), q_rank),
        "attn_kv_a_mqa.weight": (rank + turned, N_EMBD),
        "attn_kv_a_norm.weight": (rank,),
        "attn_kv_b.weight": (HEADS * (plain + value), rank),
        "attn_output.weight": (N_EMBD, HEADS * value),
    }
    block |= norm_shapes(N_EMBD, "attn_norm", "ffn_norm") | ffn_shapes(N_EMBD, N_FF)
    keys = base_keys(
        n_layers=3, n_embd=N_EMBD, heads=HEADS, kv_heads=HEADS, head_dim=plain + turned, n_ff=N_FF,
        attention__value_length=None, attention__q_lora_rank=q_rank, attention__kv_lora_rank=rank,
        rope__dimension_count=turned,
    )  # fmt: skip
    shapes = model_shapes(N_EMBD, [block] * 3)
    if factors:
        shapes |= {f"rope_factors_{which}.weight": (turned // 2,) for which in ("long", "short")}
    wrong = ("rope pairs", "rotated end", "residual scale", "logit scale", *["factors"] * factors)
    return Case("minicpm3", keys, shapes, minicpm3, wrong, n_tokens=14, seed=3, sizes={"output_norm": 0.3})


XIELU = {
    "alpha_p": [0.4, -0.7, 0.1],
    "alpha_n": [-0.5, 0.3, 0.8],
    "beta": [0.5, 0.4, 0.3],
    "eps": [-1e-6, -1e-6, -1e-6],
}


def case(
    name: str, *wrong: str, n_layers: int = 2, tied: bool = False, norms: tuple[str, ...] = ("attn_norm", "ffn_norm"),
    gated: bool = True, extra: Shapes | None = None, head_dim: int = HEAD_DIM, seed: int = 1, n_tokens: int = 14,
    biases: bool = False, head_norms: bool = False, bare: dict[str, Any] | None = None, **keys: Any,
) -> Case:  # fmt: skip
    ffn = ffn_shapes(N_EMBD, N_FF)
    if not gated:
        del ffn["ffn_gate.weight"]
    block = norm_shapes(N_EMBD, *norms) | ffn
    block |= attention_shapes(N_EMBD, HEADS, KV_HEADS, head_dim, norms=head_norms, biases=biases)
    every = base_keys(
        n_layers=n_layers, n_embd=N_EMBD, heads=HEADS, kv_heads=KV_HEADS, head_dim=head_dim, n_ff=N_FF, **keys
    )
    shapes = model_shapes(N_EMBD, [block] * n_layers, tied=tied) | (extra or {})
    gelu = name == "gemma"
    sizes = {"output_norm": 0.15} if gelu else {}  # else a token's own embedding takes all of its probability
    return Case(
        name, every, shapes, forward, ("rope pairs", *wrong), n_tokens, seed, sizes=sizes, gelu=gelu, bare=bare or {}
    )


POST = ("post_attention_norm", "post_ffw_norm")


def windowed(n_layers: int) -> Case:
    return case(
        "exaone4", "qk norm", "window", "layers without rope", n_layers=n_layers, norms=POST, head_norms=True,
        attention__sliding_window=9,
    )  # fmt: skip


CASES = {
    "seed_oss": case("seed_oss", "biases", biases=True, head_dim=24, norms=("attn_norm", "post_attention_norm")),
    "ernie4_5": case("ernie4_5", tied=True),
    "internlm2": case("internlm2"),
    "arcee": case("arcee", "square", gated=False),
    "hunyuan-dense": case("hunyuan-dense", "norm behind the rotation", head_norms=True),
    "hunyuan-dense-alpha": case("hunyuan-dense", "alpha", head_norms=True, rope__scaling__alpha=50.0),
    "exaone4": case("exaone4", "qk norm", norms=POST, head_norms=True),
    "exaone4-windows": windowed(4),
    "gemma": case("gemma", "embedding scale", tied=True, head_dim=24),
    "minicpm": case(
        "minicpm", "embedding scale", "residual scale", "logit scale", embedding_scale=3.0, residual_scale=0.4,
        logit_scale=0.25,
    ),
    "minicpm-long": case(
        "minicpm", "long factors", "factors", embedding_scale=3.0, residual_scale=0.4, logit_scale=0.25,
        rope__scaling__type="longrope", rope__scaling__original_context_length=128,
        extra={"rope_factors_long.weight": (HEAD_DIM // 2,), "rope_factors_short.weight": (HEAD_DIM // 2,)},
    ),
    "minicpm-old": case("minicpm", "embedding scale", "residual scale", "logit scale", n_layers=3),
    "minicpm3": expanded(factors=False),
    "minicpm3-factors": expanded(factors=True),
    "apertus": case(
        "apertus", "qk norm", "softplus", "beta", seed=4, n_layers=3, gated=False, head_norms=True,
        extra={"rope_freqs.weight": (HEAD_DIM // 2,)}, bare={f"xielu.{key}": values for key, values in XIELU.items()},
    ),
}  # fmt: skip
LARGE_AS_SOLD = {"exaone4-windows-of-64-layers": windowed(64)}
"""llama.cpp knows the large model by its number of layers."""
