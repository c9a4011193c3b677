"""Turns config.json into metadata of a GGUF file: names without the architecture's prefix."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from zinc_rt.converting.config import Config
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.rope import Factors, rope_keys, rope_of
from zinc_rt.converting.rules import HeadCounts
from zinc_rt.utils.checks import show

Keys = dict[str, Any]
"""Values by name; a list is one for each layer."""


_MOST_LAYERS, _WIDEST_HEAD = 65536, 65536


def heads_of(c: Config) -> HeadCounts:
    """Query heads, and key and value heads. Raises `ConvertError`."""
    n = c.integer("num_attention_heads")
    heads = HeadCounts(n, c.integer("num_key_value_heads", n))
    if not heads.n_heads or not heads.n_kv_heads:
        raise ConvertError(f"config.json says {heads.n_heads} heads and {heads.n_kv_heads} of keys")
    if c.has("linear_num_value_heads"):
        k, v = c.integer("linear_num_key_heads"), c.integer("linear_num_value_heads")
        if not k or not v:
            raise ConvertError(f"config.json says {v} value heads of delta nets and {k} of keys")
        index = c.integer("indexer_n_heads", 0) * c.integer("indexer_head_dim", 0)
        return HeadCounts(heads.n_heads, heads.n_kv_heads, k, v, c.integer("linear_value_head_dim"), index_rows=index)
    if c.has("kv_lora_rank"):
        return replace(heads, latent_k=c.integer("qk_nope_head_dim"), latent_v=c.integer("v_head_dim"))
    return replace(heads, groups=c.integer("n_groups", 1))


def head_dim_of(c: Config) -> int:
    """Elements of a head. Raises `ConvertError`."""
    return c.integer("head_dim", c.integer("hidden_size") // heads_of(c).n_heads)


def decoder_keys(c: Config, *, acts: Sequence[str] = ("silu",), truncated: bool = True) -> tuple[Keys, Factors]:
    """What all decoders have. acts: names of the activation that is right. truncated: see `rope_keys`."""
    c.require("hidden_act", *acts)
    c.require("hidden_activation", *acts)
    heads, dim, n_layers = heads_of(c), head_dim_of(c), c.integer("num_hidden_layers")
    if n_layers > _MOST_LAYERS or dim > _WIDEST_HEAD:
        raise ConvertError(
            f"config.json says {n_layers} layers with heads of {dim} elements, more than the {_MOST_LAYERS} and"
            f" {_WIDEST_HEAD} that are read"
        )
    turning, factors = rope_keys(c, rope_of(c), dim, truncated=truncated)
    return {
        "block_count": n_layers,
        "context_length": c.integer("max_position_embeddings"),
        "embedding_length": c.integer("hidden_size"),
        "attention.head_count": heads.n_heads,
        "attention.head_count_kv": heads.n_kv_heads,
        "attention.key_length": dim,
        "attention.value_length": dim,
        "attention.layer_norm_rms_epsilon": c.number("rms_norm_eps"),
        "vocab_size": c.integer("vocab_size"),
        **({"feed_forward_length": c.integer("intermediate_size")} if c.has("intermediate_size") else {}),
        **turning,
    }, factors


def no_window(c: Config) -> Keys:
    """For models whose window is switched on by `use_sliding_window`, which nothing here applies."""
    c.require("use_sliding_window", False)
    return {}


def window(c: Config) -> Keys:
    """A window on all layers, where it is shorter than the context."""
    n = c.integer("sliding_window", 0)
    return {"attention.sliding_window": n} if 0 < n < c.integer("max_position_embeddings") else {}


def windows(c: Config, period: int) -> Keys:
    """A window, and the layers that have it where they are not all but the last one of each `period`."""
    n, window = c.integer("num_hidden_layers"), c.integer("sliding_window")
    kinds, letters = c.layer_types(n), c.get("sliding_window_pattern")
    if kinds is None and isinstance(letters, str) and letters:
        kinds = [("full_attention", "sliding_attention")[letters[i % len(letters)] == "L"] for i in range(n)]
    if kinds is None:
        every = c.integer("sliding_window_pattern", period)
        flags = [every != 0 and (layer + 1) % every != 0 for layer in range(n)]
    else:
        other = set(kinds) - {"sliding_attention", "full_attention"}
        if other:
            raise ConvertError(f"config.json has layers of type {show(min(other))}, which are not converted")
        flags = [kind == "sliding_attention" for kind in kinds]
    keys: Keys = {"attention.sliding_window": window}
    if flags != [(layer + 1) % period != 0 for layer in range(n)]:
        keys["attention.sliding_window_pattern"] = flags
    return keys


def llama(c: Config) -> Keys:
    """Llama and Mistral."""
    return window(c)


def experts(c: Config) -> Keys:
    """How many there are, by either of its names, and how many a row uses."""
    count = next((name for name in ("num_experts", "num_local_experts") if c.has(name)), "num_experts")
    return {"expert_count": c.integer(count), "expert_used_count": c.integer("num_experts_per_tok")}


def qwen3moe(c: Config) -> Keys:
    """Qwen 3 with experts on all layers."""
    c.require("norm_topk_prob", True, absent=False)
    c.require("mlp_only_layers", [])
    c.require("decoder_sparse_step", 1)
    return no_window(c) | experts(c) | {"expert_feed_forward_length": c.integer("moe_intermediate_size")}


def qwen2moe(c: Config) -> Keys:
    """Qwen 1.5 and 2 with experts on all layers, and a shared one."""
    c.require("norm_topk_prob", False)
    c.require("mlp_only_layers", [])
    c.require("decoder_sparse_step", 1)
    return (
        no_window(c)
        | experts(c)
        | {
            "expert_feed_forward_length": c.integer("moe_intermediate_size"),
            "expert_shared_feed_forward_length": c.integer("shared_expert_intermediate_size"),
        }
    )


def smollm3(c: Config) -> Keys:
    """SmolLM 3: positions in three layers of four."""
    n = c.integer("num_hidden_layers")
    usual = [int((layer + 1) % 4 != 0) for layer in range(n)]
    c.require("no_rope_layers", usual)
    if not c.has("no_rope_layers"):
        c.require("no_rope_layer_interval", 4)
    return no_window(c)


def granite(c: Config) -> Keys:
    """Granite: factors of the embedding, the branches, the scores and the logits."""
    c.require("position_embedding_type", "rope")
    return granite_factors(c)


def granite_factors(c: Config) -> Keys:
    """Factors that all Granite models have."""
    return {
        "embedding_scale": c.number("embedding_multiplier", 1.0),
        "residual_scale": c.number("residual_multiplier", 1.0),
        "attention.scale": c.number("attention_multiplier", 1.0),
        "logit_scale": c.number("logits_scaling", 1.0),
    }


def granitemoe(c: Config) -> Keys:
    """Granite with experts, and a shared one where config.json says how wide it is."""
    keys = granite(c) | experts(c)
    shared = c.integer("shared_intermediate_size", 0)
    return keys | ({"expert_shared_feed_forward_length": shared} if shared else {})


def phi3(c: Config) -> Keys:
    """Phi 3 and 4. The window of some is not applied by what runs these files."""
    return {}


def gemma2(c: Config) -> Keys:
    """Gemma 2: bounds on scores and logits, a window on every second layer."""
    _check_scale(c, largest=46)
    return windows(c, 2) | {
        "attn_logit_softcapping": c.number("attn_logit_softcapping"),
        "final_logit_softcapping": c.number("final_logit_softcapping"),
    }


def gemma3(c: Config) -> Keys:
    """Gemma 3: a window and a rotation of their own on five layers of six."""
    _check_scale(c, largest=62)
    c.require("attn_logit_softcapping", None)
    c.require("use_bidirectional_attention", False)
    if isinstance(c.get("rope_parameters"), dict):
        local = rope_of(c, "sliding_attention")
        local.require("rope_type", "default")
        base = local.number("rope_theta")
    else:
        base = c.number("rope_local_base_freq")
    keys = windows(c, 6) | {"rope.freq_base_swa": base}
    cap = c.number("final_logit_softcapping", 0.0)
    return keys | ({"final_logit_softcapping": cap} if cap else {})


def _check_scale(c: Config, largest: int) -> None:
    """Scores are scaled by the head's size, in models of so many layers by the width of the stream for a head."""
    n, wanted = c.integer("num_hidden_layers"), c.number("query_pre_attn_scalar")
    is_it = head_dim_of(c) if n != largest else c.integer("hidden_size") / heads_of(c).n_heads
    if not math.isclose(wanted, is_it):
        raise ConvertError(
            f"config.json has query_pre_attn_scalar = {wanted:g} with {n} layers, a variant that is not converted;"
            f" {is_it:g} would be"
        )


def olmo2(c: Config) -> Keys:
    """OLMo 2, and OLMo 3 with windows on three layers of four."""
    if not c.has("sliding_window"):
        return {}
    keys, usual = windows(c, 4), [(layer + 1) % 4 != 0 for layer in range(c.integer("num_hidden_layers"))]
    return {"attention.sliding_window_pattern": usual, "rope.freq_base_swa": rope_of(c).number("rope_theta")} | keys


def mistral3(c: Config) -> Keys:
    """Ministral 3: queries grow with their position."""
    rope = rope_of(c)
    keys, slope = window(c), rope.number("llama_4_scaling_beta", 0.0)
    if slope:
        keys["attention.temperature_scale"] = slope
    if rope.number("mscale", 0.0) == 1.0 and rope.has("mscale_all_dim"):  # as readers of this architecture know it
        keys |= {"rope.scaling.yarn_log_multiplier": rope.number("mscale_all_dim"), "rope.scaling.attn_factor": 1.0}
    return keys


def delta_nets(c: Config) -> Keys:
    """Layers of delta nets between layers of attention."""
    c.require("attn_output_gate", True)
    n, every = c.integer("num_hidden_layers"), c.integer("full_attention_interval", 4)
    kinds = c.layer_types(n) or ["full_attention" if (i + 1) % every == 0 else "linear_attention" for i in range(n)]
    other = set(kinds) - {"full_attention", "linear_attention"}
    if other:
        raise ConvertError(f"config.json has layers of type {show(min(other))}, which are not converted")
    dim, n_v = c.integer("linear_key_head_dim"), c.integer("linear_num_value_heads")
    c.require("linear_value_head_dim", dim)
    return {
        "ssm.conv_kernel": c.integer("linear_conv_kernel_dim"),
        "ssm.state_size": dim,
        "ssm.group_count": c.integer("linear_num_key_heads"),
        "ssm.time_step_rank": n_v,
        "ssm.inner_size": dim * n_v,
        "full_attention_interval": every,
        "attention.recurrent_layers": [kind == "linear_attention" for kind in kinds],
    }


def qwen35(c: Config) -> Keys:
    """Qwen 3.5 and 3.6: the rotation has sections for images, which a text does not tell apart."""
    sections = rope_of(c).get("mrope_section", [11, 11, 10])
    if (
        not isinstance(sections, list)
        or not 1 <= len(sections) <= 4
        or not all(type(x) is int and 0 <= x < 1 << 31 for x in sections)
    ):
        raise ConvertError(f"config.json has mrope_section = {show(str(sections))}, which is not converted")
    four = np.array([*sections, *[0] * (4 - len(sections))], np.int32)
    return delta_nets(c) | {"rope.dimension_sections": four}


def shared_experts(c: Config) -> Keys:
    """Experts of Qwen, with a shared one."""
    c.require("mlp_only_layers", [])
    c.require("decoder_sparse_step", 1)
    c.require("norm_topk_prob", True)
    return experts(c) | {
        "expert_feed_forward_length": c.integer("moe_intermediate_size"),
        "expert_shared_feed_forward_length": c.integer("shared_expert_intermediate_size"),
    }


def qwen35moe(c: Config) -> Keys:
    """The same with experts."""
    return qwen35(c) | shared_experts(c)


def qwen3next(c: Config) -> Keys:
    """Qwen3-Next: delta nets, experts."""
    return delta_nets(c) | shared_experts(c)


def gpt_oss(c: Config) -> Keys:
    """gpt-oss: a window on every second layer, experts on all."""
    c.require("swiglu_limit", 7.0)
    c.require("swiglu_alpha", 1.702)
    window = windows(c, 2) | {"expert_feed_forward_length": c.integer("intermediate_size")}
    return window | experts(c)


def lfm2(c: Config) -> Keys:
    """LFM2: short convolutions between layers of attention."""
    c.require("conv_bias", False)
    n, width = c.integer("num_hidden_layers"), c.integer("intermediate_size")
    kinds, listed = c.layer_types(n), c.get("full_attn_idxs")
    if kinds is None and isinstance(listed, list):
        kinds = ["full_attention" if layer in listed else "conv" for layer in range(n)]
    if kinds is None or set(kinds) - {"conv", "full_attention"}:
        raise ConvertError("config.json does not list layers of type conv and full_attention")
    if c.flag("block_auto_adjust_ff_dim", True):
        width = int(c.number("block_ffn_dim_multiplier", 1.0) * int(2 * width / 3))
        step = c.integer("block_multiple_of", 256)
        width = step * -(-width // step)
    kv = heads_of(c).n_kv_heads
    return {
        "shortconv.l_cache": c.integer("conv_L_cache"),
        "feed_forward_length": width,
        "attention.head_count_kv": np.array([0 if kind == "conv" else kv for kind in kinds], np.int32),
    }


def glm4(c: Config) -> Keys:
    """GLM 4."""
    return {}


def layer_normed(c: Config) -> Keys:
    """For norms that take the mean away; `rms_norm_eps` has the alias of their epsilon."""
    return {"attention.layer_norm_rms_epsilon": None, "attention.layer_norm_epsilon": c.number("rms_norm_eps")}


def starcoder2(c: Config) -> Keys:
    """StarCoder 2: a window on all layers."""
    return layer_normed(c) | window(c)


def nothing_more(c: Config) -> Keys:
    """Nothing but what all have."""
    return {}


def seed_oss(c: Config) -> Keys:
    """Seed-OSS."""
    c.require("mlp_bias", False)
    return {}


def hunyuan(c: Config) -> Keys:
    """Hunyuan: a rotation with an alpha stands for a context of 256k, whatever config.json says."""
    c.require("use_cla", False)
    alpha = rope_of(c).number("alpha", 0.0)
    return {"context_length": 1 << 18} if alpha else {}


def exaone4(c: Config) -> Keys:
    """EXAONE 4: windows, of the large one."""
    n = c.integer("num_hidden_layers")
    usual = [(layer + 1) % 4 != 0 for layer in range(n)]
    return {"attention.sliding_window_pattern": usual} | windows(c, 4) if c.has("sliding_window") else {}


def minicpm(c: Config) -> Keys:
    """MiniCPM: factors of the embedding and the branches, and what logits are divided by."""
    c.require("num_experts", 0)
    return {
        "embedding_scale": c.number("scale_emb"),
        "residual_scale": c.number("scale_depth") / math.sqrt(c.integer("num_hidden_layers")),
        "logit_scale": c.integer("hidden_size") / c.number("dim_model_base"),
    }


def cohere2(c: Config) -> Keys:
    """Command R7B and A."""
    c.require("use_qk_norm", False)
    c.require("rotary_pct", 1.0, 1)
    return layer_normed(c) | windows(c, 4) | {"logit_scale": c.number("logit_scale")}


def stablelm(c: Config) -> Keys:
    """StableLM."""
    return layer_normed(c) | {"use_parallel_residual": c.flag("use_parallel_residual", False)}


def gptneox(c: Config) -> Keys:
    """GPT-NeoX and Pythia."""
    return layer_normed(c) | {"use_parallel_residual": c.flag("use_parallel_residual", True)}


def falcon_values(c: Config) -> Keys:
    """Of Falcon: one head of keys and values, unless it is of the newer form, and an ungated feed-forward."""
    newer = c.flag("new_decoder_architecture", False)
    if not newer:
        c.require("multi_query", True)
    width = c.integer("ffn_hidden_size", 4 * c.integer("hidden_size"))
    return {"num_key_value_heads": c.integer("num_kv_heads") if newer else 1, "intermediate_size": width}


def falcon(c: Config) -> Keys:
    """Falcon, but for those with slopes in place of a rotation."""
    c.require("alibi", False)
    c.require("bias", False)
    c.require("parallel_attn", True)
    c.require("activation", "gelu")
    return layer_normed(c) | {"tensor_data_layout": "jploski"}


def muse_glimmer(c: Config) -> Keys:
    """Muse Glimmer."""
    usual = [(layer + 1) % 4 != 0 for layer in range(c.integer("num_hidden_layers"))]
    keys = {"logit_scale": c.number("output_multiplier"), "attention.sliding_window_pattern": usual} | windows(c, 4)
    cap = c.number("final_logit_softcapping", 0.0)
    return keys | ({"final_logit_softcapping": cap} if cap else {})


def muse_glimmer_norms(c: Config) -> Factors:
    """Norms of heads that the folder has as one number: a factor of all queries."""
    dim, factor = head_dim_of(c), c.number("qk_scale_factor")
    made: Factors = {}
    for layer in range(min(c.integer("num_hidden_layers"), _MOST_LAYERS)):
        made[f"blk.{layer}.attn_q_norm.weight"] = np.full(dim, factor, np.float32)
        made[f"blk.{layer}.attn_k_norm.weight"] = np.ones(dim, np.float32)
    return made


LFM2_ALIASES: Mapping[str, str] = {"rms_norm_eps": "norm_eps", "intermediate_size": "block_ff_dim"}
QUARTER: Mapping[str, Any] = {"partial_rotary_factor": 0.25}
"""Of each head of Qwen 3.5, where config.json does not say it."""
DEFAULTS_GEMMA3: Mapping[str, Any] = {
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 131072, "rope_theta": 1e6, "rope_local_base_freq": 1e4, "vocab_size": 262208,
    "query_pre_attn_scalar": 256, "hidden_activation": "gelu_pytorch_tanh", "sliding_window": 4096,
}  # fmt: skip
"""What folders of Gemma 3 leave out."""
