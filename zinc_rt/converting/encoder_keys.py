"""Metadata of encoders, from config.json; see `keys`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from zinc_rt.converting.config import Config
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.folder import ModelFolder
from zinc_rt.converting.keys import Keys, heads_of
from zinc_rt.converting.rope import Factors
from zinc_rt.utils.checks import show

_MEAN, _FIRST, _LAST, _RANK = 1, 2, 3, 4
_MODES: Final = {"mean_tokens": _MEAN, "cls_token": _FIRST, "lasttoken": _LAST}


def encoder_keys(c: Config, *, acts: Sequence[str] = ("gelu",), truncated: bool = True) -> tuple[Keys, Factors]:
    """What all encoders have. The arguments are those of `decoder_keys`."""
    c.require("hidden_act", *acts)
    c.require("hidden_activation", *acts)
    return {
        "block_count": c.integer("num_hidden_layers"),
        "context_length": c.integer("max_position_embeddings"),
        "embedding_length": c.integer("hidden_size"),
        "feed_forward_length": c.integer("intermediate_size"),
        "attention.head_count": heads_of(c).n_heads,
        "attention.layer_norm_epsilon": c.number("layer_norm_eps"),
        "attention.causal": False,
        "vocab_size": c.integer("vocab_size"),
    }, {}


def ranks(c: Config) -> bool:
    """Whether the class makes scores."""
    return any(str(name).endswith("ForSequenceClassification") for name in c.get("architectures", []))


def pooling_keys(folder: ModelFolder, c: Config) -> Keys:
    """How a text's vector is made of its rows, as sentence-transformers or config.json says; none where neither does.

    Raises `ConvertError` for another way than the mean, the first row and the last one.
    """
    if ranks(c):
        return {"pooling_type": _RANK}
    listed = [one for one in folder.json_list("modules.json") if isinstance(one, dict)]
    where = next((one.get("path") for one in listed if str(one.get("type")).endswith("Pooling")), None)
    if where is None:
        return {"pooling_type": _MEAN} if c.get("emb_pooler") == "mean" else {}
    said = folder.json(f"{where}/config.json") or {}
    modes = [mode for name, mode in _MODES.items() if said.get(f"pooling_mode_{name}")]
    if len(modes) != 1:
        raise ConvertError(f"{folder.shown}/{show(str(where))} makes vectors in a way that is not converted")
    return {"pooling_type": modes[0]}


def modern_bert(c: Config) -> Keys:
    """ModernBERT: windows on two layers of three, with a rotation of their own."""
    for name in ("attention_bias", "mlp_bias", "norm_bias"):
        c.require(name, False)
    keys: Keys = {
        "attention.sliding_window": c.integer("local_attention"),
        "attention.sliding_window_pattern": c.integer("global_attn_every_n_layers"),
        "rope.freq_base": c.number("global_rope_theta"),
        "rope.freq_base_swa": c.number("local_rope_theta", 10000.0),
    }
    if ranks(c):
        c.require("classifier_pooling", "cls", "mean")
        c.require("classifier_activation", "gelu")
        c.require("classifier_bias", False)
        keys["classifier.pooling_type"] = _FIRST if c.get("classifier_pooling", "cls") == "cls" else _MEAN
    return keys


def jina_v2(c: Config) -> Keys:
    """Jina embeddings 2 of languages: slopes in place of positions."""
    c.require("position_embedding_type", "alibi")
    c.require("feed_forward_type", "geglu")
    return {}


def jina_v3(c: Config) -> Keys:
    """Jina embeddings 3, without its adapters."""
    c.require("position_embedding_type", "rotary")
    return {"rope.freq_base": c.number("rotary_emb_base", 10000.0)}


def nomic_moe(c: Config) -> Keys:
    """Nomic embed 2: experts on every other layer."""
    for name, value in (("prenorm", False), ("rotary_emb_interleaved", False), ("causal", False)):
        c.require(name, value)
    c.require("rotary_emb_fraction", 1.0, 1)
    return {
        "rope.freq_base": c.number("rotary_emb_base", 10000.0),
        "moe_every_n_layers": c.integer("moe_every_n_layers"),
        "expert_count": c.integer("num_experts"),
        "expert_used_count": c.integer("moe_top_k"),
    }
