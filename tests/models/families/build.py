"""Making up a small model of any family: its keys, its tensors, a vocabulary, and the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.helpers import add_tensors
from zinc_rt.gguf import GGMLType, GGUFWriter, ValueType

if TYPE_CHECKING:
    from tests.models.families.common import Net

Shapes = dict[str, tuple[int, ...]]
N_VOCAB = 320


@dataclass(frozen=True)
class Case:
    """A model to make up.

    keys: metadata without the architecture's prefix. shapes: of every tensor, in NumPy's order (rows, n_in).
    forward: its float64 formulas. wrong: what the formulas can do wrongly so that a comparison must see it.
    n_tokens: of a test's text. seed: of the weights. sizes: factors on tensors by a part of their names. given: the
    values of tensors that are not made up. gelu: whether it has GELUs, which other programs take from a table. bare:
    metadata with its full names.
    """

    architecture: str
    keys: Mapping[str, Any]
    shapes: Shapes
    forward: Callable[[Net, list[int]], np.ndarray]
    wrong: Sequence[str] = ()
    n_tokens: int = 24
    seed: int = 1
    sizes: Mapping[str, float] = field(default_factory=dict)
    given: Mapping[str, Sequence[float] | np.ndarray] = field(default_factory=dict)
    gelu: bool = False
    bare: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Made:
    """A written model: where it is, its weights as float64, and the format of each tensor."""

    case: Case
    path: Path
    tensors: Mapping[str, np.ndarray]
    formats: Mapping[str, GGMLType]

    def is_blocks(self, name: str) -> bool:
        return self.formats[name].quantized


def base_keys(
    *, n_layers: int = 2, n_embd: int = 64, heads: int | list[int] = 6, kv_heads: int | list[int] = 2,
    head_dim: int = 16, n_ff: int | list[int] = 96, eps: float = 1e-6, n_ctx: int = 512, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    """Keys that nearly all families have. `more` adds others, with __ for a dot; None removes one."""
    keys = {
        "context_length": n_ctx,
        "embedding_length": n_embd,
        "block_count": n_layers,
        "feed_forward_length": n_ff,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "attention.key_length": head_dim,
        "attention.value_length": head_dim,
        "attention.layer_norm_rms_epsilon": eps,
        "rope.freq_base": 10000.0,
    }
    keys.update({name.replace("__", "."): value for name, value in more.items()})
    return {name: value for name, value in keys.items() if value is not None}


def model_shapes(n_embd: int, blocks: Sequence[Shapes], *, tied: bool = False, final: str = "output_norm") -> Shapes:
    """The tensors of a model from those of its blocks."""
    out: Shapes = {"token_embd.weight": (N_VOCAB, n_embd)}
    for i, block in enumerate(blocks):
        out |= {f"blk.{i}.{name}": shape for name, shape in block.items()}
    out[f"{final}.weight"] = (n_embd,)
    if not tied:
        out["output.weight"] = (N_VOCAB, n_embd)
    return out


def attention_shapes(
    n_embd: int,
    heads: int,
    kv_heads: int,
    head_dim: int,
    *,
    norms: bool = False,
    biases: bool = False,
    fused: bool = False,
) -> Shapes:
    """Projections of q, k, v and of the output. norms: one for each head's q and k."""
    q, kv = heads * head_dim, kv_heads * head_dim
    if fused:
        out: Shapes = {"attn_qkv.weight": (q + 2 * kv, n_embd)}
    else:
        out = {"attn_q.weight": (q, n_embd), "attn_k.weight": (kv, n_embd), "attn_v.weight": (kv, n_embd)}
    if biases:
        out |= {name.replace("weight", "bias"): shape[:1] for name, shape in out.items()}
    if norms:
        out |= {"attn_q_norm.weight": (head_dim,), "attn_k_norm.weight": (head_dim,)}
    return out | {"attn_output.weight": (n_embd, q)}


def ffn_shapes(n_embd: int, n_ff: int, *, suffix: str = "", fused: bool = False) -> Shapes:
    """A gated feed-forward part. fused: `up` holds the gate's rows, then its own."""
    down: Shapes = {f"ffn_down{suffix}.weight": (n_embd, n_ff)}
    if fused:
        return {f"ffn_up{suffix}.weight": (2 * n_ff, n_embd)} | down
    return {f"ffn_gate{suffix}.weight": (n_ff, n_embd), f"ffn_up{suffix}.weight": (n_ff, n_embd)} | down


def moe_shapes(n_embd: int, n_ff: int, n_experts: int, *, fused: bool = False) -> Shapes:
    """A router and its experts. fused: one tensor holds the gate's rows of an expert, then those of up."""
    out: Shapes = {"ffn_gate_inp.weight": (n_experts, n_embd)}
    if fused:
        out["ffn_gate_up_exps.weight"] = (n_experts, 2 * n_ff, n_embd)
    else:
        out["ffn_gate_exps.weight"] = (n_experts, n_ff, n_embd)
        out["ffn_up_exps.weight"] = (n_experts, n_ff, n_embd)
    return out | {"ffn_down_exps.weight": (n_experts, n_embd, n_ff)}


def norm_shapes(n_embd: int, *names: str) -> Shapes:
    return {f"{name}.weight": (n_embd,) for name in names}


def drafting_shapes(n_embd: int, norm: str = "nextn.shared_head_norm") -> Shapes:
    """What a block that drafts tokens has besides those of a usual block. norm: the one before its logits."""
    return {"nextn.eh_proj.weight": (n_embd, 2 * n_embd)} | norm_shapes(n_embd, "nextn.enorm", "nextn.hnorm", norm)


FLOAT_PARTS = ("ffn_gate_inp", "conv", "norm", "position_embd", "token_types")
"""Tensors that files keep in F32, whatever they do with the others."""


def made_up(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Values that keep the size of what passes through, and let every part show in the logits."""
    x = rng.standard_normal(shape).astype(np.float32)
    last = name.rsplit(".", maxsplit=1)[-1] if name.endswith((".weight", ".bias", ".scale")) else name
    if name.endswith("norm.weight"):
        return 1 + x / 4
    if "ssm_a" in name and last != "weight":
        return -np.exp(x / 2)
    if "conv" in name and len(shape) == 2 and "proj" not in name:
        return x / np.float32(np.sqrt(shape[1]))
    if "exp_probs_b" in name:
        return x / 4
    if last == "scale" or "output_scale" in name or "rope_f" in name:
        return np.exp(x if "exps" in name else x / 4)
    if len(shape) >= 2 and "token_embd" not in name:
        return x * np.float32(1.6 / np.sqrt(shape[-1]))
    return x / 2 if last == "bias" else x


def add_vocabulary(writer: GGUFWriter) -> None:
    """Byte tokens, pairs of letters, and control tokens: one that every loader takes."""
    printable = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    tokens = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]
    pairs = [(a, b) for a in "etaoinsr" for b in "hndreals"][: N_VOCAB - len(tokens) - 2]
    tokens += [a + b for a, b in pairs]
    tokens += ["<|endoftext|>", "<|im_end|>"]
    assert len(set(tokens)) == N_VOCAB
    writer.add("tokenizer.ggml.model", "gpt2")
    writer.add("tokenizer.ggml.pre", "qwen2")
    writer.add("tokenizer.ggml.tokens", tokens)
    writer.add("tokenizer.ggml.token_type", [1] * (N_VOCAB - 2) + [3, 3])
    writer.add("tokenizer.ggml.merges", [f"{a} {b}" for a, b in pairs])
    for which, token in (("bos", N_VOCAB - 2), ("eos", N_VOCAB - 1)):
        writer.add(f"tokenizer.ggml.{which}_token_id", token, ValueType.UINT32)
    writer.add("tokenizer.ggml.add_bos_token", False)


def hollow(case: Case) -> Case:
    """The case with zeros in its matrices, for files that are refused or only defined: they are written faster."""
    zeros = {name: np.zeros(shape, np.float32) for name, shape in case.shapes.items() if len(shape) > 1}
    return replace(case, given={**zeros, **case.given})


def write_case(
    path: Path, case: Case, weights: GGMLType = GGMLType.F32, formats_by_part: Mapping[str, GGMLType] | None = None
) -> Made:
    """Make the tensors up and write the file.

    weights: the format of every matrix whose rows it can hold. formats_by_part: other formats for tensors with a part
    of their names.
    """
    writer = GGUFWriter(path)
    writer.add("general.architecture", case.architecture)
    for key, value in case.keys.items():
        whole = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 32
        writer.add(f"{case.architecture}.{key}", value, ValueType.UINT32 if whole else None)
    for key, value in case.bare.items():
        writer.add(key, value)
    add_vocabulary(writer)
    if "token_types.weight" in case.shapes:
        writer.add("tokenizer.ggml.token_type_count", case.shapes["token_types.weight"][0], ValueType.UINT32)
    formats = {}

    def format_of(name: str, shape: tuple[int, ...]) -> GGMLType:
        if "tid2eid" in name:
            formats[name] = GGMLType.I32
            return GGMLType.I32
        free = len(shape) > 1 and name.endswith(".weight") and not any(part in name for part in FLOAT_PARTS)
        wanted = next((kind for part, kind in (formats_by_part or {}).items() if part in name), weights)
        formats[name] = wanted if free and shape[-1] % wanted.block_size == 0 else GGMLType.F32
        return formats[name]

    def values_of(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        if name in case.given:
            return np.resize(np.array(case.given[name], np.float32), shape)
        size = next((size for part, size in case.sizes.items() if part in name), 1.0)
        return made_up(name, shape, rng) * np.float32(size)

    tensors = add_tensors(writer, case.shapes, format_of, np.random.default_rng(case.seed), values_of)
    writer.write()
    return Made(case, path, tensors, formats)
