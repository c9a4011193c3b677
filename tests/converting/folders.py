"""Hugging Face folders of the made-up models: what a GGUF file says, written as config.json and safetensors.

Names, orders and the format are written down here once more, and not taken from what is tested.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, Case, Made, write_case
from zinc_rt.gguf import GGMLType, GGUFFile

CLASSES = {
    "llama": "LlamaForCausalLM", "llama-windows": "MistralForCausalLM", "mistral3-windows": "Ministral3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
    "qwen3moe": "Qwen3MoeForCausalLM", "qwen2moe": "Qwen2MoeForCausalLM", "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM", "gemma3-scaled-cap": "Gemma3ForConditionalGeneration", "phi3": "Phi3ForCausalLM",
    "phi3-long": "Phi3ForCausalLM", "olmo2": "Olmo2ForCausalLM", "olmo3": "Olmo3ForCausalLM",
    "granite": "GraniteForCausalLM", "granitemoe": "GraniteMoeForCausalLM",
    "granitemoe-shared": "GraniteMoeSharedForCausalLM", "mistral3": "Ministral3ForCausalLM",
    "qwen35": "Qwen3_5ForCausalLM", "qwen35moe": "Qwen3_5MoeForConditionalGeneration",
    "qwen3next": "Qwen3NextForCausalLM", "gpt-oss": "GptOssForCausalLM", "lfm2": "Lfm2ForCausalLM",
    "smollm3": "SmolLM3ForCausalLM", "glm4": "Glm4ForCausalLM",
}  # fmt: skip
"""Cases that have a folder, with the class that config.json names."""
INTERLEAVED = ("llama", "granite", "granitemoe", "smollm3", "mistral3")

USUAL = {
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "attn_qkv": "self_attn.qkv_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}  # fmt: skip
OTHERS: dict[str, dict[str, str]] = {
    "gemma": {
        "ffn_norm": "pre_feedforward_layernorm", "post_attention_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
    "olmo2": {"post_attention_norm": "post_attention_layernorm", "post_ffw_norm": "post_feedforward_layernorm"},
    "phi3": {"ffn_up": "mlp.gate_up_proj"},
    "glm4": {
        "post_attention_norm": "post_self_attn_layernorm", "ffn_norm": "post_attention_layernorm",
        "post_ffw_norm": "post_mlp_layernorm", "ffn_up": "mlp.gate_up_proj",
    },
    "granitemoe": {"ffn_gate_inp": "block_sparse_moe.router.layer", "ffn_down_exps": "block_sparse_moe.output_linear",
                   "ffn_down_shexp": "shared_mlp.output_linear"},
    "qwen35": {
        "post_attention_norm": "post_attention_layernorm", "attn_qkv": "linear_attn.in_proj_qkv",
        "attn_gate": "linear_attn.in_proj_z", "ssm_alpha": "linear_attn.in_proj_a", "ssm_beta": "linear_attn.in_proj_b",
        "ssm_conv1d": "linear_attn.conv1d", "ssm_norm": "linear_attn.norm", "ssm_out": "linear_attn.out_proj",
    },
    "qwen3next": {
        "post_attention_norm": "post_attention_layernorm", "ssm_ba": "linear_attn.in_proj_ba",
        "ssm_conv1d": "linear_attn.conv1d", "ssm_norm": "linear_attn.norm", "ssm_out": "linear_attn.out_proj",
    },
    "gpt-oss": {"post_attention_norm": "post_attention_layernorm", "ffn_gate_inp": "mlp.router"},
    "lfm2": {
        "attn_norm": "operator_norm", "ffn_norm": "ffn_norm", "attn_output": "self_attn.out_proj",
        "attn_q_norm": "self_attn.q_layernorm", "attn_k_norm": "self_attn.k_layernorm",
        "ffn_gate": "feed_forward.w1", "ffn_up": "feed_forward.w3", "ffn_down": "feed_forward.w2",
    },
}  # fmt: skip


def hf_name(name: str, architecture: str) -> str:
    """The Hugging Face name of a GGUF tensor."""
    ends = {
        "token_embd.weight": "model.embed_tokens.weight",
        "output_norm.weight": "model.norm.weight",
        "output.weight": "lm_head.weight",
    }
    if name in ends:
        return ends[name]
    if name == "token_embd_norm.weight":
        return "model.embedding_norm.weight"
    _, layer, part, kind = (name if name.count(".") == 3 else f"{name}.").split(".")
    if part == "shortconv":
        raise ValueError(name)
    whole = {"ssm_a": "A_log", "ssm_dt": "dt_bias", "attn_sinks": "sinks"}
    if part in whole:
        return f"model.layers.{layer}.{'self_attn' if part == 'attn_sinks' else 'linear_attn'}.{whole[part]}"
    others = next((names for start, names in OTHERS.items() if architecture.startswith(start)), {})
    return f"model.layers.{layer}.{ {**USUAL, **others}[part] }.{kind}"


def hf_tensors(case: Case, tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The tensors of a folder, float32."""
    out: dict[str, np.ndarray] = {}
    architecture = case.architecture
    heads = {"attn_q": case.keys["attention.head_count"], "attn_k": case.keys["attention.head_count_kv"]}
    for name, values in tensors.items():
        x, part = values.astype(np.float32), name.split(".")[2] if name.startswith("blk.") else name.split(".")[0]
        if part.startswith("rope_"):
            continue
        prefix = f"model.layers.{name.split('.')[1]}"
        if part == "shortconv":
            which = name.split(".")[3]
            out[f"{prefix}.conv.{which}.weight"] = x[:, None] if which == "conv" else x
            continue
        if architecture == "qwen3next" and part in ("attn_qkv", "attn_gate"):
            if part == "attn_qkv":
                packed = pack_delta(case, x, tensors[f"blk.{name.split('.')[1]}.attn_gate.weight"].astype(np.float32))
                out[f"{prefix}.linear_attn.in_proj_qkvz.weight"] = packed
            continue
        if architecture.startswith("qwen35") and (part.startswith("ssm_") or part in ("attn_qkv", "attn_gate")):
            x = grouped(case, part, x)
        if part == "ssm_a":
            x = np.log(-x)
        if part == "ssm_conv1d":
            x = x[:, None]
        if architecture in ("qwen35moe", "gpt-oss") and part.endswith("_exps"):
            if part == "ffn_gate_exps":
                up = tensors[name.replace("gate", "up")].astype(np.float32)
                if architecture == "qwen35moe":
                    out[f"{prefix}.mlp.experts.gate_up_proj"] = np.concatenate([x, up], axis=1)
                elif name.endswith(".bias"):
                    out[f"{prefix}.mlp.experts.gate_up_proj_bias"] = np.stack([x, up], axis=-1).reshape(len(x), -1)
            elif part == "ffn_down_exps" and (name.endswith("bias") or architecture == "qwen35moe"):
                out[f"{prefix}.mlp.experts.down_proj{'_bias' if name.endswith('bias') else ''}"] = x
            continue
        if part in heads and architecture in INTERLEAVED:
            x = x.reshape(heads[part], -1, 2, *x.shape[1:]).swapaxes(1, 2).reshape(x.shape)
        if less_one(part, architecture):
            x = x - np.float32(1)
        if part == "ffn_gate_inp_shexp":
            x = x[None]
        if architecture == "granitemoe" and part.startswith(("ffn_gate_", "ffn_up_")) and part != "ffn_gate_inp":
            if part.startswith("ffn_gate_"):
                up = tensors[name.replace("gate", "up")].astype(np.float32)
                where = "block_sparse_moe" if "exps" in part else "shared_mlp"
                out[f"model.layers.{name.split('.')[1]}.{where}.input_linear.weight"] = np.concatenate([x, up], axis=-2)
        elif part.endswith("_exps") and architecture != "granitemoe":
            kind = part.split("_")[1]
            for number, one in enumerate(x):
                out[f"model.layers.{name.split('.')[1]}.mlp.experts.{number}.{kind}_proj.weight"] = one
        else:
            out[hf_name(name, architecture)] = x
    return out


def less_one(part: str, architecture: str) -> bool:
    """Whether a norm is stored less one."""
    return part.endswith("_norm") and architecture.startswith(("gemma", "qwen35", "qwen3next")) and part != "ssm_norm"


def grouped(case: Case, part: str, x: np.ndarray) -> np.ndarray:
    """Of delta nets: the value heads of a key head together, which files have in turn."""
    n_k, n_v, d = (case.keys[f"ssm.{key}"] for key in ("group_count", "time_step_rank", "state_size"))
    if part == "ssm_norm":
        return x
    first = 2 * n_k * d if part in ("attn_qkv", "ssm_conv1d") else 0
    x = x.T if part == "ssm_out" else x
    rest = x[first:].reshape(n_v // n_k, n_k, -1, *x.shape[1:]).swapaxes(0, 1).reshape(x[first:].shape)
    both = np.concatenate([x[:first], rest])
    return both.T if part == "ssm_out" else both


def pack_delta(case: Case, qkv: np.ndarray, z: np.ndarray) -> np.ndarray:
    """Queries, keys, values and gate of each key head together."""
    n_k, n_v, d = (case.keys[f"ssm.{key}"] for key in ("group_count", "time_step_rank", "state_size"))
    q, k, v = np.split(qkv, [n_k * d, 2 * n_k * d])
    each = [part.reshape(n_k, -1, qkv.shape[1]) for part in (q, k, v, z)]
    assert v.shape == z.shape == (n_v * d, qkv.shape[1])
    return np.concatenate(each, axis=1).reshape(-1, qkv.shape[1])


def mxfp4_tensors(layer: int, raw: Mapping[str, np.ndarray]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """gpt-oss' blocks and scales of a layer from the bytes of a file, uint8[experts, rows, 17 * groups] by part."""

    def parts(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        blocks = x.reshape(*x.shape[:2], -1, 17)
        codes = np.concatenate([blocks[..., 1:] % 16, blocks[..., 1:] // 16], axis=-1)
        return codes[..., 0::2] + 16 * codes[..., 1::2], blocks[..., 0]

    both = np.stack([raw["gate"], raw["up"]], axis=2).reshape(len(raw["up"]), -1, raw["up"].shape[-1])
    made = {}
    for name, x in (("gate_up_proj", both), ("down_proj", raw["down"])):
        for end, part in zip(("blocks", "scales"), parts(x), strict=True):
            made[f"model.layers.{layer}.mlp.experts.{name}_{end}"] = ("U8", part.shape, part.tobytes())
    return made


def config_of(case: Case, name: str) -> dict[str, Any]:
    """config.json as older folders have it."""
    k, architecture = dict(case.keys), case.architecture
    config: dict[str, Any] = {
        "architectures": [CLASSES[name]],
        "hidden_act": "silu",
        "vocab_size": N_VOCAB,
        "hidden_size": k["embedding_length"],
        "intermediate_size": k["feed_forward_length"],
        "num_hidden_layers": k["block_count"],
        "num_attention_heads": k["attention.head_count"],
        "num_key_value_heads": np.max(k["attention.head_count_kv"]).item(),
        "head_dim": k.get("attention.key_length"),
        "max_position_embeddings": k["context_length"],
        "rope_theta": k["rope.freq_base"],
        "rms_norm_eps": k["attention.layer_norm_rms_epsilon"],
        "tie_word_embeddings": "output.weight" not in case.shapes,
    }
    scaling = k.get("rope.scaling.type")
    if scaling == "longrope":
        config["original_max_position_embeddings"] = k["rope.scaling.original_context_length"]
        factors = {kind: case_factors(case, kind) for kind in ("long", "short")}
        config["rope_scaling"] = {
            "type": "longrope",
            "attention_factor": k["rope.scaling.attn_factor"],
            **{f"{kind}_factor": values for kind, values in factors.items()},
        }
    elif scaling:
        config["rope_scaling"] = {"rope_type": scaling, "factor": k["rope.scaling.factor"]}
        if scaling == "yarn":
            config["rope_scaling"]["original_max_position_embeddings"] = k["rope.scaling.original_context_length"]
            if architecture == "mistral3":
                config["rope_scaling"] |= {"mscale": 1.0, "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.4}
    if "rope.dimension_count" in k:
        config["partial_rotary_factor"] = k["rope.dimension_count"] / k["attention.key_length"]
    if "expert_count" in k:
        config |= {
            "num_local_experts" if architecture == "granitemoe" else "num_experts": k["expert_count"],
            "num_experts_per_tok": k["expert_used_count"],
            "norm_topk_prob": architecture != "qwen2moe",
        }
    if "ssm.state_size" in k:
        config |= {
            "linear_key_head_dim": k["ssm.state_size"],
            "linear_value_head_dim": k["ssm.state_size"],
            "linear_num_key_heads": k["ssm.group_count"],
            "linear_num_value_heads": k["ssm.time_step_rank"],
            "linear_conv_kernel_dim": k["ssm.conv_kernel"],
            "full_attention_interval": k["full_attention_interval"],
        }
        if architecture != "qwen3next":
            config["rope_scaling"] = {"rope_type": "default", "mrope_section": k["rope.dimension_sections"]}
    if architecture == "gpt-oss":
        config |= {"quantization_config": {"quant_method": "mxfp4"}, "swiglu_limit": 7.0}
    if architecture == "lfm2":
        config |= {
            "norm_eps": config.pop("rms_norm_eps"),
            "block_auto_adjust_ff_dim": False,
            "conv_L_cache": k["shortconv.l_cache"],
            "layer_types": ["full_attention" if kv else "conv" for kv in k["attention.head_count_kv"]],
        }
    for key, theirs in (
        ("expert_feed_forward_length", "moe_intermediate_size"),
        (
            "expert_shared_feed_forward_length",
            "shared_expert_intermediate_size" if "qwen" in architecture else "shared_intermediate_size",
        ),
        ("attention.sliding_window", "sliding_window"),
        ("final_logit_softcapping", "final_logit_softcapping"),
        ("attn_logit_softcapping", "attn_logit_softcapping"),
        ("embedding_scale", "embedding_multiplier"),
        ("residual_scale", "residual_multiplier"),
        ("attention.scale", "attention_multiplier"),
        ("logit_scale", "logits_scaling"),
    ):
        if key in k:
            config[theirs] = k[key]
    if architecture.startswith("gemma"):
        config |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": k["attention.key_length"]}
        del config["hidden_act"]
        if architecture == "gemma3":
            config["rope_local_base_freq"] = k.get("rope.freq_base_swa", 10000.0)
    if CLASSES[name].endswith("ConditionalGeneration"):
        text = {key: value for key, value in config.items() if key != "architectures"}
        config = {"architectures": config["architectures"], "text_config": text, "vision_config": {"hidden_size": 3}}
    return config


def case_factors(case: Case, kind: str) -> list[float]:
    """Made up: the file of the case is written with them, too."""
    n = case.shapes[f"rope_factors_{kind}.weight"][0]
    return [1.0 + i * (0.5 if kind == "long" else 0.125) for i in range(n)]


def write_safetensors(path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> None:
    """A file from types, shapes and bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape, raw) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(raw for _, _, raw in tensors.values()))


def as_f32(tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {name: ("F32", x.shape, np.ascontiguousarray(x).tobytes()) for name, x in tensors.items()}


def as_bf16(tensors: Mapping[str, np.ndarray]) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    """The upper halves: values that lose their lower ones."""
    return {
        name: ("BF16", x.shape, (np.ascontiguousarray(x).view(np.uint32) >> 16).astype("<u2").tobytes())
        for name, x in tensors.items()
    }


QWEN2_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def write_tokenizer(folder: Path, tokens: list[str], merges: list[str], special: dict[str, str]) -> None:
    """tokenizer.json by the tokenizers library, for byte-level words as Qwen 2 cuts them."""
    from tokenizers import Regex, Tokenizer, models, pre_tokenizers

    own = [token for token in tokens if token not in special.values()]
    pairs = [(merge.split(" ")[0], merge.split(" ")[1]) for merge in merges]
    made = Tokenizer(models.BPE({token: id_ for id_, token in enumerate(own)}, pairs))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(QWEN2_WORDS), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    )
    made.add_special_tokens(list(special.values()))
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**special, "chat_template": "unused"}))
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.content }}{% endfor %}")


def write_folder(folder: Path, name: str) -> tuple[Made, dict[str, np.ndarray]]:
    """The GGUF file of a case, and its folder; returns the file and the folder's tensors."""
    case = CASES[name]
    if "rope_factors_long.weight" in case.shapes:
        given = {f"rope_factors_{kind}.weight": case_factors(case, kind) for kind in ("long", "short")}
        case = Case(**{**vars(case), "given": given})
    folder.mkdir()
    blocks = {"_exps.weight": GGMLType.MXFP4} if name == "gpt-oss" else None
    made = write_case(folder.parent / f"{name}.gguf", case, formats_by_part=blocks)
    tensors = hf_tensors(case, made.tensors)
    stored = as_f32(tensors)
    if blocks:
        with GGUFFile.open(made.path) as file:
            for layer in range(case.keys["block_count"]):
                names = {part: f"blk.{layer}.ffn_{part}_exps.weight" for part in ("gate", "up", "down")}
                raw = {part: file.raw(n).reshape(*file.tensors[n].shape[:2], -1) for part, n in names.items()}
                stored |= mxfp4_tensors(layer, raw)
    write_safetensors(folder / "model.safetensors", stored)
    (folder / "config.json").write_text(json.dumps(config_of(case, name)))
    with GGUFFile.open(made.path) as file:
        tokens, merges = (list(file.metadata[f"tokenizer.ggml.{key}"]) for key in ("tokens", "merges"))
    write_tokenizer(folder, tokens, merges, {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"})
    return made, tensors
