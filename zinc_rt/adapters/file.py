"""The file of an adapter: pairs of small matrices, each named after the tensor that it goes with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import numpy.typing as npt

from zinc_rt.adapters.errors import AdapterError
from zinc_rt.gguf import GGUFFile, TensorInfo
from zinc_rt.gguf.blocks import dequantize
from zinc_rt.numerics import GROUP, TREE_LANES
from zinc_rt.utils.checks import show
from zinc_rt.utils.closing import Closing

MAX_RANK: Final = GROUP * TREE_LANES
"""Of a pair: the elements of one tree."""
A, B = ".lora_a", ".lora_b"
_IGNORED: Final = "_norm.weight"
"""The end of tensors that some writers add, which change nothing here; so it is in llama.cpp."""
EMBEDDING: Final = "token_embd.weight"


@dataclass(frozen=True)
class AdapterPair:
    """What is added to the products of one tensor: B (A x). a, b: tensors of the file; their shapes are those of NumPy:
    [rank, n_in] and [n_out, rank], in front of them the experts. Of the embedding, a is [n_vocab, rank].
    """

    tensor: str
    a: TensorInfo
    b: TensorInfo

    @property
    def rank(self) -> int:
        """Elements between the two products."""
        return self.b.shape[-1]


class AdapterFile(Closing):
    """An open file of an adapter.

    Attributes:
        architecture: of the model that it is for.
        name: `general.name`, or the file's name without its ending.
        alpha: the scale times the rank; 0 where the file has none.
        pairs: by the model's tensor.
        task_name, prompt_prefix: texts for callers; empty where the file has none.
        ignored: names of tensors that change nothing.
    """

    def __init__(self, file: GGUFFile) -> None:
        """Check what can be known without the model. Raises `AdapterError`; the file stays the caller's then."""
        self.file = file
        for key, wanted in (("general.type", "adapter"), ("adapter.type", "lora")):
            if (found := file.metadata.get(key)) != wanted:
                raise AdapterError(f"{file.path} has {key} = {show(found)}; an adapter has {wanted!r}")
        self.architecture = _text(file, "general.architecture", required=True)
        self.name = _text(file, "general.name") or Path(file.path).stem
        self.task_name, self.prompt_prefix = (
            _text(file, f"adapter.lora.{key}") for key in ("task_name", "prompt_prefix")
        )
        if "adapter.alora.invocation_tokens" in file.metadata:
            raise AdapterError(
                f"{file.path} has adapter.alora.invocation_tokens: it acts from these tokens of a prompt on (aLoRA),"
                " which is not supported here"
            )
        alpha = file.metadata.get("adapter.lora.alpha", 0.0)
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not np.isfinite(alpha):
            raise AdapterError(f"{file.path} has adapter.lora.alpha = {show(alpha)}, a finite number is needed")
        self.alpha = float(alpha)
        self.ignored = tuple(name for name in file.tensors if name.endswith(_IGNORED))
        self.pairs: Mapping[str, AdapterPair] = self._pairs()

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a file. Raises `AdapterError`, and `GGUFError` where it cannot be read."""
        file = GGUFFile.open(path)
        try:
            return cls(file)
        except BaseException:
            file.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self.file.close()

    @property
    def identity(self) -> bytes:
        """What tells it from other adapters in this process."""
        return self.file.identity

    @property
    def rank(self) -> int:
        """The greatest rank of its pairs."""
        return max(pair.rank for pair in self.pairs.values())

    def factor(self, pair: AdapterPair) -> np.float32:
        """What B (A x) is multiplied by, beside the caller's scale: alpha / rank, 1 without an alpha."""
        return np.float32(self.alpha / pair.rank if self.alpha else 1.0)

    def values(self, tensor: TensorInfo) -> npt.NDArray[np.float32]:
        """The numbers of a tensor, in its shape."""
        return dequantize(tensor.type, self.file.raw(tensor.name)).reshape(tensor.shape)

    def check_fits(self, model: GGUFFile) -> None:
        """Raise `AdapterError` where it is for another model: of another architecture, or with other tensors."""
        path, wanted = self.file.path, model.metadata.get("general.architecture")
        if self.architecture != wanted:
            raise AdapterError(
                f"{path} is an adapter for architecture {show(self.architecture)}, the model is of architecture"
                f" {show(wanted)}"
            )
        for pair in self.pairs.values():
            base = model.tensors.get(pair.tensor)
            if base is None:
                raise AdapterError(
                    f"{path} has {pair.a.name}, but the model has no tensor {pair.tensor}{_fused(pair, model)}"
                )
            _check_shapes(path, pair, base)

    def _pairs(self) -> dict[str, AdapterPair]:
        path, found = self.file.path, dict[str, dict[str, TensorInfo]]()
        for name, tensor in self.file.tensors.items():
            base, suffix = name[: -len(A)], name[-len(A) :]
            if suffix in (A, B) and base:
                if not tensor.type.supported:
                    raise AdapterError(
                        f"{path}: tensor {name} is of type {tensor.type.name}, which is not supported here"
                    )
                found.setdefault(base, {})[suffix] = tensor
            elif name not in self.ignored:
                raise AdapterError(
                    f"{path}: tensor {name} ends in neither {A} nor {B}; only matrices of low rank are known"
                )
        for base, both in found.items():
            for suffix, other in ((A, B), (B, A)):
                if suffix not in both:
                    raise AdapterError(f"{path} has {base}{other} without {base}{suffix}")
            _check_ranks(path, base, both[A], both[B])
        if not found:
            raise AdapterError(f"{path} has no tensors that end in {A} and {B}")
        return {base: AdapterPair(base, both[A], both[B]) for base, both in found.items()}


def is_adapter(file: GGUFFile) -> bool:
    """Whether a file says that it is an adapter."""
    return file.metadata.get("general.type") == "adapter"


def _text(file: GGUFFile, key: str, *, required: bool = False) -> str:
    value: Any = file.metadata.get(key, None if required else "")
    if not isinstance(value, str):
        raise AdapterError(f"{file.path} has {key} = {show(value)}, a text is needed")
    return value


def _check_ranks(path: str, base: str, a: TensorInfo, b: TensorInfo) -> None:
    """The rank is the same in both, and within the limit."""
    if len(a.shape) != len(b.shape) or len(a.shape) not in (2, 3):
        raise AdapterError(
            f"{path}: {a.name} has shape {list(a.shape)} and {b.name} {list(b.shape)}; pairs of matrices are needed"
        )
    rank, other = b.shape[-1], a.shape[-1 if base == EMBEDDING else -2]
    if rank != other:
        raise AdapterError(
            f"{path}: {b.name} of shape {list(b.shape)} has rank {rank}, {a.name} of shape"
            f" {list(a.shape)} has rank {other}"
        )
    if rank > MAX_RANK:
        raise AdapterError(f"{path}: {b.name} has rank {rank}, at most {MAX_RANK} is supported")


def _check_shapes(path: str, pair: AdapterPair, base: TensorInfo) -> None:
    *outer, n_in = base.shape
    *experts, n_out = outer or (1,)
    a: tuple[int, ...] = (*experts, pair.rank, n_in)
    b: tuple[int, ...] = (*experts, n_out, pair.rank)
    if pair.tensor == EMBEDDING:
        a, b = (n_out, pair.rank), (n_in, pair.rank)
    for tensor, wanted in ((pair.a, a), (pair.b, b)):
        if tensor.shape != wanted:
            raise AdapterError(
                f"{path}: tensor {tensor.name} has shape {list(tensor.shape)}; with {base.name} of shape"
                f" {list(base.shape)} it must be {list(wanted)}"
            )


def _fused(pair: AdapterPair, model: GGUFFile) -> str:
    """What the model has in place of a tensor, for the message."""
    for part, whole in (("attn_q", "attn_qkv"), ("attn_k", "attn_qkv"), ("attn_v", "attn_qkv"), ("ffn_gate", "ffn_up")):
        name = pair.tensor.replace(f".{part}.", f".{whole}.")
        if name != pair.tensor and name in model.tensors:
            return f"; it has {name}, which holds several of them: the adapter has to be made for that"
    return ""
