"""The parts of which an operation's definition is made: ports, attributes, signature, cost, reference kernel.

Patterns use these variables: R rows of the step, L rows whose logits are wanted, n (n_in, n_out) a row's
width, n_vocab, S slots, P pages of a cache, M pages of a sequence, C positions of the RoPE table. An int
attribute is a variable of the same name: `head_dim=64` makes `head_dim` 64 in the node's patterns.

Reshapes cost no node: ports marked `view` take any buffer whose dimensions after the first multiply to the
same row, so `f32[n_rows, 64]` serves where 4 heads of 16 are expected. `n_heads` and `n_kv_heads` count heads
of the buffer in question: a rope or an rms_norm over keys has `n_heads` equal to the model's number of key
heads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from zinc_rt.ir.dtype import BLOCKS
from zinc_rt.ir.graph import Attr, BufferKind, Dim, DType
from zinc_rt.ir.op import Op
from zinc_rt.ir.unify import Bindings

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView
    from zinc_rt.kernels.reference.activations import QuantActivations

FLOAT32 = frozenset({DType.F32})
CACHED = frozenset({DType.F16, BLOCKS})
INT32 = frozenset({DType.I32})
WEIGHTS = frozenset(DType) - INT32

READ_ONLY = frozenset({BufferKind.WEIGHT, BufferKind.CONSTANT})
ACTIVATION = frozenset({BufferKind.INPUT, BufferKind.TEMP, BufferKind.OUTPUT})
INDEX = ACTIVATION | {BufferKind.CONSTANT}
CACHE = frozenset({BufferKind.STATE})


@dataclass(frozen=True, slots=True)
class Port:
    """One input or output of an operation.

    `view`: the row may be split differently. `role`: step inputs and caches mean one thing throughout a
    graph, so a buffer used as `positions` in one node may not be `slots` in another; an empty role is not
    checked. `optional`: nodes may end before it; only optional ports follow it. `product`: a matrix that rows are
    multiplied by, which backends may keep in an order of their own. `chosen_by`: of a tensor with an entry for each
    expert, the input that lists the experts of a row.
    """

    name: str
    dtypes: frozenset[DType]
    shape: tuple[Dim, ...]
    kinds: frozenset[BufferKind]
    view: bool = False
    role: str = ""
    optional: bool = False
    product: bool = False
    chosen_by: str = ""

    @property
    def is_index(self) -> bool:
        """Whether it says which rows, positions or pages a step works on."""
        return bool(self.role) and self.dtypes == INT32


@dataclass(frozen=True, slots=True)
class AttrSpec:
    """One attribute: its exact type, which values it may be, and what nodes without it have.

    at_least: a number's least value. above: what a number must be greater than. one_of: the values of a text, any
    where empty. default: what a node without the attribute has. like: the attribute whose value it has then, instead.
    optional: nodes may go without and have none. An attribute with none of the last three is one that every node must
    have; with one of them, an operation gains it without any change to the graphs that exist.
    """

    type: type[Attr]
    at_least: float | None = None
    default: Attr | None = None
    one_of: tuple[str, ...] = ()
    above: float | None = None
    like: str = ""
    optional: bool = False

    @property
    def required(self) -> bool:
        """Whether every node must have it."""
        return self.default is None and not self.like and not self.optional


Rule = Callable[[Bindings], str | None]
"""A condition that patterns cannot say: None when it holds, else what is expected and what was seen."""


@dataclass(frozen=True, slots=True)
class OpSignature:
    """The inputs, outputs and attributes of an operation."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    attrs: Mapping[str, AttrSpec] = field(default_factory=dict)
    rules: tuple[Rule, ...] = ()

    def with_defaults(self, attrs: Mapping[str, Attr]) -> Mapping[str, Attr]:
        """The attributes of a node of this signature, with the defaults of those that it leaves out."""
        known = {name: spec.default for name, spec in self.attrs.items() if spec.default is not None}
        known.update(attrs)
        known.update({a: known[s.like] for a, s in self.attrs.items() if s.like in known and a not in known})
        return known


class Operands(Protocol):
    """The operands of a reference kernel. Its arrays are cut to the rows that the step has.

    name: of the node, for messages. attrs: of the node, defaults included.
    """

    @property
    def name(self) -> str: ...

    @property
    def attrs(self) -> Mapping[str, Any]: ...

    @property
    def inputs(self) -> Sequence[Any]:
        """An array for each input, the `Weight` of a matrix, or a list of them for a tensor of several."""
        ...

    @property
    def outputs(self) -> Sequence[Any]:
        """An array for each output, to be written."""
        ...

    def quantized(self, port: int) -> QuantActivations:
        """Rows of an input as int8; the products that read the same buffer share them."""
        ...


class OpDefinition(NamedTuple):
    """All that is known of an operation, whatever runs it.

    signature: None for one that takes any buffers. reference: the NumPy kernel, which every backend has to equal.
    operations: arithmetic ones of a node. touched: bytes read and written; None: whole buffers.
    variants: signatures that hold instead for nodes with one of their attributes that the first has not; where several
    do, the one of which a node has the most.
    either_rows: works on rows of the step or on wanted ones, as the buffers say.
    """

    op: Op
    signature: OpSignature | None
    reference: Callable[[Operands], None]
    operations: Callable[[CostView], int]
    touched: Callable[[CostView], tuple[int, int]] | None = None
    variants: tuple[OpSignature, ...] = ()
    either_rows: bool = False

    def signature_of(self, attrs: Mapping[str, Attr]) -> OpSignature | None:
        """The signature that a node with these attributes must meet."""
        known = self.signature.attrs.keys() if self.signature is not None else set()
        found, most = self.signature, 0
        for other in self.variants:
            own = len((other.attrs.keys() - known) & attrs.keys())
            if own > most:
                found, most = other, own
        return found


def activation(name: str, *shape: Dim) -> Port:
    """Rows of float32; they may be split differently."""
    return Port(name, FLOAT32, shape, ACTIVATION, view=True)


def weight(name: str, *shape: Dim, dtypes: frozenset[DType] = WEIGHTS) -> Port:
    """A tensor of the file, or a table computed at load."""
    return Port(name, dtypes, shape, READ_ONLY)


def matrix(name: str, *shape: Dim) -> Port:
    """A tensor of the file that rows are multiplied by."""
    return Port(name, WEIGHTS, shape, READ_ONLY, product=True)


def experts(name: str, *shape: Dim, dtypes: frozenset[DType] = WEIGHTS, optional: bool = False) -> Port:
    """A tensor with an entry for each expert, of which a row uses those that `ids` lists: matrices or plain numbers."""
    return Port(name, dtypes, shape, READ_ONLY, optional=optional, product=dtypes is WEIGHTS, chosen_by="ids")


def index(name: str, *shape: Dim) -> Port:
    """One of the step's indices, whose role is its name."""
    return Port(name, INT32, shape, INDEX, role=name)


COUNT = AttrSpec(int, at_least=1)
VALUE_DIM = AttrSpec(int, at_least=1, like="head_dim")
EPS = AttrSpec(float, at_least=0.0)
HEADS = {"n_heads": COUNT, "head_dim": COUNT}
ROW = activation("x", "R", "n")
HEAD_ROW = activation("x", "R", "n_heads", "head_dim")


def flat(rows: Any) -> Any:
    """Rows as they are, their elements in one dimension: a view [n_rows, elements]. There may be no rows."""
    return rows.reshape(rows.shape[0], math.prod(rows.shape[1:]))


def heads(at: Operands, array: Any, count: str = "n_heads", size: str = "head_dim") -> Any:
    """Rows with their heads apart: a view f32[n_rows, heads, elements]. count, size: attributes that say how many."""
    return array.reshape(array.shape[0], int(at.attrs[count]), int(at.attrs[size]))
