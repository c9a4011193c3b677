"""What a dense transformer is made of, read from metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.errors import InvalidKey, MissingWeight, UnsupportedFeature
from zinc_rt.models.keys import Keys
from zinc_rt.models.rope_config import RopeConfig

# Kernels are compiled for these two, and unrolled over the heads of a group. At both limits the slowest kernel takes
# LLVM about 5 s; 200 heads take 10 s, 1000 heads minutes. Its arrays of head_dim * group float32 are on the stack,
# where one may have 1 MiB (zinc_rt/lang/lower/memory.py). The GPU kernels have lower limits, which they check.
MAX_HEAD_DIM: Final = 1024
"""Elements of a head."""
MAX_GROUP: Final = 128
"""Query heads to a key-value head."""
MAX_VOCAB: Final = 1 << 24
"""Rows of the embedding. Token ids and their places in a step's logits are 32-bit integers."""


@dataclass(frozen=True)
class DenseConfig:
    """Sizes of a dense decoder. `n_ctx_train` is the context the model was made for, in tokens."""

    architecture: str
    n_layers: int
    n_embd: int
    n_ff: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_vocab: int
    n_ctx_train: int
    rms_eps: float
    rope: RopeConfig

    @classmethod
    def from_file(cls, file: GGUFFile, architecture: str, *, interleaved_rope: bool) -> DenseConfig:
        """Raises `MissingKey`, `InvalidKey`, `MissingWeight`, `UnsupportedFeature`."""
        keys = Keys(file.metadata, architecture)
        if keys.has("expert_count") and keys.integer("expert_count", least=0):
            raise UnsupportedFeature(
                f"{keys.name('expert_count')} is set: mixture-of-experts {architecture} models are not supported"
            )
        n_embd = keys.integer("embedding_length")
        n_heads = keys.integer("attention.head_count")
        n_kv_heads = keys.integer("attention.head_count_kv", n_heads)
        if n_heads % n_kv_heads:
            raise InvalidKey(
                f"{keys.name('attention.head_count')} {n_heads} must be a multiple of"
                f" {keys.name('attention.head_count_kv')} {n_kv_heads}"
            )
        if not keys.has("attention.key_length") and n_embd % n_heads:
            raise InvalidKey(f"{keys.name('embedding_length')} {n_embd} is not a multiple of the {n_heads} heads")
        head_dim = keys.integer("attention.key_length", max(1, n_embd // n_heads))
        _check_heads(keys, n_heads // n_kv_heads, head_dim)
        value_dim = keys.integer("attention.value_length", head_dim)
        if value_dim != head_dim:
            raise UnsupportedFeature(
                f"{keys.name('attention.value_length')} {value_dim} differs from the key length {head_dim}"
            )
        n_ctx_train = keys.integer("context_length", most=1 << 31)
        if "token_embd.weight" not in file.tensors:
            raise MissingWeight(f"tensor token_embd.weight is missing, which architecture {architecture!r} needs")
        n_vocab = file.tensors["token_embd.weight"].shape[0]
        if n_vocab > MAX_VOCAB:
            raise UnsupportedFeature(
                f"vocabularies of {n_vocab} tokens (rows of token_embd.weight) are not supported; at most"
                f" {MAX_VOCAB} are"
            )
        return cls(
            architecture=architecture,
            n_layers=keys.integer("block_count", most=4096),
            n_embd=n_embd,
            n_ff=keys.integer("feed_forward_length"),
            n_heads=n_heads,
            n_kv_heads=n_kv_heads,
            head_dim=head_dim,
            n_vocab=n_vocab,
            n_ctx_train=n_ctx_train,
            rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
            rope=RopeConfig.from_keys(keys, head_dim, n_ctx_train, interleaved=interleaved_rope),
        )

    @property
    def q_width(self) -> int:
        """Elements of all query heads of a row."""
        return self.n_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Elements of all key (or value) heads of a row."""
        return self.n_kv_heads * self.head_dim


def _check_heads(keys: Keys, group: int, head_dim: int) -> None:
    """Raises `UnsupportedFeature` for heads that kernels would take too long to compile for."""
    if head_dim > MAX_HEAD_DIM:
        given = "attention.key_length" if keys.has("attention.key_length") else "embedding_length"
        raise UnsupportedFeature(
            f"heads of {head_dim} elements ({keys.name(given)}) are not supported; at most {MAX_HEAD_DIM} are"
        )
    if group > MAX_GROUP:
        raise UnsupportedFeature(
            f"{group} query heads to a key-value head ({keys.name('attention.head_count')} /"
            f" {keys.name('attention.head_count_kv')}) are not supported; at most {MAX_GROUP} are"
        )
