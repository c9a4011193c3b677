"""Reads metadata for architecture files: the figures that all have, the heads, and a dense decoder's record."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Final

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.definition import ModelInfo
from zinc_rt.models.errors import ModelError
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

MAX_TAPS: Final = 16
"""Taps of a convolution: kernels are compiled for their number."""


class NormKind(enum.StrEnum):
    """What norms of rows compute."""

    RMS = "rms"
    LAYER = "layer"  # weights and biases
    LAYER_WITHOUT_BIAS = "layer without bias"

    @property
    def eps_key(self) -> str:
        """The key of what is added to the mean square or to the variance."""
        return f"attention.layer_norm_{'rms_' if self is NormKind.RMS else ''}epsilon"


def read_info(file: GGUFFile, keys: Keys) -> ModelInfo:
    """The figures of every model; the vocabulary is as large as `token_embd.weight`.

    Raises `ModelError` beyond `MAX_VOCAB`.
    """
    embedding = file.tensors.get("token_embd.weight")
    if embedding is None:
        raise ModelError(f"tensor token_embd.weight is missing, which architecture {keys.architecture!r} needs")
    n_vocab = embedding.shape[0]
    if n_vocab > MAX_VOCAB:
        raise ModelError(
            f"vocabularies of {n_vocab} tokens (rows of token_embd.weight) are not supported; at most {MAX_VOCAB} are"
        )
    return ModelInfo(
        architecture=keys.architecture,
        n_layers=keys.integer("block_count", maximum=4096),
        n_embd=keys.integer("embedding_length"),
        n_vocab=n_vocab,
        n_ctx_train=keys.integer("context_length", maximum=1 << 31),
    )


@dataclass(frozen=True)
class HeadSizes:
    """The heads of an attention layer: query heads, key and value heads, elements of each.

    head_dim: of queries and keys. value_dim: of values and outputs; 0 stands for as many.

    Raises what `check_heads` raises, so the limits hold for every family, wherever it reads the numbers.
    """

    n_heads: int
    n_kv_heads: int
    head_dim: int
    value_dim: int = 0

    def __post_init__(self) -> None:
        check_heads(self.n_heads, self.n_kv_heads, self.head_dim, "n_heads", "n_kv_heads", "head_dim")
        object.__setattr__(self, "value_dim", self.value_dim or self.head_dim)
        check_heads(self.n_heads, self.n_kv_heads, self.value_dim, "n_heads", "n_kv_heads", "value_dim")

    @classmethod
    def of_hybrid(cls, keys: Keys, n_embd: int, n_layers: int) -> tuple[HeadSizes | None, ...]:
        """Those of each layer; None where `attention.head_count_kv` is 0. Raises `ModelError`."""
        kv_heads = keys.integers("attention.head_count_kv", n_layers, minimum=0)
        made = {n: cls.from_keys(keys, n_embd, n) for n in sorted(set(kv_heads) - {0})}
        return tuple(made.get(n) for n in kv_heads)

    @classmethod
    def from_keys(cls, keys: Keys, n_embd: int, n_kv_heads: int | None = None) -> HeadSizes:
        """Read `attention.*`. n_kv_heads: None for what the file says of all layers. Raises `ModelError`."""
        n_heads = keys.integer("attention.head_count")
        if n_kv_heads is None:
            n_kv_heads = keys.integer("attention.head_count_kv", n_heads)
        size = "attention.key_length" if keys.has("attention.key_length") else "embedding_length"
        if size == "embedding_length" and n_embd % n_heads:
            raise ModelError(f"{keys.name(size)} {n_embd} is not a multiple of the {n_heads} heads")
        head_dim = keys.integer("attention.key_length", max(1, n_embd // n_heads))
        heads, kv_heads = keys.name("attention.head_count"), keys.name("attention.head_count_kv")
        check_heads(n_heads, n_kv_heads, head_dim, heads, kv_heads, keys.name(size))
        value_dim = keys.integer("attention.value_length", head_dim)
        check_heads(n_heads, n_kv_heads, value_dim, heads, kv_heads, keys.name("attention.value_length"))
        return cls(n_heads, n_kv_heads, head_dim, value_dim)

    @classmethod
    def of_layers(cls, keys: Keys, n_embd: int, n_layers: int) -> tuple[HeadSizes, ...]:
        """As `from_keys`, of each layer; there may be other numbers of heads in each. Raises `ModelError`."""
        counts = ("attention.head_count", "attention.head_count_kv")
        if not any(keys.is_list(key) for key in counts):
            return (cls.from_keys(keys, n_embd),) * n_layers
        n_heads = keys.integers(counts[0], n_layers)
        n_kv_heads = keys.integers(counts[1], n_layers) if keys.has(counts[1]) else n_heads
        head_dim = keys.integer("attention.key_length")
        value_dim = keys.integer("attention.value_length", head_dim)
        return tuple(cls(*each, head_dim, value_dim) for each in zip(n_heads, n_kv_heads, strict=True))

    @property
    def q_width(self) -> int:
        """Elements of all query heads of a row."""
        return self.n_heads * self.head_dim

    @property
    def k_width(self) -> int:
        """Elements of all key heads of a row."""
        return self.n_kv_heads * self.head_dim

    @property
    def v_width(self) -> int:
        """Elements of all value heads of a row."""
        return self.n_kv_heads * self.value_dim

    @property
    def out_width(self) -> int:
        """Elements of a row of the attention's output."""
        return self.n_heads * self.value_dim


def check_heads(n_heads: int, n_kv_heads: int, head_dim: int, heads: str, kv_heads: str, size: str) -> None:
    """Check sizes of heads; the last three arguments say where the numbers come from.

    Raises `ModelError` for query heads that key-value heads cannot share evenly, and for heads that
    kernels would take too long to compile for.
    """
    if n_heads % n_kv_heads:
        raise ModelError(f"{heads} {n_heads} must be a multiple of {kv_heads} {n_kv_heads}")
    if head_dim > MAX_HEAD_DIM:
        raise ModelError(f"heads of {head_dim} elements ({size}) are not supported; at most {MAX_HEAD_DIM} are")
    group = n_heads // n_kv_heads
    if group > MAX_GROUP:
        raise ModelError(
            f"{group} query heads to a key-value head ({heads} / {kv_heads}) are not supported; at most {MAX_GROUP} are"
        )


@dataclass(frozen=True)
class DenseInfo(ModelInfo):
    """Sizes of a dense decoder whose layers are all alike. eps: what norms add. attention_scale: of the scores, None
    for the usual.
    """

    n_ff: int
    heads: HeadSizes
    eps: float
    rope: RopeConfig
    attention_scale: float | None

    @classmethod
    def from_file(
        cls, file: GGUFFile, architecture: str, *, interleaved_rope: bool, experts: bool = False,
        longrope: bool = False, norms: NormKind = NormKind.RMS,
    ) -> DenseInfo:  # fmt: skip
        """Read the keys. experts: whether files may have some, of `n_ff` elements each. longrope: see `RopeConfig`.
        norms: of which kind they are.

        Raises `ModelError`.
        """
        keys = Keys(file.metadata, architecture)
        if not experts and keys.has("expert_count") and keys.integer("expert_count", minimum=0):
            raise ModelError(
                f"{keys.name('expert_count')} is set: mixture-of-experts {architecture} models are not supported"
            )
        info = read_info(file, keys)
        heads = HeadSizes.from_keys(keys, info.n_embd)
        return cls(
            **vars(info),
            n_ff=keys.integer("feed_forward_length"),
            heads=heads,
            eps=keys.number(norms.eps_key),
            rope=RopeConfig.from_keys(
                keys, heads.head_dim, info.n_ctx_train, interleaved=interleaved_rope, longrope=longrope
            ),
            attention_scale=keys.number("attention.scale", 0.0) or None,
        )
