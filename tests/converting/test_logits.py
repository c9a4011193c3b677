"""Folders under published names become files whose logits are those of float64 formulas.

The other tests of folders compare tensors and keys. Here a folder's config.json is written by hand from a case of the
families, so that a key that is read wrongly shows in the logits, too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.converting.folders import as_f32, write_safetensors, write_tokenizer
from tests.converting.test_folders import convert
from tests.converting.test_published import Recorded
from tests.helpers import logits_of, random_tokens, soon
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, Made, add_vocabulary, write_case
from tests.models.families.common import Net
from tests.models.test_logits import quietest_row
from tests.models.truth import error
from zinc_rt.gguf import GGMLType

Array = np.ndarray
Tensors = dict[str, tuple[str, tuple[int, ...], bytes]]
BLOCK = 20, 24
"""Rows and columns of a scale, which divide no matrix."""


@dataclass(frozen=True)
class Published:
    """A class of folders: config.json for the case, names of the layers' parts, and of the ends.

    scaled, blocks: parts that are in 8 bits, and in 4. scales: the type of scales and how their names end.
    """

    name: str
    config: Mapping[str, Any]
    parts: Mapping[str, str]
    ends: Mapping[str, str]
    layer: str = "model.layers"
    scaled: tuple[str, ...] = ()
    blocks: tuple[str, ...] = ()
    scales: tuple[str, str] = ("F32", "weight_scale_inv")


def k(case: str, **more: str) -> dict[str, Any]:
    """What all of config.json say, and keys of the case by their names there."""
    keys = CASES[case].keys
    usual = {
        "hidden_size": "embedding_length", "num_hidden_layers": "block_count", "rms_norm_eps":
        "attention.layer_norm_rms_epsilon", "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv", "max_position_embeddings": "context_length",
        "rope_theta": "rope.freq_base", "intermediate_size": "feed_forward_length",
    }  # fmt: skip
    made = {theirs: keys[own] for theirs, own in {**usual, **more}.items() if own in keys}
    return {"vocab_size": N_VOCAB, "tie_word_embeddings": False, "hidden_act": "silu", **made}


ENDS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
USUAL = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_output": "self_attn.o_proj"}
QKV = {f"attn_{x}": f"self_attn.{x}_proj" for x in "qkv"}
NORMED = {f"attn_{x}_norm": f"self_attn.{x}_norm" for x in "qk"}
MLP = {f"ffn_{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")}
EXPERTS = {f"ffn_{x}_exps": f"mlp.experts.*.{x}_proj" for x in ("gate", "up", "down")}
SHARED = {f"ffn_{x}_shexp": f"mlp.shared_experts.{x}_proj" for x in ("gate", "up", "down")}
ROUTER = {"ffn_gate_inp": "mlp.gate", "exp_probs_b.bias": "mlp.gate.e_score_correction_bias"}
ROUTED = {
    "n_routed_experts": "expert_count", "num_experts_per_tok": "expert_used_count",
    "moe_intermediate_size": "expert_feed_forward_length", "n_shared_experts": "expert_shared_count",
    "routed_scaling_factor": "expert_weights_scale", "norm_topk_prob": "expert_weights_norm",
    "first_k_dense_replace": "leading_dense_block_count",
}  # fmt: skip
INDEXER = {
    "index_n_heads": "attention.indexer.head_count", "index_head_dim": "attention.indexer.key_length",
    "index_topk": "attention.indexer.top_k",
}  # fmt: skip
NUMBERED = {"gate": "w1", "down": "w2", "up": "w3"}

PUBLISHED = {
    "seed_oss": Published(
        "SeedOssForCausalLM", k("seed_oss", head_dim="attention.key_length") | {"attention_bias": True},
        {**USUAL, **QKV, **MLP, "post_attention_norm": "post_attention_layernorm"}, ENDS,
    ),
    "dots1": Published(
        "Dots1ForCausalLM", k("dots1", head_dim="attention.key_length", **ROUTED),
        {**USUAL, **QKV, **NORMED, **MLP, **EXPERTS, **SHARED, **ROUTER}, ENDS,
    ),
    "mamba2": Published(
        "Mamba2ForCausalLM",
        {"vocab_size": N_VOCAB, "tie_word_embeddings": False, "hidden_act": "silu", "hidden_size": 64,
         "num_hidden_layers": 2, "num_heads": 8, "head_dim": 16, "state_size": 48, "conv_kernel": 4, "n_groups": 2,
         "layer_norm_epsilon": 1e-6, "expand": 2},
        {"attn_norm": "norm", "ssm_in": "mixer.in_proj", "ssm_conv1d": "mixer.conv1d", "ssm_dt.bias": "mixer.dt_bias",
         "ssm_a": "mixer.A_log", "ssm_d": "mixer.D", "ssm_norm": "mixer.norm", "ssm_out": "mixer.out_proj"},
        {"token_embd": "backbone.embeddings", "output_norm": "backbone.norm_f", "output": "lm_head"}, "backbone.layers",
    ),
    "deepseek32": Published(
        "DeepseekV32ForCausalLM",
        k("deepseek32", **ROUTED, **INDEXER, kv_lora_rank="attention.kv_lora_rank", q_lora_rank="attention.q_lora_rank",
          qk_rope_head_dim="rope.dimension_count", v_head_dim="attention.value_length_mla")
        | {"qk_nope_head_dim": 32, "num_key_value_heads": 3, "scoring_func": "sigmoid"},
        {**USUAL, **MLP, **EXPERTS, **SHARED, **ROUTER, "attn_q_a": "self_attn.q_a_proj",
         "attn_q_b": "self_attn.q_b_proj", "attn_q_a_norm": "self_attn.q_a_layernorm",
         "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa", "attn_kv_a_norm": "self_attn.kv_a_layernorm",
         "attn_kv_b": "self_attn.kv_b_proj", "indexer.attn_q_b": "self_attn.indexer.wq_b",
         "indexer.attn_k": "self_attn.indexer.wk", "indexer.k_norm": "self_attn.indexer.k_norm",
         "indexer.proj": "self_attn.indexer.weights_proj"},
        ENDS, scaled=("attn_q_a", "attn_kv_b", "ffn_up", "_exps"),
    ),
    "deepseek4": Published(
        "DeepseekV4ForCausalLM",
        k("deepseek4", **ROUTED, **INDEXER, head_dim="attention.key_length", qk_rope_head_dim="rope.dimension_count",
          q_lora_rank="attention.q_lora_rank", sliding_window="attention.sliding_window",
          o_groups="attention.output_group_count", o_lora_rank="attention.output_lora_rank",
          compress_rope_theta="attention.compress_rope_freq_base", hc_mult="hyper_connection.count",
          hc_sinkhorn_iters="hyper_connection.sinkhorn_iterations", hc_eps="hyper_connection.epsilon",
          num_hash_layers="hash_layer_count", swiglu_limit="swiglu_clamp_exp",
          compress_ratios="attention.compress_ratios")
        | {"scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "num_nextn_predict_layers": 1,
           "expert_dtype": "fp4", "rope_scaling": {
               "type": "yarn", "factor": 4, "original_max_position_embeddings": 64, "beta_fast": 32, "beta_slow": 1}},
        {"attn_norm": "attn_norm", "ffn_norm": "ffn_norm", "attn_sinks.weight": "attn.attn_sink",
         **{f"attn_{own}": f"attn.{theirs}" for own, theirs in
            (("q_a", "wq_a"), ("q_b", "wq_b"), ("q_a_norm", "q_norm"), ("kv", "wkv"), ("kv_a_norm", "kv_norm"),
             ("output_a", "wo_a"), ("output_b", "wo_b"))},
         **{f"{own}_{x}": f"attn.{theirs}.{y}" for own, theirs in
            (("attn_compressor", "compressor"), ("indexer_compressor", "indexer.compressor"))
            for x, y in (("kv", "wkv"), ("gate", "wgate"), ("norm", "norm"), ("ape.weight", "ape"))},
         "indexer.attn_q_b": "attn.indexer.wq_b", "indexer.proj": "attn.indexer.weights_proj",
         **{f"hc_{part}_{x}.weight": f"hc_{part}_{x}" for part in ("attn", "ffn") for x in ("fn", "base", "scale")},
         "ffn_gate_inp": "ffn.gate", "exp_probs_b": "ffn.gate", "ffn_gate_tid2eid.weight": "ffn.gate.tid2eid",
         **{f"ffn_{x}_exps": f"ffn.experts.*.{w}" for x, w in NUMBERED.items()},
         **{f"ffn_{x}_shexp": f"ffn.shared_experts.{w}" for x, w in NUMBERED.items()}},
        {"token_embd": "embed", "output_norm": "norm", "output": "head",
         **{f"output_hc_{x}.weight": f"hc_head_{x}" for x in ("fn", "base", "scale")}},
        "layers", scaled=("attn_q_", "attn_output_", "_shexp"), blocks=("_exps",), scales=("F8_E8M0", "scale"),
    ),
}  # fmt: skip


def float_of_8_bits(code: int) -> float:
    """1 bit of sign, 4 of exponent, 3 of mantissa; the largest number has no mantissa but six eighths."""
    exponent, mantissa = code >> 3 & 15, code & 7
    size = (1 + mantissa / 8) * 2.0 ** (exponent - 7) if exponent else mantissa / 8 * 2.0**-6
    return -size if code & 128 else size


FLOATS = np.array([float_of_8_bits(code) for code in range(256)])
STEPS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def in_8_bits(x: Array, kind: str, rng: np.random.Generator) -> tuple[Array, Array, Array]:
    """Codes, scales and the values that they stand for, as BF16 rounds them."""
    high, wide = (-(-n // size) for n, size in zip(x.shape, BLOCK, strict=True))
    exponents = rng.integers(-9, -6, (high, wide))
    scales = 2.0**exponents if kind == "F8_E8M0" else np.float32(2.0**exponents * rng.uniform(1, 2, (high, wide)))
    each = scales.astype(np.float64).repeat(BLOCK[0], 0).repeat(BLOCK[1], 1)[: x.shape[0], : x.shape[1]]
    order = np.argsort(FLOATS[:127])
    below = np.searchsorted(FLOATS[:127], np.abs(x) / each).clip(0, 126)
    codes = np.where(x < 0, 128, 0) + order[below]
    words = np.float32(FLOATS[codes] * each).view(np.uint32).astype(np.uint64)
    rounded = ((words + 0x7FFF + (words >> 16 & 1)) >> 16 << 16).astype(np.uint32).view(np.float32)
    kept = (exponents + 127).astype(np.uint8) if kind == "F8_E8M0" else scales
    return codes.astype(np.uint8), kept, rounded.astype(np.float64)


def in_4_bits(x: Array) -> tuple[Array, Array, Array]:
    """Pairs of codes, exponents and the values that they stand for, of groups of 32."""
    groups = x.reshape(*x.shape[:-1], -1, 32)
    exponents = np.ceil(np.log2(np.abs(groups).max(axis=-1) / 6))
    parts = groups / 2.0 ** exponents[..., None]
    codes = np.abs(np.abs(parts)[..., None] - STEPS).argmin(axis=-1)
    values = np.where(parts < 0, -1, 1) * STEPS[codes] * 2.0 ** exponents[..., None]
    codes = (codes + np.where(parts < 0, 8, 0)).reshape(x.shape).astype(np.uint8)
    return codes[..., ::2] + 16 * codes[..., 1::2], (exponents + 127).astype(np.uint8), values.reshape(x.shape)


def stored_name(name: str, how: Published) -> str:
    """The name of a tensor in the folder."""
    layer, _, rest = name.removeprefix("blk.").partition(".") if name.startswith("blk.") else ("", "", name)
    names = how.parts if layer else how.ends
    base, dot, kind = rest.rpartition(".")
    own = names[rest] if rest in names else names[base] + dot + kind
    return f"{how.layer}.{layer}.{own}" if layer else own


def write(folder: Path, made: Made, how: Published) -> Made:
    """Write the folder; the model with the values that its few bits stand for."""
    rng, stored, values, formats = np.random.default_rng(5), Tensors(), dict(made.tensors), dict(made.formats)
    given = dict(made.tensors)
    for name, keys in list(given.items()):
        if name.endswith("attn_k_b.weight"):  # with the values' half of the same matrix
            half = given.pop(name), given.pop(name.replace("_k_b", "_v_b"))
            both = np.concatenate([half[0].swapaxes(1, 2), half[1]], axis=1)
            given[name.replace("attn_k_b", "attn_kv_b")] = both.reshape(-1, keys.shape[1])
    for name, x in given.items():
        theirs = stored_name(name, how)
        if theirs.endswith("A_log"):
            x = np.log(-x[:, 0]).astype(np.float32)
            values[name] = -np.exp(x.astype(np.float64))[:, None]
        elif theirs.endswith((".D", "mixer.norm.weight")):
            x = x.reshape(-1)
        elif "conv1d.weight" in theirs:
            x = x[:, None]
        if theirs.endswith("tid2eid"):
            stored[theirs] = ("I64", x.shape, x.astype("<i8").tobytes())
            continue
        few = next((kind for kind in ("blocks", "scaled") if any(part in name for part in getattr(how, kind))), "")
        few = few if name.endswith(".weight") and "norm" not in name else ""
        each = x if "*" in theirs else x[None]
        became = []
        for number, one in enumerate(each):
            own = theirs.replace("*", str(number))
            if not few:
                stored |= as_f32({own: one.astype(np.float32)})
                continue
            codes, scales, real = in_4_bits(one) if few == "blocks" else in_8_bits(one, how.scales[0], rng)
            became.append(real)
            stored[own] = ("I8" if few == "blocks" else "F8_E4M3", codes.shape, codes.tobytes())
            stored[own.removesuffix("weight") + how.scales[1]] = (how.scales[0], scales.shape, scales.tobytes())
        if became:
            real = np.stack(became) if "*" in theirs else became[0]
            formats[name] = GGMLType.MXFP4 if few == "blocks" else GGMLType.F32
            if name.endswith("attn_kv_b.weight"):
                heads = real.reshape(len(made.tensors[name.replace("kv_b", "k_b")]), -1, real.shape[1])
                n = made.tensors[name.replace("kv_b", "k_b")].shape[2]
                values[name.replace("kv_b", "k_b")] = heads[:, :n].swapaxes(1, 2)
                values[name.replace("kv_b", "v_b")] = heads[:, n:]
            else:
                values[name] = real
    folder.mkdir()
    quantised = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": list(BLOCK)}
    config = {"architectures": [how.name], **how.config, **({"quantization_config": quantised} if how.scaled else {})}
    (folder / "config.json").write_text(json.dumps(config))
    write_safetensors(folder / "model.safetensors", stored)
    words = Recorded()
    add_vocabulary(words)  # type: ignore[arg-type]
    special = {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"}
    write_tokenizer(folder, words["tokenizer.ggml.tokens"], words["tokenizer.ggml.merges"], special)
    return replace(made, tensors=values, formats=formats)


@pytest.mark.parametrize("name", soon(["mamba2", "deepseek4"], PUBLISHED))
def test_logits_of_the_new_file(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    made = write(tmp_path / "folder", write_case(tmp_path / "case.gguf", case), PUBLISHED[name])
    convert(tmp_path / "folder", tmp_path / "new.gguf", "F32")
    tokens = random_tokens(5, case.n_tokens, N_VOCAB - 2)
    net = Net(made)
    want = net.logits(tokens)
    assert net.closest_choice > 1e-4
    got = logits_of(tmp_path / "new.gguf", tokens, n_ctx=512, kernels="reference")
    assert error(got, want) < 1e-3
    assert quietest_row(got, want) < 2e-6
