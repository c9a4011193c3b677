"""The architectures that are converted: a record each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from zinc_rt.converting import hybrid_keys as hybrid
from zinc_rt.converting import keys as k
from zinc_rt.converting.config import Config
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.folder import ModelFolder
from zinc_rt.converting.rope import Factors
from zinc_rt.converting.rules import How, Rules, TensorRule
from zinc_rt.utils.checks import show


@dataclass(frozen=True)
class Family:
    """An architecture.

    Args:
        name: `general.architecture` of the new file.
        classes: names of Hugging Face classes, as config.json has them under `architectures`.
        rules: the new tensor for each stored one.
        keys: a function for the metadata that only this architecture has, None for what it lacks; raises
            `ConvertError` for a variant.
        acts: the names of the activation that is accepted.
        defaults: values that config.json may leave out.
        skipped: beginnings of the names of tensors for images and sound.
        truncated: see `rope_keys`.
        blocks: the one quantised format that is copied as it is.
        aliases: keys of config.json that stand for others.
        made: a function for tensors that the folder does not have, f32.
        scalars: keys that are lists of numbers of layers, which folders have as tensors, by the end of their names.
        variant: what config.json changes in this record, as a name or what happens to tensors.
        tied: whether the head is the embedding's matrix, whatever the folder has.
        name_part: what `general.name` must hold where the vocabulary is SentencePiece's: the marks of Phi 3 eat the
            white space behind them, which readers know by this.
    """

    name: str
    classes: Sequence[str]
    rules: Rules
    keys: Callable[[Config], k.Keys]
    acts: Sequence[str] = ("silu",)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    skipped: Sequence[str] = ()
    truncated: bool = True
    blocks: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)
    name_part: str = ""
    made: Callable[[Config], Factors] = lambda _: {}
    scalars: Mapping[str, str] = field(default_factory=dict)
    tied: bool = False
    variant: Callable[[Family, Config], Family] = lambda family, _: family


def _rules(names: Mapping[str, str], mode: How = How.COPY) -> dict[str, TensorRule]:
    return {old: TensorRule(new, mode) for old, new in names.items()}


_ENDS: Final = _rules({"embed_tokens": "token_embd", "norm": "output_norm", "lm_head": "output"})
_NORMS: Final = _rules({"input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"})
_ATTENTION: Final = _rules({f"self_attn.{x}_proj": f"attn_{x}" for x in "qkv"} | {"self_attn.o_proj": "attn_output"})
_INTERLEAVED: Final = _ATTENTION | {
    "self_attn.q_proj": TensorRule("attn_q", How.Q),
    "self_attn.k_proj": TensorRule("attn_k", How.K),
}
_HEAD_NORMS: Final = _rules({f"self_attn.{x}_norm": f"attn_{x}_norm" for x in "qk"})
_FFN: Final = _rules({f"mlp.{x}_proj": f"ffn_{x}" for x in ("gate", "up", "down")})
_EXPERTS: Final = _rules({"mlp.gate": "ffn_gate_inp"}) | _rules(
    {f"mlp.experts.*.{x}_proj": f"ffn_{x}_exps" for x in ("gate", "up", "down")}
)
_SHARED: Final = _rules({f"mlp.shared_expert.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")}) | {
    "mlp.shared_expert_gate": TensorRule("ffn_gate_inp_shexp", How.FLAT)
}
_LLAMA: Final = _ENDS | _NORMS | _INTERLEAVED | _FFN
_QWEN: Final = _ENDS | _NORMS | _ATTENTION | _FFN
_GRANITE_MOE: Final[Rules] = (
    _ENDS
    | _NORMS
    | _INTERLEAVED
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
_GEMMA_NORMS: Final = _rules(
    {
        "norm": "output_norm",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm",
        "post_feedforward_layernorm": "post_ffw_norm",
    },
    How.PLUS_ONE,
)
_GEMMA2: Final = _ENDS | _ATTENTION | _FFN | _GEMMA_NORMS
_GEMMA3: Final = _GEMMA2 | _rules({f"self_attn.{x}_norm": f"attn_{x}_norm" for x in "qk"}, How.PLUS_ONE)
_PHI3: Final = (
    _ENDS
    | _NORMS
    | _rules(
        {
            "self_attn.qkv_proj": "attn_qkv",
            "self_attn.o_proj": "attn_output",
            "mlp.gate_up_proj": "ffn_up",
            "mlp.down_proj": "ffn_down",
        }
    )
)
_BEHIND: Final = _rules(
    {"post_attention_layernorm": "post_attention_norm", "post_feedforward_layernorm": "post_ffw_norm"}
)
_OLMO2: Final = _ENDS | _ATTENTION | _HEAD_NORMS | _FFN | _BEHIND
_GLM4: Final = _ENDS | _ATTENTION | _rules(
    {
        "input_layernorm": "attn_norm", "post_self_attn_layernorm": "post_attention_norm",
        "post_attention_layernorm": "ffn_norm", "post_mlp_layernorm": "post_ffw_norm",
        "mlp.gate_up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
    }
)  # fmt: skip
_DELTA: Final[Rules] = {
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
_PACKED_DELTA: Final[Rules] = {
    "linear_attn.in_proj_qkvz": (TensorRule("attn_qkv", How.PACKED_QKV), TensorRule("attn_gate", How.PACKED_Z)),
    "linear_attn.in_proj_ba": TensorRule("ssm_ba"),
    "linear_attn.conv1d": TensorRule("ssm_conv1d", How.FLAT),
    "linear_attn.A_log": TensorRule("ssm_a", How.NEGATIVE_EXP),
    "linear_attn.dt_bias": TensorRule("ssm_dt.bias"),
    "linear_attn.norm": TensorRule("ssm_norm"),
    "linear_attn.out_proj": TensorRule("ssm_out"),
}
_QWEN35: Final = _ENDS | _ATTENTION | _FFN | _rules(
    {
        "norm": "output_norm", "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
        "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    },
    How.PLUS_ONE,
)  # fmt: skip
_TOGETHER: Final[Rules] = {
    "mlp.experts.gate_up_proj": (
        TensorRule("ffn_gate_exps.weight", How.FIRST_HALF),
        TensorRule("ffn_up_exps.weight", How.SECOND_HALF),
    ),
    "mlp.experts.down_proj": TensorRule("ffn_down_exps.weight"),
}
_GPT_OSS: Final[Rules] = (
    _ENDS
    | _ATTENTION
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
_LFM2: Final = _ATTENTION | _rules(
    {
        "embed_tokens": "token_embd", "embedding_norm": "token_embd_norm", "lm_head": "output",
        "operator_norm": "attn_norm", "ffn_norm": "ffn_norm", "self_attn.out_proj": "attn_output",
        "self_attn.q_layernorm": "attn_q_norm", "self_attn.k_layernorm": "attn_k_norm",
        "conv.in_proj": "shortconv.in_proj", "conv.out_proj": "shortconv.out_proj",
        "feed_forward.w1": "ffn_gate", "feed_forward.w3": "ffn_up", "feed_forward.w2": "ffn_down",
    }
) | {"conv.conv": TensorRule("shortconv.conv", How.FLAT)}  # fmt: skip
_UNGATED: Final = _rules({f"mlp.{x}_proj": f"ffn_{x}" for x in ("up", "down")})
_SHARED_EXPERTS: Final = _rules({f"mlp.shared_experts.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")})
_CORRECTION: Final = _rules({"mlp.gate.e_score_correction_bias": "exp_probs_b.bias"})
_SEED_OSS: Final = _QWEN | _rules({"post_attention_layernorm": "post_attention_norm"})
_ERNIE: Final[Rules] = _QWEN | {
    "self_attn.qkv_proj": TensorRule("attn_qkv"),
    "mlp.up_gate_proj": (TensorRule("ffn_gate", How.FIRST_HALF), TensorRule("ffn_up", How.SECOND_HALF)),
    "mlp.moe_statics.e_score_correction_bias": TensorRule("exp_probs_b.bias", How.FLAT),
}
_HUNYUAN: Final = _QWEN | _rules(
    {
        "self_attn.query_layernorm": "attn_q_norm",
        "self_attn.key_layernorm": "attn_k_norm",
        "mlp.gate.wg": "ffn_gate_inp",
    }
    | {f"mlp.shared_mlp.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")}
)
_INTERNLM2: Final[Rules] = _rules(
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
_GEMMA: Final = _ENDS | _ATTENTION | _FFN | _rules(
    {"norm": "output_norm", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}, How.PLUS_ONE
)  # fmt: skip
_NEMOTRON: Final = _ENDS | _ATTENTION | _UNGATED | _NORMS | {
    f"{old}.weight": TensorRule(f"{new}.weight", How.PLUS_ONE)
    for old, new in (
        ("norm", "output_norm"), ("input_layernorm", "attn_norm"), ("post_attention_layernorm", "ffn_norm")
    )
}  # fmt: skip
_APERTUS: Final = _ENDS | _ATTENTION | _HEAD_NORMS | _UNGATED | _rules(
    {"attention_layernorm": "attn_norm", "feedforward_layernorm": "ffn_norm"}
)  # fmt: skip
_STARCODER2: Final = _ENDS | _NORMS | _ATTENTION | _rules({"mlp.c_fc": "ffn_up", "mlp.c_proj": "ffn_down"})
_STABLELM: Final = _QWEN | _rules(
    {"self_attn.q_layernorm.norms.*": "attn_q_norm", "self_attn.k_layernorm.norms.*": "attn_k_norm"}
)
_BAILING: Final = _QWEN | _EXPERTS | _SHARED_EXPERTS | _rules(
    {
        "word_embeddings": "token_embd", "attention.query_key_value": "attn_qkv", "attention.dense": "attn_output",
        "attention.query_layernorm": "attn_q_norm", "attention.key_layernorm": "attn_k_norm",
        "mlp.gate.expert_bias": "exp_probs_b.bias",
    }
)  # fmt: skip
_NUMBERED: Final = {"w1": "gate", "w3": "up", "w2": "down"}
_SPARSE: Final = _rules({"block_sparse_moe.gate": "ffn_gate_inp"}) | _rules(
    {f"block_sparse_moe.experts.*.{old}": f"ffn_{new}_exps" for old, new in _NUMBERED.items()}
)
_MINIMAX_M2: Final = _QWEN | _HEAD_NORMS | _SPARSE | _rules(
    {"block_sparse_moe.e_score_correction_bias": "exp_probs_b.bias"}
)  # fmt: skip
_AFMOE: Final = _QWEN | _HEAD_NORMS | _EXPERTS | _SHARED_EXPERTS | _rules(
    {
        "post_attention_layernorm": "post_attention_norm", "pre_mlp_layernorm": "ffn_norm",
        "post_mlp_layernorm": "post_ffw_norm", "self_attn.gate_proj": "attn_gate",
        "mlp.router.gate": "ffn_gate_inp", "mlp.expert_bias": "exp_probs_b.bias",
    }
)  # fmt: skip
_SMALLTHINKER: Final = (
    _QWEN
    | _rules({"block_sparse_moe.primary_router": "ffn_gate_inp"})
    | _rules({f"block_sparse_moe.experts.*.{x}": f"ffn_{x}_exps" for x in ("gate", "up", "down")})
)
_LLAMA4: Final[Rules] = _ENDS | _NORMS | _ATTENTION | _rules(
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
_LATENT: Final[Rules] = _rules(
    {
        "self_attn.q_proj": "attn_q", "self_attn.q_a_proj": "attn_q_a", "self_attn.q_a_layernorm": "attn_q_a_norm",
        "self_attn.q_b_proj": "attn_q_b", "self_attn.kv_a_proj_with_mqa": "attn_kv_a_mqa",
        "self_attn.kv_a_layernorm": "attn_kv_a_norm", "self_attn.o_proj": "attn_output",
    }
) | {"self_attn.kv_b_proj": (TensorRule("attn_k_b", How.LATENT_K), TensorRule("attn_v_b", How.LATENT_V))}  # fmt: skip
_MISTRAL4: Final[Rules] = {**_ENDS, **_NORMS, **_LATENT, **_EXPERTS, **_TOGETHER, **_SHARED_EXPERTS, **_CORRECTION}
_MUSE_GLIMMER: Final[Rules] = _ENDS | _INTERLEAVED | _FFN | _rules({"self_attn.gate_proj": "attn_gate"}) | _rules(
    {
        "input_layernorm": "attn_norm", "post_attention_layernorm": "post_attention_norm",
        "pre_feedforward_layernorm": "ffn_norm", "post_feedforward_layernorm": "post_ffw_norm",
    },
    How.PLUS_ONE,
)  # fmt: skip


def _scan(name: str) -> dict[str, TensorRule]:
    """The tensors of a scan, below a module's name."""
    rules = {
        "in_proj": TensorRule("ssm_in"), "conv1d.weight": TensorRule("ssm_conv1d.weight", How.FLAT),
        "conv1d.bias": TensorRule("ssm_conv1d.bias"), "dt_bias": TensorRule("ssm_dt.bias"),
        "A_log": TensorRule("ssm_a", How.COLUMN_NEGATIVE_EXP), "D": TensorRule("ssm_d", How.COLUMN),
        "norm.weight": TensorRule("ssm_norm.weight", How.GROUPS), "out_proj": TensorRule("ssm_out"),
    }  # fmt: skip
    return {f"{name}.{old}": rule for old, rule in rules.items()}


_MAMBA2: Final = _scan("mixer") | _rules(
    {"embeddings": "token_embd", "norm": "attn_norm", "norm_f": "output_norm", "lm_head": "output"}
)
_NEMOTRON_H: Final = _MAMBA2 | _rules(
    {f"mixer.{x}_proj": f"attn_{x}" for x in "qkv"}
    | {"mixer.o_proj": "attn_output", "mixer.up_proj": "ffn_up", "mixer.down_proj": "ffn_down"}
    | {f"mixer.experts.*.{x}_proj": f"ffn_{x}_exps" for x in ("up", "down")}
    | {f"mixer.shared_experts.{x}_proj": f"ffn_{x}_shexp" for x in ("up", "down")}
    | {
        "mixer.gate": "ffn_gate_inp", "mixer.gate.e_score_correction_bias": "exp_probs_b.bias",
        "mixer.fc1_latent_proj": "ffn_latent_down", "mixer.fc2_latent_proj": "ffn_latent_up",
    }
)  # fmt: skip
_GRANITE_HYBRID: Final[Rules] = {**_GRANITE_MOE, **_scan("mamba")}
_FALCON_H1: Final = _scan("mamba") | _ENDS | _ATTENTION | _rules(
    {
        "final_layernorm": "output_norm", "input_layernorm": "attn_norm", "pre_ff_layernorm.weight": "ffn_norm",
        "feed_forward.gate_proj": "ffn_gate", "feed_forward.up_proj": "ffn_up", "feed_forward.down_proj": "ffn_down",
    }
)  # fmt: skip
_KIMI_LINEAR: Final[Rules] = {
    **_ENDS, **_NORMS, **_LATENT, **_FFN, **_ATTENTION,
    **_rules(
        {f"block_sparse_moe.shared_experts.{x}_proj": f"ffn_{x}_shexp" for x in ("gate", "up", "down")}
        | {
            "self_attn.f_a_proj": "ssm_f_a", "self_attn.f_b_proj": "ssm_f_b", "self_attn.g_a_proj": "ssm_g_a",
            "self_attn.g_b_proj": "ssm_g_b", "self_attn.b_proj": "ssm_beta", "self_attn.o_norm": "ssm_norm",
            "self_attn.dt_bias": "ssm_dt.bias", "block_sparse_moe.gate.e_score_correction_bias": "exp_probs_b.bias",
        }
    ),
    **_SPARSE,
    **{f"self_attn.{x}_conv1d.weight": TensorRule(f"ssm_conv1d_{x}.weight", How.CHANNEL_PLANES) for x in "qkv"},
    "self_attn.A_log": TensorRule("ssm_a", How.COLUMN_NEGATIVE_EXP),
}  # fmt: skip


def _with_experts(family: Family, c: Config) -> Family:
    return replace(family, name="nemotron_h_moe") if c.has("num_experts_per_tok") else family


def _without_experts(family: Family, c: Config) -> Family:
    """Of Granite without experts the shared one is the feed-forward part."""
    if c.integer("num_local_experts", 0):
        return family
    dense: Rules = {
        "shared_mlp.input_linear": (TensorRule("ffn_gate", How.FIRST_HALF), TensorRule("ffn_up", How.SECOND_HALF)),
        "shared_mlp.output_linear": TensorRule("ffn_down"),
    }
    return replace(family, rules={**family.rules, **dense})


def _multiplied(family: Family, c: Config) -> Family:
    """With the multipliers of Falcon H1 in the weights."""
    factors = hybrid.falcon_h1_factors(c)
    rules = {
        old: replace(rule, factors=factors.get(rule.name, ())) if isinstance(rule, TensorRule) else rule
        for old, rule in family.rules.items()
    }
    return replace(family, rules=rules)


_XIELU: Final = {f"act_fn.{x}": f"xielu.{x}" for x in ("alpha_n", "alpha_p", "beta", "eps")}
_DRAFTS: Final = ("mtp.", "model.visual.", "visual.")
_TOWERS: Final = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")
_GELU: Final = ("gelu_pytorch_tanh",)

FAMILIES: Final = (
    Family("llama", ("LlamaForCausalLM", "MistralForCausalLM"), _LLAMA, k.llama, skipped=_TOWERS),
    Family("qwen2", ("Qwen2ForCausalLM",), _QWEN, k.no_window),
    Family("qwen2moe", ("Qwen2MoeForCausalLM",), _QWEN | _EXPERTS | _SHARED, k.qwen2moe),
    Family("qwen3", ("Qwen3ForCausalLM",), _QWEN | _HEAD_NORMS, k.no_window),
    Family("qwen3moe", ("Qwen3MoeForCausalLM",), _QWEN | _HEAD_NORMS | _EXPERTS, k.qwen3moe),
    Family("gemma2", ("Gemma2ForCausalLM",), _GEMMA2, k.gemma2, acts=_GELU),
    Family(
        "gemma3", ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"), _GEMMA3, k.gemma3, acts=_GELU,
        defaults=k.DEFAULTS_GEMMA3, skipped=_TOWERS,
    ),
    Family("phi3", ("Phi3ForCausalLM",), _PHI3, k.phi3, name_part="Phi-3"),
    Family("olmo2", ("Olmo2ForCausalLM", "Olmo3ForCausalLM"), _OLMO2, k.olmo2),
    Family("granite", ("GraniteForCausalLM",), _LLAMA, k.granite),
    Family("granitemoe", ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"), _GRANITE_MOE, k.granitemoe),
    Family("smollm3", ("SmolLM3ForCausalLM",), _LLAMA, k.smollm3),
    Family("glm4", ("Glm4ForCausalLM",), _GLM4, k.glm4),
    Family("mistral3", ("Ministral3ForCausalLM",), _LLAMA, k.mistral3, skipped=_TOWERS),
    Family(
        "qwen35", ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"), {**_QWEN35, **_DELTA}, k.qwen35,
        defaults=k.QUARTER, skipped=_DRAFTS,
    ),
    Family(
        "qwen35moe", ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"),
        {**_QWEN35, **_DELTA, **_EXPERTS, **_SHARED, **_TOGETHER}, k.qwen35moe, defaults=k.QUARTER, skipped=_DRAFTS,
    ),
    Family(
        "qwen3next", ("Qwen3NextForCausalLM",), {**_QWEN35, **_PACKED_DELTA, **_EXPERTS, **_SHARED, **_TOGETHER},
        k.qwen3next, defaults=k.QUARTER, skipped=_DRAFTS,
    ),
    Family("gpt-oss", ("GptOssForCausalLM",), _GPT_OSS, k.gpt_oss, truncated=False, blocks="mxfp4"),
    Family("lfm2", ("Lfm2ForCausalLM",), _LFM2, k.lfm2, aliases=k.LFM2_ALIASES),
    Family("seed_oss", ("SeedOssForCausalLM",), _SEED_OSS, k.seed_oss),
    Family("ernie4_5", ("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"), _ERNIE, k.nothing_more),
    Family("hunyuan-dense", ("HunYuanDenseV1ForCausalLM",), _HUNYUAN, k.hunyuan),
    Family("exaone4", ("Exaone4ForCausalLM",), _OLMO2, k.exaone4),
    Family("internlm2", ("InternLM2ForCausalLM",), _INTERNLM2, k.nothing_more),
    Family("minicpm", ("MiniCPMForCausalLM",), _LLAMA, k.minicpm),
    Family("gemma", ("GemmaForCausalLM",), _GEMMA, k.nothing_more, acts=(*_GELU, "gelu"), tied=True),
    Family("arcee", ("ArceeForCausalLM",), _ENDS | _NORMS | _INTERLEAVED | _UNGATED, k.nothing_more, acts=("relu2",)),
    Family(
        "nemotron", ("NemotronForCausalLM",), _NEMOTRON, k.layer_normed, acts=("relu2",),
        aliases={"rms_norm_eps": "norm_eps"}, defaults={"partial_rotary_factor": 0.5},
    ),
    Family("apertus", ("ApertusForCausalLM",), _APERTUS, k.nothing_more, acts=("xielu",), scalars=_XIELU),
    Family("cohere2", ("Cohere2ForCausalLM",), _QWEN, k.cohere2, aliases={"rms_norm_eps": "layer_norm_eps"}, tied=True),
    Family(
        "starcoder2", ("Starcoder2ForCausalLM",), _STARCODER2, k.layer_normed, acts=_GELU,
        aliases={"rms_norm_eps": "norm_epsilon"},
    ),
    Family("stablelm", ("StableLmForCausalLM",), _STABLELM, k.stablelm, aliases={"rms_norm_eps": "layer_norm_eps"}),
    Family("olmoe", ("OlmoeForCausalLM",), _QWEN | _HEAD_NORMS | _EXPERTS, k.olmoe),
    Family(
        "dots1", ("Dots1ForCausalLM",), _QWEN | _HEAD_NORMS | _EXPERTS | _SHARED_EXPERTS | _CORRECTION, k.routing,
        aliases={"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"},
        defaults={"scoring_func": "sigmoid"},
    ),
    Family(
        "bailingmoe2", ("BailingMoeV2ForCausalLM",), _BAILING, k.bailingmoe2,
        aliases={"scoring_func": "score_function"}, defaults={"partial_rotary_factor": 0.5, "scoring_func": "sigmoid"},
    ),
    Family(
        "ernie4_5-moe", ("Ernie4_5_MoeForCausalLM",), {**_ERNIE, **_EXPERTS, **_SHARED_EXPERTS}, k.ernie4_5_moe,
        aliases={
            "num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k",
            "num_shared_experts": "moe_num_shared_experts", "first_k_dense_replace": "moe_layer_start_index",
        },
        skipped=("mtp_block.", "mtp_emb_norm.", "mtp_hidden_norm.", "mtp_linear_proj."),
    ),
    Family(
        "hunyuan-moe", ("HunYuanMoEV1ForCausalLM",), _HUNYUAN | _EXPERTS, k.hunyuan_moe,
        aliases={"num_experts_per_tok": "moe_topk", "num_shared_experts": "num_shared_expert"},
    ),
    Family("minimax-m2", ("MiniMaxM2ForCausalLM",), _MINIMAX_M2, k.minimax_m2, defaults={"scoring_func": "sigmoid"}),
    Family(
        "afmoe", ("AfmoeForCausalLM",), _AFMOE, k.afmoe,
        aliases={
            "first_k_dense_replace": "num_dense_layers", "norm_topk_prob": "route_norm",
            "routed_scaling_factor": "route_scale", "scoring_func": "score_func",
            "sliding_window_pattern": "global_attn_every_n_layers",
        },
    ),
    Family(
        "mimo2", ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"), _QWEN | _EXPERTS | _CORRECTION | {
            "self_attn.attention_sink_bias": TensorRule("attn_sinks.weight"),
            "self_attn.qkv_proj": TensorRule("attn_qkv"),
        }, k.mimo2, aliases={"num_experts": "n_routed_experts", "rms_norm_eps": "layernorm_epsilon"},
        skipped=("mtp.",),
    ),
    Family(
        "smallthinker", ("SmallThinkerForCausalLM",), _SMALLTHINKER, k.smallthinker, acts=("relu",),
        aliases={
            "num_experts": "moe_num_primary_experts", "num_experts_per_tok": "moe_num_active_primary_experts",
            "moe_intermediate_size": "moe_ffn_hidden_size",
        },
    ),
    Family(
        "llama4", ("Llama4ForConditionalGeneration", "Llama4ForCausalLM"), _LLAMA4, k.llama4,
        skipped=("vision_model.", "multi_modal_projector."),
    ),
    Family("phimoe", ("PhiMoEForCausalLM", "PhimoeForCausalLM"), _QWEN | _SPARSE, k.phimoe, name_part="Phi-3"),
    Family(
        "mistral4", ("Mistral4ForCausalLM",), _MISTRAL4, k.mistral4, skipped=_TOWERS,
        aliases={"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"},
    ),
    Family(
        "muse-glimmer", ("MuseGlimmerForConditionalGeneration",), _MUSE_GLIMMER, k.muse_glimmer,
        made=k.muse_glimmer_norms,
        skipped=("model.vision_tower.", "model.vision_adapter.", "model.vision_projection."),
    ),
    Family(
        "mamba2", ("Mamba2ForCausalLM",), _MAMBA2, hybrid.mamba2, aliases={"rms_norm_eps": "layer_norm_epsilon"},
        defaults={"num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 1 << 20},
    ),
    Family(
        "nemotron_h", ("NemotronHForCausalLM",), _NEMOTRON_H, hybrid.nemotron_h, variant=_with_experts,
        aliases={
            "rms_norm_eps": "layer_norm_epsilon", "num_experts": "n_routed_experts",
            "num_shared_experts": "n_shared_experts", "head_dim": "attention_head_dim",
        },
        defaults={"scoring_func": "sigmoid"}, skipped=("mtp.",),
    ),
    Family(
        "granitehybrid", ("GraniteMoeHybridForCausalLM",), _GRANITE_HYBRID, hybrid.granitehybrid,
        variant=_without_experts, aliases={"n_groups": "mamba_n_groups"},
    ),
    Family(
        "falcon-h1", ("FalconH1ForCausalLM",), _FALCON_H1, hybrid.falcon_h1, variant=_multiplied,
        aliases={"n_groups": "mamba_n_groups"},
    ),
    Family(
        "kimi-linear", ("KimiLinearForCausalLM",), _KIMI_LINEAR, hybrid.kimi_linear,
        aliases={"num_experts_per_tok": "num_experts_per_token", "scoring_func": "moe_router_activation_func",
                 "n_group": "num_expert_group",
                 "norm_topk_prob": "moe_renormalize", "max_position_embeddings": "model_max_length"},
    ),
)  # fmt: skip

CLASSES: Final = {name: family for family in FAMILIES for name in family.classes}
BY_TEXT_MODEL: Final[Mapping[str, Mapping[str, str]]] = {
    "Mistral3ForConditionalGeneration": {
        "ministral3": "Ministral3ForCausalLM",
        "mistral": "MistralForCausalLM",
        "mistral4": "Mistral4ForCausalLM",
    },
}
"""Classes with images whose text model is of several kinds, by the `model_type` of their text_config."""


@dataclass(frozen=True)
class NamedConfig:
    """A config.json by itself. shown: the folder that it is in, for messages."""

    shown: str
    config: Mapping[str, Any]


def family_of(folder: ModelFolder | NamedConfig) -> tuple[Family, Config]:
    """The architecture of a folder, and the configuration of its text model.

    Raises `ConvertError` for another one, and for weights that are quantised.
    """
    named = folder.config.get("architectures")
    name = named[0] if isinstance(named, list) and len(named) == 1 else named
    text = folder.config.get("text_config")
    kind = text.get("model_type") if isinstance(text, dict) else None
    own = BY_TEXT_MODEL.get(name, {}).get(kind, name) if isinstance(name, str) and isinstance(kind, str) else name
    family = CLASSES.get(own) if isinstance(own, str) else None
    if family is None:
        raise ConvertError(
            f"{folder.shown}/config.json names the architecture {show(str(name))}, which is not converted; converted"
            f" are {', '.join([*CLASSES, *BY_TEXT_MODEL])}"
        )
    values = dict(folder.config)
    if isinstance(values.pop("text_config", None), dict) and isinstance(text, dict):
        values |= text
    how = values.get("quantization_config")
    method = how.get("quant_method") if isinstance(how, dict) else how
    if method is not None and method != family.blocks:
        raise ConvertError(
            f"{folder.shown} holds weights that are quantised already ({show(str(method))}), which are not converted;"
            " take the folder of the model before that"
        )
    set_values = {key: value for key, value in values.items() if value is not None}
    set_values |= {name: set_values[theirs] for name, theirs in family.aliases.items() if theirs in set_values}
    config = Config({**family.defaults, **set_values})
    return family.variant(family, config), config
