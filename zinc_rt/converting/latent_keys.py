"""Metadata of models with latent attention, from config.json; see `keys`."""

from __future__ import annotations

import numpy as np

from zinc_rt.converting.config import Config
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.keys import Keys
from zinc_rt.converting.mixture_keys import routing, shared_width
from zinc_rt.converting.rope import rope_of


def latent_sizes(c: Config) -> Keys:
    """Of latent attention, which has one head of keys."""
    rank, turned = c.integer("kv_lora_rank"), c.integer("qk_rope_head_dim")
    keys: Keys = {
        "attention.key_length": rank + turned,
        "attention.value_length": rank,
        "attention.key_length_mla": c.integer("qk_nope_head_dim") + turned,
        "attention.value_length_mla": c.integer("v_head_dim"),
        "attention.kv_lora_rank": rank,
        "rope.dimension_count": turned,
    }
    return keys | ({"attention.q_lora_rank": c.integer("q_lora_rank")} if c.has("q_lora_rank") else {})


def _latent_experts(c: Config) -> Keys:
    """Latent attention and experts, of which all rows share some; of YaRN what files of these models say of it."""
    keys, rope = routing(c) | latent_sizes(c) | {"attention.head_count_kv": 1}, rope_of(c)
    if rope.has("mscale_all_dim"):  # with its factor of a tenth
        keys |= {
            "rope.scaling.yarn_log_multiplier": 0.1 * rope.number("mscale_all_dim"),
            "rope.scaling.attn_factor": None,
        }
    return keys


def mistral4(c: Config) -> Keys:
    """Mistral Small 4: queries grow with their position."""
    rope, keys = rope_of(c), _latent_experts(c) | shared_width(c)
    slope = rope.number("llama_4_scaling_beta", 0.0)
    if slope:
        old = int(rope.number("original_max_position_embeddings"))
        keys |= {"attention.temperature_scale": slope, "attention.temperature_length": old}
    return keys


def _indexer(c: Config) -> Keys:
    return {
        "attention.indexer.head_count": c.integer("index_n_heads"),
        "attention.indexer.key_length": c.integer("index_head_dim"),
        "attention.indexer.top_k": c.integer("index_topk"),
    }


def deepseek32(c: Config) -> Keys:
    """DeepSeek V3.2 and GLM 5: an indexer chooses the positions that attention sees."""
    c.require("moe_layer_freq", 1)
    types = c.get("indexer_types")
    return (
        _latent_experts(c)
        | _indexer(c)
        | ({"attention.indexer.types": [kind == "full" for kind in types]} if isinstance(types, list) else {})
    )


def deepseek4(c: Config) -> Keys:
    """DeepSeek V4: windows and blocks of positions, streams that are mixed, experts by token in the first layers."""
    c.require("attention_bias", False)
    n, blocks = c.integer("num_hidden_layers"), c.get("compress_ratios")
    if not isinstance(blocks, list) or len(blocks) < n or not all(type(x) is int and 0 <= x < 1 << 31 for x in blocks):
        raise ConvertError(f"config.json has no compress_ratios of {n} whole numbers")
    streams = c.integer("hc_mult")
    keys = routing(c) | {
        "embedding_length_out": streams * c.integer("hidden_size"),
        "rope.dimension_count": c.integer("qk_rope_head_dim"),
        "attention.q_lora_rank": c.integer("q_lora_rank"),
        "attention.sliding_window": c.integer("sliding_window"),
        "attention.output_group_count": c.integer("o_groups"),
        "attention.output_lora_rank": c.integer("o_lora_rank"),
        "attention.compress_ratios": np.array(blocks, np.int32),
        "attention.compress_rope_freq_base": c.number("compress_rope_theta"),
        "hyper_connection.count": streams,
        "hyper_connection.sinkhorn_iterations": c.integer("hc_sinkhorn_iters"),
        "hyper_connection.epsilon": c.number("hc_eps"),
        "hash_layer_count": c.integer("num_hash_layers"),
    }
    limit = c.number("swiglu_limit", 0.0)
    return keys | _indexer(c) | {f"swiglu_clamp_{part}": [limit] * n for part in ("exp", "shexp")}


def minicpm3(c: Config) -> Keys:
    """MiniCPM3, whose factors no file says."""
    for name, value in (("scale_emb", 12), ("scale_depth", 1.4), ("dim_model_base", 256)):
        c.require(name, value)
    plain, turned = c.integer("qk_nope_head_dim"), c.integer("qk_rope_head_dim")
    return {
        "attention.key_length": plain + turned,
        "attention.value_length": c.integer("v_head_dim", c.integer("hidden_size") // c.integer("num_attention_heads")),
        "attention.q_lora_rank": c.integer("q_lora_rank"),
        "attention.kv_lora_rank": c.integer("kv_lora_rank"),
        "rope.dimension_count": turned,
    }
