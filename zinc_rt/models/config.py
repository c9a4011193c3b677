"""What architecture files read from metadata: the figures that all have, the heads, and a dense decoder's record."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.definition import ModelInfo
from zinc_rt.models.errors import InvalidKey, MissingWeight, UnsupportedFeature
from zinc_rt.models.keys import Keys
from zinc_rt.models.rope_config import RopeConfig


def read_info(file: GGUFFile, keys: Keys) -> ModelInfo:
    """The figures of every model; the vocabulary is as large as `token_embd.weight`.

    Raises `MissingModelKey`, `InvalidKey`, `MissingWeight`.
    """
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise MissingWeight(f"tensor token_embd.weight is missing, which architecture {keys.architecture!r} needs")
    return ModelInfo(
        architecture=keys.architecture,
        n_layers=keys.integer("block_count", most=4096),
        n_embd=keys.integer("embedding_length"),
        n_vocab=embedding.shape[0],
        n_ctx_train=keys.integer("context_length", most=1 << 31),
    )


@dataclass(frozen=True)
class HeadSizes:
    """The heads of an attention layer: query heads, key and value heads, elements of each."""

    n_heads: int
    n_kv_heads: int
    head_dim: int

    @classmethod
    def from_keys(cls, keys: Keys, n_embd: int) -> HeadSizes:
        """Read `attention.*`. Raises `MissingModelKey`, `InvalidKey`, `UnsupportedFeature`."""
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
        value_dim = keys.integer("attention.value_length", head_dim)
        if value_dim != head_dim:
            raise UnsupportedFeature(
                f"{keys.name('attention.value_length')} {value_dim} differs from the key length {head_dim}"
            )
        return cls(n_heads, n_kv_heads, head_dim)

    @property
    def q_width(self) -> int:
        """Elements of all query heads of a row."""
        return self.n_heads * self.head_dim

    @property
    def kv_width(self) -> int:
        """Elements of all key (or value) heads of a row."""
        return self.n_kv_heads * self.head_dim


@dataclass(frozen=True)
class DenseInfo(ModelInfo):
    """Sizes of a dense decoder whose layers are all alike."""

    n_ff: int
    heads: HeadSizes
    rms_eps: float
    rope: RopeConfig

    @classmethod
    def from_file(cls, file: GGUFFile, architecture: str, *, interleaved_rope: bool) -> DenseInfo:
        """Raises `MissingModelKey`, `InvalidKey`, `MissingWeight`, `UnsupportedFeature`."""
        keys = Keys(file.metadata, architecture)
        if keys.has("expert_count") and keys.integer("expert_count", least=0):
            raise UnsupportedFeature(
                f"{keys.name('expert_count')} is set: mixture-of-experts {architecture} models are not supported"
            )
        info = read_info(file, keys)
        heads = HeadSizes.from_keys(keys, info.n_embd)
        return cls(
            **vars(info),
            n_ff=keys.integer("feed_forward_length"),
            heads=heads,
            rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
            rope=RopeConfig.from_keys(keys, heads.head_dim, info.n_ctx_train, interleaved=interleaved_rope),
        )
