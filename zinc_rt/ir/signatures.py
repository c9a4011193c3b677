"""What each executable operation takes and gives: ports, shapes, element types, attributes.

Patterns use these variables: R rows of the step, L rows whose logits are wanted, n (n_in, n_out) a row's
width, n_vocab, S slots, P pages of a cache, M pages of a sequence, C positions of the RoPE table. An int
attribute is a variable of the same name: `head_dim=64` makes `head_dim` 64 in the node's patterns.

Reshapes cost no node: ports marked `view` take any buffer whose dimensions after the first multiply to the
same row, so `f32[n_rows, 64]` serves where 4 heads of 16 are expected. `n_heads` and `n_kv_heads` count heads
of the buffer in question: a rope or an rms_norm over keys has `n_heads` equal to the model's number of key
heads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from zinc_rt.ir.graph import Attr, BufferKind, Dim, DType
from zinc_rt.ir.op import Op
from zinc_rt.ir.unify import Bindings
from zinc_rt.numerics import PAGE_TOKENS

F32 = frozenset({DType.F32})
F16 = frozenset({DType.F16})
I32 = frozenset({DType.I32})
WEIGHTS = frozenset(DType) - I32

READ_ONLY = frozenset({BufferKind.WEIGHT, BufferKind.CONSTANT})
ACTIVATION = frozenset({BufferKind.INPUT, BufferKind.TEMP, BufferKind.OUTPUT})
INDEX = ACTIVATION | {BufferKind.CONSTANT}
CACHE = frozenset({BufferKind.STATE})


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of an operation.

    `view`: the row may be split differently. `role`: step inputs and caches mean one thing throughout a
    graph, so a buffer used as `positions` in one node may not be `slots` in another; an empty role is not
    checked.
    """

    name: str
    dtypes: frozenset[DType]
    shape: tuple[Dim, ...]
    kinds: frozenset[BufferKind]
    view: bool = False
    role: str = ""


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """One attribute, which every node of the operation has: its exact type and a number's least value."""

    type: type[Attr]
    at_least: float | None = None


Rule = Callable[[Bindings], str | None]
"""A condition that patterns cannot say: None when it holds, else what is expected and what was seen."""


@dataclass(frozen=True, slots=True)
class OpSignature:
    """The contract of one operation."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    attrs: Mapping[str, AttrSpec] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()


def _act(name: str, *shape: Dim) -> Port:
    return Port(name, F32, shape, ACTIVATION, view=True)


def _weight(name: str, *shape: Dim, dtypes: frozenset[DType] = WEIGHTS) -> Port:
    return Port(name, dtypes, shape, READ_ONLY)


def _index(name: str, *shape: Dim) -> Port:
    return Port(name, I32, shape, INDEX, role=name)


def _cache(name: str) -> Port:
    return Port(name, F16, ("P", PAGE_TOKENS, "n_kv_heads", "head_dim"), CACHE, role=name)


def _rotated_part_fits(bound: Bindings) -> str | None:
    half, head_dim = bound.value("rope_dim/2"), bound.value("head_dim")
    if half is not None and head_dim is not None and 2 * half > head_dim:
        return f"rope_table rotates {2 * half} elements of a head, head_dim is {head_dim}"
    return None


def _heads_share_evenly(bound: Bindings) -> str | None:
    heads, kv_heads = bound.value("n_heads"), bound.value("n_kv_heads")
    if heads and kv_heads and heads % kv_heads:
        return f"n_heads {heads} is no multiple of n_kv_heads {kv_heads}"
    return None


_COUNT = AttrSpec(int, at_least=1)
_EPS = AttrSpec(float, at_least=0.0)
_HEADS = {"n_heads": _COUNT, "head_dim": _COUNT}

_ROW = _act("x", "R", "n")
_NORM_WEIGHT = _weight("weight", "n", dtypes=F32)
_HEAD_ROW = _act("x", "R", "n_heads", "head_dim")
_CACHES = (_cache("k_cache"), _cache("v_cache"))
_WHERE = (_index("positions", "R"), _index("slots", "R"), _index("page_table", "S", "M"))

_RMS_NORM_HEADS = OpSignature(
    (_HEAD_ROW, _weight("weight", "head_dim", dtypes=F32)),
    (_act("y", "R", "n_heads", "head_dim"),),
    {"eps": _EPS, **_HEADS},
)

SIGNATURES: Mapping[Op, OpSignature] = {
    Op.EMBED: OpSignature(
        (_index("token_ids", "R"), _weight("token_embd", "n_vocab", "n_embd")), (_act("x", "R", "n_embd"),)
    ),
    Op.RMS_NORM: OpSignature((_ROW, _NORM_WEIGHT), (_act("y", "R", "n"),), {"eps": _EPS}),
    Op.ROPE: OpSignature(
        (
            _HEAD_ROW,
            _index("positions", "R"),
            _weight("rope_table", "C", "rope_dim/2", 2, dtypes=F32),
        ),
        (_act("y", "R", "n_heads", "head_dim"),),
        {"interleaved": AttrSpec(bool), **_HEADS},
        (_rotated_part_fits,),
    ),
    Op.FLASH_ATTN: OpSignature(
        (_act("q", "R", "n_heads", "head_dim"), *_CACHES, *_WHERE),
        (_act("y", "R", "n_heads", "head_dim"),),
        {"scale": AttrSpec(float), "n_kv_heads": _COUNT, **_HEADS},
        (_heads_share_evenly,),
    ),
    Op.RESIDUAL_RMS_NORM: OpSignature(
        (_ROW, _act("residual", "R", "n"), _NORM_WEIGHT),
        (_act("sum", "R", "n"), _act("normed", "R", "n")),
        {"eps": _EPS},
    ),
    Op.LM_HEAD: OpSignature(
        (_act("x", "R", "n"), _weight("weight", "n_vocab", "n"), _index("logit_rows", "L")),
        (Port("logits", F32, ("L", "n_vocab"), ACTIVATION),),
    ),
    Op.ARGMAX: OpSignature(
        (Port("logits", F32, ("L", "n_vocab"), ACTIVATION),), (Port("tokens", I32, ("L",), ACTIVATION),)
    ),
    Op.MATMUL: OpSignature((_act("x", "R", "n_in"), _weight("weight", "n_out", "n_in")), (_act("y", "R", "n_out"),)),
    Op.BIAS_ADD: OpSignature((_ROW, _weight("bias", "n", dtypes=F32)), (_act("y", "R", "n"),)),
    Op.SWIGLU: OpSignature((_act("gate", "R", "n"), _act("up", "R", "n")), (_act("y", "R", "n"),)),
    Op.KV_WRITE: OpSignature(
        (_act("k", "R", "n_kv_heads", "head_dim"), _act("v", "R", "n_kv_heads", "head_dim"), *_WHERE),
        _CACHES,
        {"n_kv_heads": _COUNT, "head_dim": _COUNT},
    ),
    Op.RESIDUAL_ADD: OpSignature((_act("a", "R", "n"), _act("b", "R", "n")), (_act("y", "R", "n"),)),
}


def signature(op: Op, attrs: Mapping[str, Attr]) -> OpSignature | None:
    """The signature that a node with these attributes must meet; None for operations without one.

    rms_norm has two: over each head (query and key norms) where it has such attributes, else over rows.
    """
    if op is Op.RMS_NORM and _HEADS.keys() & attrs.keys():
        return _RMS_NORM_HEADS
    return SIGNATURES.get(op)
