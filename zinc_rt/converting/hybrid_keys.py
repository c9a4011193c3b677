"""Metadata of models with recurrent layers of the kinds of Mamba and of Kimi, from config.json; see `keys`."""

from __future__ import annotations

import numpy as np

from zinc_rt.converting.config import Config
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.keys import Keys, experts, granite_factors, heads_of, qwen35moe
from zinc_rt.converting.latent_keys import latent_sizes
from zinc_rt.converting.mixture_keys import clamps, routing

_NO_ROTATION: Keys = {"rope.dimension_count": None, "rope.freq_base": None}


def scan(c: Config, *, conv: str, state: str, groups: str, heads: str, width: str) -> Keys:
    """Sizes of the scan; the arguments are the keys of config.json. width: of elements of a head."""
    n_heads = c.integer(heads)
    return {
        "ssm.conv_kernel": c.integer(conv),
        "ssm.state_size": c.integer(state),
        "ssm.group_count": c.integer(groups),
        "ssm.time_step_rank": n_heads,
        "ssm.inner_size": n_heads * c.integer(width),
    }


def _scans_alone(sizes: Keys) -> Keys:
    """No attention, so that any context fits."""
    gone = ("head_count_kv", "key_length", "value_length")
    return (
        _NO_ROTATION
        | dict.fromkeys(f"attention.{name}" for name in gone)
        | {"attention.head_count": 0, "feed_forward_length": 0}
        | sizes
    )


def mamba2(c: Config) -> Keys:
    """Mamba 2."""
    return _scans_alone(
        scan(c, conv="conv_kernel", state="state_size", groups="n_groups", heads="num_heads", width="head_dim")
    )


def _first_scan(c: Config, *, inner: int, conv: str, state: str, rank: str) -> Keys:
    """Sizes of the scan of Mamba 1; the names are keys of config.json. inner: its channels."""
    low = -(-c.integer("hidden_size") // 16) if c.get(rank) == "auto" else c.integer(rank)
    return {
        "ssm.conv_kernel": c.integer(conv),
        "ssm.state_size": c.integer(state),
        "ssm.time_step_rank": low,
        "ssm.inner_size": inner,
    }


def mamba(c: Config) -> Keys:
    """Mamba, and Falcon Mamba, which norms what scans are made of."""
    c.require("use_bias", False)
    c.require("use_conv_bias", True)
    inner = c.integer("intermediate_size")
    sizes = _first_scan(c, inner=inner, conv="conv_kernel", state="state_size", rank="time_step_rank")
    return _scans_alone(sizes) | {"ssm.dt_b_c_rms": c.get("model_type") == "falcon_mamba"}


def jamba(c: Config) -> Keys:
    """Jamba: attention that does not turn in one layer of some, experts in every second."""
    c.require("mamba_conv_bias", True)
    c.require("mamba_proj_bias", False)
    inner = c.integer("mamba_expand") * c.integer("hidden_size")
    keys = _NO_ROTATION | _first_scan(c, inner=inner, conv="mamba_d_conv", state="mamba_d_state", rank="mamba_dt_rank")
    first, period, n_kv = c.integer("attn_layer_offset"), c.integer("attn_layer_period"), heads_of(c).n_kv_heads
    attending = [period and i >= first and (i - first) % period == 0 for i in range(c.integer("num_hidden_layers"))]
    keys["attention.head_count_kv"] = np.array([n_kv if here else 0 for here in attending], np.int32)
    return keys | (experts(c) if c.integer("num_experts", 1) > 1 else {})


def granitehybrid(c: Config) -> Keys:
    """Granite 4 H: scans between layers of attention that do not turn."""
    c.require("position_embedding_type", "nope", "rope")
    n, kinds = c.integer("num_hidden_layers"), c.layer_types(c.integer("num_hidden_layers"))
    if kinds is None or set(kinds) - {"mamba", "attention"}:
        raise ConvertError(f"config.json does not list {n} layers of type mamba and attention")
    kv = heads_of(c).n_kv_heads
    turns = c.get("position_embedding_type") == "rope"
    names = {"conv": "d_conv", "state": "d_state", "groups": "n_groups", "heads": "n_heads", "width": "d_head"}
    keys = granite_factors(c) | scan(c, **{name: f"mamba_{theirs}" for name, theirs in names.items()})
    keys["attention.head_count_kv"] = np.array([kv if kind == "attention" else 0 for kind in kinds], np.int32)
    keys["rope.scaling.finetuned"] = turns
    if not c.integer("num_local_experts", 0):
        return keys | {"feed_forward_length": c.integer("shared_intermediate_size", c.integer("intermediate_size"))}
    shared = c.integer("shared_intermediate_size", 0)
    return keys | experts(c) | ({"expert_shared_feed_forward_length": shared} if shared else {})


_LETTERS = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}


def nemotron_h(c: Config) -> Keys:
    """Nemotron-H and Nemotron 3: a layer scans, or attends, or is a feed-forward part."""
    n, pattern = c.integer("num_hidden_layers"), c.get("hybrid_override_pattern", c.get("layers_block_type"))
    listed = isinstance(pattern, str | list) and all(type(one) is str for one in pattern)
    kinds = [_LETTERS.get(one, one) for one in pattern] if listed else []
    if len(kinds) != n or set(kinds) - {"mamba", "attention", "mlp", "moe"}:
        raise ConvertError(f"config.json has no hybrid_override_pattern of {n} letters M, *, - and E")
    c.require("mlp_hidden_act", "relu2")
    moe = c.has("num_experts_per_tok")
    width = c.integer("moe_intermediate_size" if moe else "intermediate_size")
    kv = heads_of(c).n_kv_heads
    sizes = scan(
        c,
        conv="conv_kernel",
        state="ssm_state_size",
        groups="n_groups",
        heads="mamba_num_heads",
        width="mamba_head_dim",
    )
    keys = _NO_ROTATION | sizes
    keys["attention.head_count_kv"] = np.array([kv if kind == "attention" else 0 for kind in kinds], np.int32)
    keys["feed_forward_length"] = np.array([width if kind in ("mlp", "moe") else 0 for kind in kinds], np.int32)
    if moe:
        keys |= routing(c) | {"expert_shared_feed_forward_length": c.integer("moe_shared_expert_intermediate_size")}
        keys |= {"moe_latent_size": c.integer("moe_latent_size")} if c.has("moe_latent_size") else {}
    return keys


def falcon_h1(c: Config) -> Keys:
    """Falcon H1: attention and a scan side by side in each layer. Its multipliers are in the weights."""
    c.require("tie_word_embeddings", False)  # the two ends have multipliers of their own
    names = {"conv": "d_conv", "state": "d_state", "groups": "n_groups", "heads": "n_heads", "width": "d_head"}
    keys = scan(c, **{name: f"mamba_{theirs}" for name, theirs in names.items()})
    if keys["ssm.inner_size"] != c.integer("mamba_d_ssm"):
        raise ConvertError(f"config.json has mamba_d_ssm = {c.integer('mamba_d_ssm')}, its heads have another width")
    return keys


def kimi_linear(c: Config) -> Keys:
    """Kimi Linear: delta nets with a decay for each channel, latent attention that does not turn, experts."""
    n, linear = c.integer("num_hidden_layers"), c.part("linear_attn_config")
    full = linear.get("full_attn_layers")
    if not isinstance(full, list) or not all(type(layer) is int and 0 < layer <= n for layer in full):
        raise ConvertError("config.json has no full_attn_layers, numbers of layers from 1 on")
    if linear.integer("num_heads") != heads_of(c).n_heads:
        raise ConvertError(
            f"config.json has {linear.integer('num_heads')} heads of delta nets, as many as others are needed"
        )
    c.require("mla_use_nope", True)
    return (
        routing(c)
        | latent_sizes(c)
        | {
            "attention.head_count_kv": np.array([int(layer + 1 in full) for layer in range(n)], np.int32),
            "ssm.conv_kernel": linear.integer("short_conv_kernel_size"),
            "kda.head_dim": linear.integer("head_dim"),
        }
    )


def qwen4exp(c: Config) -> Keys:
    """Qwen3.8-Flash-Next: Qwen 3.5's layers between streams, an indexer of blocks, and an embedding of n-grams."""
    keys = qwen35moe(c) | {
        "hyper_connection.count": c.integer("hc_count"),
        "hyper_connection.low_rank": c.integer("hc_lowrank"),
        "attention.indexer.head_count": c.integer("indexer_n_heads"),
        "attention.indexer.key_length": c.integer("indexer_head_dim"),
        "attention.indexer.top_k": c.integer("indexer_budget"),
    }
    block = c.integer("indexer_compress_ratio")
    keys["attention.compress_ratios"] = np.array(
        [0 if recurrent else block for recurrent in keys["attention.recurrent_layers"]], np.int32
    )
    layers, end = c.get("ple_layer_ids", []), c.get("eos_token_id")
    end = end[-1] if isinstance(end, list) and end else end
    if not isinstance(layers, list) or len(layers) > 1 or not all(type(layer) is int and layer > 0 for layer in layers):
        raise ConvertError("config.json has ple_layer_ids that are no list of one layer, counted from 1")
    if not layers:
        return keys
    size, heads = c.integer("ngram_size"), c.integer("heads_per_ngram")
    return keys | {
        "ple.layers": np.array([layers[0] - 1], np.int32),
        "ple.ngram_size": size,
        "ple.heads_per_ngram": heads,
        "ple.conv_kernel": c.integer("ple_conv_kernel_size"),
        "ple.eos_token_id": Config({"eos_token_id": end}).integer("eos_token_id"),
        "embedding_length_per_layer_input": c.integer("hidden_size") // max(1, (size - 1) * heads),
    }


def attending_layers(c: Config) -> list[bool]:
    """Which layers of Ling 3 attend: the last one of each group, and those behind the last whole group.

    Raises `ConvertError`.
    """
    n, group = c.integer("num_hidden_layers"), c.integer("layer_group_size")
    if not group:
        raise ConvertError("config.json has layer_group_size = 0, layers of a group are needed")
    return [(i + 1) % group == 0 or i >= n // group * group for i in range(n)]


def bailingmoe3(c: Config) -> Keys:
    """Ling 3: as Kimi Linear, with a bound of decays, attention that turns and is gated, and bounds of activations."""
    c.require("no_kda_lora", True, absent=False)
    c.require("kda_safe_gate", True, absent=False)
    c.require("gated_attention_proj_granularity_type", "head_wise", absent="")
    n = c.integer("num_hidden_layers")
    keys = (
        routing(c)
        | latent_sizes(c)
        | {
            "attention.head_count_kv": np.array(attending_layers(c), np.int32),
            "ssm.conv_kernel": c.integer("short_conv_kernel_size"),
            "kda.head_dim": c.integer("head_dim"),
            "kda.safe_gate": True,
            "kda.gate_lower_bound": c.number("kda_lower_bound"),
            "expert_shared_feed_forward_length": c.integer("moe_shared_expert_intermediate_size"),
        }
    )
    for key, name in (("exp", "expert_swiglu_limit_list"), ("shexp", "share_expert_swiglu_limit_list")):
        keys |= clamps(c, f"swiglu_clamp_{key}", name, n)
    return keys


def falcon_h1_factors(c: Config) -> dict[str, tuple[tuple[int, float], ...]]:
    """Multipliers of Falcon H1 by the names of tensors' parts: runs of rows, and what they are multiplied by."""
    inner, state = c.integer("mamba_d_ssm"), c.integer("mamba_n_groups") * c.integer("mamba_d_state")
    gate, down = c.numbers("mlp_multipliers", 2)
    runs = (inner, inner, state, state, c.integer("mamba_n_heads"))
    into, attended = c.number("ssm_in_multiplier"), c.number("attention_in_multiplier")
    single = {
        "token_embd": c.number("embedding_multiplier"), "output": c.number("lm_head_multiplier"), "ffn_gate": gate,
        "ffn_down": down, "attn_q": attended, "attn_k": c.number("key_multiplier") * attended, "attn_v": attended,
        "attn_output": c.number("attention_out_multiplier"), "ssm_out": c.number("ssm_out_multiplier"),
    }  # fmt: skip
    scanned = tuple((n, into * factor) for n, factor in zip(runs, c.numbers("ssm_multipliers", 5), strict=True))
    return {name: ((1, factor),) for name, factor in single.items()} | {"ssm_in": scanned}
