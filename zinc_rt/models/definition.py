"""The result of an architecture file: a model's figures, the graph of its step, constants, states and weights.

`define` in `zinc_rt.models` makes a `ModelDefinition` from a file; the engine, the command line and the benchmarks read
nothing else of a model.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferKind, Graph
from zinc_rt.ir.ops import product_bytes
from zinc_rt.models.errors import ModelError

F32 = npt.NDArray[np.float32]
MakeConstant = Callable[[int], F32]
"""Computes a constant from n_ctx, the positions that a sequence may have."""


@dataclass(frozen=True)
class ModelInfo:
    """The figures that the runtime reads of every model. A family's own record extends this one.

    architecture: the file's `general.architecture`. n_layers: blocks. n_embd: elements of a row between blocks.
    n_vocab: logits of a row. n_ctx_train: the context the model was made for, in tokens.
    """

    architecture: str
    n_layers: int
    n_embd: int
    n_vocab: int
    n_ctx_train: int


class StateKind(enum.StrEnum):
    """How memory for a state is handed out to sequences."""

    PAGES = "pages"  # by page of the one page table, as the sequence grows
    SEQUENCE = "sequence"  # a fixed size whatever the length: convolutions, recurrent layers


@dataclass(frozen=True)
class StateSpec:
    """The state that the layers of one kind keep for a sequence, from one step to the next.

    name: of the kind, as messages say it. layers: numbers of the blocks that write it, in increasing order. buffers:
    the graph's STATE buffers that hold it. position_bytes: bytes of a position in all of these layers together.
    read_bytes: bytes of a position that a row reads; more than position_bytes if other layers read it, too.
    sequence_bytes: bytes of a sequence that do not depend on its length, in all layers together. window: the most
    positions that a row sees, None for all.
    """

    name: str
    kind: StateKind
    layers: tuple[int, ...]
    buffers: tuple[str, ...]
    position_bytes: int = 0
    read_bytes: int = 0
    sequence_bytes: int = 0
    window: int | None = None

    def bytes_read(self, n_positions: int) -> int:
        """Bytes that a step of one row reads when its sequence has `n_positions` positions."""
        seen = n_positions if self.window is None else min(n_positions, self.window)
        return self.sequence_bytes + seen * self.read_bytes


@dataclass(frozen=True)
class WeightRows:
    """Rows start .. stop - 1 of a tensor of the file. The tensor's leading dimensions count as rows.

    period: take rows start .. stop - 1 of every `period` rows. Example: a tensor with the query and the gate of each
    head in turn has period 2 * head_dim; None takes them once. end: where the periods end, a multiple of `period`; None
    for the tensor's last row. cut: each row of the file counts as `cut` rows, one after another, each a whole number of
    the format's blocks. Example: 2 for a matrix that multiplies two rows put together. `start`, `stop` and `period`
    count these rows. joined: so many of the file's rows, one after another, are one row, as of a patch's kernel.
    turned: the tensor is stored with rows and columns exchanged. Both are for plain numbers (F32, F16, BF16) alone.
    """

    tensor: str
    start: int
    stop: int
    period: int | None = None
    end: int | None = None
    cut: int = 1
    joined: int = 1
    turned: bool = False

    def count(self, n_rows: int) -> Fraction:
        """How many of a tensor's `n_rows` rows they are."""
        periods = 1 if self.period is None else (self.end or n_rows * self.cut) // self.period
        return Fraction(periods * (self.stop - self.start), self.cut)


class Sections(enum.StrEnum):
    """How the pairs of a head are shared out among time, line and column, where positions have all three."""

    BLOCKS = "blocks"  # those of the time, then those of the line, then those of the column
    ALTERNATING = "alternating"  # by turns, while each has pairs left; the time has those behind


class BothWays(enum.StrEnum):
    """On which layers the rows of a picture see each other both ways."""

    ALL = "all"
    WINDOWED = "windowed"


@dataclass(frozen=True)
class PictureStyle:
    """What is peculiar to an architecture's texts with pictures. sections: of `rope.dimension_sections`, None where
    rows have one position each. both_ways: None where rows of pictures see what is before them, as words do.
    """

    sections: Sections | None = None
    both_ways: BothWays | None = None


@dataclass(frozen=True, eq=False)
class PictureInputs:
    """How a graph takes the rows of pictures (`models.pictures`).

    table: of rotations, f32[n_ctx, pairs, 2], by n_ctx, where positions have sections. axes: i64[pairs], which of a
    row's positions turns each pair: 0 the time, 1 the line, 2 the column; None without sections. both_ways: whether
    rows of a picture see each other both ways, so that one step takes all of them. max_rows: of a picture; None for
    no limit.
    """

    table: MakeConstant | None = None
    axes: npt.NDArray[np.int64] | None = None
    both_ways: bool = False
    max_rows: int | None = None


@dataclass(frozen=True, eq=False)
class PooledLayer:
    """What vectors of whole texts go through: activation(matrix x + bias), then a layer norm.

    matrix: f32[n_out, n_in]. bias, norm, norm_bias: f32[n_out]; None for none. activation: "tanh", "gelu_erf", or empty
    for none. eps: of the norm.
    """

    matrix: F32
    bias: F32 | None = None
    activation: str = ""
    norm: F32 | None = None
    norm_bias: F32 | None = None
    eps: float = 0.0


@dataclass(frozen=True)
class Ranking:
    """How a model ranks texts: by the first number that its pooled layers make of a query and a text put together.

    pooling: which vector they start from, as `llm.embedding.Pooling` names it. softmax: whether the numbers become
    probabilities first.
    """

    pooling: str
    softmax: bool = False


@dataclass(frozen=True)
class ModelDefinition:
    """All that a backend and the engine need to run a model.

    graph: the decode step. constants: by buffer name, the function that computes the table. states: one record for each
    kind of layer that keeps state. weights: by buffer name, the rows of the file; several records stand for matrices
    one below another, of one tensor. host_tensors: tensors that the constants were made from. unread: known tensors
    that no step needs. pooled_layers: what vectors of whole texts go through, one after another. ranking: of a model
    that ranks texts. picture_style: of the architecture. pictures: how the graph takes rows of pictures; None for one
    without.

    Raises `ModelError` if the parts do not belong together: a buffer without its record or a record without its buffer.
    """

    info: ModelInfo
    graph: Graph
    constants: Mapping[str, MakeConstant]
    states: tuple[StateSpec, ...]
    weights: Mapping[str, WeightRows | tuple[WeightRows, ...]]
    host_tensors: frozenset[str] = field(default_factory=frozenset)
    unread: frozenset[str] = field(default_factory=frozenset)
    pooled_layers: tuple[PooledLayer, ...] = ()
    picture_style: PictureStyle = PictureStyle()
    pictures: PictureInputs | None = None
    ranking: Ranking | None = None

    def __post_init__(self) -> None:
        held = [name for state in self.states for name in state.buffers]
        if len(held) != len(set(held)):
            twice = sorted({name for name in held if held.count(name) > 1})
            raise ModelError(f"architecture {self.info.architecture!r}: two states hold {', '.join(twice)}")
        for kind, what, named in (
            (BufferKind.CONSTANT, "constants", set(self.constants)),
            (BufferKind.STATE, "states", set(held)),
            (BufferKind.WEIGHT, "weights", set(self.weights)),
        ):
            there = {b.name for b in self.graph.of_kind(kind)}
            if there != named:
                raise ModelError(
                    f"architecture {self.info.architecture!r}: the graph's {kind.value} buffers and the definition's"
                    f" {what} differ in {', '.join(sorted(there ^ named)[:8])}"
                )

    def step_bytes(self, n_positions: int, *, streams: int = 1) -> int:
        """Bytes that a decode step reads of weights and state, and those of recurrent state that it writes.

        Args:
            n_positions: of each sequence, the step's own among them.
            streams: sequences with a row in the step. Matrices count once; of experts, those that one row chooses.
        """
        state = sum(state.bytes_read(n_positions) + state.sequence_bytes for state in self.states)
        return product_bytes(self.graph) + streams * state

    def raw(self, file: GGUFFile, name: str) -> npt.NDArray[np.uint8]:
        """The stored rows of a weight buffer, u8[n_rows, row_bytes]: a read-only view of the mapped file.

        Rows with a period are u8[periods, rows of each, row_bytes]; rows of several records are a copy.
        """
        rows = self.weights[name]
        if isinstance(rows, WeightRows):
            return self._raw(file, rows)
        parts = [self._raw(file, part) for part in rows]
        return np.concatenate([part.reshape(-1, part.shape[-1]) for part in parts])

    @staticmethod
    def _raw(file: GGUFFile, rows: WeightRows) -> npt.NDArray[np.uint8]:
        whole = file.raw(rows.tensor)
        if rows.turned:
            size = whole.shape[1] // file.tensors[rows.tensor].shape[-1]
            whole = np.ascontiguousarray(whole.view(f"V{size}").T).view(np.uint8)
        if rows.joined > 1:
            whole = whole.reshape(len(whole) // rows.joined, -1)
        if rows.cut > 1:
            whole = whole.reshape(len(whole) * rows.cut, -1)
        if rows.period is None:
            return whole[rows.start : rows.stop]
        return whole[: rows.end].reshape(-1, rows.period, whole.shape[1])[:, rows.start : rows.stop]

    def release(self, file: GGUFFile, name: str) -> None:
        """Let go of the memory behind a weight buffer's rows; views of them read the file again."""
        rows = self.weights[name]
        file.release((rows if isinstance(rows, WeightRows) else rows[0]).tensor)
