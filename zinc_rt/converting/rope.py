"""How positions turn: the rotation of config.json as keys and factors of a GGUF file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zinc_rt.converting.config import Config
from zinc_rt.converting.errors import ConvertError
from zinc_rt.utils.checks import show

Factors = dict[str, NDArray[np.float32]]
"""Tensors by name, f32[pairs]: each frequency is divided by its factor."""


def rope_of(config: Config, kind: str = "full_attention", theta: float | None = None) -> Config:
    """The rotation of a kind of layers, in one form: `rope_parameters` of newer folders, `rope_theta` and
    `rope_scaling` of older ones.
    """
    where = f"config.json: the rotation of {kind}"
    new: Any = config.values("rope_parameters")
    if new:
        if any(isinstance(value, dict) for value in new.values()):
            new = new.get(kind)
        if not isinstance(new, dict):
            raise ConvertError(f"config.json: rope_parameters has no {kind}")
        usual = {
            "rope_theta": config.get("rope_theta", theta),
            "partial_rotary_factor": config.get("partial_rotary_factor"),
        }
        return Config(usual | new, where)
    return Config(
        config.values("rope_scaling")
        | {
            "rope_theta": config.get("rope_theta", theta),
            "partial_rotary_factor": config.get("partial_rotary_factor"),
        },
        where,
    )


def rope_keys(config: Config, rope: Config, head_dim: int, *, truncated: bool = True) -> tuple[dict[str, Any], Factors]:
    """Metadata without the architecture's prefix, and tensors of factors.

    truncated: whether the ends of YaRN's blend have to be whole pairs.
    Raises `ConvertError` for another kind of scaling than none, linear, dynamic, llama3, yarn and longrope.
    """
    dim = head_dim
    if rope.has("partial_rotary_factor"):
        share = rope.number("partial_rotary_factor")
        if not 0 < share <= 1:
            raise ConvertError(f"config.json has partial_rotary_factor = {share:g}, a share of a head is needed")
        dim = int(head_dim * share)
    keys: dict[str, Any] = {"rope.dimension_count": dim, "rope.freq_base": rope.number("rope_theta", 10000.0)}
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "dynamic":  # turns by another base beyond the context alone, or, with an alpha, always
        alpha = rope.number("alpha", 0.0)
        if alpha > 0 and dim > 2:
            keys["rope.freq_base"] *= alpha ** (dim / (dim - 2))
        return keys, {}
    if kind == "default":
        return keys, {}
    if kind == "linear":
        return keys | {"rope.scaling.type": "linear", "rope.scaling.factor": rope.number("factor")}, {}
    if kind == "llama3":
        return keys, {"rope_freqs.weight": llama3_factors(rope, dim)}
    if kind == "yarn":
        return keys | _yarn(config, rope, truncated), {}
    if kind in ("longrope", "su"):
        return _longrope(config, rope, keys, dim)
    raise ConvertError(
        f"config.json has a rotation of type {show(str(kind))}, which is not converted; default, linear, dynamic,"
        " llama3, yarn and longrope are"
    )


def llama3_factors(rope: Config, dim: int) -> NDArray[np.float32]:
    """Llama 3.1's: long waves are stretched by `factor`, short ones stay, and between them it goes over."""
    factor, old = rope.number("factor"), rope.number("original_max_position_embeddings")
    low, high = rope.number("low_freq_factor"), rope.number("high_freq_factor")
    waves = 2 * math.pi * rope.number("rope_theta", 10000.0) ** (np.arange(0, dim, 2) / dim)
    share = np.clip((old / waves - low) / (high - low), 0.0, 1.0)
    return np.asarray(1.0 / ((1.0 - share) / factor + share), np.float32)


def _yarn(config: Config, rope: Config, truncated: bool) -> dict[str, Any]:
    rope.require("truncate", True, *([] if truncated else [False]))
    factor = rope.number("factor")
    log = 0.1 * math.log(factor) if factor > 1 else 0.0
    magnitude = 1.0 + log
    if rope.has("attention_factor"):
        magnitude = rope.number("attention_factor")
    elif rope.has("mscale") and rope.has("mscale_all_dim"):
        magnitude = (1.0 + log * rope.number("mscale")) / (1.0 + log * rope.number("mscale_all_dim"))
    keys = {
        "rope.scaling.type": "yarn",
        "rope.scaling.factor": factor,
        "rope.scaling.original_context_length": int(
            rope.number("original_max_position_embeddings", config.integer("max_position_embeddings"))
        ),
        "rope.scaling.yarn_beta_fast": rope.number("beta_fast", 32.0),
        "rope.scaling.yarn_beta_slow": rope.number("beta_slow", 1.0),
    }
    if magnitude != 1.0 + log:
        keys["rope.scaling.attn_factor"] = magnitude / (1.0 + log)
    return keys


def _longrope(config: Config, rope: Config, keys: dict[str, Any], dim: int) -> tuple[dict[str, Any], Factors]:
    name, longest = "original_max_position_embeddings", config.integer("max_position_embeddings")
    old = config.integer(name) if config.has(name) else int(rope.number(name, longest))
    rope.require("short_mscale", rope.get("long_mscale"))
    stretched = longest / old if old != longest else rope.number("factor", 1.0)
    magnitude = 1.0 if stretched <= 1 else math.sqrt(1 + math.log(stretched) / math.log(old))
    keys |= {
        "rope.scaling.type": "longrope",
        "rope.scaling.original_context_length": old,
        "rope.scaling.attn_factor": rope.number("attention_factor", rope.number("long_mscale", magnitude)),
    }
    factors = {
        f"rope_factors_{which}.weight": np.array(rope.numbers(f"{which}_factor", dim // 2), np.float32)
        for which in ("long", "short")
    }
    return keys, factors
