"""The tensors of one file in a graph under construction: weights, parts of them, constants that are made from them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import SUPPORTED, GGMLType, GGUFFile, TensorInfo
from zinc_rt.gguf.blocks import dequantize
from zinc_rt.gguf.errors import OTHER_FORMAT, UnsupportedTensorType
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.graph import BufferId, BufferKind, DType
from zinc_rt.models.definition import (
    F32,
    MakeConstant,
    ModelDefinition,
    ModelInfo,
    PictureStyle,
    PooledLayer,
    Ranking,
    StateSpec,
    WeightRows,
)
from zinc_rt.models.errors import ModelError
from zinc_rt.models.states import StateBooks
from zinc_rt.utils.checks import show


class GraphTensors:
    """A graph under construction and what of the model's file it reads.

    Args:
        file: the model's file.
        info: its figures; the graph gets the architecture's name.

    Attributes:
        picture_style: what is peculiar to texts with pictures, where the architecture says something of it.
        ranking: how the model ranks texts, where it does.
    """

    def __init__(self, file: GGUFFile, info: ModelInfo) -> None:
        self.file, self.info = file, info
        self.g = GraphBuilder(info.architecture)
        self.g.meta.update(
            architecture=info.architecture, n_layers=info.n_layers, n_embd=info.n_embd, n_vocab=info.n_vocab
        )
        self.states = StateBooks(self.g)
        self._weights: dict[str, BufferId] = {}
        self._rows: dict[str, WeightRows | tuple[WeightRows, ...]] = {}
        self._constants: dict[str, MakeConstant] = {}
        self._host: set[str] = set()
        self._pooled: list[PooledLayer] = []
        self._unread: set[str] = set()
        self.picture_style = PictureStyle()
        self.ranking: Ranking | None = None

    def has(self, name: str) -> bool:
        """Whether the file has the tensor."""
        return name in self.file.tensors

    def weight(self, name: str, *shape: int, plain: bool = False) -> BufferId:
        """The buffer of a whole tensor of this shape. plain: it has to be F32, as every vector has; dimensions of 1 do
        not count then.

        Raises `ModelError`, `UnsupportedTensorType`.
        """
        if name not in self._weights:
            tensor = self._tensor(name, shape, plain=plain)
            self._add_weight(name, tensor, shape, WeightRows(name, 0, tensor.n_rows))
        return self._weights[name]

    def row(self, name: str, n: int) -> BufferId:
        """The buffer of an F32 vector as a matrix of one row, [1, n]. Raises what `weight` raises."""
        if name not in self._weights:
            self._add_weight(name, self._tensor(name, (n,)), (1, n), WeightRows(name, 0, 1))
        return self._weights[name]

    def weight_rows(
        self, name: str, shape: Sequence[int], start: int, stop: int, *, period: int | None = None,
        end: int | None = None, plain: bool = False,
    ) -> BufferId:  # fmt: skip
        """The buffer of rows start .. stop - 1 of a tensor of this shape, as of projections that a file stores as one.

        Args:
            name: of the tensor.
            shape: of the whole tensor: [n_out, n_in], or [n_experts, n_out, n_in], whose rows count from 0 in each.
            start, stop: rows of every period.
            period: after how many rows they come again, a divisor of n_out; None for n_out itself. The rows of all
                periods follow each other in the buffer.
            end: where the periods end in a tensor of two dimensions, as where others follow; None for n_out.
            plain: see `weight`.

        Raises what `weight` raises, and `ModelError` for rows that are not in a period.
        """
        *outer, n_out, n_in = shape
        every = n_out if period is None else period
        last = n_out if end is None else end
        if last % every or not 0 <= start < stop <= every or not last <= n_out or (outer and end is not None):
            raise ModelError(f"tensor {name} of shape {list(shape)} has no rows {start} to {stop} of every {every}")
        whole = every == n_out and not outer
        within = "" if end is None else f" up to {end}"
        buffer = f"{name}[{start}:{stop}]" if whole else f"{name}[{start}:{stop} of {every}{within}]"
        if buffer not in self._weights:
            tensor = self._tensor(name, tuple(shape), plain=plain)
            rows = WeightRows(name, start, stop, None if whole else every, end)
            self._add_weight(buffer, tensor, (*outer, last // every * (stop - start), n_in), rows)
        return self._weights[buffer]

    def gathered_rows(
        self, name: str, shape: tuple[int, int], period: int, parts: Sequence[tuple[int, int]]
    ) -> BufferId:
        """The buffer of rows start .. stop - 1 of every period, of each part in turn: all of the first, then the next.

        Raises what `weight` raises.
        """
        n_out, n_in = shape
        buffer = f"{name}[{', '.join(f'{start}:{stop}' for start, stop in parts)} of {period}]"
        if buffer not in self._weights:
            rows = tuple(WeightRows(name, start, stop, period) for start, stop in parts)
            made = (int(sum(part.count(n_out) for part in rows)), n_in)
            kind = DType.of(self._tensor(name, shape).type)
            self._weights[buffer] = self.g.buffer(buffer, BufferKind.WEIGHT, kind, made)
            self._rows[buffer] = rows
        return self._weights[buffer]

    def stacked(self, buffer: str, names: Sequence[str], n_out: int, n_in: int) -> BufferId:
        """The buffer, called `buffer`, of the rows of several F32 tensors [n_out, n_in], one after another.

        Raises what `weight` raises.
        """
        for name in names:
            self._tensor(name, (n_out, n_in), plain=True)
        made = self.g.buffer(buffer, BufferKind.WEIGHT, DType.F32, (len(names) * n_out, n_in))
        self._rows[buffer] = tuple(WeightRows(name, 0, n_out) for name in names)
        self._weights[buffer] = made
        return made

    def weight_of(self, other: GGUFFile, name: str, buffer: str) -> BufferId:
        """The buffer, called `buffer`, of a whole matrix of another file, which has passed its own checks."""
        tensor = other.tensors[name]
        self._add_weight(buffer, tensor, tensor.shape, WeightRows(name, 0, tensor.n_rows))
        return self._weights[buffer]

    def weight_columns(self, name: str, shape: tuple[int, int], part: int, parts: int) -> BufferId:
        """The buffer of one of so many equal parts of a matrix's columns: what multiplies that part of rows which are
        put together of several.

        Raises what `weight` raises, and `ModelError` where a part is no whole number of the format's blocks.
        """
        n_out, n_in = shape
        buffer = f"{name}[columns {part} of {parts}]"
        if buffer not in self._weights:
            tensor = self._tensor(name, shape)
            block = DType.of(tensor.type).block_size
            if n_in % (parts * block):
                raise ModelError(
                    f"tensor {name} is {tensor.type.name} with rows of {n_in} elements, which cannot be cut into"
                    f" {parts}: {n_in // parts} elements are no whole number of blocks of {block}"
                )
            rows = WeightRows(name, part, part + 1, parts, cut=parts)
            self._add_weight(buffer, tensor, (n_out, n_in // parts), rows)
        return self._weights[buffer]

    def parted(self, name: str, parts: int, n_out: int, n_in: int) -> BufferId:
        """The buffer [parts, n_out, n_in] of a tensor that has the rows of all parts in two dimensions.

        Raises what `weight` raises.
        """
        if name not in self._weights:
            tensor = self._tensor(name, (parts * n_out, n_in))
            self._add_weight(name, tensor, (parts, n_out, n_in), WeightRows(name, 0, tensor.n_rows))
        return self._weights[name]

    def kernel(self, name: str, shape: tuple[int, ...]) -> BufferId:
        """The buffer of a convolution's kernel as a matrix: [n_out, n_in], where a patch of n_in numbers is a row.

        shape: of the tensor, [n_out, ...]. Raises what `weight` raises, and `ModelError` for a format of blocks.
        """
        if name not in self._weights:
            tensor = self._plain(name, shape)
            made = (shape[0], math.prod(shape[1:]))
            self._add_weight(name, tensor, made, WeightRows(name, 0, shape[0], joined=math.prod(shape[1:-1])))
        return self._weights[name]

    def turned(self, name: str, n_out: int, n_in: int) -> BufferId:
        """The buffer [n_out, n_in] of a matrix that is stored as [n_in, n_out].

        Raises what `weight` raises, and `ModelError` for a format of blocks.
        """
        if name not in self._weights:
            self._add_weight(
                name, self._plain(name, (n_in, n_out)), (n_out, n_in), WeightRows(name, 0, n_out, turned=True)
            )
        return self._weights[name]

    def _plain(self, name: str, shape: tuple[int, ...]) -> TensorInfo:
        """A tensor of plain numbers."""
        tensor = self._tensor(name, shape)
        if DType.of(tensor.type).block_size > 1:
            raise ModelError(f"tensor {name} is {tensor.type.name}; it must be F32, F16 or BF16")
        return tensor

    def vector(self, name: str, n: int) -> F32 | None:
        """The values of an F32 vector that a constant is made from, f32[n]; None where the file has no such tensor.

        Raises `ModelError`.
        """
        return np.array(self._stored(name, GGMLType.F32, (n,)).view("<f4"), np.float32) if self.has(name) else None

    def integers(self, name: str, *shape: int) -> npt.NDArray[np.int32]:
        """The values of an I32 tensor that a constant is made from. Raises `ModelError`."""
        return np.array(self._stored(name, GGMLType.I32, shape).view("<i4"), np.int32).reshape(shape)

    def _stored(self, name: str, kind: GGMLType, shape: tuple[int, ...]) -> npt.NDArray[np.uint8]:
        """The bytes of a tensor of this type and shape that a constant is made from. Raises `ModelError`."""
        tensor = self.file.tensors.get(name)
        if tensor is None or tensor.type is not kind or tensor.shape != shape:
            found = "missing" if tensor is None else f"{tensor.type.name}{list(tensor.shape)}"
            raise ModelError(f"tensor {name} is {found}, {kind.name}{list(shape)} is needed")
        self._host.add(name)
        return self.file.raw(name).reshape(-1)

    def table(self, name: str, n: int) -> F32:
        """The rows of a matrix that a constant is made from, f32[n_rows, n], whatever its format.

        Raises `ModelError`, `UnsupportedTensorType`.
        """
        found = self.file.tensors.get(name)
        tensor = self._tensor(name, (found.shape[0] if found is not None and found.shape else 1, n))
        self._host.add(name)
        return dequantize(tensor.type, self.file.raw(name))

    def table_constant(self, name: str, n_rows: int, n: int) -> BufferId:
        """The tensor `name`.weight [n_rows, n] as a constant, whatever its format. Raises what `weight` raises."""
        self._tensor(f"{name}.weight", (n_rows, n))
        values = self.table(f"{name}.weight", n)
        return self.constant(name, (n_rows, n), lambda n_ctx: values)

    def project_pooled(
        self,
        name: str,
        n_out: int | None,
        n_in: int,
        *,
        bias: bool = False,
        activation: str = "",
        norm: str | None = None,
        eps: float = 0.0,
    ) -> None:
        """A layer of the tensor `name`.weight that vectors of whole texts go through, after those before it.

        n_out: None for as many rows as there are. bias: whether `name`.bias counts where the file has it. activation,
        eps: see `PooledLayer`. norm: the layer norm by `norm`.weight and `norm`.bias, where the file has them.

        Raises `ModelError`, `UnsupportedTensorType`.
        """
        rows = self.table(f"{name}.weight", n_in)
        if len(rows) != (n_out or len(rows)):
            raise ModelError(f"tensor {name}.weight has {len(rows)} rows, the metadata calls for {n_out}")
        shift = self.vector(f"{name}.bias", len(rows)) if bias else None
        factors = None if norm is None else self.vector(f"{norm}.weight", len(rows))
        shifts = None if norm is None else self.vector(f"{norm}.bias", len(rows))
        self._pooled.append(PooledLayer(rows, shift, activation, factors, shifts, eps))

    def number(self, name: str) -> float | None:
        """The value of an F32 tensor of one element; None where the file has no such tensor.

        Raises `ModelError` for another shape, or a value that is not finite.
        """
        values = self.vector(name, 1)
        if values is not None and not np.isfinite(values).all():
            raise ModelError(f"tensor {name} is {values[0]}, a finite number is needed")
        return None if values is None else float(values[0])

    def leave(self, names: Iterable[str]) -> None:
        """Tensors that are known and that no step needs, where the file has them."""
        self._unread.update(name for name in names if self.has(name))

    def _tensor(self, name: str, shape: tuple[int, ...], *, plain: bool = False) -> TensorInfo:
        tensor = self.file.tensors.get(name)
        if tensor is None:
            raise ModelError(
                f"tensor {name} of shape {list(shape)} is missing, which architecture"
                f" {self.info.architecture!r} needs; the file may be incomplete or from another converter"
            )
        if tensor.shape != shape and not (plain and _counts(tensor.shape) == _counts(shape)):
            raise ModelError(f"tensor {name} has shape {list(tensor.shape)}, the metadata calls for {list(shape)}")
        allowed = SUPPORTED if len(shape) > 1 and not plain else (GGMLType.F32,)
        if tensor.type not in allowed:
            found, wanted = tensor.type.name, ", ".join(kind.name for kind in allowed)
            raise UnsupportedTensorType(
                f"tensor {show(name)} is of type {found}, which is not supported here yet; supported: {wanted}"
            ).with_advice(OTHER_FORMAT)
        return tensor

    def _add_weight(self, buffer: str, tensor: TensorInfo, shape: tuple[int, ...], rows: WeightRows) -> None:
        self._weights[buffer] = self.g.buffer(buffer, BufferKind.WEIGHT, DType.of(tensor.type), shape)
        self._rows[buffer] = rows

    def constant(self, name: str, shape: Sequence[int | str], make: MakeConstant) -> BufferId:
        """A table f32[shape] that `make` computes from n_ctx at load."""
        self._constants[name] = make
        return self.g.buffer(name, BufferKind.CONSTANT, DType.F32, shape)

    def finish(self) -> ModelDefinition:
        """The definition over the verified graph. Raises `GraphError`."""
        states: tuple[StateSpec, ...] = self.states.specs()
        return ModelDefinition(
            self.info,
            self.g.build(),
            self._constants,
            states,
            self._rows,
            frozenset(self._host),
            frozenset(self._unread),
            tuple(self._pooled),
            self.picture_style,
            ranking=self.ranking,
        )


def _counts(shape: Sequence[int]) -> tuple[int, ...]:
    """A shape without its dimensions of 1, which some converters add."""
    return tuple(n for n in shape if n != 1)
