"""Small random models for tests: any of the architectures, any weight format, written with the project's writer.

The float64 values of the weights come from the `gguf` package, not from the code under test.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.gguf.judge import dequantized
from tests.kernels.material import places_of_halves, put_halves
from zinc_rt.engine.engine import Engine, Options, SequenceChunk
from zinc_rt.formats import table
from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter, ValueType
from zinc_rt.models import define

T = GGMLType


def soon(names: Collection[str], cases: Iterable[str]) -> list[Any]:
    """Parameters of a test: these cases by default, the others where slow tests run."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.slow) for name in cases]


WRITTEN = (T.F32, T.F16, T.BF16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.MXFP4)
"""Formats that the `gguf` package writes."""
MADE_UP = {
    T[f.name]: (places_of_halves(T[f.name]), f.integers[1] / 2) for f in table.quantized() if T[f.name] not in WRITTEN
}
"""The others: where the float16 scales of a block lie, and the minimum's share of the scale that centres weights."""


@dataclass(frozen=True)
class Spec:
    """A model to make up. `weights` is the format of all matrices, `formats` names exceptions by part of the name."""

    architecture: str = "llama"
    weights: GGMLType = T.F32
    formats: Mapping[str, GGMLType] = field(default_factory=dict)
    n_layers: int = 2
    n_embd: int = 64
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 16
    n_ff: int = 96
    n_vocab: int = 61
    n_ctx: int = 512
    eps: float = 1e-5
    rope_base: float = 10000.0
    rope_dim: int | None = None
    rope_factors: bool = False
    biases: tuple[str, ...] = ()
    tied: bool = False
    keys: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 2

    @property
    def qk_norm(self) -> bool:
        return self.architecture == "qwen3"

    def metadata(self) -> dict[str, Any]:
        """The keys of the file; `keys` adds to them under the architecture's prefix, or removes with None."""
        values: dict[str, Any] = {
            "context_length": self.n_ctx,
            "embedding_length": self.n_embd,
            "block_count": self.n_layers,
            "feed_forward_length": self.n_ff,
            "attention.head_count": self.n_heads,
            "attention.head_count_kv": self.n_kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": self.eps,
            "rope.freq_base": self.rope_base,
        }
        if self.rope_dim is not None:
            values["rope.dimension_count"] = self.rope_dim
        values.update(self.keys)
        named = {f"{self.architecture}.{k}": v for k, v in values.items() if v is not None}
        return {"general.architecture": self.architecture, **named}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor of the file."""
        q, kv = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        out: dict[str, tuple[int, ...]] = {"token_embd.weight": (self.n_vocab, self.n_embd)}
        for layer in range(self.n_layers):
            p = f"blk.{layer}."
            out |= {
                f"{p}attn_norm.weight": (self.n_embd,),
                f"{p}attn_q.weight": (q, self.n_embd),
                f"{p}attn_k.weight": (kv, self.n_embd),
                f"{p}attn_v.weight": (kv, self.n_embd),
                f"{p}attn_output.weight": (self.n_embd, q),
                f"{p}ffn_norm.weight": (self.n_embd,),
                f"{p}ffn_gate.weight": (self.n_ff, self.n_embd),
                f"{p}ffn_up.weight": (self.n_ff, self.n_embd),
                f"{p}ffn_down.weight": (self.n_embd, self.n_ff),
            }
            out |= {f"{p}{name}.bias": out[f"{p}{name}.weight"][:1] for name in self.biases}
            if self.qk_norm:
                out |= {f"{p}attn_q_norm.weight": (self.head_dim,), f"{p}attn_k_norm.weight": (self.head_dim,)}
        out["output_norm.weight"] = (self.n_embd,)
        if not self.tied:
            out["output.weight"] = (self.n_vocab, self.n_embd)
        if self.rope_factors:
            out["rope_freqs.weight"] = ((self.rope_dim or self.head_dim) // 2,)
        return out

    def format_of(self, name: str, shape: tuple[int, ...]) -> GGMLType:
        if len(shape) == 1:
            return T.F32
        return next((t for part, t in self.formats.items() if part in name), self.weights)


QKV = ("attn_q", "attn_k", "attn_v")
QWEN2 = Spec("qwen2", biases=QKV)
QWEN3 = Spec("qwen3", head_dim=24)  # heads wider than n_embd / n_heads, as the real ones are
LLAMA = Spec("llama")


def packed(kind: GGMLType, values: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """u8[n_rows, row_bytes]: `values` in the format; random blocks of that spread where `gguf` cannot write them."""
    if kind is T.I32:
        return values.astype("<i4").view(np.uint8)
    if kind not in MADE_UP:
        return gguf.quants.quantize(values, gguf.GGMLQuantizationType(int(kind))).view(np.uint8)
    places, centre = MADE_UP[kind]
    raw = rng.integers(0, 256, (len(values), values.shape[1] // kind.block_size, kind.block_bytes), np.uint8)

    def set_scales(size: float) -> np.ndarray:
        if kind is T.NVFP4:  # an exponent of bias 8 and three bits: near enough to eight times the logarithm
            numbers = 8 * (np.log2(size * rng.uniform(0.9, 1.1, (*raw.shape[:2], 4))) + 8)
            raw[:, :, :4] = np.clip(numbers, 1, 0x7E)
        for at, share in zip(places, (1.0, centre), strict=False):
            put_halves(kind, raw, at, size * share * rng.uniform(0.9, 1.1, raw.shape[:2]))
        return raw.reshape(len(values), -1)

    spread = dequantized(kind, set_scales(1.0)).std()
    return set_scales(float(values.std() / spread))


@dataclass(frozen=True)
class Tiny:
    """A written model: where it is, and its weights as float64."""

    spec: Spec
    path: Path
    tensors: dict[str, np.ndarray]


def drawn(name: str, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Random values of a tensor, f32. Matrices keep the size of what passes through them."""
    values = rng.standard_normal(shape).astype(np.float32)
    if len(shape) == 2:
        values *= np.float32(1.0 if name == "token_embd.weight" else 1.6 / np.sqrt(shape[1]))
    elif name.endswith("norm.weight"):
        values = 1 + values / 4
    elif name == "rope_freqs.weight":
        values = np.exp(np.abs(values))
    return values


def add_tensors(
    writer: GGUFWriter,
    shapes: Mapping[str, tuple[int, ...]],
    format_of: Callable[[str, tuple[int, ...]], GGMLType],
    rng: np.random.Generator,
    values_of: Callable[[str, tuple[int, ...], np.random.Generator], np.ndarray] = drawn,
) -> dict[str, np.ndarray]:
    """Make the tensors up and write them; the values that the file holds, f64."""
    tensors = {}
    for name, shape in shapes.items():
        kind = format_of(name, shape)
        values = values_of(name, shape, rng)
        raw = packed(kind, values.reshape(-1, shape[-1]), rng)
        writer.add_tensor(name, raw, kind, shape)
        wide = values if kind is T.I32 else dequantized(kind, raw)
        tensors[name] = wide.reshape(shape).astype(np.float64)
    return tensors


def write_model(path: Path, spec: Spec) -> Tiny:
    """Make the tensors up and write the file."""
    rng = np.random.default_rng(spec.seed)
    writer = GGUFWriter(path)
    for key, value in spec.metadata().items():
        kind = ValueType.UINT32 if isinstance(value, int) and not isinstance(value, bool) else None
        writer.add(key, value, kind)
    tensors = add_tensors(writer, spec.shapes(), spec.format_of, rng)
    writer.write()
    return Tiny(spec, path, tensors)


@contextmanager
def engine_for(path: Path, linux: Any = None, **options: Any) -> Iterator[Engine]:
    """An engine with the model on it. linux: the emulated process that it runs in, None for the real one."""
    with GGUFFile.open(path) as file, Engine(replace(Options(n_ctx=320), **options), linux=linux) as engine:
        engine.load(file, define(file))
        yield engine


def run_tokens(engine: Engine, slot: int, tokens: list[int], chunk: int, start: int = 0) -> np.ndarray:
    """Logits after each token, f32[n, n_vocab]; tokens[0] stands at position `start`."""
    out = []
    for i in range(0, len(tokens), chunk):
        part = tokens[i : i + chunk]
        out.append(engine.step([SequenceChunk(slot, start + i, part, logits_indices=range(len(part)))]).logits.copy())
    return np.concatenate(out)


def logits_of(path: Path, tokens: list[int], **options: Any) -> np.ndarray:
    """Logits after each token of one sequence, in one step."""
    with engine_for(path, n_batch=len(tokens), **options) as engine:
        return run_tokens(engine, engine.open_sequence(), tokens, len(tokens))


def random_tokens(seed: int, n: int, n_vocab: int) -> list[int]:
    return [int(t) for t in np.random.default_rng(seed).integers(0, n_vocab, n)]
