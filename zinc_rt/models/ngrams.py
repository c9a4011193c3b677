"""An embedding of the last tokens together: rows of a large table by their hash, added to the streams."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops.ngrams import as_constant
from zinc_rt.models.config import MAX_TAPS
from zinc_rt.models.errors import ModelError
from zinc_rt.models.hyper import LowRankStreams
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts

_TABLE = "per_layer_token_embd.weight"
_KEPT = "n-gram embedding"
"""The kind of layer, in messages."""


@dataclass(frozen=True)
class NgramEmbedding:
    """What is added in front of a layer.

    layer: that layer. size: tokens of the longest n-gram. numbers: multipliers of tokens, then for each head of each
    length its first row in the table and its number of rows. width: elements of a row of the table. taps: of the
    convolution, `size` positions apart. eos: the token that ends a text.

    Raises `ModelError` with the numbers.
    """

    streams: LowRankStreams
    layer: int
    size: int
    numbers: tuple[int, ...]
    width: int
    taps: int
    eos: int

    @property
    def heads(self) -> int:
        """Rows of the table that a token has."""
        return (len(self.numbers) - self.size) // 2

    @classmethod
    def from_keys(cls, keys: Keys, streams: LowRankStreams, n_embd: int) -> NgramEmbedding | None:
        """Read `ple.*`; None for a file without. Raises `ModelError`."""
        if not keys.has("ple.layers"):
            return None
        layers = keys.integers("ple.layers", 1, minimum=0)
        size = keys.integer("ple.ngram_size", minimum=2, maximum=16)
        heads = (size - 1) * keys.integer("ple.heads_per_ngram", maximum=64)
        numbers = (
            *keys.whole_numbers("ple.layer_multipliers", size),
            *keys.whole_numbers("ple.head_offsets", heads),
            *keys.whole_numbers("ple.head_vocab_sizes", heads),
        )
        made = cls(
            streams,
            layers[0],
            size,
            numbers,
            keys.integer("embedding_length_per_layer_input"),
            keys.integer("ple.conv_kernel"),
            keys.integer("ple.eos_token_id", minimum=0),
        )
        if heads * made.width != n_embd:
            raise ModelError(
                f"{heads} rows of {made.width} elements ({keys.name('embedding_length_per_layer_input')}) are no"
                f" embedding of {n_embd}"
            )
        if made.taps < 2 or (made.taps - 1) * size + 1 > MAX_TAPS:
            raise ModelError(
                f"{keys.name('ple.conv_kernel')} is {made.taps}; {size} positions apart this reaches over"
                f" {(made.taps - 1) * size + 1}, 2 taps up to {MAX_TAPS} positions are supported"
            )
        if min(numbers[size + heads :]) < 1:
            raise ModelError(f"{keys.name('ple.head_vocab_sizes')} has a head without rows")
        return made

    def emit(self, parts: GraphParts, x: BufferId) -> BufferId:
        """The streams with the embedding added."""
        p, n, wide = f"blk.{self.layer}.ple", self.streams.count, parts.width(x)
        e = self._rows(parts)
        key = self.streams.norm(parts, parts.project(e, f"{p}_key", wide), f"{p}_norm_key")
        query = self.streams.norm(parts, x, f"{p}_norm_query")
        value = parts.project(e, f"{p}_value", parts.info.n_embd)
        gated = parts.temp(f"{p}_gated", wide)
        parts.g.node(Op.STREAM_GATE, [key, query, value], [gated], f"{p}.stream_gate", n_streams=n)
        normed = self.streams.norm(parts, gated, f"{p}_norm_conv")
        # Taps that lie apart, with zeros between them.
        reach = (self.taps - 1) * self.size + 1
        taps = np.zeros((wide, reach), np.float32)
        taps[:, :: self.size] = parts.table(f"{p}_conv1d.weight", self.taps)
        weights = parts.constant(f"{p}_conv1d.taps", taps.shape, lambda n_ctx: taps)
        kept = parts.states.of_sequence(_KEPT, self.layer, "ple_conv_state", (reach - 1, wide))
        mixed = parts.temp(f"{p}_conv1d", wide)
        parts.g.node(Op.SSM_CONV1D, [normed, weights, kept, *parts.in_order()], [mixed, kept], f"{p}_conv1d.conv")
        return parts.add(x, parts.add(gated, mixed, f"{p}_sum"), f"{p}_streams")

    def _rows(self, parts: GraphParts) -> BufferId:
        """The rows of the table, one after another: f32[n_rows, n_embd]."""
        numbers = as_constant(self.numbers)
        table = parts.file.tensors.get(_TABLE)
        n_rows = 1 if table is None or not table.shape else int(table.shape[0])
        ends = np.add(*np.split(np.array(self.numbers[self.size :], np.uint64), 2))
        if table is not None and int(ends.max()) > min(n_rows, (1 << 31) - 1):
            raise ModelError(f"tensor {_TABLE} has {n_rows} rows, the metadata names rows up to {int(ends.max()) - 1}")
        given = parts.constant("ple.numbers", numbers.shape, lambda n_ctx: numbers)
        kept = parts.states.of_sequence(_KEPT, self.layer, "token_state", (self.size - 1,))
        ids = parts.places("ple.ids", self.heads)
        parts.g.node(
            Op.NGRAM_IDS,
            [parts.step["token_ids"], given, kept, *parts.in_order()],
            [ids, kept],
            "ple.ngram_ids",
            ngram=self.size,
            n_heads=self.heads,
            eos=self.eos,
        )
        e = parts.temp("ple.rows", self.heads * self.width)
        weight = parts.weight(_TABLE, n_rows, self.width)
        parts.g.node(Op.EMBED, [ids, weight], [e], "ple.embed", per_row=self.heads)
        return e
