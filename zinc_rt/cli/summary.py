"""The summary of a GGUF file: a few figures, taken from its directory alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from zinc_rt.adapters.file import AdapterFile, is_adapter
from zinc_rt.errors import ZincError
from zinc_rt.gguf import GGMLType, GGUFError, GGUFFile, TensorInfo
from zinc_rt.ir.ops import product_bytes
from zinc_rt.mem.plan import format_bytes
from zinc_rt.models import ModelDefinition, define
from zinc_rt.models.cache_format import CacheFormat, with_cache
from zinc_rt.models.ranking import ranks
from zinc_rt.models.towers import define_tower, is_projector, projector_kind
from zinc_rt.text.kinds import read_kind
from zinc_rt.utils.checks import printable

# Rows of the summary that are one metadata key, below the architecture's name or as they are.
_FIGURES: Final = (
    ("layers", "{arch}.block_count"),
    ("embedding", "{arch}.embedding_length"),
    ("feed forward", "{arch}.feed_forward_length"),
    ("heads", "{arch}.attention.head_count"),
    ("KV heads", "{arch}.attention.head_count_kv"),
    ("head size", "{arch}.attention.key_length"),
    ("experts", "{arch}.expert_count"),
    ("experts used", "{arch}.expert_used_count"),
    ("context", "{arch}.context_length"),
    ("sliding window", "{arch}.attention.sliding_window"),
    ("rope base", "{arch}.rope.freq_base"),
    ("rope dimensions", "{arch}.rope.dimension_count"),
    ("rope scaling", "{arch}.rope.scaling.type"),
    ("rope scale", "{arch}.rope.scaling.factor"),
    ("rope original context", "{arch}.rope.scaling.original_context_length"),
)


@dataclass(frozen=True)
class TypeShare:
    """The share of one tensor format in a file."""

    type: str
    tensors: int
    parameters: int
    bytes: int
    supported: bool

    def __str__(self) -> str:
        size = f"{_count(self.parameters)} parameters, {format_bytes(self.bytes)}"
        return f"{self.type}: {self.tensors} tensors, {size}{'' if self.supported else ' (not supported yet)'}"


@dataclass(frozen=True)
class Needs:
    """The memory that a model needs, in bytes.

    step: of the matrices that one token reads; of experts, those that it chooses. position: of keys and values in all
    layers. sequence: of recurrent layers, whatever the length.
    """

    step: int
    position: int
    sequence: int

    @classmethod
    def of(cls, definition: ModelDefinition) -> Self:
        """The needs of a model."""
        states = definition.states
        return cls(
            product_bytes(definition.graph),
            sum(state.position_bytes for state in states),
            sum(state.sequence_bytes for state in states),
        )

    def rows(self) -> list[tuple[str, str]]:
        """Name and value of what is needed, for a table."""
        sizes = (
            ("weights read", self.step, "a token"),
            ("KV cache", self.position, "a position"),
            ("recurrent state", self.sequence, "a sequence"),
        )
        return [(name, f"{format_bytes(size)} {each}") for name, size, each in sizes if size]


@dataclass(frozen=True)
class Summary:
    """The figures of `zinc show`.

    runs: whether this version can run the file. reason: why not. needs: what it takes, None where it cannot.
    """

    path: str
    gguf_version: int
    name: str | None
    architecture: str | None
    runs: bool
    reason: str
    needs: Needs | None
    file_bytes: int
    parts: int
    parameters: int
    tensor_bytes: int
    types: tuple[TypeShare, ...]
    figures: Mapping[str, Any]
    tokenizer: str | None
    pre_tokenizer: str | None
    vocabulary: int | None
    chat_template: bool

    @property
    def bits_per_weight(self) -> float:
        """Bits of tensor data per parameter; 0 without tensors."""
        return 8 * self.tensor_bytes / self.parameters if self.parameters else 0.0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {**asdict(self), "bits_per_weight": round(self.bits_per_weight, 3)}

    def rows(self) -> list[list[str]]:
        """Name and value of everything that is known, for a table."""
        kind = f"{self.tokenizer}" + (f", pre-tokenizer {self.pre_tokenizer}" if self.pre_tokenizer else "")
        size = f"{_count(self.parameters)} at {self.bits_per_weight:.2f} bits" if self.types else "none"
        parts = f" in {self.parts} parts" if self.parts > 1 else ""
        rows: list[tuple[str, str | None]] = [
            ("file", f"{self.path} (GGUF v{self.gguf_version}, {format_bytes(self.file_bytes)}{parts})"),
            ("name", self.name),
            ("architecture", self.architecture),
            ("runs here", "yes" if self.runs else f"no: {self.reason}"),
            ("parameters", size),
            *(("" if i else "formats", str(share)) for i, share in enumerate(self.types)),
            *(self.needs.rows() if self.needs else ()),
            *((name, str(value)) for name, value in self.figures.items()),
            ("tokenizer", kind if self.tokenizer else None),
            ("vocabulary", f"{self.vocabulary} tokens" if self.vocabulary is not None else None),
            ("chat template", "yes" if self.chat_template else "no"),
        ]
        return [[name, printable(value)] for name, value in rows if value is not None]


def summarize(file: GGUFFile, kv: CacheFormat = CacheFormat.F16) -> Summary:
    """Read the summary. kv: what the KV cache would hold. Values of unexpected types are left out; raises nothing for
    them.
    """
    arch = _text(file, "general.architecture")
    by_type: dict[GGMLType, list[TensorInfo]] = {}
    for tensor in file.tensors.values():
        by_type.setdefault(tensor.type, []).append(tensor)
    shares = sorted(map(_share, by_type.values()), key=lambda s: -s.bytes)
    needs, reason = _needs_or_why_not(file, kv)
    return Summary(
        path=str(file.path),
        gguf_version=file.version,
        name=_text(file, "general.name"),
        architecture=arch,
        runs=not reason,
        reason=reason,
        needs=needs,
        file_bytes=file.file_size,
        parts=file.n_parts,
        parameters=sum(s.parameters for s in shares),
        tensor_bytes=sum(s.bytes for s in shares),
        types=tuple(shares),
        figures=_figures(file, arch),
        tokenizer=_text(file, "tokenizer.ggml.model"),
        pre_tokenizer=_text(file, "tokenizer.ggml.pre"),
        vocabulary=_vocabulary(file),
        chat_template="tokenizer.chat_template" in file.metadata,
    )


def _share(tensors: list[TensorInfo]) -> TypeShare:
    """Tensors of one type, at least one."""
    kind = tensors[0].type
    n_elements = sum(t.n_elements for t in tensors)
    return TypeShare(kind.name, len(tensors), n_elements, sum(t.nbytes for t in tensors), kind.readable)


def _needs_or_why_not(file: GGUFFile, kv: CacheFormat) -> tuple[Needs | None, str]:
    """What this version needs to run the file with that KV cache, or why it cannot."""
    from zinc_rt.llm.embedding import pooling_of  # brings the engine in

    try:
        if is_projector(file):
            define_tower(file)
            return None, ""
        if is_adapter(file):
            AdapterFile(file)
            return None, ""
        definition = with_cache(define(file), kv)
        pooling_of(file, definition)
        read_kind(file.metadata)
    except ZincError as error:
        reason = error.problem if isinstance(error, GGUFError) else str(error)
        return None, f"{reason}; {error.advice}" if error.advice else reason
    return Needs.of(definition), ""


def _figures(file: GGUFFile, arch: str | None) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    if ranks(file.metadata):
        figures["ranks"] = "texts by how well they answer a query (zinc rerank, /v1/rerank)"
    for name, pattern in _FIGURES:
        value = _scalar(file, pattern.format(arch=arch))
        if value is not None:
            figures[name] = value
    if is_projector(file):
        return figures | _tower_figures(file)
    return figures | (_adapter_figures(file) if is_adapter(file) else {})


def _adapter_figures(file: GGUFFile) -> dict[str, Any]:
    """What an adapter changes; nothing of one that is not understood here."""
    try:
        adapter = AdapterFile(file)
    except ZincError:
        return {}
    kinds = dict.fromkeys(re.sub(r"^blk\.\d+\.|\.weight$", "", name) for name in adapter.pairs)
    ranks = " / ".join(map(str, sorted({pair.rank for pair in adapter.pairs.values()})))
    said = {
        "adapter": f"lora of rank {ranks}, {len(adapter.pairs)} pairs of matrices, alpha {adapter.alpha:g}",
        "adapts": ", ".join(kinds),
        "task": adapter.task_name,
        "prompt prefix": adapter.prompt_prefix,
        "ignored": ", ".join(adapter.ignored),
    }
    return {name: value for name, value in said.items() if value}


def _tower_figures(file: GGUFFile) -> dict[str, Any]:
    """What a projector is for; nothing of one that does not run here."""
    try:
        tower = define_tower(file)
    except ZincError:
        return {}
    sizes, stacked = tower.info, f", {tower.n_deepstack} deepstack layers" if tower.n_deepstack else ""
    return {
        "projector": f"{projector_kind(file)}, for text models with rows of {sizes.n_out} elements{stacked}",
        "tower": f"{sizes.n_layers} layers of {sizes.n_embd} elements, patches of {sizes.patch_size} pixels",
    }


def _scalar(file: GGUFFile, key: str) -> Any:
    """A number or a text; of an array (one value per layer) its distinct values; None for anything else."""
    try:
        if key not in file.metadata or file.metadata.info(key).count > 4096:
            return None
        value = file.metadata[key]
    except GGUFError:
        return None
    if isinstance(value, (int, float, str)):
        return round(value, 6) if isinstance(value, float) else value
    if hasattr(value, "tolist"):
        return " / ".join(map(str, dict.fromkeys(value.tolist())))
    return None


def _text(file: GGUFFile, key: str) -> str | None:
    value = _scalar(file, key)
    return value if isinstance(value, str) else None


def _vocabulary(file: GGUFFile) -> int | None:
    key = "tokenizer.ggml.tokens"
    return file.metadata.info(key).count if key in file.metadata else None


def _count(n: int) -> str:
    """A number of parameters as people say it: 7.6 M, 1.24 B."""
    for unit, size in (("T", 10**12), ("B", 10**9), ("M", 10**6), ("K", 10**3)):
        if n >= size:
            return f"{n / size:.3g} {unit}"
    return str(n)
