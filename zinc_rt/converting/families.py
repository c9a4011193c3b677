"""The architectures that are converted: a record each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from zinc_rt.converting import encoder_keys as encoders
from zinc_rt.converting import hybrid_keys as hybrid
from zinc_rt.converting import keys as k
from zinc_rt.converting import latent_keys as latent
from zinc_rt.converting import mixture_keys as mix
from zinc_rt.converting import names as n
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
        numbers: keys that are lists of whole numbers, which folders have as tensors, by the end of their names.
        settled: a function for values that stand in place of config.json's.
        variant: what config.json changes in this record, as a name or what happens to tensors.
        encodes: whether it makes vectors or scores of texts, and generates none.
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
    numbers: Mapping[str, str] = field(default_factory=dict)
    tied: bool = False
    variant: Callable[[Family, Config], Family] = lambda family, _: family
    settled: Callable[[Config], Mapping[str, Any]] = lambda _: {}
    encodes: bool = False


def _gates_by_layer(family: Family, c: Config) -> Family:
    """One name is a gate of heads where layers attend, and one of elements elsewhere."""
    gates = {
        f"layers.{i}.attention.g_proj": TensorRule("attn_gate")
        for i, here in enumerate(hybrid.attending_layers(c))
        if here
    }
    return replace(family, rules={**family.rules, **gates})


def _without_head(family: Family, c: Config) -> Family:
    """A head of its training makes no scores."""
    return family if encoders.ranks(c) else replace(family, skipped=("head.", "decoder."))


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


def _hashed(family: Family, c: Config) -> Family:
    """Where a token's id says its experts, nothing is added to choose them by."""
    hashed = range(min(c.integer("num_hash_layers", 0), c.integer("num_hidden_layers")))
    return replace(family, rules={**family.rules, **{f"layers.{i}.ffn.gate.bias": () for i in hashed}})


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
_POOLERS: Final = ("pooler.", "cls.", "lm_head.")
_SCALED: Final = "fp8"
"""The method of weights with scales, which are multiplied out."""
_ALONE: Final = {"num_attention_heads": 1, "num_key_value_heads": 1, "max_position_embeddings": 1 << 20}
"""Of models without attention."""

FAMILIES: Final = (
    Family("llama", ("LlamaForCausalLM", "MistralForCausalLM"), n.LLAMA, k.llama, skipped=_TOWERS),
    Family("qwen2", ("Qwen2ForCausalLM",), n.QWEN, k.no_window),
    Family("qwen2moe", ("Qwen2MoeForCausalLM",), n.QWEN | n.EXPERTS | n.SHARED, k.qwen2moe),
    Family("qwen3", ("Qwen3ForCausalLM",), n.QWEN | n.HEAD_NORMS, k.no_window),
    Family("qwen3moe", ("Qwen3MoeForCausalLM",), n.QWEN | n.HEAD_NORMS | n.EXPERTS, k.qwen3moe),
    Family("gemma2", ("Gemma2ForCausalLM",), n.GEMMA2, k.gemma2, acts=_GELU),
    Family(
        "gemma3", ("Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"), n.GEMMA3, k.gemma3, acts=_GELU,
        defaults=k.DEFAULTS_GEMMA3, skipped=_TOWERS,
    ),
    Family("phi3", ("Phi3ForCausalLM",), n.PHI3, k.phi3, name_part="Phi-3"),
    Family("olmo2", ("Olmo2ForCausalLM", "Olmo3ForCausalLM"), n.OLMO2, k.olmo2),
    Family("granite", ("GraniteForCausalLM",), n.LLAMA, k.granite),
    Family("granitemoe", ("GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"), n.GRANITE_MOE, k.granitemoe),
    Family("smollm3", ("SmolLM3ForCausalLM",), n.LLAMA, k.smollm3),
    Family("glm4", ("Glm4ForCausalLM",), n.GLM4, k.glm4),
    Family("mistral3", ("Ministral3ForCausalLM",), n.LLAMA, k.mistral3, skipped=_TOWERS),
    Family(
        "qwen35", ("Qwen3_5ForCausalLM", "Qwen3_5ForConditionalGeneration"), {**n.QWEN35, **n.DELTA}, k.qwen35,
        defaults=k.QUARTER, skipped=_DRAFTS,
    ),
    Family(
        "qwen35moe", ("Qwen3_5MoeForCausalLM", "Qwen3_5MoeForConditionalGeneration"),
        {**n.QWEN35, **n.DELTA, **n.EXPERTS, **n.SHARED, **n.TOGETHER}, k.qwen35moe, defaults=k.QUARTER,
        skipped=_DRAFTS,
    ),
    Family(
        "qwen3next", ("Qwen3NextForCausalLM",), {**n.QWEN35, **n.PACKED_DELTA, **n.EXPERTS, **n.SHARED, **n.TOGETHER},
        k.qwen3next, defaults=k.QUARTER, skipped=_DRAFTS,
    ),
    Family(
        "qwen4exp", ("Qwen4ExpForCausalLM", "Qwen4ExpForConditionalGeneration"), n.QWEN4EXP, hybrid.qwen4exp,
        defaults=k.QUARTER, skipped=_DRAFTS,
        numbers={
            "ple_embedding.layer_multipliers": "ple.layer_multipliers",
            "ple_embedding.ngram_heads_offsets": "ple.head_offsets",
            "ple_embedding.ngram_heads_vocab_sizes": "ple.head_vocab_sizes",
        },
    ),
    Family("gpt-oss", ("GptOssForCausalLM",), n.GPT_OSS, k.gpt_oss, truncated=False, blocks="mxfp4"),
    Family("lfm2", ("Lfm2ForCausalLM",), n.LFM2, k.lfm2, aliases=k.LFM2_ALIASES),
    Family("seed_oss", ("SeedOssForCausalLM",), n.SEED_OSS, k.seed_oss),
    Family("ernie4_5", ("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"), n.ERNIE, k.nothing_more),
    Family("hunyuan-dense", ("HunYuanDenseV1ForCausalLM",), n.HUNYUAN, k.hunyuan),
    Family("exaone4", ("Exaone4ForCausalLM",), n.OLMO2, k.exaone4),
    Family("internlm2", ("InternLM2ForCausalLM",), n.INTERNLM2, k.nothing_more),
    Family("minicpm", ("MiniCPMForCausalLM",), n.LLAMA, k.minicpm),
    Family("gemma", ("GemmaForCausalLM",), n.GEMMA, k.nothing_more, acts=(*_GELU, "gelu"), tied=True),
    Family(
        "arcee", ("ArceeForCausalLM",), n.ENDS | n.NORMS | n.INTERLEAVED | n.UNGATED, k.nothing_more, acts=("relu2",)
    ),
    Family(
        "nemotron", ("NemotronForCausalLM",), n.NEMOTRON, k.layer_normed, acts=("relu2",),
        aliases={"rms_norm_eps": "norm_eps"}, defaults={"partial_rotary_factor": 0.5},
    ),
    Family("apertus", ("ApertusForCausalLM",), n.APERTUS, k.nothing_more, acts=("xielu",), scalars=_XIELU),
    Family(
        "cohere2", ("Cohere2ForCausalLM",), n.QWEN, k.cohere2, aliases={"rms_norm_eps": "layer_norm_eps"}, tied=True
    ),
    Family(
        "starcoder2", ("Starcoder2ForCausalLM",), n.STARCODER2, k.starcoder2, acts=_GELU,
        aliases={"rms_norm_eps": "norm_epsilon"},
    ),
    Family("stablelm", ("StableLmForCausalLM",), n.STABLELM, k.stablelm, aliases={"rms_norm_eps": "layer_norm_eps"}),
    Family("olmoe", ("OlmoeForCausalLM",), n.QWEN | n.HEAD_NORMS | n.EXPERTS, mix.olmoe),
    Family(
        "dots1", ("Dots1ForCausalLM",), n.QWEN | n.HEAD_NORMS | n.EXPERTS | n.SHARED_EXPERTS | n.CORRECTION,
        mix.routing,
        aliases={"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"},
        defaults={"scoring_func": "sigmoid"},
    ),
    Family(
        "bailingmoe2", ("BailingMoeV2ForCausalLM",), n.BAILING, mix.bailingmoe2,
        aliases={"scoring_func": "score_function"}, defaults={"partial_rotary_factor": 0.5, "scoring_func": "sigmoid"},
    ),
    Family(
        "ernie4_5-moe", ("Ernie4_5_MoeForCausalLM",), {**n.ERNIE, **n.EXPERTS, **n.SHARED_EXPERTS}, mix.ernie4_5_moe,
        aliases={
            "num_experts": "moe_num_experts", "num_experts_per_tok": "moe_k",
            "num_shared_experts": "moe_num_shared_experts", "first_k_dense_replace": "moe_layer_start_index",
        },
        skipped=("mtp_block.", "mtp_emb_norm.", "mtp_hidden_norm.", "mtp_linear_proj."),
    ),
    Family(
        "hunyuan-moe", ("HunYuanMoEV1ForCausalLM",), n.HUNYUAN | n.EXPERTS, mix.hunyuan_moe,
        aliases={"num_experts_per_tok": "moe_topk", "num_shared_experts": "num_shared_expert"},
    ),
    Family("minimax-m2", ("MiniMaxM2ForCausalLM",), n.MINIMAX_M2, mix.minimax_m2, defaults={"scoring_func": "sigmoid"}),
    Family(
        "afmoe", ("AfmoeForCausalLM",), n.AFMOE, mix.afmoe,
        aliases={
            "first_k_dense_replace": "num_dense_layers", "norm_topk_prob": "route_norm",
            "routed_scaling_factor": "route_scale", "scoring_func": "score_func",
            "sliding_window_pattern": "global_attn_every_n_layers",
        },
    ),
    Family(
        "mimo2", ("MiMoV2FlashForCausalLM", "MiMoV2ForCausalLM"), n.QWEN | n.EXPERTS | n.CORRECTION | {
            "self_attn.attention_sink_bias": TensorRule("attn_sinks.weight"),
            "self_attn.qkv_proj": TensorRule("attn_qkv"),
        }, mix.mimo2, aliases={"num_experts": "n_routed_experts", "rms_norm_eps": "layernorm_epsilon"},
        skipped=("mtp.",),
    ),
    Family(
        "smallthinker", ("SmallThinkerForCausalLM",), n.SMALLTHINKER, mix.smallthinker, acts=("relu",),
        aliases={
            "num_experts": "moe_num_primary_experts", "num_experts_per_tok": "moe_num_active_primary_experts",
            "moe_intermediate_size": "moe_ffn_hidden_size",
        },
    ),
    Family(
        "llama4", ("Llama4ForConditionalGeneration", "Llama4ForCausalLM"), n.LLAMA4, mix.llama4,
        skipped=("vision_model.", "multi_modal_projector."),
    ),
    Family("phimoe", ("PhiMoEForCausalLM", "PhimoeForCausalLM"), n.QWEN | n.SPARSE, mix.phimoe, name_part="Phi-3"),
    Family(
        "mistral4", ("Mistral4ForCausalLM",), n.MISTRAL4, latent.mistral4, skipped=_TOWERS,
        aliases={"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"},
    ),
    Family(
        "muse-glimmer", ("MuseGlimmerForConditionalGeneration",), n.MUSE_GLIMMER, k.muse_glimmer,
        made=k.muse_glimmer_norms,
        skipped=("model.vision_tower.", "model.vision_adapter.", "model.vision_projection."),
    ),
    Family(
        "mamba2", ("Mamba2ForCausalLM",), n.MAMBA2, hybrid.mamba2, aliases={"rms_norm_eps": "layer_norm_epsilon"},
        defaults=_ALONE,
    ),
    Family(
        "nemotron_h", ("NemotronHForCausalLM",), n.NEMOTRON_H, hybrid.nemotron_h, variant=_with_experts,
        aliases={
            "rms_norm_eps": "layer_norm_epsilon", "num_experts": "n_routed_experts",
            "num_shared_experts": "n_shared_experts", "head_dim": "attention_head_dim",
        },
        defaults={"scoring_func": "sigmoid"}, skipped=("mtp.",),
    ),
    Family(
        "granitehybrid", ("GraniteMoeHybridForCausalLM",), n.GRANITE_HYBRID, hybrid.granitehybrid,
        variant=_without_experts, aliases={"n_groups": "mamba_n_groups"},
    ),
    Family(
        "falcon-h1", ("FalconH1ForCausalLM",), n.FALCON_H1, hybrid.falcon_h1, variant=_multiplied,
        aliases={"n_groups": "mamba_n_groups"},
    ),
    Family(
        "kimi-linear", ("KimiLinearForCausalLM",), n.KIMI_LINEAR, hybrid.kimi_linear,
        aliases={"num_experts_per_tok": "num_experts_per_token", "scoring_func": "moe_router_activation_func",
                 "n_group": "num_expert_group",
                 "norm_topk_prob": "moe_renormalize", "max_position_embeddings": "model_max_length"},
    ),
    Family(
        "bailingmoe3", ("BailingMoeV3ForCausalLM",), n.BAILING3, hybrid.bailingmoe3, variant=_gates_by_layer,
        aliases={"scoring_func": "score_function"}, defaults={"scoring_func": "sigmoid"},
    ),
    Family(
        "mamba", ("MambaForCausalLM", "FalconMambaForCausalLM"), n.MAMBA, hybrid.mamba, defaults=_ALONE,
        aliases={"rms_norm_eps": "layer_norm_epsilon"},
    ),
    Family("jamba", ("JambaForCausalLM",), n.JAMBA, hybrid.jamba),
    Family(
        "gptneox", ("GPTNeoXForCausalLM",), n.GPTNEOX, k.gptneox, acts=("gelu", "gelu_fast", "gelu_new", *_GELU),
        aliases={"rms_norm_eps": "layer_norm_eps", "partial_rotary_factor": "rotary_pct",
                 "rope_theta": "rotary_emb_base"},
        defaults=k.QUARTER,
    ),
    Family(
        "falcon", ("FalconForCausalLM",), n.FALCON, k.falcon, settled=k.falcon_values,
        aliases={"rms_norm_eps": "layer_norm_epsilon"}, defaults={"max_position_embeddings": 2048},
    ),
    Family(
        "minicpm3", ("MiniCPM3ForCausalLM",), n.MINICPM3, latent.minicpm3,
        settled=lambda c: {"head_dim": c.integer("qk_rope_head_dim")},
    ),
    Family(
        "deepseek32", ("DeepseekV32ForCausalLM",), n.INDEXED, latent.deepseek32,
        aliases={"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"},
    ),
    Family(
        "glm-dsa", ("GlmMoeDsaForCausalLM",), n.INDEXED, latent.deepseek32,
        aliases={"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"},
        defaults={"scoring_func": "sigmoid"},
    ),
    Family(
        "deepseek4", ("DeepseekV4ForCausalLM",), n.DEEPSEEK4, latent.deepseek4, variant=_hashed,
        aliases={"num_experts": "n_routed_experts", "num_shared_experts": "n_shared_experts"},
        skipped=("mtp.", "aligner.", "image_", "vision."),
    ),
    Family(
        "exaone-moe", ("ExaoneMoEForCausalLM", "ExaoneMoeForCausalLM"), n.EXAONE_MOE, mix.exaone_moe, skipped=("mtp.",),
        aliases={"first_k_dense_replace": "first_last_k_dense_replace"}, defaults={"scoring_func": "sigmoid"},
    ),
    Family(
        "step35", ("Step3p5ForCausalLM",), n.STEP35, mix.step35, made=mix.step35_factors, settled=mix.step35_values,
        aliases={"num_key_value_heads": "num_attention_groups", "num_experts": "moe_num_experts",
                 "num_experts_per_tok": "moe_top_k", "routed_scaling_factor": "moe_router_scaling_factor",
                 "norm_topk_prob": "norm_expert_weight"},
        defaults={"rms_norm_eps": 1e-5},
    ),
    Family(
        "modern-bert", ("ModernBertModel", "ModernBertForMaskedLM", "ModernBertForSequenceClassification"),
        n.MODERN_BERT, encoders.modern_bert, acts=("gelu",), encodes=True, variant=_without_head,
        aliases={"layer_norm_eps": "norm_eps"},
    ),
    Family(
        "jina-bert-v2", ("JinaBertModel", "JinaBertForMaskedLM"), n.JINA_V2, encoders.jina_v2, acts=("gelu",),
        encodes=True, skipped=_POOLERS,
    ),
    Family(
        "jina-bert-v3", ("XLMRobertaModel",), n.JINA_V3, encoders.jina_v3, acts=("gelu",), encodes=True,
        skipped=_POOLERS,
    ),
    Family(
        "nomic-bert-moe", ("NomicBertModel",), n.NOMIC_MOE, encoders.nomic_moe, acts=("gelu",), encodes=True,
        aliases={
            "hidden_size": "n_embd", "intermediate_size": "n_inner", "num_hidden_layers": "n_layer",
            "num_attention_heads": "n_head", "layer_norm_eps": "layer_norm_epsilon", "n_groups": "num_experts",
            "max_position_embeddings": "max_trained_positions", "hidden_act": "activation_function",
        },
        skipped=_POOLERS,
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
    if method not in (None, _SCALED, family.blocks):
        raise ConvertError(
            f"{folder.shown} holds weights that are quantised already ({show(str(method))}), which are not converted;"
            " take the folder of the model before that"
        )
    set_values = {key: value for key, value in values.items() if value is not None}
    set_values |= {name: set_values[theirs] for name, theirs in family.aliases.items() if theirs in set_values}
    config = Config({**family.defaults, **set_values})
    config = Config({**family.defaults, **set_values, **family.settled(config)})
    return family.variant(family, config), config
