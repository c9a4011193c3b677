"""Which tensor of a file gets which format, before anything is computed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Final

import numpy as np

from zinc_rt.errors import UsageError
from zinc_rt.gguf.tensors import TensorInfo
from zinc_rt.gguf.types import GGMLType, unsupported
from zinc_rt.quantizing.errors import QuantizeError
from zinc_rt.quantizing.presets import FALLBACKS, Preset, format_of
from zinc_rt.quantizing.rows import PLAIN
from zinc_rt.quantizing.source import Source
from zinc_rt.utils.checks import show

SMALLEST: Final = 32
"""Elements of the smallest block: rows of another multiple stay as they are."""
_LAYER: Final = re.compile(r"(?:[a-z]+\.)?blk\.(\d+)\.(.+)")
_KEPT: Final = {
    "ffn_gate_inp": "a router, in which a small error chooses other experts",
    "ffn_gate_tid2eid": "a table of experts",
    **dict.fromkeys(("hc_attn_fn", "hc_ffn_fn", "output_hc_fn"), "small, and all streams hang on it"),
    **dict.fromkeys(("attn_compressor_ape", "indexer_compressor_ape"), "a table of few rows"),
    "ssm_conv1d": "taps of a convolution",
    "shortconv.conv": "taps of a convolution",
    "token_types": "a table of few rows",
    "position_embd": "a table of positions",
}
"""Matrices that stay as they are, by role: small, and read as floats."""


@dataclass(frozen=True)
class Keep:
    """A format that the caller wants for the tensors whose name fits a pattern, as `blk.*.attn_v.weight`."""

    pattern: str
    type: GGMLType


@dataclass(frozen=True)
class Choice:
    """The new format of a tensor. note: why it is treated in another way than most tensors; empty for most."""

    tensor: TensorInfo
    type: GGMLType
    note: str = ""

    @property
    def copied(self) -> bool:
        """Whether its bytes stay as they are."""
        return self.type is self.tensor.type

    @property
    def kind(self) -> str:
        """What it is, the same in all layers: `attn_v`."""
        return role_of(self.tensor.name)[1]

    @property
    def nbytes(self) -> int:
        """Bytes that it will take."""
        return self.tensor.n_rows * self.type.row_bytes(self.tensor.shape[-1] if self.tensor.shape else 1)


def role_of(name: str) -> tuple[int, str]:
    """The layer, or -1, and what the tensor is there: `blk.3.attn_v.weight` is (3, "attn_v")."""
    found = _LAYER.fullmatch(name)
    layer, rest = (int(found[1]), found[2]) if found else (-1, name)
    return layer, rest.removesuffix(".weight")


def left_as_it_is(name: str, shape: Sequence[int]) -> str:
    """Why a tensor is never quantised; empty where it may be."""
    role = role_of(name)[1]
    if len(shape) < 2 or not name.endswith(".weight"):
        return "a vector" if len(shape) < 2 else "no weights of a product"
    if role.endswith("_norm"):
        return "a norm"
    return next((why for part, why in _KEPT.items() if role.startswith(part)), "")


class Planner:
    """Chooses formats for the tensors of a file. Raises `UnsupportedTensorType` and `QuantizeError` as it goes."""

    def __init__(
        self,
        file: Source,
        preset: Preset,
        keeps: Sequence[Keep] = (),
        *,
        requantize: bool = False,
        leave_blocks: bool = False,
    ) -> None:
        """requantize: whether tensors that are quantised already may lose once more. leave_blocks: whether they stay as
        they are instead.
        """
        self._file, self._preset, self._keeps, self._requantize = file, preset, keeps, requantize
        self._leave_blocks = leave_blocks
        self._tied = "output.weight" not in file.tensors

    def choices(self) -> list[Choice]:
        """A choice for each tensor, in the order of the file.

        Raises `QuantizeError` for a pattern that fits no matrix, a format that does not fit a tensor's rows, and a
        tensor that would be quantised again.
        """
        made = [self._choose(tensor) for tensor in self._file.tensors.values()]
        names = [c.tensor.name for c in made if not left_as_it_is(c.tensor.name, c.tensor.shape)]
        for keep in self._keeps:
            if not any(fnmatchcase(name, keep.pattern) for name in names):
                raise QuantizeError(
                    f"{show(keep.pattern)} fits no matrix of the model that is quantised; `zinc show --tensors` lists"
                    " names, and * stands for any characters"
                )
        for choice in made:
            self._check_source(choice)
        return made

    def _check_source(self, choice: Choice) -> None:
        source = choice.tensor.type
        if choice.copied:
            return
        if not source.supported:
            raise unsupported(source, name=choice.tensor.name, path=self._file.path)
        if source not in PLAIN and not self._requantize:
            raise QuantizeError(
                f"{self._file.path}: tensor {show(choice.tensor.name)} is {source.name}, quantised already, and would"
                " lose once more; start from an F16, BF16, F32 or Q8_0 file, or give --requantize"
            )

    def _choose(self, tensor: TensorInfo) -> Choice:
        if why := left_as_it_is(tensor.name, tensor.shape):
            return Choice(tensor, tensor.type, why)
        if self._leave_blocks and tensor.type.quantized:
            return Choice(tensor, tensor.type, "as it was")
        n = tensor.shape[-1]
        for keep in self._keeps:
            if fnmatchcase(tensor.name, keep.pattern):
                if n % keep.type.block_size:
                    raise QuantizeError(
                        f"tensor {show(tensor.name)} has rows of {n}, no whole number of the {keep.type.block_size} of"
                        f" a {keep.type.name} block"
                    )
                return Choice(tensor, keep.type, "as asked")
        wanted = self._wanted(tensor)
        if n % wanted.block_size == 0:
            return Choice(tensor, wanted)
        if n % SMALLEST or wanted not in FALLBACKS:
            return Choice(tensor, tensor.type, f"rows of {n} are no whole number of blocks")
        return Choice(tensor, FALLBACKS[wanted], f"rows of {n} are no whole number of {wanted.name} blocks")

    def _wanted(self, tensor: TensorInfo) -> GGMLType:
        p = self._preset
        layer, role = role_of(tensor.name)
        if role == "output" or (role == "token_embd" and self._tied):
            return p.head or p.base
        if role == "token_embd":
            return p.table or p.base
        for rule in p.rules:
            fits = role.startswith(rule.role) and rule.layers.holds(layer, self._n_layers)
            if fits and self._shared(layer) >= rule.sharing:
                return rule.type
        return p.base

    @cached_property
    def _n_layers(self) -> int:
        return 1 + max((role_of(name)[0] for name in self._file.tensors), default=-1)

    def _shared(self, layer: int) -> int:
        """Query heads to a key and value head in a layer; 1 where the file does not say it in numbers."""
        queries, shared = (self._number(f"attention.head_count{end}", layer) for end in ("", "_kv"))
        return queries // shared if queries and shared else 1

    def _number(self, key: str, layer: int) -> int:
        value = self._file.metadata.get(f"{self._file.metadata.get('general.architecture')}.{key}")
        if isinstance(value, np.ndarray):
            value = int(value[layer]) if 0 <= layer < len(value) else 0
        return value if type(value) is int else 0


def notes(choices: Sequence[Choice]) -> Iterator[str]:
    """Lines about the matrices that did not get the format of their kind."""
    found: dict[str, list[Choice]] = {}
    for choice in choices:
        if choice.note and len(choice.tensor.shape) > 1:
            found.setdefault(f"{choice.type.name}, {choice.note}", []).append(choice)
    for what, those in found.items():
        kinds = list(dict.fromkeys(choice.kind for choice in those))
        yield f"{', '.join(kinds)}: {what}"


def parse_keep(text: str) -> Keep:
    """`PATTERN=TYPE`. Raises `UsageError` for another form, or an unknown format."""
    pattern, equals, name = text.rpartition("=")
    if not pattern or not equals:
        raise UsageError(f"--keep is {text!r}; it must look like 'blk.*.attn_v.weight=Q8_0'")
    return Keep(pattern, format_of(name))
