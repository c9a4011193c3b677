"""Hyper-connections of low rank as records (Qwen3.8-Flash-Next): several streams of rows in place of one residual.

Each sub-layer reads a gated mean of the streams' norms, and adds to each stream with a factor of its own. These norms
are the only ones: there is none before attention, before the feed-forward, or at the end.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.blocks import BranchBody
from zinc_rt.models.parts import GraphParts


@dataclass(frozen=True)
class Streams:
    """How many streams there are, and the rank of their gates."""

    count: int
    rank: int

    def start(self, parts: GraphParts, x: BufferId) -> BufferId:
        """Every stream is x: f32[n_rows, count * n_embd]."""
        return self._to_all(parts, [x], "streams.start")

    def read(self, parts: GraphParts, streams: BufferId, name: str) -> tuple[BufferId, BufferId]:
        """What a sub-layer gets, f32[n_rows, n_embd], and the norms of all streams. name: of the tensors, to `_`."""
        n = self.norm(parts, streams, f"{name}_norm")
        low = parts.scale(parts.project(n, f"{name}_down", self.rank), 1.0 / self.count, f"{name}_down.mean")
        opened = parts.times_sigmoid(low, low, f"{name}_down.silu")
        gates = parts.project(opened, f"{name}_up", parts.width(n))
        gated = parts.times_sigmoid(n, gates, f"{name}_gated")
        mean = parts.temp(f"{name}_mean", parts.info.n_embd)
        parts.g.node(Op.STREAM_SUM, [gated], [mean], f"{name}.stream_sum", n_streams=self.count)
        return mean, n

    def write(self, parts: GraphParts, streams: BufferId, normed: BufferId, y: BufferId, name: str) -> BufferId:
        """The streams with y added. normed: the norms that `read` gave."""
        gates = parts.project(normed, f"{name}_inject", self.count)
        return self._to_all(parts, [y, streams, gates], f"{name}_streams", scale=1.0 / self.count)

    def norm(self, parts: GraphParts, streams: BufferId, name: str) -> BufferId:
        """The RMS norm of each stream, by its part of `name`.weight."""
        width = parts.width(streams)
        y = parts.temp(name, width)
        parts.g.node(
            Op.STREAM_NORM,
            [streams, parts.weight(f"{name}.weight", width)],
            [y],
            f"{name}.stream_norm",
            n_streams=self.count,
            eps=parts.eps,
        )
        return y

    def _to_all(self, parts: GraphParts, operands: list[BufferId], name: str, **attrs: float) -> BufferId:
        y = parts.temp(name, self.count * parts.info.n_embd)
        parts.g.node(Op.STREAM_ADD, operands, [y], f"{name}.stream_add", n_streams=self.count, **attrs)
        return y


@dataclass(frozen=True)
class StreamBranch:
    """A sub-layer between streams. name: of its tensors, `blk.N.<name>_norm` and so on."""

    streams: Streams
    name: str
    part: BranchBody

    def emit(self, parts: GraphParts, x: BufferId, layer: int) -> BufferId:
        """The streams behind it."""
        name = f"blk.{layer}.{self.name}"
        h, normed = self.streams.read(parts, x, name)
        return self.streams.write(parts, x, normed, self.part.emit(parts, h, layer), name)
