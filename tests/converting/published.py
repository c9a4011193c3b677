"""Layouts of published folders, as tables: what a layer holds under Hugging Face's names, and what becomes of it.

Written from the models' own configurations and code, not from what is tested. `LAYOUTS` names them by class.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
Change = Callable[[Array], Array]
E, H, KV, D, FF, VOCAB, EXPERTS, EXPERT_FF = 64, 4, 2, 16, 96, 320, 4, 32


@dataclass(frozen=True)
class Part:
    """A tensor of the new file: the folder's tensor, its shape there, and what is done to it.

    count: how many tensors `*` in the name stands for, which become one.
    """

    stored: str
    shape: tuple[int, ...]
    change: Change = lambda x: x
    count: int = 0


Parts = dict[str, Part]


@dataclass(frozen=True)
class Layout:
    """A class: the parts of each layer by their new names without `blk.N.`, and of the ends; config.json; keys of the
    new file without the architecture's prefix, among those that other tests do not look at. None: a key that it lacks.
    """

    architecture: str
    layers: tuple[Parts, ...]
    ends: Parts
    config: Mapping[str, Any]
    keys: Mapping[str, Any] = field(default_factory=dict)
    general: Mapping[str, Any] = field(default_factory=dict)
    layer: str = "model.layers"
    whole_numbers: Mapping[str, list[int]] = field(default_factory=dict)


def interleaved(heads: int) -> Change:
    """Rows of a head whose pairs are half a head apart, as neighbours."""

    def change(x: Array) -> Array:
        each = x.shape[0] // heads
        order = [head * each + i // 2 + (i % 2) * (each // 2) for head in range(heads) for i in range(each)]
        return x[order]

    return change


def plus_one(x: Array) -> Array:
    return x + np.float32(1)


def linears(names: Mapping[str, tuple[str, tuple[int, ...]]], *, bias: str = "") -> Parts:
    """Modules with weights, and biases where their new names are in `bias`."""
    made = {f"{new}.weight": Part(f"{old}.weight", shape) for new, (old, shape) in names.items()}
    return made | {f"{n}.bias": Part(f"{old}.bias", s[:1]) for n, (old, s) in names.items() if n in bias.split()}


def attention(*, bias: str = "", out: str = "o_proj", value: int = D, kv: int = KV) -> Parts:
    sizes = {"attn_q": ("q_proj", H * D), "attn_k": ("k_proj", kv * D), "attn_v": ("v_proj", kv * value)}
    names = {new: (f"self_attn.{old}", (n, E)) for new, (old, n) in sizes.items()}
    return linears(names | {"attn_output": (f"self_attn.{out}", (E, H * value))}, bias=bias)


def turned(parts: Parts) -> Parts:
    """Queries and keys whose pairs become neighbours."""
    made = dict(parts)
    for name, heads in (("attn_q.weight", H), ("attn_k.weight", KV)):
        made[name] = Part(parts[name].stored, parts[name].shape, interleaved(heads))
    return made


def head_norms(q: str = "q_norm", k: str = "k_norm", *, whole: bool = False) -> Parts:
    sizes = (H * D, KV * D) if whole else (D, D)
    return {f"attn_{x}_norm.weight": Part(f"self_attn.{n}.weight", (s,)) for x, n, s in zip("qk", (q, k), sizes)}


def norms(change: Change = lambda x: x, *, bias: bool = False, **names: str) -> Parts:
    made = {f"{new}.weight": Part(f"{old}.weight", (E,), change) for new, old in names.items()}
    return made | ({f"{new}.bias": Part(f"{old}.bias", (E,)) for new, old in names.items()} if bias else {})


def ffn(prefix: str = "mlp", *, suffix: str = "", n: int = FF, gate: bool = True, names: str = "_proj") -> Parts:
    kinds = {"gate": (n, E), "up": (n, E), "down": (E, n)}
    return linears(
        {f"ffn_{x}{suffix}": (f"{prefix}.{x}{names}", shape) for x, shape in kinds.items() if gate or x != "gate"}
    )


def experts(prefix: str = "mlp.experts", names: str = "gate_proj up_proj down_proj") -> Parts:
    kinds = {"gate": (EXPERT_FF, E), "up": (EXPERT_FF, E), "down": (E, EXPERT_FF)}
    return {
        f"ffn_{x}_exps.weight": Part(f"{prefix}.*.{old}.weight", shape, count=EXPERTS)
        for old, (x, shape) in zip(names.split(), kinds.items(), strict=True)
    }


def router(name: str = "mlp.gate", bias: str = "") -> Parts:
    made = {"ffn_gate_inp.weight": Part(f"{name}.weight", (EXPERTS, E))}
    return made | ({"exp_probs_b.bias": Part(bias, (EXPERTS,))} if bias else {})


DENSE_4H = linears(
    {"ffn_up": ("mlp.dense_h_to_4h", (FF, E)), "ffn_down": ("mlp.dense_4h_to_h", (E, FF))}, bias="ffn_up ffn_down"
)
PRE = norms(attn_norm="input_layernorm", ffn_norm="post_attention_layernorm")
LN = norms(bias=True, attn_norm="input_layernorm", ffn_norm="post_attention_layernorm")


def ends(
    embedding: str = "model.embed_tokens", norm: str = "model.norm", head: str | None = "lm_head", *,
    change: Change = lambda x: x, bias: bool = False,
) -> Parts:  # fmt: skip
    made = {"token_embd.weight": Part(f"{embedding}.weight", (VOCAB, E))}
    made["output_norm.weight"] = Part(f"{norm}.weight", (E,), change)
    if bias:
        made["output_norm.bias"] = Part(f"{norm}.bias", (E,))
    return made | ({"output.weight": Part(f"{head}.weight", (VOCAB, E))} if head else {})


def together(kv: int) -> Change:
    """Rows that are the query heads, the key head and the values of each key head, as all queries, keys and values."""

    def change(x: Array) -> Array:
        heads = x.reshape(kv, H // kv + 2, D, -1)
        parts = heads[:, :-2], heads[:, -2], heads[:, -1]
        return np.concatenate([part.reshape(-1, *x.shape[1:]) for part in parts])

    return change


def grouped(which: str) -> Change:
    """Of InternLM 2's rows, which are two query heads, a key head and its values for each of the key heads."""

    def change(x: Array) -> Array:
        heads = x.reshape(KV, H // KV + 2, D, E)
        chosen = {"q": heads[:, : H // KV], "k": heads[:, H // KV], "v": heads[:, H // KV + 1]}[which]
        rows = chosen.reshape(-1, E)
        return rows if which == "v" else interleaved(H if which == "q" else KV)(rows)

    return change


NOPE, ROPE, VALUE, LATENT, QUERY = 16, 8, 24, 32, 40
SMALL: dict[str, Any] = {
    "vocab_size": VOCAB, "hidden_size": E, "intermediate_size": FF, "num_hidden_layers": 2, "num_attention_heads": H,
    "num_key_value_heads": KV, "max_position_embeddings": 512, "rope_theta": 5e4, "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}  # fmt: skip
ROUTED = {"num_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": EXPERT_FF}
ROUTED_KEYS = {"expert_count": EXPERTS, "expert_used_count": 2, "expert_feed_forward_length": EXPERT_FF}
LN_KEYS = {"attention.layer_norm_epsilon": 1e-5, "attention.layer_norm_rms_epsilon": None}
SIGMOID = {"expert_weights_norm": True, "expert_weights_scale": 2.5, "expert_gating_func": 2}


def renamed(**names: str | None) -> dict[str, Any]:
    """The small configuration with keys of other names, or without them."""
    made = {key: value for key, value in SMALL.items() if key not in names}
    return made | {new: SMALL[old] for old, new in names.items() if new is not None}


DENSE: dict[str, Layout] = {
    "SeedOssForCausalLM": Layout(
        "seed_oss",
        (attention(bias="attn_q attn_k attn_v") | ffn()
         | norms(attn_norm="input_layernorm", post_attention_norm="post_attention_layernorm"),) * 2,
        ends(), SMALL | {"head_dim": D, "attention_bias": True, "attention_out_bias": False, "mlp_bias": False,
                         "rope_scaling": {"rope_type": "default"}},
        {"rope.freq_base": 5e4, "attention.key_length": D},
    ),
    "Ernie4_5ForCausalLM": Layout(
        "ernie4_5", (attention() | ffn() | PRE,) * 2, ends(), SMALL | {"head_dim": D, "use_bias": False}
    ),
    "HunYuanDenseV1ForCausalLM": Layout(
        "hunyuan-dense", (attention() | ffn() | PRE | head_norms("query_layernorm", "key_layernorm"),) * 2,
        ends(head=None), SMALL | {"head_dim": D, "rope_theta": 1e4, "tie_word_embeddings": True, "use_cla": False,
                                  "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}},
        {"rope.freq_base": 1e4 * 1000 ** (D / (D - 2)), "context_length": 262144},
    ),
    "Exaone4ForCausalLM": Layout(
        "exaone4",
        (attention() | ffn() | head_norms()
         | norms(post_attention_norm="post_attention_layernorm", post_ffw_norm="post_feedforward_layernorm"),) * 4,
        ends(), SMALL | {"num_hidden_layers": 4, "sliding_window": 128, "sliding_window_pattern": "LLLG"},
        {"attention.sliding_window": 128, "attention.sliding_window_pattern": [True, True, True, False]},
    ),
    "InternLM2ForCausalLM": Layout(
        "internlm2",
        ({f"attn_{x}.weight": Part("attention.wqkv.weight", ((H + 2 * KV) * D, E), grouped(x)) for x in "qkv"}
         | linears({"attn_output": ("attention.wo", (E, H * D)), "ffn_gate": ("feed_forward.w1", (FF, E)),
                    "ffn_up": ("feed_forward.w3", (FF, E)), "ffn_down": ("feed_forward.w2", (E, FF))})
         | norms(attn_norm="attention_norm", ffn_norm="ffn_norm"),) * 2,
        ends("model.tok_embeddings", head="output"),
        SMALL | {"bias": False, "rope_scaling": {"type": "dynamic", "factor": 2.0}}, {"rope.freq_base": 5e4},
    ),
    "MiniCPMForCausalLM": Layout(
        "minicpm", (turned(attention()) | ffn() | PRE,) * 2, ends(head=None),
        renamed(tie_word_embeddings=None) | {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 16},
        {"embedding_scale": 12.0, "residual_scale": 1.4 / 2**0.5, "logit_scale": 4.0},
    ),
    "GemmaForCausalLM": Layout(
        "gemma",
        (attention() | ffn()
         | norms(plus_one, attn_norm="input_layernorm", ffn_norm="post_attention_layernorm"),) * 2,
        ends(head=None, change=plus_one), renamed(tie_word_embeddings=None) | {"head_dim": D, "hidden_act": "gelu"},
    ),
    "ArceeForCausalLM": Layout(
        "arcee", (turned(attention()) | ffn(gate=False) | PRE,) * 2, ends(), SMALL | {"hidden_act": "relu2"}
    ),
    "NemotronForCausalLM": Layout(
        "nemotron",
        (attention() | ffn(gate=False)
         | norms(plus_one, bias=True, attn_norm="input_layernorm", ffn_norm="post_attention_layernorm"),) * 2,
        ends(change=plus_one, bias=True),
        renamed(rms_norm_eps="norm_eps") | {"hidden_act": "relu2", "partial_rotary_factor": 0.5},
        LN_KEYS | {"rope.dimension_count": 8},
    ),
    "ApertusForCausalLM": Layout(
        "apertus",
        (attention() | ffn(gate=False) | head_norms()
         | norms(attn_norm="attention_layernorm", ffn_norm="feedforward_layernorm"),) * 2,
        ends(), SMALL | {"hidden_act": "xielu"},
        general={f"xielu.{x}": x for x in ("alpha_n", "alpha_p", "beta", "eps")},
    ),
    "Cohere2ForCausalLM": Layout(
        "cohere2", (attention() | ffn() | norms(attn_norm="input_layernorm"),) * 4, ends(head=None),
        renamed(rms_norm_eps="layer_norm_eps", tie_word_embeddings=None)
        | {"num_hidden_layers": 4, "logit_scale": 0.25, "rotary_pct": 1.0, "sliding_window": 64,
           "sliding_window_pattern": 4},
        LN_KEYS | {"logit_scale": 0.25, "attention.sliding_window": 64},
    ),
    "Starcoder2ForCausalLM": Layout(
        "starcoder2",
        (attention(bias="attn_q attn_k attn_v attn_output") | LN | linears(
            {"ffn_up": ("mlp.c_fc", (FF, E)), "ffn_down": ("mlp.c_proj", (E, FF))}, bias="ffn_up ffn_down"),) * 2,
        ends(head=None, bias=True),
        renamed(rms_norm_eps="norm_epsilon", tie_word_embeddings=None)
        | {"hidden_act": "gelu_pytorch_tanh", "use_bias": True, "sliding_window": 4096},
        LN_KEYS | {"attention.sliding_window": None},
    ),
    "StableLmForCausalLM": Layout(
        "stablelm",
        (attention() | ffn() | norms(bias=True, attn_norm="input_layernorm")
         | {"attn_q_norm.weight": Part("self_attn.q_layernorm.norms.*.weight", (D,), count=H),
            "attn_k_norm.weight": Part("self_attn.k_layernorm.norms.*.weight", (D,), count=KV)},) * 2,
        ends(bias=True),
        renamed(rms_norm_eps="layer_norm_eps") | {"partial_rotary_factor": 0.25, "use_parallel_residual": True},
        LN_KEYS | {"rope.dimension_count": 4, "use_parallel_residual": True},
    ),
    "GPTNeoXForCausalLM": Layout(
        "gptneox",
        (LN | DENSE_4H | linears({"attn_output": ("attention.dense", (E, H * D))}, bias="attn_output")
         | {f"attn_qkv.{x}": Part(f"attention.query_key_value.{x}", (3 * H * D, *wide), together(H))
            for x, wide in (("weight", (E,)), ("bias", ()))},) * 2,
        ends("gpt_neox.embed_in", "gpt_neox.final_layer_norm", "embed_out", bias=True),
        renamed(rms_norm_eps="layer_norm_eps", rope_theta="rotary_emb_base", num_key_value_heads=None)
        | {"hidden_act": "gelu", "rotary_pct": 0.25, "use_parallel_residual": True},
        LN_KEYS | {"rope.dimension_count": 4, "rope.freq_base": 5e4, "use_parallel_residual": True},
        layer="gpt_neox.layers",
    ),
    **{
        f"FalconForCausalLM {form}": Layout(
            "falcon",
            (linears({"attn_output": ("self_attention.dense", (E, H * D)), "ffn_up": ("mlp.dense_h_to_4h", (4 * E, E)),
                      "ffn_down": ("mlp.dense_4h_to_h", (E, 4 * E))})
             | {"attn_qkv.weight": Part("self_attention.query_key_value.weight", ((H + 2 * kv) * D, E), together(kv))}
             | norms(bias=True, **names),) * 2,
            ends("transformer.word_embeddings", "transformer.ln_f", bias=True),
            renamed(rms_norm_eps="layer_norm_epsilon", intermediate_size=None, num_key_value_heads="num_kv_heads")
            | {"alibi": False, "bias": False, "parallel_attn": True, "multi_query": True, **config},
            LN_KEYS | {"attention.head_count_kv": kv, "feed_forward_length": 4 * E, "context_length": 512},
            layer="transformer.h",
        )
        for form, kv, config, names in (
            ("7B", 1, {"num_kv_heads": H, "new_decoder_architecture": False}, {"attn_norm": "input_layernorm"}),
            ("40B", KV, {"new_decoder_architecture": True}, {"attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"}),
        )
    },
}  # fmt: skip

SHARED = ffn("mlp.shared_experts", suffix="_shexp", n=EXPERT_FF)
STACKED: Parts = {
    "ffn_gate_exps.weight": Part(
        "feed_forward.experts.gate_up_proj", (EXPERTS, E, 2 * EXPERT_FF), lambda x: x[..., :EXPERT_FF].swapaxes(1, 2)
    ),
    "ffn_up_exps.weight": Part(
        "feed_forward.experts.gate_up_proj", (EXPERTS, E, 2 * EXPERT_FF), lambda x: x[..., EXPERT_FF:].swapaxes(1, 2)
    ),
    "ffn_down_exps.weight": Part("feed_forward.experts.down_proj", (EXPERTS, EXPERT_FF, E), lambda x: x.swapaxes(1, 2)),
}
TOGETHER: Parts = {
    "ffn_gate_exps.weight": Part("mlp.experts.gate_up_proj", (EXPERTS, 2 * EXPERT_FF, E), lambda x: x[:, :EXPERT_FF]),
    "ffn_up_exps.weight": Part("mlp.experts.gate_up_proj", (EXPERTS, 2 * EXPERT_FF, E), lambda x: x[:, EXPERT_FF:]),
    "ffn_down_exps.weight": Part("mlp.experts.down_proj", (EXPERTS, E, EXPERT_FF)),
}
LATENT_PARTS: Parts = linears(
    {
        "attn_q_a": ("self_attn.q_a_proj", (QUERY, E)), "attn_q_b": ("self_attn.q_b_proj", (H * (NOPE + ROPE), QUERY)),
        "attn_kv_a_mqa": ("self_attn.kv_a_proj_with_mqa", (LATENT + ROPE, E)),
        "attn_output": ("self_attn.o_proj", (E, H * VALUE)),
    }
) | {
    "attn_q_a_norm.weight": Part("self_attn.q_a_layernorm.weight", (QUERY,)),
    "attn_kv_a_norm.weight": Part("self_attn.kv_a_layernorm.weight", (LATENT,)),
    "attn_k_b.weight": Part(
        "self_attn.kv_b_proj.weight", (H * (NOPE + VALUE), LATENT),
        lambda x: x.reshape(H, NOPE + VALUE, LATENT)[:, :NOPE].swapaxes(1, 2),
    ),
    "attn_v_b.weight": Part(
        "self_attn.kv_b_proj.weight", (H * (NOPE + VALUE), LATENT),
        lambda x: x.reshape(H, NOPE + VALUE, LATENT)[:, NOPE:],
    ),
}  # fmt: skip
INDEXER: Parts = linears(
    {"indexer.attn_q_b": ("self_attn.indexer.wq_b", (2 * 64, QUERY)),
     "indexer.attn_k": ("self_attn.indexer.wk", (64, E)), "indexer.proj": ("self_attn.indexer.weights_proj", (2, E))}
) | {f"indexer.k_norm.{x}": Part(f"self_attn.indexer.k_norm.{x}", (64,)) for x in ("weight", "bias")}  # fmt: skip
LATENT_CONFIG = {
    "kv_lora_rank": LATENT, "q_lora_rank": QUERY, "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE,
    "v_head_dim": VALUE,
}  # fmt: skip
LATENT_KEYS = {
    "attention.key_length": LATENT + ROPE, "attention.value_length": LATENT, "attention.key_length_mla": NOPE + ROPE,
    "attention.value_length_mla": VALUE, "attention.kv_lora_rank": LATENT, "attention.q_lora_rank": QUERY,
    "rope.dimension_count": ROPE,
}  # fmt: skip
ROUTED_LATENT = SMALL | LATENT_CONFIG | {
    "n_routed_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": EXPERT_FF, "n_shared_experts": 1,
    "routed_scaling_factor": 2.5, "n_group": 1, "topk_group": 1, "norm_topk_prob": True,
}  # fmt: skip
INDEX_CONFIG = {"scoring_func": "sigmoid", "index_n_heads": 2, "index_head_dim": 64, "index_topk": 48,
                "first_k_dense_replace": 1}  # fmt: skip
INDEX_KEYS = {
    "attention.indexer.head_count": 2, "attention.indexer.key_length": 64, "attention.indexer.top_k": 48,
    "attention.head_count_kv": 1, "leading_dense_block_count": 1, "expert_shared_count": 1,
}  # fmt: skip
STEP_NORMS: Parts = norms(plus_one, attn_norm="input_layernorm", ffn_norm="post_attention_layernorm") | {
    name: Part(part.stored, part.shape, plus_one) for name, part in head_norms().items()
}


def step_attention(heads: int, kv: int) -> Parts:
    """Of Step 3.5, with so many heads."""
    return STEP_NORMS | linears(
        {"attn_q": ("self_attn.q_proj", (heads * D, E)), "attn_k": ("self_attn.k_proj", (kv * D, E)),
         "attn_v": ("self_attn.v_proj", (kv * D, E)), "attn_output": ("self_attn.o_proj", (E, heads * D)),
         "attn_gate": ("self_attn.g_proj", (heads, E))}
    )  # fmt: skip


MIXTURES: dict[str, Layout] = {
    "OlmoeForCausalLM": Layout(
        "olmoe", (attention() | head_norms(whole=True) | PRE | router() | experts(),) * 2, ends(),
        SMALL | ROUTED | {"intermediate_size": EXPERT_FF, "norm_topk_prob": False, "clip_qkv": None},
        {"expert_count": EXPERTS, "expert_used_count": 2, "feed_forward_length": EXPERT_FF},
    ),
    "Dots1ForCausalLM": Layout(
        "dots1",
        (attention(kv=H) | head_norms() | PRE | ffn(),
         attention(kv=H) | head_norms() | PRE | router(bias="mlp.gate.e_score_correction_bias") | experts() | SHARED),
        ends(), SMALL | {"num_key_value_heads": H, "n_routed_experts": EXPERTS, "num_experts_per_tok": 2,
                         "moe_intermediate_size": EXPERT_FF,
                         "n_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
                         "norm_topk_prob": True, "n_group": 1, "topk_group": 1},
        ROUTED_KEYS | SIGMOID | {"expert_shared_count": 1, "leading_dense_block_count": 1},
    ),
    "BailingMoeV2ForCausalLM": Layout(
        "bailingmoe2",
        tuple(
            linears({"attn_qkv": ("attention.query_key_value", ((H + 2 * KV) * D, E)),
                     "attn_output": ("attention.dense", (E, H * D))})
            | {f"attn_{x}_norm.weight": Part(f"attention.{n}_layernorm.weight", (D,)) for x, n in
               (("q", "query"), ("k", "key"))}
            | PRE | body for body in (ffn(), router(bias="mlp.gate.expert_bias") | experts() | SHARED)
        ),
        ends("model.word_embeddings"),
        SMALL | ROUTED | {"num_shared_experts": 1, "first_k_dense_replace": 1, "routed_scaling_factor": 2.5,
                          "norm_topk_prob": True, "n_group": 2, "topk_group": 1, "score_function": "sigmoid"},
        ROUTED_KEYS | SIGMOID | {"expert_shared_feed_forward_length": EXPERT_FF, "rope.dimension_count": 8,
                                 "expert_group_count": 2, "expert_group_used_count": 1},
    ),
    "Ernie4_5_MoeForCausalLM": Layout(
        "ernie4_5-moe",
        (attention() | PRE | ffn(),
         attention() | PRE | router() | experts() | SHARED
         | {"exp_probs_b.bias": Part("mlp.moe_statics.e_score_correction_bias", (1, EXPERTS), lambda x: x[0])}),
        ends(), SMALL | {"moe_num_experts": EXPERTS, "moe_k": 2, "moe_intermediate_size": EXPERT_FF,
                         "moe_num_shared_experts": 1, "moe_layer_start_index": 1, "moe_layer_end_index": 1,
                         "moe_layer_interval": 1},
        ROUTED_KEYS | {"interleave_moe_layer_step": 1, "leading_dense_block_count": 1,
                       "expert_shared_feed_forward_length": EXPERT_FF},
    ),
    "HunYuanMoEV1ForCausalLM": Layout(
        "hunyuan-moe",
        (attention() | PRE | head_norms("query_layernorm", "key_layernorm") | router("mlp.gate.wg") | experts()
         | ffn("mlp.shared_mlp", suffix="_shexp"),) * 2,
        ends(), SMALL | {"num_experts": EXPERTS, "moe_topk": [2, 2], "moe_intermediate_size": [EXPERT_FF] * 2,
                         "num_shared_expert": [1, 1], "use_cla": False},
        {"expert_count": EXPERTS, "expert_used_count": 2, "feed_forward_length": EXPERT_FF,
         "expert_shared_feed_forward_length": FF},
    ),
    "MiniMaxM2ForCausalLM": Layout(
        "minimax-m2",
        (attention() | PRE | head_norms(whole=True) | experts("block_sparse_moe.experts", "w1 w3 w2")
         | router("block_sparse_moe.gate", "block_sparse_moe.e_score_correction_bias"),) * 2,
        ends(), SMALL | {"num_local_experts": EXPERTS, "num_experts_per_tok": 2, "intermediate_size": EXPERT_FF,
                         "rotary_dim": 8, "scoring_func": "sigmoid", "head_dim": D},
        ROUTED_KEYS | {"feed_forward_length": EXPERT_FF, "expert_gating_func": 2, "rope.dimension_count": 8},
    ),
    "AfmoeForCausalLM": Layout(
        "afmoe",
        tuple(
            attention() | head_norms() | linears({"attn_gate": ("self_attn.gate_proj", (H * D, E))}) | body
            | norms(attn_norm="input_layernorm", post_attention_norm="post_attention_layernorm",
                    ffn_norm="pre_mlp_layernorm", post_ffw_norm="post_mlp_layernorm")
            for body in (ffn(), *[router("mlp.router.gate", "mlp.expert_bias") | experts() | SHARED] * 3)
        ),
        ends(), SMALL | ROUTED | {"num_hidden_layers": 4, "num_shared_experts": 1, "num_dense_layers": 1,
                                  "route_norm": True, "route_scale": 2.5, "score_func": "sigmoid",
                                  "sliding_window": 64, "mup_enabled": True, "global_attn_every_n_layers": 4},
        ROUTED_KEYS | SIGMOID | {"leading_dense_block_count": 1, "attention.sliding_window": 64},
    ),
    "MiMoV2FlashForCausalLM": Layout(
        "mimo2",
        (attention(value=24) | PRE | ffn(),
         attention(value=24, kv=4) | PRE | router(bias="mlp.gate.e_score_correction_bias") | experts()
         | {"attn_sinks.weight": Part("self_attn.attention_sink_bias", (H,))}),
        ends(), renamed(rms_norm_eps="layernorm_epsilon")
        | {"n_routed_experts": EXPERTS, "num_experts_per_tok": 2, "moe_intermediate_size": EXPERT_FF, "head_dim": D,
           "v_head_dim": 24, "swa_head_dim": D, "swa_v_head_dim": 24, "swa_num_attention_heads": H,
           "swa_num_key_value_heads": 4, "hybrid_layer_pattern": [0, 1], "sliding_window": 64, "swa_rope_theta": 2e4,
           "partial_rotary_factor": 0.5, "attention_value_scale": 0.7, "scoring_func": "sigmoid",
           "norm_topk_prob": True},
        ROUTED_KEYS | {"attention.head_count_kv": [2, 4], "attention.sliding_window_pattern": [False, True],
                       "attention.value_length": 24, "attention.key_length": D, "attention.value_scale": 0.7,
                       "rope.dimension_count": 8, "rope.freq_base_swa": 2e4, "expert_gating_func": 2},
    ),
    "SmallThinkerForCausalLM": Layout(
        "smallthinker",
        (attention() | PRE | router("block_sparse_moe.primary_router")
         | experts("block_sparse_moe.experts", "gate up down"),) * 2,
        ends(), renamed(intermediate_size=None)
        | {"moe_num_primary_experts": EXPERTS, "moe_num_active_primary_experts": 2, "moe_ffn_hidden_size": EXPERT_FF,
           "moe_primary_router_apply_softmax": False, "sliding_window_layout": [0, 1], "sliding_window_size": 4096},
        ROUTED_KEYS | {"feed_forward_length": EXPERT_FF, "expert_gating_func": 2, "attention.sliding_window": 4096},
    ),
    "Llama4ForCausalLM": Layout(
        "llama4",
        tuple(
            attention() | PRE | body
            for body in (ffn("feed_forward"), STACKED | router("feed_forward.router")
                         | ffn("feed_forward.shared_expert", suffix="_shexp", n=EXPERT_FF)) * 2
        ),
        ends(), SMALL | {"num_hidden_layers": 4, "num_local_experts": EXPERTS, "num_experts_per_tok": 1,
                         "intermediate_size": EXPERT_FF,
                         "intermediate_size_mlp": FF, "interleave_moe_layer_step": 2},
        {"expert_count": EXPERTS, "expert_used_count": 1, "feed_forward_length": FF,
         "expert_feed_forward_length": EXPERT_FF, "interleave_moe_layer_step": 2},
    ),
    "PhiMoEForCausalLM": Layout(
        "phimoe",
        (attention(bias="attn_q attn_k attn_v attn_output") | LN | router("block_sparse_moe.gate")
         | experts("block_sparse_moe.experts", "w1 w3 w2"),) * 2,
        ends(bias=True) | {"output.bias": Part("lm_head.bias", (VOCAB,))},
        SMALL | {"num_local_experts": EXPERTS, "num_experts_per_tok": 2, "intermediate_size": EXPERT_FF,
                 "original_max_position_embeddings": 128,
                 "rope_scaling": {"type": "longrope", "long_mscale": 1.25, "short_mscale": 1.25,
                                  "long_factor": [2.0] * 8, "short_factor": [1.0] * 8}},
        {"expert_count": EXPERTS, "expert_used_count": 2, "feed_forward_length": EXPERT_FF,
         "rope.scaling.attn_factor": 1.25, "rope.scaling.original_context_length": 128},
    ),
    "Mistral4ForCausalLM": Layout(
        "mistral4", (LATENT_PARTS | PRE | router() | TOGETHER | SHARED,) * 2, ends(),
        ROUTED_LATENT
        | {"first_k_dense_replace": 0,
           "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "beta_fast": 32.0,
                               "original_max_position_embeddings": 128, "mscale": 1.0, "mscale_all_dim": 1.0,
                               "llama_4_scaling_beta": 0.1}},
        ROUTED_KEYS | LATENT_KEYS
        | {"attention.head_count_kv": 1, "attention.temperature_scale": 0.1,
           "attention.temperature_length": 128, "rope.scaling.yarn_log_multiplier": 0.1},
    ),
    **{
        name: Layout(
            architecture,
            (LATENT_PARTS | INDEXER | PRE | ffn(),
             LATENT_PARTS | INDEXER | PRE | SHARED | experts() | router(bias="mlp.gate.e_score_correction_bias")),
            ends(), ROUTED_LATENT | INDEX_CONFIG | more, ROUTED_KEYS | LATENT_KEYS | INDEX_KEYS | SIGMOID | keys,
        )
        for name, architecture, more, keys in (
            ("DeepseekV32ForCausalLM", "deepseek32",
             {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128, "mscale": 1.0,
                               "mscale_all_dim": 1.0}}, {"rope.scaling.yarn_log_multiplier": 0.1}),
            ("GlmMoeDsaForCausalLM", "glm-dsa", {"indexer_types": ["full", "full"]},
             {"attention.indexer.types": [True, True]}),
        )
    },
    "MiniCPM3ForCausalLM": Layout(
        "minicpm3",
        ({name: part for name, part in LATENT_PARTS.items() if name not in ("attn_k_b.weight", "attn_v_b.weight")}
         | linears({"attn_kv_b": ("self_attn.kv_b_proj", (H * (NOPE + VALUE), LATENT))}) | PRE | ffn(),) * 2,
        ends(head=None), renamed(tie_word_embeddings=None) | LATENT_CONFIG
        | {"scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256, "num_key_value_heads": H,
           "rope_scaling": {"type": "longrope", "original_max_position_embeddings": 512, "long_factor": [2.0] * 4,
                            "short_factor": [1.0] * 4}},
        {"attention.key_length": NOPE + ROPE, "attention.value_length": VALUE, "attention.kv_lora_rank": LATENT,
         "attention.q_lora_rank": QUERY, "rope.dimension_count": ROPE, "rope.scaling.attn_factor": 1.0},
    ),
    "ExaoneMoEForCausalLM": Layout(
        "exaone-moe",
        (attention() | head_norms() | PRE | ffn(),
         *[attention() | head_norms() | PRE | SHARED | experts() | router(bias="mlp.e_score_correction_bias")] * 3),
        ends(), SMALL | ROUTED
        | {"num_hidden_layers": 4, "num_shared_experts": 1, "first_last_k_dense_replace": 1, "norm_topk_prob": True,
           "routed_scaling_factor": 2.5, "sliding_window": 128, "sliding_window_pattern": "LLLG", "n_group": 1,
           "topk_group": 1},
        ROUTED_KEYS | SIGMOID
        | {"attention.sliding_window": 128, "attention.sliding_window_pattern": [True, True, True, False],
           "leading_dense_block_count": 1, "expert_shared_count": 1, "expert_shared_feed_forward_length": EXPERT_FF},
    ),
    "Step3p5ForCausalLM": Layout(
        "step35",
        (step_attention(H, KV) | ffn(),
         step_attention(2 * H, H) | ffn("share_expert", suffix="_shexp", n=EXPERT_FF)
         | router("moe.gate", "moe.router_bias")
         | {f"ffn_{x}_exps.weight": Part(f"moe.{x}_proj.weight", (EXPERTS, *shape)) for x, shape in
            (("gate", (EXPERT_FF, E)), ("up", (EXPERT_FF, E)), ("down", (E, EXPERT_FF)))}),
        ends(change=plus_one), renamed(num_key_value_heads="num_attention_groups", rms_norm_eps=None)
        | {"head_dim": D, "rope_theta": [5e6, 1e4], "layer_types": ["full_attention", "sliding_attention"],
           "partial_rotary_factors": [0.5, 1.0], "sliding_window": 64, "use_head_wise_attn_gate": True,
           "attention_other_setting": {"num_attention_heads": 2 * H, "num_attention_groups": H},
           "moe_num_experts": EXPERTS, "moe_top_k": 2, "moe_intermediate_size": EXPERT_FF,
           "share_expert_dim": EXPERT_FF, "moe_layers_enum": "1",
           "moe_router_activation": "sigmoid", "moe_router_scaling_factor": 2.5,
           "norm_expert_weight": True, "swiglu_limits": [None, 7], "swiglu_limits_shared": [0.0],
           "num_nextn_predict_layers": 1},
        ROUTED_KEYS | SIGMOID
        | {"attention.head_count": [H, 2 * H], "attention.head_count_kv": [KV, H], "rope.dimension_count": D,
           "rope.freq_base": 5e6, "rope.freq_base_swa": 1e4, "attention.sliding_window_pattern": [False, True],
           "swiglu_clamp_exp": [0.0, 7.0], "swiglu_clamp_shexp": [0.0, 0.0], "leading_dense_block_count": 1,
           "expert_shared_feed_forward_length": EXPERT_FF, "attention.layer_norm_rms_epsilon": 1e-5},
    ),
    "MuseGlimmerForConditionalGeneration": Layout(
        "muse-glimmer",
        (turned(attention()) | ffn() | linears({"attn_gate": ("self_attn.gate_proj", (H * D, E))})
         | norms(plus_one, attn_norm="input_layernorm", post_attention_norm="post_attention_layernorm",
                 ffn_norm="pre_feedforward_layernorm", post_ffw_norm="post_feedforward_layernorm")
         | {"attn_q_norm.weight": Part("", (D,), lambda _: np.full(D, 1.5, np.float32)),
            "attn_k_norm.weight": Part("", (D,), lambda _: np.ones(D, np.float32))},) * 4,
        ends(), SMALL | {"num_hidden_layers": 4, "head_dim": D, "output_multiplier": 0.5, "sliding_window": 64,
                         "final_logit_softcapping": 30.0, "qk_scale_factor": 1.5,
                         "layer_types": ["sliding_attention"] * 3 + ["full_attention"]},
        {"logit_scale": 0.5, "final_logit_softcapping": 30.0, "attention.sliding_window": 64,
         "attention.sliding_window_pattern": [True, True, True, False]},
    ),
}  # fmt: skip

SCAN_HEADS, SCAN_DIM, SCAN_STATE, GROUPS, TAPS = 6, 16, 8, 2, 4
INNER, CHANNELS = SCAN_HEADS * SCAN_DIM, SCAN_HEADS * SCAN_DIM + 2 * GROUPS * SCAN_STATE


def decays(x: Array) -> Array:
    return -np.exp(x.astype(np.float64)).astype(np.float32).reshape(-1, 1)


def scan(name: str) -> Parts:
    """A layer's scan below a module."""
    return linears(
        {"ssm_in": (f"{name}.in_proj", (INNER + CHANNELS + SCAN_HEADS, E)), "ssm_out": (f"{name}.out_proj", (E, INNER))}
    ) | {
        "ssm_conv1d.weight": Part(f"{name}.conv1d.weight", (CHANNELS, 1, TAPS), lambda x: x[:, 0]),
        "ssm_conv1d.bias": Part(f"{name}.conv1d.bias", (CHANNELS,)),
        "ssm_dt.bias": Part(f"{name}.dt_bias", (SCAN_HEADS,)),
        "ssm_a": Part(f"{name}.A_log", (SCAN_HEADS,), decays),
        "ssm_d": Part(f"{name}.D", (SCAN_HEADS,), lambda x: x[:, None]),
        "ssm_norm.weight": Part(f"{name}.norm.weight", (INNER,), lambda x: x.reshape(GROUPS, -1)),
    }


def mixers(parts: Parts) -> Parts:
    """Modules of attention or feed-forward parts, below one that is called `mixer`."""
    prefixes = ("self_attn.", "mlp.")
    bare = {new: next(part.stored.removeprefix(p) for p in prefixes if part.stored.startswith(p)) for new, part in
            parts.items()}  # fmt: skip
    return {new: Part(f"mixer.{bare[new]}", part.shape, part.change, part.count) for new, part in parts.items()}


def times(*runs: tuple[int, float]) -> Change:
    """Rows of runs, each multiplied."""
    factors = np.concatenate([np.full(n, factor, np.float32) for n, factor in runs])
    return lambda x: x * factors[:, None]


def multiplied(parts: Parts, **factors: float) -> Parts:
    """Parts with factors of whole tensors."""
    made = dict(parts)
    for name, factor in factors.items():
        part = parts[f"{name}.weight"]
        made[f"{name}.weight"] = Part(part.stored, part.shape, times((part.shape[0], factor)))
    return made


MIXER_NORM = {"attn_norm.weight": Part("norm.weight", (E,))}
SCAN_KEYS = {"ssm.conv_kernel": TAPS, "ssm.state_size": SCAN_STATE, "ssm.group_count": GROUPS,
             "ssm.time_step_rank": SCAN_HEADS, "ssm.inner_size": INNER}  # fmt: skip
MAMBA_CONFIG = {"mamba_n_heads": SCAN_HEADS, "mamba_d_head": SCAN_DIM, "mamba_d_state": SCAN_STATE,
                "mamba_n_groups": GROUPS, "mamba_d_conv": TAPS}  # fmt: skip
BACKBONE = ends("backbone.embeddings", "backbone.norm_f")
NEMOTRON_CONFIG = renamed(rms_norm_eps="layer_norm_epsilon", rope_theta=None) | {
    "mlp_hidden_act": "relu2", "mamba_num_heads": SCAN_HEADS, "mamba_head_dim": SCAN_DIM, "ssm_state_size": SCAN_STATE,
    "n_groups": GROUPS, "conv_kernel": TAPS, "head_dim": D, "num_hidden_layers": 3,
}  # fmt: skip
RELU2_EXPERTS = {
    f"ffn_{x}_exps.weight": Part(f"mixer.experts.*.{x}_proj.weight", shape, count=EXPERTS)
    for x, shape in (("up", (EXPERT_FF, 24)), ("down", (24, EXPERT_FF)))
}
KDA = {
    **attention(kv=H),
    **linears({"ssm_f_a": ("self_attn.f_a_proj", (D, E)), "ssm_f_b": ("self_attn.f_b_proj", (H * D, D)),
               "ssm_g_a": ("self_attn.g_a_proj", (D, E)), "ssm_g_b": ("self_attn.g_b_proj", (H * D, D)),
               "ssm_beta": ("self_attn.b_proj", (H, E))}),
    **{f"ssm_conv1d_{x}.weight": Part(f"self_attn.{x}_conv1d.weight", (H * D, 1, TAPS)) for x in "qkv"},
    "ssm_norm.weight": Part("self_attn.o_norm.weight", (D,)),
    "ssm_dt.bias": Part("self_attn.dt_bias", (H * D,)),
    "ssm_a": Part("self_attn.A_log", (1, 1, H, 1), decays),
}  # fmt: skip
KIMI_LATENT = {name: part for name, part in LATENT_PARTS.items() if "attn_q_" not in name} | linears(
    {"attn_q": ("self_attn.q_proj", (H * (NOPE + ROPE), E))}
)
RANK = 4


def first_scan(name: str) -> Parts:
    """A layer's scan of the first kind below a module."""
    return linears(
        {"ssm_in": (f"{name}.in_proj", (4 * E, E)), "ssm_x": (f"{name}.x_proj", (RANK + 2 * SCAN_STATE, 2 * E)),
         "ssm_dt": (f"{name}.dt_proj", (2 * E, RANK)), "ssm_out": (f"{name}.out_proj", (E, 2 * E))}, bias="ssm_dt"
    ) | {
        "ssm_conv1d.weight": Part(f"{name}.conv1d.weight", (2 * E, 1, TAPS), lambda x: x[:, 0]),
        "ssm_conv1d.bias": Part(f"{name}.conv1d.bias", (2 * E,)), "ssm_d": Part(f"{name}.D", (2 * E,)),
        "ssm_a": Part(f"{name}.A_log", (2 * E, SCAN_STATE), lambda x: decays(x).reshape(x.shape)),
    }  # fmt: skip


def below_attention(parts: Parts) -> Parts:
    """Modules whose name is `attention`."""
    return {
        new: Part(part.stored.replace("self_attn.", "attention."), part.shape, part.change)
        for new, part in parts.items()
    }


MAMBA1_CONFIG = {
    "vocab_size": VOCAB, "hidden_size": E, "num_hidden_layers": 2, "intermediate_size": 2 * E, "state_size": SCAN_STATE,
    "conv_kernel": TAPS, "time_step_rank": RANK, "layer_norm_epsilon": 1e-5, "tie_word_embeddings": False,
    "hidden_act": "silu", "use_bias": False, "use_conv_bias": True,
}  # fmt: skip
MAMBA1_KEYS = {
    "ssm.conv_kernel": TAPS,
    "ssm.state_size": SCAN_STATE,
    "ssm.time_step_rank": RANK,
    "ssm.inner_size": 2 * E,
}
LING_KDA = {name: part for name, part in KDA.items() if not name.startswith(("ssm_f_", "ssm_g_"))} | linears(
    {"ssm_f_a": ("self_attn.f_proj", (H * D, E)), "ssm_g_a": ("self_attn.g_proj", (H * D, E))}
) | {"ssm_a": Part("self_attn.A_log", (H,), lambda x: -decays(x))}  # fmt: skip

HYBRIDS: dict[str, Layout] = {
    "Mamba2ForCausalLM": Layout(
        "mamba2", (scan("mixer") | MIXER_NORM,) * 2, BACKBONE,
        {"vocab_size": VOCAB, "hidden_size": E, "num_hidden_layers": 2, "num_heads": SCAN_HEADS, "head_dim": SCAN_DIM,
         "state_size": SCAN_STATE, "conv_kernel": TAPS, "n_groups": GROUPS, "layer_norm_epsilon": 1e-5,
         "tie_word_embeddings": False, "hidden_act": "silu"},
        SCAN_KEYS | {"attention.head_count": 0, "feed_forward_length": 0, "attention.key_length": None,
                     "rope.freq_base": None, "attention.layer_norm_rms_epsilon": 1e-5},
        layer="backbone.layers",
    ),
    "NemotronHForCausalLM": Layout(
        "nemotron_h",
        (scan("mixer") | MIXER_NORM, mixers(attention()) | MIXER_NORM, mixers(ffn(gate=False)) | MIXER_NORM),
        BACKBONE, NEMOTRON_CONFIG | {"hybrid_override_pattern": "M*-"},
        SCAN_KEYS | {"attention.head_count_kv": [0, KV, 0], "feed_forward_length": [0, 0, FF],
                     "rope.freq_base": None, "attention.head_count": H},
        layer="backbone.layers",
    ),
    "NemotronHForCausalLM with experts": Layout(
        "nemotron_h_moe",
        (scan("mixer") | MIXER_NORM, mixers(attention()) | MIXER_NORM,
         router("mixer.gate", "mixer.gate.e_score_correction_bias") | RELU2_EXPERTS | MIXER_NORM
         | ffn("mixer.shared_experts", suffix="_shexp", n=EXPERT_FF, gate=False)
         | linears({"ffn_latent_down": ("mixer.fc1_latent_proj", (24, E)),
                    "ffn_latent_up": ("mixer.fc2_latent_proj", (E, 24))})),
        BACKBONE, NEMOTRON_CONFIG
        | {"hybrid_override_pattern": "M*E", "n_routed_experts": EXPERTS, "num_experts_per_tok": 2, "n_group": 1,
           "moe_intermediate_size": EXPERT_FF, "moe_shared_expert_intermediate_size": EXPERT_FF, "n_shared_experts": 1,
           "norm_topk_prob": True, "routed_scaling_factor": 2.5, "topk_group": 1, "moe_latent_size": 24},
        SCAN_KEYS | ROUTED_KEYS | SIGMOID
        | {"attention.head_count_kv": [0, KV, 0], "feed_forward_length": [0, 0, EXPERT_FF], "moe_latent_size": 24,
           "expert_shared_feed_forward_length": EXPERT_FF},
        layer="backbone.layers",
    ),
    "GraniteMoeHybridForCausalLM": Layout(
        "granitehybrid",
        tuple(
            body | PRE | {
                "ffn_gate.weight": Part("shared_mlp.input_linear.weight", (2 * FF, E), lambda x: x[:FF]),
                "ffn_up.weight": Part("shared_mlp.input_linear.weight", (2 * FF, E), lambda x: x[FF:]),
                "ffn_down.weight": Part("shared_mlp.output_linear.weight", (E, FF)),
            } for body in (scan("mamba"), turned(attention()))
        ),
        ends(head=None), renamed(tie_word_embeddings=None) | MAMBA_CONFIG
        | {"layer_types": ["mamba", "attention"], "position_embedding_type": "nope", "num_local_experts": 0,
           "shared_intermediate_size": FF, "embedding_multiplier": 12.0, "residual_multiplier": 0.25,
           "attention_multiplier": 0.125, "logits_scaling": 8.0},
        SCAN_KEYS | {"attention.head_count_kv": [0, KV], "rope.scaling.finetuned": False, "logit_scale": 8.0,
                     "embedding_scale": 12.0, "residual_scale": 0.25, "attention.scale": 0.125, "expert_count": None},
    ),
    "FalconH1ForCausalLM": Layout(
        "falcon-h1",
        (multiplied(scan("mamba") | attention() | ffn("feed_forward"), ssm_out=0.5, attn_q=0.75, attn_k=0.75 * 0.25,
                    attn_v=0.75, attn_output=1.5, ffn_gate=0.875, ffn_down=1.25)
         | {"ssm_in.weight": Part("mamba.in_proj.weight", (INNER + CHANNELS + SCAN_HEADS, E),
                                  times(*zip((INNER, INNER, GROUPS * SCAN_STATE, GROUPS * SCAN_STATE, SCAN_HEADS),
                                             (0.25, 0.5, 0.75, 1.0, 1.25), strict=True))),
            "attn_norm.weight": Part("input_layernorm.weight", (E,)),
            "ffn_norm": Part("pre_ff_layernorm.weight", (E,))},) * 2,
        multiplied(ends(norm="model.final_layernorm"), token_embd=4.0, output=0.125),
        SMALL | MAMBA_CONFIG
        | {"mamba_d_ssm": INNER, "head_dim": D, "embedding_multiplier": 4.0, "lm_head_multiplier": 0.125,
           "key_multiplier": 0.25, "attention_in_multiplier": 0.75, "attention_out_multiplier": 1.5,
           "ssm_in_multiplier": 0.5, "ssm_out_multiplier": 0.5, "mlp_multipliers": [0.875, 1.25],
           "ssm_multipliers": [0.5, 1.0, 1.5, 2.0, 2.5]},
        SCAN_KEYS | {"rope.freq_base": 5e4, "attention.key_length": D, "feed_forward_length": FF},
    ),
    "KimiLinearForCausalLM": Layout(
        "kimi-linear",
        (KDA | PRE | ffn(),
         KIMI_LATENT | PRE | router("block_sparse_moe.gate", "block_sparse_moe.gate.e_score_correction_bias")
         | experts("block_sparse_moe.experts", "w1 w3 w2")
         | ffn("block_sparse_moe.shared_experts", suffix="_shexp", n=EXPERT_FF)),
        ends(), renamed(max_position_embeddings="model_max_length")
        | {"num_key_value_heads": H, "num_experts": EXPERTS, "num_experts_per_token": 2, "head_dim": D,
           "moe_intermediate_size": EXPERT_FF, "num_shared_experts": 1, "first_k_dense_replace": 1,
           "routed_scaling_factor": 2.5, "moe_renormalize": True, "moe_router_activation_func": "sigmoid",
           "num_expert_group": 1, "topk_group": 1, "mla_use_nope": True, "kv_lora_rank": LATENT, "q_lora_rank": None,
           "qk_nope_head_dim": NOPE, "qk_rope_head_dim": ROPE, "v_head_dim": VALUE,
           "linear_attn_config": {"full_attn_layers": [2], "kda_layers": [1], "num_heads": H, "head_dim": D,
                                  "short_conv_kernel_size": TAPS}},
        ROUTED_KEYS | SIGMOID
        | {"attention.head_count_kv": [0, 1], "ssm.conv_kernel": TAPS, "kda.head_dim": D, "rope.dimension_count": ROPE,
           "attention.key_length": LATENT + ROPE, "attention.key_length_mla": NOPE + ROPE, "context_length": 512,
           "attention.value_length_mla": VALUE, "leading_dense_block_count": 1, "expert_shared_count": 1},
    ),
    "MambaForCausalLM": Layout(
        "mamba", (first_scan("mixer") | MIXER_NORM,) * 2, BACKBONE, MAMBA1_CONFIG | {"model_type": "mamba"},
        MAMBA1_KEYS | {"ssm.dt_b_c_rms": False, "attention.head_count": 0, "rope.freq_base": None},
        layer="backbone.layers",
    ),
    "FalconMambaForCausalLM": Layout(
        "mamba", (first_scan("mixer") | MIXER_NORM,) * 2, BACKBONE, MAMBA1_CONFIG | {"model_type": "falcon_mamba"},
        MAMBA1_KEYS | {"ssm.dt_b_c_rms": True}, layer="backbone.layers",
    ),
    "JambaForCausalLM": Layout(
        "jamba",
        tuple(
            norms(attn_norm="input_layernorm", ffn_norm="pre_ff_layernorm") | mixer | body
            for mixer, body in (
                (first_scan("mamba") | {f"ssm_{x}_norm.weight": Part(f"mamba.{x}_layernorm.weight", (n,)) for x, n in
                                        (("dt", RANK), ("b", SCAN_STATE), ("c", SCAN_STATE))},
                 ffn("feed_forward", n=EXPERT_FF)),
                (attention(), router("feed_forward.router")
                 | experts("feed_forward.experts", "gate_proj up_proj down_proj")),
            )
        ),
        ends(norm="model.final_layernorm"), SMALL
        | {"intermediate_size": EXPERT_FF, "mamba_expand": 2, "mamba_d_state": SCAN_STATE, "mamba_d_conv": TAPS,
           "mamba_dt_rank": RANK, "attn_layer_offset": 1, "attn_layer_period": 2, "num_experts": EXPERTS,
           "num_experts_per_tok": 2},
        MAMBA1_KEYS | {"attention.head_count_kv": [0, KV], "expert_count": EXPERTS, "expert_used_count": 2,
                       "rope.freq_base": None, "feed_forward_length": EXPERT_FF},
    ),
    "BailingMoeV3ForCausalLM": Layout(
        "bailingmoe3",
        (below_attention(LING_KDA) | PRE | ffn(),
         below_attention(LATENT_PARTS) | linears({"attn_gate": ("attention.g_proj", (H, E))}) | PRE | SHARED | experts()
         | router(bias="mlp.gate.expert_bias")),
        ends("model.word_embeddings"), SMALL | ROUTED | LATENT_CONFIG
        | {"num_key_value_heads": H, "head_dim": D, "layer_group_size": 2, "no_kda_lora": True, "kda_safe_gate": True,
           "kda_lower_bound": -5.0, "gated_attention_proj_granularity_type": "head_wise",
           "short_conv_kernel_size": TAPS, "moe_shared_expert_intermediate_size": EXPERT_FF,
           "num_shared_experts": 1, "first_k_dense_replace": 1,
           "routed_scaling_factor": 2.5, "norm_topk_prob": True, "score_function": "sigmoid", "n_group": 1,
           "topk_group": 1, "expert_swiglu_limit_list": [None, 7.0, None]},
        ROUTED_KEYS | SIGMOID | LATENT_KEYS
        | {"attention.head_count_kv": [0, 1], "ssm.conv_kernel": TAPS, "kda.head_dim": D, "kda.gate_lower_bound": -5.0,
           "kda.safe_gate": True, "swiglu_clamp_exp": [0.0, 7.0], "swiglu_clamp_shexp": None,
           "expert_shared_feed_forward_length": EXPERT_FF, "leading_dense_block_count": 1},
    ),
}  # fmt: skip

STREAMS, LOW, NGRAM_WIDTH = 2, 8, 16
QWEN_EXPERTS = {
    **router(), **TOGETHER, **ffn("mlp.shared_expert", suffix="_shexp", n=EXPERT_FF),
    "ffn_gate_inp_shexp.weight": Part("mlp.shared_expert_gate.weight", (1, E), lambda x: x[0]),
}  # fmt: skip


def hyper(old: str, new: str, *, end: bool = False) -> Parts:
    """The gates of streams."""
    shapes = {"down": ("input_mix_weight_down", (LOW, STREAMS * E)), "up": ("input_mix_weight_up", (STREAMS * E, LOW))}
    shapes |= {} if end else {"inject": ("block_inject_weight", (STREAMS, STREAMS * E))}
    return linears({f"{new}_{x}": (f"{old}.{name}", shape) for x, (name, shape) in shapes.items()}) | {
        f"{new}_norm.weight": Part(f"{old}.hc_norm.weight", (STREAMS, E), lambda x: plus_one(x).reshape(-1))
    }


HYPER = hyper("attn_hyper_connection", "hc_attn") | hyper("mlp_hyper_connection", "hc_ffn") | QWEN_EXPERTS
DELTA = linears(
    {"attn_qkv": ("linear_attn.in_proj_qkv", (3 * 2 * D, E)), "attn_gate": ("linear_attn.in_proj_z", (2 * D, E)),
     "ssm_alpha": ("linear_attn.in_proj_a", (2, E)), "ssm_beta": ("linear_attn.in_proj_b", (2, E)),
     "ssm_out": ("linear_attn.out_proj", (E, 2 * D))}
) | {
    "ssm_conv1d.weight": Part("linear_attn.conv1d.weight", (3 * 2 * D, 1, TAPS), lambda x: x[:, 0]),
    "ssm_a": Part("linear_attn.A_log", (2,), lambda x: decays(x)[:, 0]),
    "ssm_dt.bias": Part("linear_attn.dt_bias", (2,)), "ssm_norm.weight": Part("linear_attn.norm.weight", (D,)),
}  # fmt: skip
PLE = linears({"ple_key": ("ple.key_proj", (STREAMS * E, E)), "ple_value": ("ple.value_proj", (E, E))}) | {
    **{
        f"ple_norm_{x}.weight": Part(f"ple.norm_{x}.weight", (STREAMS * E,), plus_one) for x in ("key", "query", "conv")
    },
    "ple_conv1d.weight": Part("ple.conv1d.weight", (STREAMS * E, 1, TAPS), lambda x: x[:, 0]),
}
CHOOSING = {
    **attention(), "attn_q.weight": Part("self_attn.q_proj.weight", (2 * H * D, E)),
    **{name: Part(part.stored, part.shape, plus_one) for name, part in head_norms().items()},
    **{f"indexer.{x}_proj.weight": Part("self_attn.indexer.index_qk_proj.weight", (3 * D, E),
                                        lambda q, cut=cut: q[cut])
       for x, cut in (("q", slice(0, 2 * D)), ("k", slice(2 * D, None)))},
    **{f"indexer.{x}_norm.weight": Part(f"self_attn.indexer.{x}_layernorm.weight", (D,), plus_one) for x in "qk"},
}  # fmt: skip
HYBRIDS["Qwen4ExpForCausalLM"] = Layout(
    "qwen4exp", (DELTA | HYPER, DELTA | HYPER | PLE, CHOOSING | HYPER),
    {name: part for name, part in ends().items() if name != "output_norm.weight"}
    | hyper("model.hyper_connection_mixer", "output_hc", end=True)
    | {"per_layer_token_embd.weight": Part("model.ngram_embedding.shard_*.weight", (32, NGRAM_WIDTH), count=2)},
    SMALL | ROUTED
    | {"num_hidden_layers": 3, "head_dim": D, "full_attention_interval": 3, "linear_num_key_heads": 2,
       "linear_num_value_heads": 2, "linear_key_head_dim": D, "linear_value_head_dim": D,
       "linear_conv_kernel_dim": TAPS, "shared_expert_intermediate_size": EXPERT_FF, "norm_topk_prob": True,
       "hc_count": STREAMS, "hc_lowrank": LOW, "indexer_n_heads": 2, "indexer_head_dim": D, "indexer_budget": 8,
       "indexer_compress_ratio": 4, "ple_layer_ids": [2], "ngram_size": 3, "heads_per_ngram": 2,
       "ple_conv_kernel_size": TAPS, "eos_token_id": [5, 7], "partial_rotary_factor": 0.5},
    ROUTED_KEYS
    | {"hyper_connection.count": STREAMS, "hyper_connection.low_rank": LOW, "attention.indexer.head_count": 2,
       "attention.indexer.top_k": 8, "attention.compress_ratios": [0, 0, 4], "ple.layers": [1], "ple.ngram_size": 3,
       "ple.eos_token_id": 7, "embedding_length_per_layer_input": NGRAM_WIDTH, "ple.head_vocab_sizes": [16] * 4,
       "ple.layer_multipliers": [2**44 + 1, 2**44 + 3, 2**44 + 5]},
    whole_numbers={"ple.ple_embedding.layer_multipliers": [2**44 + 1, 2**44 + 3, 2**44 + 5],
                   "ple.ple_embedding.ngram_heads_offsets": [0, 16, 32, 48],
                   "ple.ple_embedding.ngram_heads_vocab_sizes": [16] * 4},
)  # fmt: skip

BERT_ENDS: Parts = {
    "token_embd.weight": Part("embeddings.word_embeddings.weight", (VOCAB, E)),
    "token_types.weight": Part("embeddings.token_type_embeddings.weight", (2, E)),
}


def both(new: str, old: str, *shape: int) -> Parts:
    """Weights and biases."""
    return {f"{new}.weight": Part(f"{old}.weight", shape), f"{new}.bias": Part(f"{old}.bias", shape[:1])}


def bert_block(attention: str, up: str, down: str) -> Parts:
    """A layer of encoders whose norms stand behind the sums."""
    return (
        both("attn_qkv", f"{attention}.Wqkv", 3 * E, E) | both("attn_output", f"{attention}.out_proj", E, E)
        | both("attn_output_norm", "norm1", E) | both("layer_output_norm", "norm2", E)
        | both("ffn_up", up, FF, E) | both("ffn_down", down, E, FF)
    )  # fmt: skip


ENCODER = {
    "vocab_size": VOCAB, "hidden_size": E, "intermediate_size": FF, "num_hidden_layers": 2, "num_attention_heads": H,
    "max_position_embeddings": 512, "hidden_act": "gelu", "layer_norm_eps": 1e-5,
}  # fmt: skip
ENCODER_KEYS = {
    "attention.layer_norm_epsilon": 1e-5, "attention.causal": False, "feed_forward_length": FF, "context_length": 512
}  # fmt: skip
MODERN = {
    "token_embd.weight": Part("embeddings.tok_embeddings.weight", (VOCAB, E)),
    "token_embd_norm.weight": Part("embeddings.norm.weight", (E,)),
    "output_norm.weight": Part("final_norm.weight", (E,)),
}
MODERN_BLOCK = linears(
    {"attn_qkv": ("attn.Wqkv", (3 * E, E)), "attn_output": ("attn.Wo", (E, E)), "ffn_up": ("mlp.Wi", (2 * FF, E)),
     "ffn_down": ("mlp.Wo", (E, FF))}
) | {"ffn_norm.weight": Part("mlp_norm.weight", (E,))}  # fmt: skip
MODERN_CONFIG = {key: value for key, value in ENCODER.items() if key not in ("layer_norm_eps", "hidden_act")} | {
    "norm_eps": 1e-5, "hidden_activation": "gelu", "attention_bias": False, "mlp_bias": False, "norm_bias": False,
    "local_attention": 128, "global_attn_every_n_layers": 3, "global_rope_theta": 160000.0, "local_rope_theta": 1e4,
    "classifier_pooling": "mean", "classifier_activation": "gelu", "classifier_bias": False,
}  # fmt: skip
MODERN_KEYS = ENCODER_KEYS | {
    "attention.sliding_window": 128, "attention.sliding_window_pattern": 3, "rope.freq_base": 160000.0,
    "rope.freq_base_swa": 1e4,
}  # fmt: skip
EXPERTS_BLOCK = {name: part for name, part in bert_block("attn", "", "").items() if not name.startswith("ffn_")} | {
    "ffn_gate_inp.weight": Part("mlp.router.layer.weight", (EXPERTS, E)),
    "ffn_up_exps.weight": Part("mlp.experts.mlp.w1", (EXPERTS * FF, E), lambda x: x.reshape(EXPERTS, FF, E)),
    "ffn_down_exps.weight": Part(
        "mlp.experts.mlp.w2", (EXPERTS * FF, E), lambda x: x.reshape(EXPERTS, FF, E).swapaxes(1, 2)
    ),
}
ENCODERS: dict[str, Layout] = {
    "ModernBertModel": Layout(
        "modern-bert", (MODERN_BLOCK, MODERN_BLOCK | {"attn_norm.weight": Part("attn_norm.weight", (E,))}),
        MODERN, MODERN_CONFIG, MODERN_KEYS | {"pooling_type": None}, layer="layers",
    ),
    "ModernBertForSequenceClassification": Layout(
        "modern-bert", (MODERN_BLOCK, MODERN_BLOCK | {"attn_norm.weight": Part("attn_norm.weight", (E,))}),
        {name: Part(f"model.{part.stored}", part.shape) for name, part in MODERN.items()}
        | {"cls.weight": Part("head.dense.weight", (E, E)), "cls.norm.weight": Part("head.norm.weight", (E,))}
        | both("cls.output", "classifier", 1, E),
        MODERN_CONFIG, MODERN_KEYS | {"pooling_type": 4, "classifier.pooling_type": 1}, layer="model.layers",
    ),
    "JinaBertForMaskedLM": Layout(
        "jina-bert-v2",
        ({name: part for x, n in (("q", "query"), ("k", "key"), ("v", "value"))
          for name, part in both(f"attn_{x}", f"attention.self.{n}", E, E).items()}
         | both("attn_output", "attention.output.dense", E, E) | both("ffn_down", "mlp.wo", E, FF)
         | both("attn_output_norm", "attention.output.LayerNorm", E) | both("layer_output_norm", "mlp.layernorm", E)
         | {"ffn_up.weight": Part("mlp.gated_layers.weight", (2 * FF, E))},) * 2,
        {name: Part(f"bert.{part.stored}", part.shape)
         for name, part in (BERT_ENDS | both("token_embd_norm", "embeddings.LayerNorm", E)).items()},
        ENCODER | {"position_embedding_type": "alibi", "feed_forward_type": "geglu", "emb_pooler": "mean"},
        ENCODER_KEYS | {"pooling_type": 1}, layer="bert.encoder.layer",
    ),
    "XLMRobertaModel": Layout(
        "jina-bert-v3", (bert_block("mixer", "mlp.fc1", "mlp.fc2"),) * 2,
        {"token_embd.weight": Part("roberta.embeddings.word_embeddings.parametrizations.weight.original", (VOCAB, E)),
         "token_types.weight": Part("roberta.embeddings.token_type_embeddings.weight", (1, E))}
        | both("token_embd_norm", "roberta.emb_ln", E),
        ENCODER | {"position_embedding_type": "rotary", "rotary_emb_base": 20000.0},
        ENCODER_KEYS | {"rope.freq_base": 2e4}, layer="roberta.encoder.layers",
    ),
    "NomicBertModel": Layout(
        "nomic-bert-moe", (bert_block("attn", "mlp.fc1", "mlp.fc2"), EXPERTS_BLOCK),
        BERT_ENDS | both("token_embd_norm", "emb_ln", E),
        {"vocab_size": VOCAB, "n_embd": E, "n_inner": FF, "n_layer": 2, "n_head": H, "layer_norm_epsilon": 1e-5,
         "max_trained_positions": 512, "activation_function": "gelu", "num_experts": EXPERTS, "moe_top_k": 2,
         "moe_every_n_layers": 2, "rotary_emb_base": 1e4, "prenorm": False, "rotary_emb_interleaved": False,
         "rotary_emb_fraction": 1.0, "causal": False},
        ENCODER_KEYS | {"moe_every_n_layers": 2, "expert_count": EXPERTS, "expert_used_count": 2,
                        "rope.freq_base": 1e4},
        layer="encoder.layers",
    ),
}  # fmt: skip

LAYOUTS = DENSE | MIXTURES | HYBRIDS | ENCODERS
