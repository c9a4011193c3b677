"""A tiny random my-model computes what its formulas say, and the processor's kernels give the reference's bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from zinc_rt import Engine, Options
from zinc_rt.engine.engine import SequenceChunk
from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter, ValueType
from zinc_rt.models import define

LAYERS, EMBD, FF, HEADS, KV_HEADS, HEAD, VOCAB, EPS, BASE = 2, 64, 96, 4, 2, 24, 61, 1e-5, 1e4
NAME = "my-model"
TOKENS = [3, 14, 15, 9, 26, 5, 35, 8, 60]


def shapes() -> dict[str, tuple[int, ...]]:
    """The tensors of a file."""
    q, kv = HEADS * HEAD, KV_HEADS * HEAD
    found = {"token_embd.weight": (VOCAB, EMBD), "output_norm.weight": (EMBD,), "output.weight": (VOCAB, EMBD)}
    matrices = {"attn_q": (q, EMBD), "attn_k": (kv, EMBD), "attn_v": (kv, EMBD), "attn_output": (EMBD, q)}
    matrices |= {"ffn_gate": (FF, EMBD), "ffn_up": (FF, EMBD), "ffn_down": (EMBD, FF)}
    matrices |= {"attn_norm": (EMBD,), "post_attention_norm": (EMBD,)}
    for layer in range(LAYERS):
        found |= {f"blk.{layer}.{name}.weight": shape for name, shape in matrices.items()}
        found |= {f"blk.{layer}.attn_{x}.bias": matrices[f"attn_{x}"][:1] for x in "qkv"}
    return found


def written(path: Path) -> dict[str, np.ndarray]:
    """Write a file of random float32 tensors, and return these."""
    rng, writer = np.random.default_rng(1), GGUFWriter(path)
    writer.add("general.architecture", NAME)
    keys = {"block_count": LAYERS, "context_length": 512, "embedding_length": EMBD, "feed_forward_length": FF}
    heads = {"head_count": HEADS, "head_count_kv": KV_HEADS, "key_length": HEAD, "value_length": HEAD}
    for key, number in (keys | {f"attention.{key}": n for key, n in heads.items()}).items():
        writer.add(f"{NAME}.{key}", number, ValueType.UINT32)
    writer.add(f"{NAME}.attention.layer_norm_rms_epsilon", EPS)
    writer.add(f"{NAME}.rope.freq_base", BASE)
    tensors = {}
    for name, shape in shapes().items():
        size = 0.5 if len(shape) == 1 else shape[-1] ** -0.5
        tensors[name] = (size * rng.standard_normal(shape) + name.endswith("norm.weight")).astype(np.float32)
        writer.add_tensor(name, tensors[name].view(np.uint8).reshape(-1, 4 * shape[-1]), GGMLType.F32, shape)
    writer.write()
    return tensors


def rms(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * weight


def turned(x: np.ndarray) -> np.ndarray:
    """x: f64[n, heads, HEAD], row i at position i; element j and element j + HEAD / 2 are a pair."""
    angles = np.arange(len(x))[:, None, None] * BASE ** (-np.arange(0, HEAD, 2) / HEAD)
    pairs = (x[..., : HEAD // 2] + 1j * x[..., HEAD // 2 :]) * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


def formulas(tensors: dict[str, np.ndarray]) -> np.ndarray:
    """The logits after each token, in float64."""
    t = {name: values.astype(np.float64) for name, values in tensors.items()}
    n = len(TOKENS)
    x = t["token_embd.weight"][TOKENS]
    for layer in range(LAYERS):
        w = {name.removeprefix(f"blk.{layer}."): v for name, v in t.items() if name.startswith(f"blk.{layer}.")}
        h = rms(x, w["attn_norm.weight"])
        q, k, v = ((h @ w[f"attn_{i}.weight"].T + w[f"attn_{i}.bias"]).reshape(n, -1, HEAD) for i in "qkv")
        q, k = turned(q), turned(k)
        k, v = (
            np.repeat(np.float64(np.float16(i)), HEADS // KV_HEADS, axis=1) for i in (k, v)
        )  # as the cache has them
        scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(HEAD)
        e = np.exp(np.where(np.tri(n, dtype=bool), scores, -np.inf))
        seen = np.einsum("hqk,khd->qhd", e / e.sum(-1, keepdims=True), v)
        x = x + seen.reshape(n, -1) @ w["attn_output.weight"].T
        h = rms(x, w["post_attention_norm.weight"])
        gate = h @ w["ffn_gate.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * (h @ w["ffn_up.weight"].T)) @ w["ffn_down.weight"].T
    return rms(x, t["output_norm.weight"]) @ t["output.weight"].T


def logits(path: Path, kernels: str) -> np.ndarray:
    """The logits after each token, with these kernels."""
    with GGUFFile.open(path) as file, Engine(Options(n_ctx=64, kernels=kernels)) as engine:
        engine.load(file, define(file))
        chunk = SequenceChunk(engine.open_sequence(), 0, TOKENS, logits_indices=range(len(TOKENS)))
        return engine.step([chunk]).logits.copy()


def test_it_computes_what_its_formulas_say(tmp_path: Path) -> None:
    want = formulas(written(tmp_path / "m.gguf"))
    got = logits(tmp_path / "m.gguf", "reference")
    assert np.abs(got - want).max() < 2e-3  # a key may round to the next float16
    assert want.std() > 0.3
    np.testing.assert_array_equal(logits(tmp_path / "m.gguf", "native"), got)
