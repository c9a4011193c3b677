"""The tensors of each family: their names in folders, and what they become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zinc_rt.converting.rules import How, Rules, TensorRule


def _rules(names: Mapping[str, str], mode: How = How.COPY) -> dict[str, TensorRule]:
    return {old: TensorRule(new, mode) for old, new in names.items()}


ENDS: Final = _rules({"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"})
NORMS: Final = _rules({"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"})
ATTENTION: Final = _rules({f"self_attn.{x}_proj": f"attn_{x}" for x in "qkv"} | {"self_attn.o_proj": "attn_output"})
INTERLEAVED: Final = ATTENTION | {
    "self_attn.q_proj": TensorRule("attn_q", How.Q),
    "self_attn.k_proj": TensorRule("attn_k", How.K),
}
HEAD_NORMS: Final = _rules({f"self_attn.{x}_norm": f"attn_{x}_norm" for x in "qk"})
FFN: Final = _rules({f"mlp.{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")})
EXPERTS: Final = _rules({"mlp.gate": "ffn_gate_inp"}) | _rules(
    {f"mlp.experts.*.{x}_proj": f"ffn_{x}_exps" for x in ("gate", "up", "down")}
)
SHARED: Final = _rules({f"mlp.shared_expert.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")}) | {
    "mlp.shared_expert_gate": TensorRule("ffn_gate_inp_shexp", How.FLAT)
}
LLAMA: Final = ENDS | NORMS | INTERLEAVED | FFN
QWEN: Final = ENDS | NORMS | ATTENTION | FFN
GRANITE_MOE: Final[Rules] = (
    ENDS
    | NORMS
    | INTERLEAVED
    | {
        "block_sparse_moe.router.layer": TensorRule("ffn_gate_inp"),
        "block_sparse_moe.input_linear": (
            TensorRule("ffn_gate_exps", How.FIRST_HALF),
            TensorRule("ffn_up_exps", How.SECOND_HALF),
        ),
        "block_sparse_moe.output_linear": TensorRule("ffn_down_exps"),
        "shared_mlp.input_linear": (
            TensorRule("ffn_gate_shexp", How.FIRST_HALF),
            TensorRule("ffn_up_shexp", How.SECOND_HALF),
        ),
        "shared_mlp.output_linear": TensorRule("ffn_down_shexp"),
    }
)
GEMMA_NORMS: Final = _rules(
    {
        "norm": "output_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
    How.PLUS_ONE,
)
GEMMA2: Final = ENDS | ATTENTION | FFN | GEMMA_NORMS
GEMMA3: Final = GEMMA2 | _rules({f"self_attn.{x}_norm": f"attn_{x}_norm" for x in "qk"}, How.PLUS_ONE)
PHI3: Final = (
    ENDS
    | NORMS
    | _rules(
        {
            "self_attn.qkv_proj": "attn_qkv",
            "self_attn.o_proj": "attn_output",
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        }
    )
)
BEHIND: Final = _rules(
    {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
)
OLMO2: Final = ENDS | ATTENTION | HEAD_NORMS | FFN | BEHIND
GLM4: Final = ENDS | ATTENTION | _rules(
    {
        "input_layernorm": "attn_norm", "post_self_attn_layernorm": "post_attention_norm",
        "post_attention_layernorm": "ffn_norm", "post_mlp_layernorm": "post_ffw_norm",
        "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }
)  # fmt: skip
DELTA: Final[Rules] = {
    "linear_attn.in_proj_qkv": TensorRule("attn_qkv", How.CHANNELS),
    "linear_attn.in_proj_z": TensorRule("attn_gate", How.VALUES),
    "linear_attn.in_proj_a": TensorRule("ssm_alpha", How.VALUES),
    "linear_attn.in_proj_b": TensorRule("ssm_beta", How.VALUES),
    "linear_attn.conv1d": TensorRule("ssm_conv1d", How.CHANNELS),
    "linear_attn.A_log": TensorRule("ssm_a", How.DECAYS),
    "linear_attn.dt_bias": TensorRule("ssm_dt.bias", How.VALUES),
    "linear_attn.norm": TensorRule("ssm_norm"),
    "linear_attn.out_proj": TensorRule("ssm_out", How.INPUTS),
}
PACKED_DELTA: Final[Rules] = {
    "linear_attn.in_proj_qkvz": (TensorRule("attn_qkv", How.PACKED_QKV), TensorRule("attn_gate", How.PACKED_Z)),
    "linear_attn.in_proj_ba": TensorRule("ssm_ba"),
    "linear_attn.conv1d": TensorRule("ssm_conv1d", How.FLAT),
    "linear_attn.A_log": TensorRule("ssm_a", How.NEGATIVE_EXP),
    "linear_attn.dt_bias": TensorRule("ssm_dt.bias"),
    "linear_attn.norm": TensorRule("ssm_norm"),
    "linear_attn.out_proj": TensorRule("ssm_out"),
}
QWEN35: Final = ENDS | ATTENTION | FFN | _rules(
    {
        "norm": "output_norm", "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
        "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    },
    How.PLUS_ONE,
)  # fmt: skip
TOGETHER: Final[Rules] = {
    "mlp.experts.gate_up_proj": (
        TensorRule("ffn_gate_exps.weight", How.FIRST_HALF),
        TensorRule("ffn_up_exps.weight", How.SECOND_HALF),
    ),
    "mlp.experts.down_proj": TensorRule("ffn_down_exps.weight"),
}
GPT_OSS: Final[Rules] = (
    ENDS
    | ATTENTION
    | {
        "input_layernorm": TensorRule("attn_norm"),
        "post_attention_layernorm": TensorRule("post_attention_norm"),
        "self_attn.sinks": TensorRule("attn_sinks.weight"),
        "mlp.router": TensorRule("ffn_gate_inp"),
        "mlp.experts.gate_up_proj_bias": (
            TensorRule("ffn_gate_exps.bias", How.EVEN),
            TensorRule("ffn_up_exps.bias", How.ODD),
        ),
        "mlp.experts.down_proj_bias": TensorRule("ffn_down_exps.bias"),
        "mlp.experts.gate_up_proj_blocks": (
            TensorRule("ffn_gate_exps.weight", How.EVEN),
            TensorRule("ffn_up_exps.weight", How.ODD),
        ),
        "mlp.experts.down_proj_blocks": TensorRule("ffn_down_exps.weight"),
        "mlp.experts.gate_up_proj": (
            TensorRule("ffn_gate_exps.weight", How.EVEN, columns=True),
            TensorRule("ffn_up_exps.weight", How.ODD, columns=True),
        ),
        "mlp.experts.down_proj": TensorRule("ffn_down_exps.weight", columns=True),
    }
)
LFM2: Final = ATTENTION | _rules(
    {
        "embed_tokens": "token_embd", "embedding_norm": "token_embd_norm", "lm_head": "output",
        "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output",
        "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
        "conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj",
        "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
    }
) | {"conv.conv": TensorRule("shortconv.conv", How.FLAT)}  # fmt: skip
UNGATED: Final = _rules({f"mlp.{x}_proj": f"ffn_{x}" for x in ("up", "down")})
SHARED_EXPERTS: Final = _rules({f"mlp.shared_experts.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")})
CORRECTION: Final = _rules({"mlp.gate.e_score_correction_bias": "exp_probs_b.bias"})
SEED_OSS: Final = QWEN | _rules({"post_attention_layernorm": "post_attention_norm"})
ERNIE: Final[Rules] = QWEN | {
    "self_attn.qkv_proj": TensorRule("attn_qkv"),
    "mlp.up_gate_proj": (TensorRule("ffn_gate", How.FIRST_HALF), TensorRule("ffn_up", How.SECOND_HALF)),
    "mlp.moe_statics.e_score_correction_bias": TensorRule("exp_probs_b.bias", How.FLAT),
}
HUNYUAN: Final = QWEN | _rules(
    {
        "self_attn.query_layernorm": "attn_q_norm",
        "self_attn.key_layernorm": "attn_k_norm",
        "mlp.gate.wg": "ffn_gate_inp",
    }
    | {f"mlp.shared_mlp.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")}
)
INTERNLM2: Final[Rules] = _rules(
    {
        "tok_embeddings": "token_embd", "norm": "output_norm", "output": "output", "attention_norm": "attn_norm",
        "ffn_norm": "ffn_norm", "attention.wo": "attn_output", "feed_forward.w1": "ffn_gate",
        "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
    }
) | {
    "attention.wqkv": (
        TensorRule("attn_q", How.GROUPED_Q), TensorRule("attn_k", How.GROUPED_K), TensorRule("attn_v", How.GROUPED_V)
    )
}  # fmt: skip
GEMMA: Final = ENDS | ATTENTION | FFN | _rules(
    {"norm": "output_norm", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}, How.PLUS_ONE
)  # fmt: skip
NEMOTRON: Final = ENDS | ATTENTION | UNGATED | NORMS | {
    f"{old}.weight": TensorRule(f"{new}.weight", How.PLUS_ONE)
    for old, new in (
        ("norm", "output_norm"), ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")
    )
}  # fmt: skip
APERTUS: Final = ENDS | ATTENTION | HEAD_NORMS | UNGATED | _rules(
    {"attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"}
)  # fmt: skip
STARCODER2: Final = ENDS | NORMS | ATTENTION | _rules({"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"})
STABLELM: Final = QWEN | _rules(
    {"self_attn.q_layernorm.norms.*": "attn_q_norm", "self_attn.k_layernorm.norms.*": "attn_k_norm"}
)
BAILING: Final = QWEN | EXPERTS | SHARED_EXPERTS | _rules(
    {
        "word_embeddings": "token_embd", "attention.query_key_value": "attn_qkv", "attention.dense": "attn_output",
        "attention.query_layernorm": "attn_q_norm", "attention.key_layernorm": "attn_k_norm",
        "mlp.gate.expert_bias": "exp_probs_b.bias",
    }
)  # fmt: skip
NUMBERED: Final = {"w1": "gate", "w3": "up", "w2": "down"}
SPARSE: Final = _rules({"block_sparse_moe.gate": "ffn_gate_inp"}) | _rules(
    {f"block_sparse_moe.experts.*.{old}": f"ffn_{new}_exps" for old, new in NUMBERED.items()}
)
MINIMAX_M2: Final = QWEN | HEAD_NORMS | SPARSE | _rules(
    {"block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias"}
)  # fmt: skip
AFMOE: Final = QWEN | HEAD_NORMS | EXPERTS | SHARED_EXPERTS | _rules(
    {
        "post_attention_layernorm": "post_attention_norm", "pre_mlp_layernorm": "ffn_norm",
        "post_mlp_layernorm": "post_ffw_norm", "self_attn.gate_proj": "attn_gate",
        "mlp.router.gate": "ffn_gate_inp", "mlp.expert_bias": "exp_probs_b.bias",
    }
)  # fmt: skip
SMALLTHINKER: Final = (
    QWEN
    | _rules({"block_sparse_moe.primary_router": "ffn_gate_inp"})
    | _rules({f"block_sparse_moe.experts.*.{x}": f"ffn_{x}_exps" for x in ("gate", "up", "down")})
)
LLAMA4: Final[Rules] = ENDS | NORMS | ATTENTION | _rules(
    {f"feed_forward.{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")}
    | {f"feed_forward.shared_expert.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")}
    | {"feed_forward.router": "ffn_gate_inp"}
) | {
    "feed_forward.experts.gate_up_proj": (
        TensorRule("ffn_gate_exps.weight", How.FIRST_HALF, columns=True),
        TensorRule("ffn_up_exps.weight", How.SECOND_HALF, columns=True),
    ),
    "feed_forward.experts.down_proj": TensorRule("ffn_down_exps.weight", columns=True),
}  # fmt: skip
LATENT: Final[Rules] = _rules(
    {
        "self_attn.q_proj": "attn_q", "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
        "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
        "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.o_proj": "attn_output",
    }
) | {"self_attn.kv_b_proj": (TensorRule("attn_k_b", How.LATENT_K), TensorRule("attn_v_b", How.LATENT_V))}  # fmt: skip
MISTRAL4: Final[Rules] = {**ENDS, **NORMS, **LATENT, **EXPERTS, **TOGETHER, **SHARED_EXPERTS, **CORRECTION}
MUSE_GLIMMER: Final[Rules] = ENDS | INTERLEAVED | FFN | _rules({"self_attn.gate_proj": "attn_gate"}) | _rules(
    {
        "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    },
    How.PLUS_ONE,
)  # fmt: skip


def _scan(name: str, own: Mapping[str, TensorRule]) -> dict[str, TensorRule]:
    """The tensors of a scan, below a module's name. own: what scans of one kind alone have, or have otherwise."""
    rules = {
        "in_proj": TensorRule("ssm_in"), "conv1d.weight": TensorRule("ssm_conv1d.weight", How.FLAT),
        "conv1d.bias": TensorRule("ssm_conv1d.bias"), "out_proj": TensorRule("ssm_out"), **own,
    }  # fmt: skip
    return {f"{name}.{old}": rule for old, rule in rules.items()}


_FIRST_SCAN: Final = _rules({"x_proj": "ssm_x", "dt_proj": "ssm_dt", "D": "ssm_d"}) | {
    "A_log": TensorRule("ssm_a", How.NEGATIVE_EXP)
}
"""Of Mamba 1."""
_SECOND_SCAN: Final = {
    "dt_bias": TensorRule("ssm_dt.bias"), "A_log": TensorRule("ssm_a", How.COLUMN_NEGATIVE_EXP),
    "D": TensorRule("ssm_d", How.COLUMN), "norm.weight": TensorRule("ssm_norm.weight", How.GROUPS),
}  # fmt: skip
_MIXER_ENDS: Final = _rules(
    {"embeddings": "token_embd", "norm": "attn_norm", "norm_f": "output_norm", "lm_head": "output"}
)
MAMBA: Final = _scan("mixer", _FIRST_SCAN) | _MIXER_ENDS
MAMBA2: Final = _scan("mixer", _SECOND_SCAN) | _MIXER_ENDS
NEMOTRON_H: Final = MAMBA2 | _rules(
    {f"mixer.{x}_proj": f"attn_{x}" for x in "qkv"}
    | {"mixer.o_proj": "attn_output", "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down"}
    | {f"mixer.experts.*.{x}_proj": f"ffn_{x}_exps" for x in ("up", "down")}
    | {f"mixer.shared_experts.{x}_proj": f"ffn_{x}_shexp" for x in ("up", "down")}
    | {
        "mixer.gate": "ffn_gate_inp", "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
        "mixer.fc1_latent_proj": "ffn_latent_down", "mixer.fc2_latent_proj": "ffn_latent_up",
    }
)  # fmt: skip
GRANITE_HYBRID: Final[Rules] = {**GRANITE_MOE, **_scan("mamba", _SECOND_SCAN)}
FALCON_H1: Final = _scan("mamba", _SECOND_SCAN) | ENDS | ATTENTION | _rules(
    {
        "final_layernorm": "output_norm", "input_layernorm": "attn_norm", "pre_ff_layernorm.weight": "ffn_norm",
        "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down",
    }
)  # fmt: skip
KIMI_LINEAR: Final[Rules] = {
    **ENDS, **NORMS, **LATENT, **FFN, **ATTENTION,
    **_rules(
        {f"block_sparse_moe.shared_experts.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")}
        | {
            "self_attn.f_a_proj": "ssm_f_a", "self_attn.f_b_proj": "ssm_f_b", "self_attn.g_a_proj": "ssm_g_a",
            "self_attn.g_b_proj": "ssm_g_b", "self_attn.b_proj": "ssm_beta", "self_attn.o_norm": "ssm_norm",
            "self_attn.dt_bias": "ssm_dt.bias", "block_sparse_moe.gate.e_score_correction_bias": "exp_probs_b.bias",
        }
    ),
    **SPARSE,
    **{f"self_attn.{x}_conv1d.weight": TensorRule(f"ssm_conv1d_{x}.weight", How.CHANNEL_PLANES) for x in "qkv"},
    "self_attn.A_log": TensorRule("ssm_a", How.COLUMN_NEGATIVE_EXP),
}  # fmt: skip
JAMBA: Final = _scan("mamba", _FIRST_SCAN) | ENDS | ATTENTION | _rules(
    {"final_layernorm": "output_norm", "input_layernorm": "attn_norm", "pre_ff_layernorm": "ffn_norm"}
    | {f"mamba.{x}_layernorm": f"ssm_{x}_norm" for x in ("dt", "b", "c")}
    | {f"feed_forward.{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")}
    | {f"feed_forward.experts.*.{x}_proj": f"ffn_{x}_exps" for x in ("gate", "up", "down")}
    | {"feed_forward.router": "ffn_gate_inp"}
)  # fmt: skip
BAILING3: Final[Rules] = {
    **{old.replace("self_attn.", "attention."): rule for old, rule in KIMI_LINEAR.items()},
    **EXPERTS, **SHARED_EXPERTS,
    **_rules(
        {"word_embeddings": "token_embd", "attention.dense": "attn_output", "attention.f_proj": "ssm_f_a",
         "attention.g_proj": "ssm_g_a", "mlp.gate.expert_bias": "exp_probs_b.bias"}
    ),
    # The logarithm's sign is that of a bounded decay.
    "attention.A_log": TensorRule("ssm_a", How.COLUMN_NEGATIVE_EXP, factors=((1, -1.0),)),
}  # fmt: skip
GPTNEOX: Final[Rules] = NORMS | _rules(
    {
        "embed_in": "token_embd", "final_layer_norm": "output_norm", "embed_out": "output",
        "attention.dense": "attn_output", "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down",
    }
) | {"attention.query_key_value": TensorRule("attn_qkv", How.GROUPED)}  # fmt: skip
FALCON: Final[Rules] = _rules(
    {
        "word_embeddings": "token_embd", "ln_f": "output_norm", "lm_head": "output", "input_layernorm": "attn_norm",
        "ln_mlp": "attn_norm", "ln_attn": "attn_norm_2", "self_attention.dense": "attn_output",
        "mlp.dense_h_to_4h": "ffn_up", "mlp.dense_4h_to_h": "ffn_down",
    }
) | {"self_attention.query_key_value": TensorRule("attn_qkv", How.GROUPED)}  # fmt: skip
MINICPM3: Final[Rules] = {**QWEN, **LATENT, "self_attn.kv_b_proj": TensorRule("attn_kv_b")}
INDEXED: Final[Rules] = {
    **MISTRAL4, **FFN,
    **_rules(
        {f"self_attn.indexer.{old}": f"indexer.{new}" for old, new in
         (("wq_b", "attn_q_b"), ("wk", "attn_k"), ("k_norm", "k_norm"), ("weights_proj", "proj"))}
    ),
}  # fmt: skip
_HYPER: Final = ("fn", "base", "scale")
DEEPSEEK4: Final[Rules] = _rules(
    {"embed": "token_embd", "norm": "output_norm", "head": "output", "attn_norm": "attn_norm", "ffn_norm": "ffn_norm"}
    | {f"hc_head_{x}": f"output_hc_{x}.weight" for x in _HYPER}
    | {f"hc_{part}_{x}": f"hc_{part}_{x}.weight" for part in ("attn", "ffn") for x in _HYPER}
    | {f"attn.{old}": f"attn_{new}" for old, new in
       (("wq_a", "q_a"), ("wq_b", "q_b"), ("q_norm", "q_a_norm"), ("wkv", "kv"), ("kv_norm", "kv_a_norm"),
        ("wo_a", "output_a"), ("wo_b", "output_b"), ("attn_sink", "sinks.weight"))}
    | {f"attn.{old}.{x}": f"{new}_{y}" for old, new in
       (("compressor", "attn_compressor"), ("indexer.compressor", "indexer_compressor"))
       for x, y in (("ape", "ape.weight"), ("wkv", "kv"), ("wgate", "gate"), ("norm", "norm"))}
    | {"attn.indexer.wq_b": "indexer.attn_q_b", "attn.indexer.weights_proj": "indexer.proj"}
    | {f"ffn.experts.*.{old}": f"ffn_{new}_exps" for old, new in NUMBERED.items()}
    | {f"ffn.shared_experts.{old}": f"ffn_{new}_shexp" for old, new in NUMBERED.items()}
    | {"ffn.gate": "ffn_gate_inp", "ffn.gate.bias": "exp_probs_b.bias"}
) | {"ffn.gate.tid2eid": TensorRule("ffn_gate_tid2eid.weight", How.WHOLE), "ffn.gate.bias_vl": ()}  # fmt: skip
EXAONE_MOE: Final = QWEN | HEAD_NORMS | EXPERTS | SHARED_EXPERTS | CORRECTION | _rules(
    {"mlp.e_score_correction_bias": "exp_probs_b.bias"}
)  # fmt: skip
STEP35: Final = QWEN | _rules(
    {"self_attn.g_proj": "attn_gate", "moe.gate": "ffn_gate_inp", "moe.router_bias": "exp_probs_b.bias"}
    | {f"moe.{x}_proj": f"ffn_{x}_exps" for x in ("gate", "up", "down")}
    | {f"share_expert.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")}
) | _rules(
    {"norm": "output_norm", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
     "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm"}, How.PLUS_ONE
)  # fmt: skip


_CLASSIFIER: Final = _rules({"head.dense": "cls", "head.norm": "cls.norm", "classifier": "cls.output"})
"""What makes scores of a reranker."""
MODERN_BERT: Final = _CLASSIFIER | _rules(
    {
        "embeddings.tok_embeddings": "token_embd", "embeddings.norm": "token_embd_norm", "attn_norm": "attn_norm",
        "attn.Wqkv": "attn_qkv", "attn.Wo": "attn_output", "mlp_norm": "ffn_norm", "mlp.Wi": "ffn_up",
        "mlp.Wo": "ffn_down", "final_norm": "output_norm",
    }
)  # fmt: skip
_BERT_ENDS: Final = _rules(
    {"embeddings.word_embeddings": "token_embd", "embeddings.token_type_embeddings": "token_types"}
)
JINA_V2: Final = _BERT_ENDS | _rules(
    {f"attention.self.{name}": f"attn_{name[0]}" for name in ("query", "key", "value")}
    | {
        "embeddings.LayerNorm": "token_embd_norm", "attention.output.dense": "attn_output",
        "attention.output.LayerNorm": "attn_output_norm", "mlp.gated_layers": "ffn_up", "mlp.wo": "ffn_down",
        "mlp.layernorm": "layer_output_norm",
    }
)  # fmt: skip
JINA_V3: Final = _BERT_ENDS | _rules(
    {
        "emb_ln": "token_embd_norm", "mixer.Wqkv": "attn_qkv", "mixer.out_proj": "attn_output",
        "norm1": "attn_output_norm", "norm2": "layer_output_norm", "mlp.fc1": "ffn_up", "mlp.fc2": "ffn_down",
    }
)  # fmt: skip
NOMIC_MOE: Final = JINA_V3 | _rules(
    {"attn.Wqkv": "attn_qkv", "attn.out_proj": "attn_output", "mlp.router.layer": "ffn_gate_inp"}
) | {
    "mlp.experts.mlp.w1": TensorRule("ffn_up_exps.weight", How.PER_GROUP),
    "mlp.experts.mlp.w2": TensorRule("ffn_down_exps.weight", How.PER_GROUP, columns=True),
}  # fmt: skip
_STREAMS: Final = {"attn_hyper_connection": "hc_attn", "mlp_hyper_connection": "hc_ffn",
                   "hyper_connection_mixer": "output_hc"}  # fmt: skip
_GATES: Final = {
    "input_mix_weight_down": "down", "input_mix_weight_up": "up", "block_inject_weight": "inject"
}  # fmt: skip
QWEN4EXP: Final[Rules] = {
    **QWEN35, **DELTA, **EXPERTS, **SHARED, **TOGETHER,
    **_rules({f"{old}.{gate}": f"{new}_{part}" for old, new in _STREAMS.items() for gate, part in _GATES.items()}),
    **_rules({f"{old}.hc_norm": f"{new}_norm" for old, new in _STREAMS.items()}, How.PLUS_ONE),
    **_rules({f"ple.norm_{x}": f"ple_norm_{x}" for x in ("key", "query", "conv")}, How.PLUS_ONE),
    **_rules({f"self_attn.indexer.{x}_layernorm": f"indexer.{x}_norm" for x in "qk"}, How.PLUS_ONE),
    **_rules({"ple.key_proj": "ple_key", "ple.value_proj": "ple_value"}),
    "ple.conv1d": TensorRule("ple_conv1d", How.FLAT),
    "self_attn.indexer.index_qk_proj": (
        TensorRule("indexer.q_proj", How.INDEX_Q), TensorRule("indexer.k_proj", How.INDEX_K)
    ),
    "ngram_embedding.shard_*": TensorRule("per_layer_token_embd", How.ROWS),
}  # fmt: skip
