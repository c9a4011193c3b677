"""The nodes of a decode step, one method for each part, over the tensors of one file.

All activations are f32[n_rows, width]; heads are views. A row of a step is one (sequence, position) pair, whether it
belongs to a prompt or is being generated: there is no other difference between prefill and decode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferId, BufferKind, DType
from zinc_rt.ir.op import Op
from zinc_rt.models.config import NormKind
from zinc_rt.models.definition import F32, ModelInfo
from zinc_rt.models.errors import ModelError
from zinc_rt.models.hidden import HIDDEN, LAST_POSITIONS
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.row_parts import RowParts

_STEP_INPUTS = {
    "token_ids": ("n_rows",),
    "positions": ("n_rows",),
    "slots": ("n_rows",),
}
_PAGED = {"page_table": ("n_slots", "max_pages")}
_DECODES = {"logit_rows": ("n_logits",)}
_ENCODES = {LAST_POSITIONS: ("n_rows",)}

FactorsOf = Callable[[int], F32 | None]
"""Frequency factors for n_ctx positions."""


@dataclass(frozen=True)
class Rotation:
    """A table of cosines and sines in the graph, made by `GraphParts.rotation`.

    table: the constant, f32[n_ctx, pairs, 2]. interleaved: a pair is two neighbours rather than one of each half. last:
    how many elements of a head rotate where these are its last ones, 0 where they are the first.
    """

    table: BufferId
    interleaved: bool
    last: int = 0


class GraphParts(RowParts):
    """A graph under construction. An architecture file makes one, declares its constants, then emits its blocks.

    Args:
        file: the model's file.
        info: its figures; the graph gets the architecture's name.
        eps: what norms add to the mean square, or to the variance.
        causal: whether rows see those before them only. An encoder's rows see all of their text.
        decodes: whether rows have logits; None for causal ones alone.
        paged: whether any layer keeps keys and values.
        norms: of which kind the norms of rows are.

    Attributes:
        chosen: by layer, the positions that an indexer chose, for layers that take another's choice.
    """

    def __init__(
        self, file: GGUFFile, info: ModelInfo, eps: float, *, causal: bool = True, decodes: bool | None = None,
        paged: bool = True, norms: NormKind = NormKind.RMS,
    ) -> None:  # fmt: skip
        super().__init__(file, info, eps, norms)
        self.causal = causal
        self.chosen: dict[int, BufferId] = {}
        inputs = _STEP_INPUTS | (_PAGED if paged else {}) | ({} if causal else _ENCODES)
        if decodes or (decodes is None and causal):
            inputs |= _DECODES
        self.step = {name: self.g.buffer(name, BufferKind.INPUT, DType.I32, shape) for name, shape in inputs.items()}

    # -- rotations ----------------------------------------------------------------------------------------------------

    def rotation(
        self, rope: RopeConfig, *, name: str = "rope_table", factors: str | FactorsOf | None = None, block: int = 1
    ) -> Rotation:
        """The table of a rotation.

        factors: a tensor of frequency factors, which counts where the file has it, or a function that gives those for
        n_ctx positions (see `rope_factors`). block: see `RopeConfig.table`.

        Raises `ModelError` for factors of a wrong shape, or that are not positive.
        """
        values = self.rope_factors(factors, rope) if isinstance(factors, str) else None
        chosen = factors if callable(factors) else lambda n_ctx: values
        shape = ("n_ctx", rope.dim // 2, 2)
        table = self.constant(name, shape, lambda n_ctx: rope.table(n_ctx, chosen(n_ctx), block=block))
        return Rotation(table, rope.interleaved)

    def long_rotation(self, rope: RopeConfig) -> Rotation:
        """The table of a rotation that has two lists of factors where the file has them: the long ones hold where n_ctx
        is above `rope.scaling.original_context_length`, at every position.

        Raises `ModelError` for one list without the other, too.
        """
        long, short = (self.rope_factors(f"rope_factors_{which}.weight", rope) for which in ("long", "short"))
        if (long is None) != (short is None):
            missing = "long" if long is None else "short"
            raise ModelError(
                f"tensor rope_factors_{missing}.weight is missing, and the file has the other one of the two"
            )
        return self.rotation(rope, factors=lambda n_ctx: long if n_ctx > rope.original_context else short)

    def rope_factors(self, name: str, rope: RopeConfig) -> F32 | None:
        """Frequency factors of a rotation, f32[pairs]; None where the file has no such tensor.

        Raises `ModelError` for factors of a wrong shape, or that are not positive.
        """
        values = self.vector(name, rope.dim // 2)
        if values is not None and not (values > 0).all():
            raise ModelError(f"tensor {name} has factors that are not positive")
        return values

    # -- nodes --------------------------------------------------------------------------------------------------------

    def places(self, name: str, width: int) -> BufferId:
        """A fresh list of places for each row, i32[n_rows, width]."""
        return self.g.buffer(name, BufferKind.TEMP, DType.I32, ("n_rows", width))

    def embed(self, name: str = "token_embd", width: int | None = None) -> BufferId:
        """Rows of the tensor `name`.weight by the token ids: f32[n_rows, width], n_embd if not said."""
        usual = name == "token_embd"
        x = self.temp("embd" if usual else f"{name}.rows", width or self.info.n_embd)
        weight = self.weight(f"{name}.weight", self.info.n_vocab, self.width(x))
        self.g.node(Op.EMBED, [self.step["token_ids"], weight], [x], "embed" if usual else f"{name}.embed")
        return x

    def group_project(self, x: BufferId, name: str, parts: int, n_out: int, *, joined: bool = False) -> BufferId:
        """Each of so many parts of x times its matrix of `name`.weight [parts, n_out, n_in], one after another.

        joined: the tensor is [parts * n_out, n_in].
        """
        y = self.temp(name, parts * n_out)
        found = self.parted if joined else self.weight
        weight = found(f"{name}.weight", parts, n_out, self.width(x) // parts)
        self.g.node(Op.GROUP_MATMUL, [x, weight], [y], f"{name}.group_matmul")
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
            Op.ROPE,
            [x, self.step["positions"], rotation.table],
            [y],
            name,
            interleaved=rotation.interleaved,
            n_heads=n_heads,
            head_dim=head_dim,
            **({"begin": head_dim - rotation.last} if rotation.last else {}),
        )
        return y

    def join_heads(self, x: BufferId, tail: BufferId, name: str, n_heads: int, n_tails: int = 1) -> BufferId:
        """Heads of x with a tail behind each; n_tails: how many there are, each for as many heads."""
        head_dim, tail_dim = self.width(x) // n_heads, self.width(tail) // n_tails
        y = self.temp(name, n_heads * (head_dim + tail_dim))
        sizes = {"n_heads": n_heads, "head_dim": head_dim, "n_tails": n_tails, "tail_dim": tail_dim}
        self.g.node(Op.JOIN_HEADS, [x, tail], [y], f"{name}.join_heads", **sizes)
        return y

    def where(self) -> list[BufferId]:
        """What says where a row's keys and values are: its position, its sequence, the page table."""
        return [self.step["positions"], self.step["slots"], self.step["page_table"]]

    def in_order(self) -> list[BufferId]:
        """What says which rows follow each other: a row's position, its sequence."""
        return [self.step["positions"], self.step["slots"]]

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
        self,
        h: BufferId,
        *,
        tied: bool | None = None,
        scale: float | None = None,
        softcap: float | None = None,
        matrix: str | None = None,
        bias: bool = False,
    ) -> None:
        """Logits of the wanted rows and their argmax.

        tied: True takes the embedding as the matrix, False needs `output.weight`, None takes that where the file has it
        and else the embedding. scale: a factor of the logits. softcap: they are held under it, by its tanh. matrix:
        another tensor, which counts where the file has it. bias: whether `output.bias` is added first.
        """
        separate = self.has("output.weight") if tied is None else not tied
        name = "output.weight" if separate else "token_embd.weight"
        name = matrix if matrix is not None and self.has(matrix) else name
        shape = ("n_logits", self.info.n_vocab)
        logits = self.g.buffer("logits", BufferKind.OUTPUT, DType.F32, shape)
        weight = self.weight(name, self.info.n_vocab, self.info.n_embd)
        after: list[tuple[Op, list[BufferId], dict[str, float]]] = []
        if bias:
            after.append((Op.BIAS_ADD, [self.weight("output.bias", self.info.n_vocab)], {}))
        if scale is not None:
            after.append((Op.SCALE, [], {"factor": scale}))
        if softcap is not None:
            after.append((Op.SOFTCAP, [], {"cap": softcap}))
        # Products, each what follows on them, and the last into the output.
        stages = [self.g.buffer(f"logits.{i}", BufferKind.TEMP, DType.F32, shape) for i in range(len(after))] + [logits]
        self.g.node(Op.LM_HEAD, [h, weight, self.step["logit_rows"]], [stages[0]], "lm_head")
        for (op, more, attrs), x, y in zip(after, stages, stages[1:], strict=False):
            self.g.node(op, [x, *more], [y], f"logits.{op.name.lower()}", **attrs)
        tokens = self.g.buffer("tokens", BufferKind.OUTPUT, DType.I32, ("n_logits",))
        self.g.node(Op.ARGMAX, [logits], [tokens], "argmax")
