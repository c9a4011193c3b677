"""The architectures that are converted: a record each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from zinc_rt.converting import keys as k
from zinc_rt.converting.config import Config
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.folder import ModelFolder
from zinc_rt.converting.rules import How, Rules, TensorRule
from zinc_rt.utils.checks import show


@dataclass(frozen=True)
class Family:
    """An architecture.

    Args:
        name: `general.architecture` of the new file.
        classes: names of Hugging Face classes, as config.json has them under `architectures`.
        rules: the new tensor for each stored one.
        keys: a function for the metadata that only this architecture has; raises `ConvertError` for a variant.
        act: the only activation that is accepted.
        defaults: values that config.json may leave out.
        skipped: beginnings of the names of tensors for images and sound.
        truncated: see `rope_keys`.
        blocks: the one quantised format that is copied as it is.
        aliases: keys of config.json that stand for others.
        name_part: what `general.name` must hold where the vocabulary is SentencePiece's: the marks of Phi 3 eat the
            white space behind them, which readers know by this.
    """

    name: str
    classes: Sequence[str]
    rules: Rules
    keys: Callable[[Config], k.Keys]
    act: str = "silu"
    defaults: Mapping[str, Any] = field(default_factory=dict)
    skipped: Sequence[str] = ()
    truncated: bool = True
    blocks: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict)
    name_part: str = ""


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
_DRAFTS: Final = ("mtp.", "model.visual.", "visual.")
_TOWERS: Final = ("vision_tower.", "multi_modal_projector.", "model.vision_tower.", "model.multi_modal_projector.")
_GELU: Final = "gelu_pytorch_tanh"

FAMILIES: Final = (
    Family("llama", ("LlamaForCausalLM", "MistralForCausalLM"), _LLAMA, k.llama, skipped=_TOWERS),
    Family("qwen2", ("Qwen2ForCausalLM",), _QWEN, k.no_window),
    Family("qwen2moe", ("Qwen2MoeForCausalLM",), _QWEN | _EXPERTS | _SHARED, k.qwen2moe),
    Family("qwen3", ("Qwen3ForCausalLM",), _QWEN | _HEAD_NORMS, k.no_window),
    Family("qwen3moe", ("Qwen3MoeForCausalLM",), _QWEN | _HEAD_NORMS | _EXPERTS, k.qwen3moe),
    Family("gemma2", ("Gemma2ForCausalLM",), _GEMMA2, k.gemma2, act=_GELU),
    Family(
        "gemma3", ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"), _GEMMA3, k.gemma3, act=_GELU,
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
)  # fmt: skip

CLASSES: Final = {name: family for family in FAMILIES for name in family.classes}
BY_TEXT_MODEL: Final[Mapping[str, Mapping[str, str]]] = {
    "Mistral3ForConditionalGeneration": {"ministral3": "Ministral3ForCausalLM", "mistral": "MistralForCausalLM"},
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
    return family, Config({**family.defaults, **set_values})
