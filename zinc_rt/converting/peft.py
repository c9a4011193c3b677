"""A PEFT folder as a GGUF adapter: pairs of matrices under the names of the model's new tensors.

What conversion changes in a matrix of the model it changes in the pair: another order of outputs or a part of them in
B's rows, another order of inputs in A's columns; both parts of a matrix that is divided have the same A.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.adapters.file import EMBEDDING, MAX_RANK, A, B
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.families import Family, NamedConfig, family_of
from zinc_rt.converting.keys import heads_of
from zinc_rt.converting.rules import HeadCounts, How, TensorRule, becomes, outputs_of
from zinc_rt.converting.safetensors import FLOATS, Stored, open_safetensors
from zinc_rt.gguf import GGMLType, GGUFWriter, ValueType
from zinc_rt.gguf.blocks import dequantize
from zinc_rt.gguf.quantize import quantize
from zinc_rt.utils.checks import printable, show

CONFIG: Final = "adapter_config.json"
WEIGHTS: Final = "adapter_model.safetensors"
F32 = npt.NDArray[np.float32]
_PREFIX: Final = "base_model.model."
_PART: Final = re.compile(r"(.+)\.lora_(embedding_)?([AB])(?:\.[^.]+)?(?:\.weight)?$")
_LARGEST_JSON: Final = 16 << 20
_ALONE: Final = -1
"""Of what is no expert's."""


@dataclass(frozen=True)
class NewPair:
    """A pair of the new file: f32[..., rank, n_in] and f32[..., n_out, rank]; type: what it is stored as."""

    tensor: str
    a: F32
    b: F32
    type: GGMLType


def is_peft(folder: Path) -> bool:
    """Whether a folder holds an adapter, and no model."""
    return (folder / CONFIG).is_file() and not any(folder.glob("model*.safetensors"))


class PeftAdapter:
    """The adapter of a folder.

    Args:
        folder: with adapter_config.json and adapter_model.safetensors.
        base: the model's folder, or its config.json; None for the one that adapter_config.json names, or this folder.

    Attributes:
        architecture: `general.architecture` of the model.
        alpha: for the new file.
        pairs: in the order of the new file.

    Raises:
        ConvertError: a file is missing or damaged, or the adapter is of a kind that GGUF has not got.
    """

    def __init__(self, folder: Path, base: Path | None = None) -> None:
        self.folder, self.shown = folder, printable(str(folder))
        self.config = _json(folder / CONFIG)
        self._check_kind()
        family, config = family_of(_base_config(folder, base, self.config.get("base_model_name_or_path")))
        self.architecture, self._heads = family.name, heads_of(config)
        source, tensors = open_safetensors(folder / WEIGHTS)
        try:
            self.alpha, self.pairs = self._read(family, tensors)
        finally:
            source.close()

    def _check_kind(self) -> None:
        """Refuse what a GGUF adapter cannot hold."""
        c = self.config
        if (kind := c.get("peft_type")) != "LORA":
            raise ConvertError(f"{self.shown}/{CONFIG} has peft_type = {show(kind)}; converted is LORA")
        asks = {
            "use_dora": bool(c.get("use_dora")),
            "modules_to_save": bool(c.get("modules_to_save")),
            "bias": c.get("bias", "none") != "none",
            "fan_in_fan_out": bool(c.get("fan_in_fan_out")),
            "alora_invocation_tokens": bool(c.get("alora_invocation_tokens")),
            "target_parameters": bool(c.get("target_parameters")),
        }
        for key, asked in asks.items():
            if asked:
                raise ConvertError(f"{self.shown}/{CONFIG} has {key} = {show(c[key])}, which is not converted")

    def _read(self, family: Family, tensors: Mapping[str, Stored]) -> tuple[float, list[NewPair]]:
        """alpha and the pairs. Where the scale of a pair is not alpha / rank, its B has the rest of it."""
        found: dict[str, dict[str, Stored]] = {}
        for name, tensor in tensors.items():
            part = _PART.fullmatch(name)
            if part is None:
                raise ConvertError(
                    f"{self.shown}: tensor {show(name)} is none of lora_A and lora_B; it is not converted"
                )
            found.setdefault(part[1], {})[part[3]] = tensor
        made: dict[str, dict[int, tuple[str, F32, F32, GGMLType, float]]] = {}
        for module, both in found.items():
            a, b, kind = self._both(module, both)
            new, rank = self._placed(family, module, a, b), len(a)
            for becomes_part_of, expert, down, up in new:
                made.setdefault(becomes_part_of, {})[expert] = module, down, up, kind, self._scale(module, rank) * rank
        if not made:
            raise ConvertError(f"{self.shown}/{WEIGHTS} has no tensors")
        alpha = next(iter(next(iter(made.values())).values()))[4]
        return alpha, [self._pair(tensor, parts, alpha) for tensor, parts in made.items()]

    def _both(self, module: str, both: Mapping[str, Stored]) -> tuple[F32, F32, GGMLType]:
        """A f32[rank, n_in] and B f32[n_out, rank] of a module."""
        for part in "AB":
            if part not in both:
                raise ConvertError(f"{self.shown}: {show(module)} has no lora_{part}")
        a, b = (_values(self.shown, both[part]) for part in "AB")
        if a.ndim != 2 or b.ndim != 2 or len(a) != b.shape[1] or not 1 <= len(a) <= MAX_RANK:
            raise ConvertError(
                f"{self.shown}: {show(module)} has lora_A of shape {list(a.shape)} and lora_B of shape {list(b.shape)};"
                f" [rank, n_in] and [n_out, rank] are needed, a rank up to {MAX_RANK}"
            )
        kinds = {FLOATS[tensor.dtype] for tensor in both.values()}
        return a, b, kinds.pop() if len(kinds) == 1 else GGMLType.F32

    def _scale(self, module: str, rank: int) -> float:
        """What PEFT multiplies B (A x) by."""
        c, alpha = self.config, self.config.get("lora_alpha", 8)
        for pattern, value in dict(c.get("alpha_pattern") or {}).items():
            if re.search(rf"(?:^|\.){pattern}$", module.removeprefix(_PREFIX)):
                alpha = value
                break
        if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < abs(alpha) < math.inf:
            raise ConvertError(f"{self.shown}/{CONFIG} has lora_alpha = {show(alpha)}, a number beside 0 is needed")
        return alpha / (math.sqrt(rank) if c.get("use_rslora") else rank)

    def _placed(self, family: Family, module: str, a: F32, b: F32) -> Sequence[tuple[str, int, F32, F32]]:
        """The new tensors that a module becomes a part of: name, expert or `_ALONE`, A, B."""
        found = []
        for name, rule, expert in becomes(f"{module.removeprefix(_PREFIX)}.weight", family.rules):
            if name == EMBEDDING:
                found.append((name, _ALONE, np.ascontiguousarray(a.T), b))
            else:
                found.append((name, expert, *self._changed(module, rule, self._heads, a, b)))
        return found

    def _changed(self, module: str, rule: TensorRule, heads: HeadCounts, a: F32, b: F32) -> tuple[F32, F32]:
        """A and B after what conversion does to the matrix."""
        if rule.columns or rule.factors or rule.mode in (How.PLUS_ONE, How.NEGATIVE_EXP, How.DECAYS):
            raise ConvertError(f"{self.shown}: {show(module)} is no matrix of its own, which is not converted")
        if rule.mode in (How.COPY, How.FLAT):
            return a, b
        inputs = rule.mode is How.INPUTS
        chosen = outputs_of(rule.mode, a.shape[1] if inputs else len(b), heads)
        if chosen is None:
            raise ConvertError(f"{self.shown}: {show(module)} of {len(b)} outputs does not fit the model's heads")
        return (np.ascontiguousarray(a[:, chosen]), b) if inputs else (a, np.ascontiguousarray(b[chosen]))

    def _pair(self, tensor: str, parts: Mapping[int, tuple[str, F32, F32, GGMLType, float]], alpha: float) -> NewPair:
        """One pair of the new file, of all experts together."""
        alone = _ALONE in parts
        if not alone and sorted(parts) != list(range(len(parts))):
            raise ConvertError(f"{self.shown}: {tensor} has pairs of experts {sorted(parts)}; all of them are needed")
        ordered = [parts[i] for i in sorted(parts)]
        module, first, up, kind, _ = ordered[0]
        if any((d.shape, u.shape) != (first.shape, up.shape) for _, d, u, _, _ in ordered):
            raise ConvertError(f"{self.shown}: {show(module)} and other experts have pairs of different shapes")
        if any(own != alpha for *_, own in ordered):
            kind = GGMLType.F32
        ups = [u if own == alpha else np.float32(u.astype(np.float64) * (own / alpha)) for *_, u, _, own in ordered]
        a, b = np.stack([d for _, d, *_ in ordered]), np.stack(ups)
        return NewPair(tensor, a[0] if alone else a, b[0] if alone else b, kind)

    def write(self, out: Path, wanted: GGMLType | None = None) -> None:
        """Write the file, whole or not at all. wanted: the type of all matrices; None for that of each.

        Raises `GGUFError`, `FileAccessError`.
        """
        writer = GGUFWriter(out)
        writer.add("general.type", "adapter")
        writer.add("general.architecture", self.architecture)
        writer.add("general.name", self.folder.resolve().name)
        writer.add("adapter.type", "lora")
        writer.add("adapter.lora.alpha", self.alpha, ValueType.FLOAT32)
        for pair in self.pairs:
            kind = wanted or pair.type
            for suffix, values in ((A, pair.a), (B, pair.b)):
                raw = quantize(kind, values.reshape(-1, values.shape[-1]))
                writer.add_tensor(pair.tensor + suffix, raw, kind, values.shape)
        writer.write()


def _values(shown: str, tensor: Stored) -> F32:
    kind = FLOATS.get(tensor.dtype)
    if kind is None or not tensor.shape or 0 in tensor.shape:
        raise ConvertError(f"{shown}: tensor {show(tensor.name)} is {tensor.dtype}{list(tensor.shape)}; matrices of"
                           f" {', '.join(FLOATS)} are converted")  # fmt: skip
    rows = tensor.flat().reshape(math.prod(tensor.shape[:-1]), -1)
    return dequantize(kind, rows).reshape(tensor.shape)


def _json(path: Path) -> dict[str, Any]:
    shown = printable(str(path))
    try:
        if path.stat().st_size > _LARGEST_JSON:
            raise ConvertError(f"{shown} has more than {_LARGEST_JSON} bytes; it is damaged")
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConvertError(f"{shown} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ConvertError(f"{shown} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise ConvertError(f"{shown} is no JSON object")
    return value


def _base_config(folder: Path, base: Path | None, named: object) -> NamedConfig:
    """The configuration of the model that an adapter is for."""
    places = [base] if base is not None else [folder, *([Path(named)] if isinstance(named, str) and named else [])]
    for place in places:
        path = place if place.name == "config.json" else place / "config.json"
        if path.is_file():
            return NamedConfig(printable(str(path.parent)), _json(path))
    raise ConvertError(
        f"there is no config.json of the model that {printable(str(folder))} is for"
        f" ({show(str(base or named or 'not named'))}); give the model's folder with --base"
    )
