"""Which tensor of a Hugging Face model becomes which of a GGUF file, and what changes on the way."""

from __future__ import annotations

import enum
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.made import F32, Columns, Index, Made, RowBytes, Values, WholeNumbers, tensor_info
from zinc_rt.converting.packed import SOURCES, Weights
from zinc_rt.gguf.types import GGMLType
from zinc_rt.quantizing.plan import left_as_it_is
from zinc_rt.utils.checks import show

_LAYER: Final = re.compile(r"(?:layers?|h)\.(\d+)\.(.+)")
_ALONE: Final = -1
"""Stands for an expert's number in what is no expert's."""
_EXPERT: Final = re.compile(r"\.(?P<of>experts\.|norms\.|shard_)(?P<number>\d+)\.")


class How(enum.Enum):
    """The change of a tensor on its way to the new file.

    Rotations pair an element with the one half a head further in Hugging Face models. Some architectures of GGUF pair
    neighbours, so rows of a head are interleaved: Q for the query heads, K for the key heads.

    Value heads of a delta net stand with their key head in Hugging Face models; GGUF has the first one of each key
    head, then the second ones. VALUES are outputs of value heads, CHANNELS those of queries, keys and values, INPUTS
    what a matrix reads of value heads, DECAYS the logarithms of their decays. PACKED_QKV and PACKED_Z are parts of one
    matrix that has all of a key head together.

    GROUPED_Q, _K and _V are parts of a matrix that has the query heads of a key head, this, and its values together;
    q and k are interleaved, too. GROUPED is all queries, keys and values of one, behind each other. LATENT_K and
    LATENT_V are parts of what makes keys and values of a latent vector: the keys' matrix of each head is turned round.
    """

    COPY = enum.auto()
    Q = enum.auto()
    K = enum.auto()
    PLUS_ONE = enum.auto()  # a norm that is stored as its distance from 1
    FLAT = enum.auto()  # dimensions of 1 are dropped
    FIRST_HALF = enum.auto()  # of the outputs
    SECOND_HALF = enum.auto()
    EVEN = enum.auto()
    ODD = enum.auto()
    NEGATIVE_EXP = enum.auto()
    VALUES = enum.auto()
    CHANNELS = enum.auto()
    INPUTS = enum.auto()
    DECAYS = enum.auto()
    PACKED_QKV = enum.auto()
    PACKED_Z = enum.auto()
    GROUPED = enum.auto()
    GROUPED_Q = enum.auto()
    GROUPED_K = enum.auto()
    GROUPED_V = enum.auto()
    LATENT_K = enum.auto()
    LATENT_V = enum.auto()
    COLUMN = enum.auto()  # a vector as a matrix of one column
    COLUMN_NEGATIVE_EXP = enum.auto()
    GROUPS = enum.auto()  # a vector as a row for each group of a scan
    ROWS = enum.auto()  # of several tensors, one behind the other
    INDEX_Q = enum.auto()  # of an indexer's queries and its key
    INDEX_K = enum.auto()
    PER_GROUP = enum.auto()  # rows of all groups, which are experts, as a matrix for each
    CHANNEL_PLANES = enum.auto()  # taps of each channel, as planes of one row
    WHOLE = enum.auto()  # numbers that are no weights


@dataclass(frozen=True)
class TensorRule:
    """A tensor's name in the new file, without `blk.N.`, and what happens to it. What is a rule for a module lacks
    `.weight` and `.bias`; one for a tensor has them. columns: whether matrices are stored with their inputs first.
    factors: of runs of rows, each with how many they are; the last one goes on to the end.
    """

    name: str
    mode: How = How.COPY
    columns: bool = False
    factors: tuple[tuple[int, float], ...] = ()


Rules = Mapping[str, TensorRule | tuple[TensorRule, ...]]
"""By the names of modules, or of tensors, behind `model.` or `layers.N.`, with * for an expert's number: what they
become. A tuple is several tensors from one, or none. A rule for one layer alone has its number, `layers.N.`."""


@dataclass(frozen=True)
class HeadCounts:
    """Query heads, and key and value heads. Of delta nets: key heads, value heads, and elements of a head. Of latent
    attention: elements of a head's keys that are not turned, and of its values. Of scans: groups; of experts that are
    one matrix: experts. index_rows: outputs of an indexer's queries.
    """

    n_heads: int
    n_kv_heads: int
    delta_k: int = 0
    delta_v: int = 0
    delta_dim: int = 0
    latent_k: int = 0
    latent_v: int = 0
    groups: int = 1
    index_rows: int = 0


def place(
    tensors: Mapping[str, Weights], rules: Rules, heads: HeadCounts, *, skipped: Sequence[str] = (), tied: bool = False
) -> tuple[list[Made], list[str]]:
    """The tensors of the new file in its order, and the names of those that were left aside.

    skipped: beginnings of the names of parts that are not converted. tied: whether the head is the embedding's matrix,
    so that one of its own is left aside. Raises `ConvertError` for a tensor that no rule is for or that is not of
    floats, `ConvertError` for shapes that a rule cannot be for.
    """
    found: dict[str, tuple[TensorRule, dict[int, Weights]]] = {}
    aside = []
    for name, tensor in tensors.items():
        bare = _bare(name)
        if name.endswith(_BUFFERS):
            continue
        own = next((what for ends, what in _ASIDE.items() if name.endswith(ends)), "")
        if own:
            aside.append(own)
            continue
        if name.startswith(tuple(skipped)) or bare.startswith(tuple(skipped)) or (tied and bare == "lm_head.weight"):
            aside.append(name)
            continue
        for new, rule, expert in becomes(name, rules, bare):
            found.setdefault(new, (rule, {}))[1][expert] = tensor
    made = [_make(name, rule, stored, heads) for name, (rule, stored) in found.items()]
    return sorted(made, key=_order), aside


_BUFFERS: Final = ("rotary_emb.inv_freq", ".attention.bias", ".attention.masked_bias")
"""Ends of the names of what old folders keep beside weights."""
_ASIDE: Final = {(".lora_A", ".lora_B"): "adapters of tasks", ("mlp.experts.bias",): "what stands behind experts"}
"""Ends of names of tensors that a file has no place for, and what they are."""
_PREFIXES: Final = (
    "model.language_model.", "language_model.model.", "language_model.", "model.backbone.", "model.", "backbone.",
    "ernie.", "transformer.", "gpt_neox.", "roberta.encoder.", "roberta.", "bert.encoder.", "bert.", "encoder.",
)  # fmt: skip


def _bare(name: str) -> str:
    """Without what all names of a model begin with."""
    prefix = next((p for p in _PREFIXES if name.startswith(p)), "")
    return name[len(prefix) :].replace(".parametrizations.", ".").removesuffix(".original")


def becomes(name: str, rules: Rules, bare: str | None = None) -> list[tuple[str, TensorRule, int]]:
    """The new names of a tensor, with the rule, and which expert of it this is, or -1. Raises `ConvertError`.

    bare: the name without what all of the model begin with.
    """
    bare = _bare(name) if bare is None else bare
    layer = _LAYER.fullmatch(bare)
    path = layer[2] if layer else bare
    expert = _EXPERT.search(f".{path}")
    path = _EXPERT.sub(r".\g<of>*.", f".{path}")[1:]
    rule, suffix = None, ""
    for whole in (bare, path):
        module, dot, kind = whole.rpartition(".")
        suffix = dot + kind if kind in ("weight", "bias") and whole not in rules else ""
        rule = rules.get(module if suffix else whole)
        if rule is not None:
            break
    if rule is None:
        raise ConvertError(
            f"tensor {show(name)} is none that models of this architecture have: it is a variant that is not converted"
        )
    each = rule if isinstance(rule, tuple) else (rule,)
    before = f"blk.{layer[1]}." if layer else ""
    return [(f"{before}{one.name}{suffix}", one, int(expert["number"]) if expert else _ALONE) for one in each]


_FIRST: Final = ("token_embd", "rope_", "blk.", "output_norm", "output")


def _order(tensor: Made) -> tuple[int, int]:
    """Where a tensor stands: the embedding, the layers, the head; within them in the order that it was found in."""
    name = tensor.info.name
    group = next((i for i, start in enumerate(_FIRST) if name.startswith(start)), len(_FIRST))
    return group, int(name.split(".")[1]) if name.startswith("blk.") else 0


def _make(name: str, rule: TensorRule, stored: Mapping[int, Weights], heads: HeadCounts) -> Made:
    first = stored[min(stored)]
    alone = _ALONE in stored
    if sorted(stored) != ([_ALONE] if alone else list(range(len(stored)))):
        raise ConvertError(f"{show(name)} is made of {len(stored)} experts, but they are not numbered 0 and on")
    parts = [stored[number] for number in sorted(stored)]
    if rule.mode is How.WHOLE and first.dtype == "I64" and alone and 0 not in first.shape:
        return Made(tensor_info(name, first.shape, GGMLType.I32), (WholeNumbers(first),), GGMLType.I32, first.shape[-1])
    for part in parts:
        if part.dtype not in SOURCES:
            raise ConvertError(
                f"tensor {show(part.name)} is stored as {part.dtype}; converted are {', '.join(SOURCES)}: take the"
                " folder of the model before it was quantised"
            )
        same = slice(1 if rule.mode is How.ROWS else 0, None)
        if part.dtype != first.dtype or part.shape[same] != first.shape[same]:
            raise ConvertError(f"tensors {show(first.name)} and {show(part.name)} differ in type or shape")
    shape = first.shape
    if not shape or 0 in shape:
        raise ConvertError(f"tensor {show(first.name)} has the shape {shape}, which no weight has")
    if rule.mode in (How.FLAT, How.CHANNELS):
        shape = tuple(n for n in shape if n != 1) or (1,)
    if rule.mode is How.PER_GROUP and heads.groups and shape[0] % heads.groups == 0:
        shape = (heads.groups, shape[0] // heads.groups, *shape[1:])
    if rule.columns:
        if len(shape) < 2:
            raise ConvertError(f"tensor {show(first.name)} has the shape {shape}, matrices are needed")
        shape = (*shape[:-2], shape[-1], shape[-2])
    index: Index | None = None
    values: Values | None = None
    if rule.mode is How.PLUS_ONE:
        values, shape = _plus_one, (math.prod(shape),)
    elif rule.mode in (How.NEGATIVE_EXP, How.COLUMN_NEGATIVE_EXP):
        values = _negative_exp
    if rule.mode is How.CHANNEL_PLANES:
        shape = (first.shape[0], 1, math.prod(first.shape[1:]))
    elif rule.mode in (How.COLUMN, How.COLUMN_NEGATIVE_EXP, How.GROUPS):
        n = math.prod(shape)
        rows = n if rule.mode is not How.GROUPS else heads.groups
        if not rows or n % rows:
            raise ConvertError(f"tensor {show(first.name)} has the shape {shape}, which {rows} groups cannot share")
        shape = (rows, n // rows)
    elif rule.mode is How.LATENT_K:
        return _latent_keys(name, first, heads)
    elif rule.mode not in (How.COPY, How.FLAT, How.PLUS_ONE, How.NEGATIVE_EXP, How.PER_GROUP, How.ROWS):
        shape, index, values = _reordered(rule.mode, first.name, shape, heads, by_element=name.endswith(".bias"))
    source = SOURCES[first.dtype]
    width = first.shape[-1] if rule.mode not in _RESHAPED else shape[-1]
    made: list[RowBytes] = list(parts)
    if rule.columns:
        width = shape[-1]
        made = [Columns(part, part.shape[-1], source.block_bytes) for part in parts]
    if rule.mode is How.LATENT_V:
        shape = (heads.n_heads, shape[0] // heads.n_heads, *shape[1:])
    whole = shape if alone else (len(parts), *shape)
    if rule.mode is How.ROWS:
        whole = (sum(part.shape[0] for part in parts), *shape[1:])
    type = GGMLType.F32 if left_as_it_is(name, whole) else source
    return Made(tensor_info(name, whole, type), made, source, width, index, values, rule.factors)


_RESHAPED: Final = (How.FLAT, How.PLUS_ONE, How.CHANNEL_PLANES, How.COLUMN, How.COLUMN_NEGATIVE_EXP, How.GROUPS)


def _latent_keys(name: str, stored: Weights, heads: HeadCounts) -> Made:
    """Of the matrix that makes keys and values of latent vectors that part which makes keys, turned round: rows of the
    new tensor are elements of the latent vector, for each head.
    """
    each = heads.latent_k + heads.latent_v
    if len(stored.shape) != 2 or not heads.latent_k or stored.shape[0] != heads.n_heads * each:
        raise ConvertError(
            f"tensor {show(stored.name)} has the shape {stored.shape}; {heads.n_heads} heads with {heads.latent_k} keys"
            f" and {heads.latent_v} values are needed"
        )
    source = SOURCES[stored.dtype]
    columns = Columns(stored, stored.shape[1], source.block_bytes, each)
    info = tensor_info(name, (heads.n_heads, stored.shape[1], heads.latent_k), source)
    return Made(info, (columns,), source, heads.latent_k)


def _plus_one(x: F32) -> F32:
    return x + np.float32(1)


def _negative_exp(x: F32) -> F32:
    return -np.exp(x.astype(np.float64)).astype(np.float32)  # rounded once, the same on every host


def _reordered(
    mode: How, name: str, shape: tuple[int, ...], heads: HeadCounts, *, by_element: bool
) -> tuple[tuple[int, ...], Index | None, Values | None]:
    """The new shape, and how outputs are chosen: rows of a matrix, or elements of a vector or of a row of biases."""
    by_element = by_element or len(shape) == 1 or mode is How.INPUTS
    axis = -1 if by_element else -2
    n = shape[axis]
    chosen = outputs_of(mode, n, heads)
    if chosen is None:
        raise ConvertError(
            f"tensor {show(name)} has {n} outputs, which the heads cannot share: {heads.n_heads}, {heads.n_kv_heads} of"
            f" keys, {heads.delta_v} of values in delta nets"
        )
    new = list(shape)
    new[axis] = len(chosen)
    if by_element:
        decays = mode is How.DECAYS
        return tuple(new), None, lambda x: _negative_exp(x[:, chosen]) if decays else x[:, chosen]
    outer = np.arange(math.prod(shape[:-2]))[:, None] * n
    return tuple(new), (outer + chosen).reshape(-1), None


def outputs_of(mode: How, n: int, heads: HeadCounts) -> Index | None:
    """Which of n outputs are taken, in their new order; None where n does not fit."""
    every = np.arange(n)
    if mode in (How.FIRST_HALF, How.SECOND_HALF, How.EVEN, How.ODD):
        cut = {
            How.FIRST_HALF: slice(n // 2),
            How.SECOND_HALF: slice(n // 2, n),
            How.EVEN: slice(0, n, 2),
            How.ODD: slice(1, n, 2),
        }
        return None if n % 2 else every[cut[mode]]
    if mode in (How.INDEX_Q, How.INDEX_K):
        rows = heads.index_rows
        return None if not 0 < rows < n else every[:rows] if mode is How.INDEX_Q else every[rows:]
    if mode in (How.Q, How.K):
        count = heads.n_heads if mode is How.Q else heads.n_kv_heads
        return None if n % (2 * count) else every.reshape(count, 2, -1).swapaxes(1, 2).reshape(-1)
    if mode in (How.GROUPED, How.GROUPED_Q, How.GROUPED_K, How.GROUPED_V):
        return _grouped(mode, every, heads)
    if mode is How.LATENT_V:
        each = heads.latent_k + heads.latent_v
        if not each or n != heads.n_heads * each:
            return None
        return every.reshape(heads.n_heads, each)[:, heads.latent_k :].reshape(-1)
    keys = heads.delta_k * heads.delta_dim
    if mode in (How.PACKED_QKV, How.PACKED_Z):
        return _unpacked(mode, every, heads)
    first = 2 * keys if mode is How.CHANNELS else 0
    if not heads.delta_k or n <= first or (n - first) % heads.delta_v or heads.delta_v % heads.delta_k:
        return None
    share = heads.delta_v // heads.delta_k
    values = every[first:].reshape(heads.delta_k, share, -1).swapaxes(0, 1).reshape(-1)
    return np.concatenate([every[:first], values])


def _unpacked(mode: How, every: Index, heads: HeadCounts) -> Index | None:
    """Queries, keys and values, or the gate, of a matrix that has these four of each key head together."""
    d = heads.delta_dim
    values = heads.delta_v // max(heads.delta_k, 1) * d
    if not heads.delta_k or len(every) != heads.delta_k * (2 * d + 2 * values):
        return None
    q, k, v, z = np.split(every.reshape(heads.delta_k, -1), [d, 2 * d, 2 * d + values], axis=1)
    return z.reshape(-1) if mode is How.PACKED_Z else np.concatenate([x.reshape(-1) for x in (q, k, v)])


def _grouped(mode: How, every: Index, heads: HeadCounts) -> Index | None:
    """Queries, keys or values of a matrix that has those of each key head together."""
    share = heads.n_heads // heads.n_kv_heads + 2
    if heads.n_heads % heads.n_kv_heads or len(every) % (heads.n_kv_heads * share * 2):
        return None
    parts = every.reshape(heads.n_kv_heads, share, -1)
    if mode is How.GROUPED:
        return np.concatenate([part.reshape(-1) for part in (parts[:, :-2], parts[:, -2], parts[:, -1])])
    if mode is How.GROUPED_V:
        return parts[:, -1].reshape(-1)
    those = parts[:, :-2] if mode is How.GROUPED_Q else parts[:, -2]
    count = heads.n_heads if mode is How.GROUPED_Q else heads.n_kv_heads
    return those.reshape(count, 2, -1).swapaxes(1, 2).reshape(-1)
