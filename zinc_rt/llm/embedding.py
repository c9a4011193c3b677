"""Embeddings of texts: hidden states of the last layer, pooled to one vector a text, of length 1.

A vector depends on its text alone: not on the texts beside it, nor on how they are cut into steps.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from zinc_rt.engine.engine import Engine, EngineError, Options, SequenceChunk
from zinc_rt.engine.options import MAX_BATCH, context_of
from zinc_rt.engine.prompts import known_tokens
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.kernels.reference.mathfn import gelu_erf, tanh
from zinc_rt.models import ModelDefinition
from zinc_rt.models.definition import PooledLayer
from zinc_rt.models.errors import ModelError
from zinc_rt.models.hidden import reads_whole
from zinc_rt.models.ranking import RANK, RANKERS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zinc_rt.text import Tokenizer

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

_ACTIVATIONS = {"tanh": tanh, "gelu_erf": gelu_erf}
"""By `PooledLayer.activation`."""
N_SLOTS = 32
"""Texts in a step at the most."""
_N_BATCH = 512


class Pooling(enum.StrEnum):
    """How a text's rows become one vector."""

    MEAN = "mean"
    CLS = "cls"  # the first row
    LAST = "last"


_BY_NUMBER = {1: Pooling.MEAN, 2: Pooling.CLS, 3: Pooling.LAST}
"""`<architecture>.pooling_type`; 0 is none, `RANK` that of a model that ranks."""


def pooling_of(file: GGUFFile, definition: ModelDefinition) -> Pooling | None:
    """The pooling that the file names, or with which its model ranks; None where it names none, so that it does
    neither.

    Raises:
        ModelError: `pooling_type` is no known number, or the model ranks and nothing here makes its scores.
    """
    key = f"{definition.info.architecture}.pooling_type"
    number = file.metadata.get(key)
    if definition.ranking is not None:
        return Pooling(definition.ranking.pooling)
    if number is None or number == 0:
        return None
    if number == RANK:
        raise ModelError(
            f"{key} is {RANK}: {file.path} ranks texts, and what makes scores of architecture"
            f" {definition.info.architecture!r} is not known here"
        ).with_advice(f"what would run: a model of architecture {RANKERS} that ranks")
    if not isinstance(number, int) or number not in _BY_NUMBER:
        known = ", ".join(f"{n} ({pooling})" for n, pooling in _BY_NUMBER.items())
        raise ModelError(f"{key} is {number!r}; known are 0 (none), {known}, {RANK} (rank)")
    return _BY_NUMBER[number]


def parse_pooling(name: str) -> Pooling:
    """The pooling of a name. Raises `UsageError`."""
    try:
        return Pooling(name)
    except ValueError:
        raise UsageError(f"pooling is {name!r}, it must be {', '.join(Pooling)}") from None


def embedding_options(options: Options, definition: ModelDefinition, n_batch: int | None) -> Options:
    """The options of an engine that embeds: many texts in a step, which share the memory of one context.

    n_batch: rows of a step, as the caller gave it; None for 512, or the context where a text must fit in one step.
    """
    n_ctx = context_of(options.n_ctx, definition.info.n_ctx_train)
    if n_batch is None:
        n_batch = min(MAX_BATCH, n_ctx) if reads_whole(definition.graph) else _N_BATCH
    return replace(options, n_batch=n_batch, fast_n_batch=None, n_slots=N_SLOTS, kv_tokens=max(n_ctx, n_batch))


@dataclass(frozen=True)
class Embedder:
    """Texts to vectors, on an engine whose model ends with hidden states.

    n_embd: elements of a row. layers: what vectors go through, see `ModelDefinition.pooled_layers`.
    """

    engine: Engine
    tokenizer: Tokenizer
    n_embd: int
    pooling: Pooling
    layers: tuple[PooledLayer, ...] = ()

    def embed(
        self, texts: Sequence[str | Sequence[int]], *, normalize: bool = True, dimensions: int | None = None
    ) -> F32:
        """One vector a text, in order.

        Args:
            texts: none of them empty of tokens; token ids are taken as they are.
            normalize: scale each vector to length 1; a vector of zeros stays as it is.
            dimensions: keep the first elements only, before scaling; for models that were trained for it.

        Returns:
            f32[n_texts, n_out or dimensions].

        Raises:
            UsageError: no text, or more dimensions than the model has.
            TokenOutOfRange: a token id that the vocabulary has not.
            EngineError: a text has more tokens than the context, or than a step where its rows see each other.
        """
        width = self._width(dimensions)
        ids = [self._ids(i, text) for i, text in enumerate(texts)]
        out = np.empty((len(ids), self.n_out), np.float64)
        for group in self._groups(ids):
            for i, vector in self._run({i: ids[i] for i in group}):
                out[i] = self._project(vector)
        out = out[:, :width]
        if normalize:
            length = np.sqrt((out * out).sum(axis=1, keepdims=True))
            out = np.divide(out, length, out=out.copy(), where=length > 0)
        return out.astype(np.float32)

    @property
    def n_out(self) -> int:
        """Elements of a vector."""
        return len(self.layers[-1].matrix) if self.layers else self.n_embd

    def _project(self, vector: F64) -> F64:
        for layer in self.layers:
            vector = _applied(layer, vector)
        return vector

    def _width(self, dimensions: int | None) -> int:
        if dimensions is None:
            return self.n_out
        if isinstance(dimensions, bool) or not isinstance(dimensions, int) or not 1 <= dimensions <= self.n_out:
            raise UsageError(f"dimensions is {dimensions!r}, it must be a whole number from 1 to {self.n_out}")
        return dimensions

    def _ids(self, i: int, text: str | Sequence[int]) -> list[int]:
        if isinstance(text, str):
            ids = self.tokenizer.encode(text, add_special=True, parse_special=False)
        else:
            ids = known_tokens(text, self.tokenizer.n_vocab, f"text {i}, which is no str,", f"text {i}: ")
        if not ids:
            raise UsageError(f"text {i} has no tokens; give at least one character")
        sizes = self.engine.sizes
        assert sizes is not None
        limit, what, remedy = sizes.n_ctx, "the context", "context (n_ctx, -c)"
        if self.engine.whole_sequences and sizes.n_rows < limit:
            limit, what, remedy = sizes.n_rows, "a step", "batch (n_batch, -b)"
        if len(ids) > limit:
            raise EngineError(
                f"text {i} has {len(ids)} tokens, {what} holds {limit}; shorten it or load with a larger {remedy}"
            )
        return ids

    def _groups(self, ids: Sequence[Sequence[int]]) -> Iterator[list[int]]:
        """Texts that one step takes; one longer than a step is alone."""
        sizes = self.engine.sizes
        assert sizes is not None
        group: list[int] = []
        n_rows = 0
        for i, text in enumerate(ids):
            if group and (n_rows + len(text) > sizes.n_rows or len(group) == sizes.n_slots):
                yield group
                group, n_rows = [], 0
            group.append(i)
            n_rows += len(text)
        if group:
            yield group

    def _run(self, texts: Mapping[int, Sequence[int]]) -> Iterator[tuple[int, F64]]:
        """The pooled vector of each text. One text alone may take several steps."""
        seq_ids: dict[int, int] = {}
        try:
            for i in texts:
                seq_ids[i] = self.engine.open_sequence()
            pools = {i: _Pool(self.pooling, self.n_embd) for i in texts}
            assert self.engine.sizes is not None
            n_batch = self.engine.sizes.n_rows
            longest = max(map(len, texts.values()))
            for start in range(0, longest, n_batch):
                parts = {i: ids[start : start + n_batch] for i, ids in texts.items()}
                hidden = self.engine.hidden([SequenceChunk(seq_ids[i], start, part) for i, part in parts.items()])
                at = 0
                for i, part in parts.items():
                    pools[i].add(hidden[at : at + len(part)])
                    at += len(part)
            for i, pool in pools.items():
                yield i, pool.vector()
        finally:
            for seq_id in seq_ids.values():
                self.engine.close_sequence(seq_id)


def _applied(layer: PooledLayer, vector: F64) -> F64:
    """A layer's vector: sums and the norm in float64, activations in float32, as docs/how/numerics.md has them."""
    # Not a library's product of matrices, whose order of additions depends on the processor.
    y: F64 = np.add.reduce(layer.matrix * vector, axis=1)
    if layer.bias is not None:
        y = y + layer.bias
    if layer.activation:
        y = _ACTIVATIONS[layer.activation](y.astype(np.float32)).astype(np.float64)
    if layer.norm is not None:
        y = y - np.add.reduce(y) / len(y)
        y = y / np.sqrt(np.add.reduce(y * y) / len(y) + layer.eps) * layer.norm
    return y if layer.norm_bias is None else y + layer.norm_bias


class _Pool:
    """The pooling of one text, whose rows come in any number of parts."""

    def __init__(self, pooling: Pooling, n_embd: int) -> None:
        self._pooling, self._n = pooling, 0
        self._vector = np.zeros(n_embd, np.float64)

    def add(self, rows: F32) -> None:
        """Take the next rows."""
        if self._pooling is Pooling.LAST:
            self._vector = rows[-1].astype(np.float64)
        elif self._pooling is Pooling.CLS:
            if not self._n:
                self._vector = rows[0].astype(np.float64)
        else:
            for row in rows:  # one after another, so that parts change nothing
                self._vector += row
        self._n += len(rows)

    def vector(self) -> F64:
        """What the rows amount to: f64[n_embd]."""
        return self._vector / self._n if self._pooling is Pooling.MEAN else self._vector
