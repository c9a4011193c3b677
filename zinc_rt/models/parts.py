"""The nodes of a decode step, one method for each part, over the tensors of one file.

All activations are f32[n_rows, width]; heads are views. A row of a step is one (sequence, position) pair, whether it
belongs to a prompt or is being generated: there is no other difference between prefill and decode.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from zinc_rt.gguf import SUPPORTED, GGMLType, GGUFFile, TensorInfo
from zinc_rt.gguf.blocks import dequantize
from zinc_rt.gguf.errors import UnsupportedTensorType
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.graph import Attr, BufferId, BufferKind, DType
from zinc_rt.ir.op import Op
from zinc_rt.models.definition import F32, MakeConstant, ModelDefinition, ModelInfo, StateSpec, WeightRows
from zinc_rt.models.errors import BadDefinition, MissingWeight, TensorShapeMismatch
from zinc_rt.models.hidden import HIDDEN, LAST_POSITIONS
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.states import StateBooks

_STEP_INPUTS = {
    "token_ids": ("n_rows",),
    "positions": ("n_rows",),
    "slots": ("n_rows",),
    "page_table": ("n_slots", "max_pages"),
}
_DECODES = {"logit_rows": ("n_logits",)}
_ENCODES = {LAST_POSITIONS: ("n_rows",)}

FactorsOf = Callable[[int], F32 | None]
"""Frequency factors for n_ctx positions."""


@dataclass(frozen=True)
class Rotation:
    """A table of cosines and sines in the graph, made by `GraphParts.rotation`.

    table: the constant, f32[n_ctx, pairs, 2]. interleaved: a pair is two neighbours rather than one of each half.
    """

    table: BufferId
    interleaved: bool


class GraphParts:
    """A graph under construction. An architecture file makes one, declares its constants, then emits its blocks.

    Args:
        file: the model's file.
        info: its figures; the graph gets the architecture's name.
        eps: what norms add to the mean square.
        causal: whether rows see those before them only. An encoder's rows see all of their text; it has no logits.
    """

    def __init__(self, file: GGUFFile, info: ModelInfo, eps: float, *, causal: bool = True) -> None:
        self.file, self.info, self.eps, self.causal = file, info, eps, causal
        self.g = GraphBuilder(info.architecture)
        self.g.meta.update(
            architecture=info.architecture, n_layers=info.n_layers, n_embd=info.n_embd, n_vocab=info.n_vocab
        )
        self.step = {
            name: self.g.buffer(name, BufferKind.INPUT, DType.I32, shape)
            for name, shape in (_STEP_INPUTS | (_DECODES if causal else _ENCODES)).items()
        }
        self.states = StateBooks(self.g)
        self._weights: dict[str, BufferId] = {}
        self._rows: dict[str, WeightRows | tuple[WeightRows, ...]] = {}
        self._constants: dict[str, MakeConstant] = {}
        self._host: set[str] = set()
        self._projections: list[F32] = []
        self._unread: set[str] = set()
        self._widths: dict[BufferId, int] = {}

    # -- tensors of the file ------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether the file has the tensor."""
        return name in self.file.tensors

    def weight(self, name: str, *shape: int, plain: bool = False) -> BufferId:
        """The buffer of a whole tensor of this shape. plain: it has to be F32, as every vector has.

        Raises `MissingWeight`, `TensorShapeMismatch`, `UnsupportedTensorType`.
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

        Raises what `weight` raises, and `BadDefinition` for rows that are not in a period.
        """
        *outer, n_out, n_in = shape
        every = n_out if period is None else period
        last = n_out if end is None else end
        if last % every or not 0 <= start < stop <= every or not last <= n_out or (outer and end is not None):
            raise BadDefinition(f"tensor {name} of shape {list(shape)} has no rows {start} to {stop} of every {every}")
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
            made = (sum(part.count(n_out) for part in rows), n_in)
            kind = DType.of(self._tensor(name, shape).type)
            self._weights[buffer] = self.g.buffer(buffer, BufferKind.WEIGHT, kind, made)
            self._rows[buffer] = rows
        return self._weights[buffer]

    def vector(self, name: str, n: int) -> F32 | None:
        """The values of an F32 vector that a constant is made from, f32[n]; None where the file has no such tensor.

        Raises `TensorShapeMismatch`.
        """
        tensor = self.file.tensors.get(name)
        if tensor is None:
            return None
        if tensor.type is not GGMLType.F32 or tensor.shape != (n,):
            raise TensorShapeMismatch(f"tensor {name} is {tensor.type.name}{list(tensor.shape)}, F32[{n}] is needed")
        self._host.add(name)
        return np.array(self.file.raw(name).reshape(-1).view("<f4"), np.float32)

    def table(self, name: str, n: int) -> F32:
        """The rows of a matrix that a constant is made from, f32[n_rows, n], whatever its format.

        Raises `MissingWeight`, `TensorShapeMismatch`, `UnsupportedTensorType`.
        """
        found = self.file.tensors.get(name)
        tensor = self._tensor(name, (found.shape[0] if found is not None and found.shape else 1, n))
        self._host.add(name)
        return dequantize(tensor.type, self.file.raw(name))

    def project_pooled(self, name: str, n_out: int, n_in: int) -> None:
        """A matrix of the tensor `name`.weight that vectors of whole texts are multiplied by, after those before it.

        Raises `TensorShapeMismatch`, `MissingWeight`, `UnsupportedTensorType`.
        """
        rows = self.table(f"{name}.weight", n_in)
        if len(rows) != n_out:
            raise TensorShapeMismatch(f"tensor {name}.weight has {len(rows)} rows, the metadata calls for {n_out}")
        self._projections.append(rows)

    def number(self, name: str) -> float | None:
        """The value of an F32 tensor of one element; None where the file has no such tensor.

        Raises `TensorShapeMismatch` for another shape, or a value that is not finite.
        """
        values = self.vector(name, 1)
        if values is not None and not np.isfinite(values).all():
            raise TensorShapeMismatch(f"tensor {name} is {values[0]}, a finite number is needed")
        return None if values is None else float(values[0])

    def leave(self, names: Iterable[str]) -> None:
        """Tensors that are known and that no step needs, where the file has them."""
        self._unread.update(name for name in names if self.has(name))

    def _tensor(self, name: str, shape: tuple[int, ...], *, plain: bool = False) -> TensorInfo:
        tensor = self.file.tensors.get(name)
        if tensor is None:
            raise MissingWeight(
                f"tensor {name} of shape {list(shape)} is missing, which architecture"
                f" {self.info.architecture!r} needs; the file may be incomplete or from another converter"
            )
        if tensor.shape != shape:
            raise TensorShapeMismatch(
                f"tensor {name} has shape {list(tensor.shape)}, the metadata calls for {list(shape)}"
            )
        allowed = SUPPORTED if len(shape) > 1 and not plain else (GGMLType.F32,)
        if tensor.type not in allowed:
            wanted = ", ".join(kind.name for kind in allowed)
            raise UnsupportedTensorType(
                f"tensor {name} is of type {tensor.type.name}, which is not supported here yet; supported: {wanted}"
            )
        return tensor

    def _add_weight(self, buffer: str, tensor: TensorInfo, shape: tuple[int, ...], rows: WeightRows) -> None:
        self._weights[buffer] = self.g.buffer(buffer, BufferKind.WEIGHT, DType.of(tensor.type), shape)
        self._rows[buffer] = rows

    # -- constants ----------------------------------------------------------------------------------------------------

    def constant(self, name: str, shape: Sequence[int | str], make: MakeConstant) -> BufferId:
        """A table f32[shape] that `make` computes from n_ctx at load."""
        self._constants[name] = make
        return self.g.buffer(name, BufferKind.CONSTANT, DType.F32, shape)

    def rotation(
        self, rope: RopeConfig, *, name: str = "rope_table", factors: str | FactorsOf | None = None
    ) -> Rotation:
        """The table of a rotation.

        factors: a tensor of frequency factors, which counts where the file has it, or a function that gives those for
        n_ctx positions (see `rope_factors`).

        Raises `TensorShapeMismatch` for factors of a wrong shape, or that are not positive.
        """
        values = self.rope_factors(factors, rope) if isinstance(factors, str) else None
        chosen = factors if callable(factors) else lambda n_ctx: values
        table = self.constant(name, ("n_ctx", rope.dim // 2, 2), lambda n_ctx: rope.table(n_ctx, chosen(n_ctx)))
        return Rotation(table, rope.interleaved)

    def rope_factors(self, name: str, rope: RopeConfig) -> F32 | None:
        """Frequency factors of a rotation, f32[pairs]; None where the file has no such tensor.

        Raises `TensorShapeMismatch` for factors of a wrong shape, or that are not positive.
        """
        values = self.vector(name, rope.dim // 2)
        if values is not None and not (values > 0).all():
            raise TensorShapeMismatch(f"tensor {name} has factors that are not positive")
        return values

    # -- nodes --------------------------------------------------------------------------------------------------------

    def temp(self, name: str, width: int) -> BufferId:
        """A fresh activation f32[n_rows, width]."""
        made = self.g.buffer(name, BufferKind.TEMP, DType.F32, ("n_rows", width))
        self._widths[made] = width
        return made

    def places(self, name: str, width: int) -> BufferId:
        """A fresh list of places for each row, i32[n_rows, width]."""
        return self.g.buffer(name, BufferKind.TEMP, DType.I32, ("n_rows", width))

    def width(self, x: BufferId) -> int:
        """Elements of a row of an activation that `temp` made."""
        return self._widths[x]

    def embed(self, name: str = "token_embd", width: int | None = None) -> BufferId:
        """Rows of the tensor `name`.weight by the token ids: f32[n_rows, width], n_embd if not said."""
        usual = name == "token_embd"
        x = self.temp("embd" if usual else f"{name}.rows", width or self.info.n_embd)
        weight = self.weight(f"{name}.weight", self.info.n_vocab, self.width(x))
        self.g.node(Op.EMBED, [self.step["token_ids"], weight], [x], "embed" if usual else f"{name}.embed")
        return x

    def norm(self, x: BufferId, name: str, *, tensor: str | None = None) -> BufferId:
        """RMS norm of whole rows by the tensor `name`.weight, or by `tensor`."""
        y = self.temp(name, self.width(x))
        weight = self.weight(tensor or f"{name}.weight", self.width(x))
        self.g.node(Op.RMS_NORM, [x, weight], [y], f"{name}.rms_norm", eps=self.eps)
        return y

    def add_norm(self, x: BufferId, branch: BufferId, name: str, sum_name: str) -> tuple[BufferId, BufferId]:
        """x + branch, and the RMS norm of that by `name`.weight."""
        total, y = self.temp(sum_name, self.width(x)), self.temp(name, self.width(x))
        weight = self.weight(f"{name}.weight", self.width(x))
        self.g.node(
            Op.RESIDUAL_RMS_NORM, [x, branch, weight], [total, y], f"{name}.residual_rms_norm", eps=self.eps
        )  # fmt: skip
        return total, y

    def add(self, a: BufferId, b: BufferId, name: str) -> BufferId:
        """a + b, where no norm follows that could do it."""
        y = self.temp(name, self.width(a))
        self.g.node(Op.RESIDUAL_ADD, [a, b], [y], f"{name}.residual_add")
        return y

    def project(self, x: BufferId, name: str, n_out: int, *, bias: bool | None = False) -> BufferId:
        """W x with the tensor `name`.weight. bias: True needs `name`.bias, False has none, None takes what is there."""
        y = self.temp(name, n_out)
        self.g.node(Op.MATMUL, [x, self.weight(f"{name}.weight", n_out, self.width(x))], [y], f"{name}.matmul")
        return self.biased(y, name, bias)

    def product(self, x: BufferId, weight: BufferId, name: str) -> BufferId:
        """W x with a matrix that `weight_rows` gave."""
        y = self.temp(name, int(self.g.shape(weight)[0]))
        self.g.node(Op.MATMUL, [x, weight], [y], f"{name}.matmul")
        return y

    def biased(self, y: BufferId, name: str, bias: bool | None = True) -> BufferId:
        """y + `name`.bias. bias: True needs it, False has none, None takes what is there."""
        if not bias and not (bias is None and self.has(f"{name}.bias")):
            return y
        return self._add_bias(y, name, self.weight(f"{name}.bias", self.width(y)))

    def _add_bias(self, y: BufferId, name: str, bias: BufferId) -> BufferId:
        biased = self.temp(f"{name}.biased", self.width(y))
        self.g.node(Op.BIAS_ADD, [y, bias], [biased], f"{name}.bias_add")
        return biased

    def split_project(
        self, x: BufferId, name: str, sizes: Sequence[int], *, bias: bool | None = False, heads: int = 1
    ) -> list[BufferId]:
        """W x with the tensor `name`.weight, whose rows are those of several projections, one activation for each.

        bias: as of `project`; `name`.bias holds the biases of all. heads: the rows of all projections come again for
        each of so many heads (without biases); an activation then has its part of all heads.
        """
        n_in, total, out, start = self.width(x), sum(sizes), [], 0
        biases = self.vector(f"{name}.bias", total) if bias is not False else None
        if bias and biases is None:
            raise MissingWeight(f"tensor {name}.bias is missing, which architecture {self.info.architecture!r} needs")
        for i, size in enumerate(sizes):
            y = self.temp(f"{name}.{i}", heads * size)
            weight = self.weight_rows(f"{name}.weight", (heads * total, n_in), start, start + size, period=total)
            self.g.node(Op.MATMUL, [x, weight], [y], f"{name}.{i}.matmul")
            if biases is not None:
                part = self.constant(f"{name}.{i}.bias", (size,), _always(biases[start : start + size]))
                y = self._add_bias(y, f"{name}.{i}", part)
            out.append(y)
            start += size
        return out

    def group_project(self, x: BufferId, name: str, parts: int, n_out: int) -> BufferId:
        """Each of so many parts of x times its matrix of `name`.weight [parts, n_out, n_in], one after another."""
        y = self.temp(name, parts * n_out)
        weight = self.weight(f"{name}.weight", parts, n_out, self.width(x) // parts)
        self.g.node(Op.GROUP_MATMUL, [x, weight], [y], f"{name}.group_matmul")
        return y

    def head_norm(self, x: BufferId, name: str, n_heads: int, head_dim: int, *, weight: bool = True) -> BufferId:
        """RMS norm of each head by `name`.weight, f32[head_dim]; weight: False for a norm without."""
        y = self.temp(name, n_heads * head_dim)
        inputs = [x, self.weight(f"{name}.weight", head_dim)] if weight else [x]
        self.g.node(
            Op.RMS_NORM, inputs, [y], f"{name}.rms_norm", eps=self.eps, n_heads=n_heads, head_dim=head_dim
        )  # fmt: skip
        return y

    def gate(
        self, gate: BufferId, up: BufferId, name: str, *, activation: str = "silu", up_start: int | None = None
    ) -> BufferId:
        """activation(gate) * up. up_start: where the elements of up begin, in rows that hold more."""
        y = self.temp(name, self.width(gate))
        attrs: dict[str, Attr] = {} if activation == "silu" else {"activation": activation}
        if up_start is not None:
            attrs["up_start"] = up_start
        self.g.node(Op.SWIGLU, [gate, up], [y], f"{name}.swiglu", **attrs)
        return y

    def scale(self, x: BufferId, factor: float, name: str) -> BufferId:
        """x * factor, rounded to float32."""
        y = self.temp(name, self.width(x))
        self.g.node(Op.SCALE, [x], [y], f"{name}.scale", factor=factor)
        return y

    def position_scale(self, x: BufferId, name: str, factors: BufferId) -> BufferId:
        """Rows times the factor of their position, of a constant f32[n_ctx]."""
        y = self.temp(name, self.width(x))
        self.g.node(Op.POSITION_SCALE, [x, self.step["positions"], factors], [y], name)
        return y

    def rope(self, x: BufferId, name: str, rotation: Rotation, n_heads: int, head_dim: int) -> BufferId:
        """Rotate each head by its row's position."""
        y = self.temp(name, n_heads * head_dim)
        self.g.node(
            Op.ROPE, [x, self.step["positions"], rotation.table], [y], name,
            interleaved=rotation.interleaved, n_heads=n_heads, head_dim=head_dim,
        )  # fmt: skip
        return y

    def where(self) -> list[BufferId]:
        """What says where a row's keys and values are: its position, its sequence, the page table."""
        return [self.step["positions"], self.step["slots"], self.step["page_table"]]

    def seen(self) -> list[BufferId]:
        """What says which keys and values a row sees: the last position, its sequence, the page table."""
        last = self.step["positions" if self.causal else LAST_POSITIONS]
        return [last, self.step["slots"], self.step["page_table"]]

    def hidden(self, x: BufferId, name: str) -> None:
        """The RMS norm of x by the tensor `name`.weight as the model's output: rows of hidden states."""
        width = self.width(x)
        y = self.g.buffer(HIDDEN, BufferKind.OUTPUT, DType.F32, ("n_rows", width))
        weight = self.weight(f"{name}.weight", width)
        self.g.node(Op.RMS_NORM, [x, weight], [y], f"{name}.rms_norm", eps=self.eps)

    def head(
        self, h: BufferId, *, tied: bool | None = None, scale: float | None = None, softcap: float | None = None
    ) -> None:
        """Logits of the wanted rows and their argmax.

        tied: True takes the embedding as the matrix, False needs `output.weight`, None takes that where the file has it
        and else the embedding. scale: a factor of the logits. softcap: they are held under it, by its tanh.
        """
        separate = self.has("output.weight") if tied is None else not tied
        name = "output.weight" if separate else "token_embd.weight"
        shape = ("n_logits", self.info.n_vocab)
        logits = self.g.buffer("logits", BufferKind.OUTPUT, DType.F32, shape)
        weight = self.weight(name, self.info.n_vocab, self.info.n_embd)
        after: list[tuple[Op, str, float]] = []
        if scale is not None:
            after.append((Op.SCALE, "factor", scale))
        if softcap is not None:
            after.append((Op.SOFTCAP, "cap", softcap))
        # Products, each what follows on them, and the last into the output.
        stages = [self.g.buffer(f"logits.{i}", BufferKind.TEMP, DType.F32, shape) for i in range(len(after))] + [logits]
        self.g.node(Op.LM_HEAD, [h, weight, self.step["logit_rows"]], [stages[0]], "lm_head")
        for (op, key, value), x, y in zip(after, stages, stages[1:], strict=False):
            self.g.node(op, [x], [y], f"logits.{op.name.lower()}", **{key: value})
        tokens = self.g.buffer("tokens", BufferKind.OUTPUT, DType.I32, ("n_logits",))
        self.g.node(Op.ARGMAX, [logits], [tokens], "argmax")

    # -- the end ------------------------------------------------------------------------------------------------------

    def finish(self) -> ModelDefinition:
        """The definition over the verified graph. Raises `VerifyError`."""
        states: tuple[StateSpec, ...] = self.states.specs()
        return ModelDefinition(
            self.info, self.g.build(), self._constants, states, self._rows, frozenset(self._host),
            frozenset(self._unread), tuple(self._projections),
        )  # fmt: skip


def _always(values: F32) -> MakeConstant:
    """A constant that does not depend on n_ctx."""
    return lambda n_ctx: values
