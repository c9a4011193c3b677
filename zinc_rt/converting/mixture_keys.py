"""Metadata of decoders with experts, from config.json; see `keys`."""

from __future__ import annotations

from typing import Final

import numpy as np

from zinc_rt.converting.config import Config
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.keys import Keys, exaone4, experts, head_dim_of, hunyuan, windows
from zinc_rt.converting.rope import Factors, llama3_factors, rope_of

_GATINGS: Final = {"sigmoid": 2, "softmax": 1, "sqrtsoftplus": 4}


def routing(c: Config) -> Keys:
    """Of experts what config.json says, under the names that most families use; others have aliases."""
    keys = experts(c)
    for name, theirs in (
        ("expert_feed_forward_length", "moe_intermediate_size"),
        ("expert_shared_count", "num_shared_experts"),
        ("leading_dense_block_count", "first_k_dense_replace"),
        ("expert_group_count", "n_group"),
        ("expert_group_used_count", "topk_group"),
    ):
        if c.has(theirs):
            keys[name] = _alike(c, theirs)
    if c.has("routed_scaling_factor"):
        keys["expert_weights_scale"] = c.number("routed_scaling_factor")
    if c.has("norm_topk_prob"):
        keys["expert_weights_norm"] = c.flag("norm_topk_prob")
    if c.has("scoring_func"):
        c.require("scoring_func", *_GATINGS)
        keys["expert_gating_func"] = _GATINGS[c.get("scoring_func")]
    return keys


def _alike(c: Config, name: str) -> int:
    """A whole number that some models list for each layer, the same for all."""
    value = c.get(name)
    if not isinstance(value, list):
        return c.integer(name)
    if not value or any(one != value[0] for one in value):
        raise ConvertError(f"config.json: {name} differs by layer, which is not converted")
    return Config({name: value[0]}).integer(name)


def shared_width(c: Config) -> Keys:
    """The width of the shared expert, where there is one: if config.json does not say it, that of so many others."""
    usual = c.integer("num_shared_experts", 0) * c.integer("moe_intermediate_size")
    width = c.integer("moe_shared_expert_intermediate_size", usual)
    return {"expert_shared_feed_forward_length": width} if width else {}


def olmoe(c: Config) -> Keys:
    """OLMoE: experts on all layers, whose shares are not made to add up to one."""
    c.require("norm_topk_prob", False)
    c.require("clip_qkv", None)
    return experts(c)


def bailingmoe2(c: Config) -> Keys:
    """Ling and Ring 2."""
    return routing(c) | shared_width(c)


def ernie4_5_moe(c: Config) -> Keys:
    """ERNIE 4.5 with experts from one layer on."""
    n = c.integer("num_hidden_layers")
    c.require("moe_layer_end_index", n - 1, -1)
    return routing(c) | shared_width(c) | {"interleave_moe_layer_step": c.integer("moe_layer_interval", 1)}


def hunyuan_moe(c: Config) -> Keys:
    """Hunyuan A13B: experts on all layers, and a shared one."""
    shared = _alike(c, "num_shared_experts") * c.integer("intermediate_size")
    top = {"expert_used_count": _alike(c, "num_experts_per_tok")}
    width = {"feed_forward_length": _alike(c, "moe_intermediate_size"), "expert_shared_feed_forward_length": shared}
    counts = Config({"num_experts": c.get("num_experts"), "num_experts_per_tok": top["expert_used_count"]})
    return hunyuan(c) | experts(counts) | width | {"expert_shared_count": _alike(c, "num_shared_experts")}


def minimax_m2(c: Config) -> Keys:
    """MiniMax M2: experts on all layers, part of each head turned."""
    width = c.integer("intermediate_size")
    return routing(c) | {"expert_feed_forward_length": width, "rope.dimension_count": c.integer("rotary_dim")}


def afmoe(c: Config) -> Keys:
    """Trinity."""
    c.require("mup_enabled", True)
    return routing(c) | windows(c, 4)


def mimo2(c: Config) -> Keys:
    """MiMo V2: layers with a window have other numbers of key and value heads."""
    for name in ("head_dim", "num_attention_heads", "v_head_dim"):
        c.require(f"swa_{name}", c.integer(name))
    n, kinds = c.integer("num_hidden_layers"), c.get("hybrid_layer_pattern")
    if not isinstance(kinds, list) or len(kinds) != n or set(kinds) - {0, 1}:
        raise ConvertError(f"config.json has no hybrid_layer_pattern of {n} numbers 0 and 1")
    counts = c.integer("num_key_value_heads"), c.integer("swa_num_key_value_heads")
    keys = routing(c) | {
        "attention.head_count_kv": np.array([counts[kind] for kind in kinds], np.int32),
        "attention.sliding_window": c.integer("sliding_window"),
        "attention.sliding_window_pattern": [kind == 1 for kind in kinds],
        "attention.value_length": c.integer("v_head_dim"),
        "rope.freq_base_swa": c.number("swa_rope_theta", 10000.0),
    }
    scale = c.number("attention_value_scale", 0.0)
    return keys | ({"attention.value_scale": scale} if scale else {})


def smallthinker(c: Config) -> Keys:
    """SmallThinker."""
    layout = c.get("sliding_window_layout", [])
    width = c.integer("moe_intermediate_size")
    keys = routing(c) | {"feed_forward_length": width}
    keys["expert_gating_func"] = 1 if c.flag("moe_primary_router_apply_softmax", False) else 2
    if isinstance(layout, list) and any(layout):
        keys["attention.sliding_window"] = c.integer("sliding_window_size")
    return keys


def llama4(c: Config) -> Keys:
    """Llama 4: `intermediate_size` is the experts'."""
    c.require("attention_bias", False)
    return experts(c) | {
        "feed_forward_length": c.integer("intermediate_size_mlp"),
        "expert_feed_forward_length": c.integer("intermediate_size"),
        "interleave_moe_layer_step": c.integer("interleave_moe_layer_step", 1),
    }


def phimoe(c: Config) -> Keys:
    """Phi 3.5 MoE."""
    return experts(c)


def exaone_moe(c: Config) -> Keys:
    """K-EXAONE: windows, dense layers in front, experts with shared ones."""
    return routing(c) | exaone4(c) | shared_width(c)


def step35_values(c: Config) -> Keys:
    """Of Step 3.5: the base of each kind of layer, of which config.json has one for each layer."""
    bases, kinds = c.get("rope_theta"), c.get("layer_types")
    listed = isinstance(bases, list) and isinstance(kinds, list) and all(type(kind) is str for kind in kinds)
    if not listed or not 0 < len(bases) <= len(kinds):
        return {"partial_rotary_factor": 1.0}
    by_kind = dict(zip(reversed(kinds[: len(bases)]), reversed(bases), strict=True))
    if any(base != by_kind[kind] for base, kind in zip(bases, kinds, strict=False)):
        raise ConvertError("config.json has layers of one type with several values of rope_theta")
    names = {"full_attention": "rope_theta", "sliding_attention": "swa_rope_theta"}
    return {"partial_rotary_factor": 1.0} | {names[k]: base for k, base in by_kind.items() if k in names}


def step35(c: Config) -> Keys:
    """Step 3.5: layers with a window have other numbers of heads and turn whole heads, the others half of each."""
    c.require("use_head_wise_attn_gate", True)
    c.require("moe_router_activation", "sigmoid")
    n, other, kinds = c.integer("num_hidden_layers"), c.part("attention_other_setting"), c.get("layer_types")
    known = ("sliding_attention", "full_attention")
    if not isinstance(kinds, list) or len(kinds) < n or any(kind not in known for kind in kinds):
        raise ConvertError(f"config.json does not list {n} layers of type sliding_attention and full_attention")
    local = [kind == "sliding_attention" for kind in kinds[:n]]
    shares = c.get("partial_rotary_factors", [])
    if not isinstance(shares, list) or any(x != (1.0 if near else 0.5) for x, near in zip(shares, local, strict=False)):
        raise ConvertError("config.json has partial_rotary_factors other than 1 with a window and 0.5 without one")
    keys: Keys = {
        "attention.sliding_window": c.integer("sliding_window"),
        "attention.sliding_window_pattern": local,
        "rope.freq_base_swa": c.number("swa_rope_theta", 10000.0),
        "expert_shared_feed_forward_length": c.integer("share_expert_dim"),
        "expert_gating_func": 2,
    }
    for key, name in (("head_count", "num_attention_heads"), ("head_count_kv", "num_attention_groups")):
        far, near = c.integer(name), other.integer(name, c.integer(name))
        keys[f"attention.{key}"] = np.array([near if here else far for here in local], np.int32)
    keys |= clamps(c, "swiglu_clamp_exp", "swiglu_limits", n) | clamps(
        c, "swiglu_clamp_shexp", "swiglu_limits_shared", n
    )
    layers = c.get("moe_layers_enum")
    first = layers.split(",")[0] if isinstance(layers, str) else ""
    return routing(c) | keys | ({"leading_dense_block_count": int(first)} if first.isdecimal() else {})


def clamps(c: Config, key: str, name: str, n_layers: int) -> Keys:
    """Bounds of layers' activations, 0 for none, where config.json lists them under that name."""
    limits = c.get(name)
    if not isinstance(limits, list):
        return {}
    some = [0.0 if limit is None else limit for limit in limits[:n_layers]]
    return {key: Config({name: some + [0.0] * (n_layers - len(some))}).numbers(name, n_layers)}


def step35_factors(c: Config) -> Factors:
    """Factors of the half of a head that turns in layers without a window; those of the rest are 1."""
    rope, dim = rope_of(c), head_dim_of(c)
    if rope.get("rope_type") != "llama3":
        return {}
    factors = np.ones(dim // 2, np.float32)
    factors[: dim // 4] = llama3_factors(rope, dim // 2)
    return {"rope_freqs.weight": factors}
