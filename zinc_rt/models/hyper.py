"""Hyper-connections as records (Zhu 2024): several streams of rows in place of one residual.

Of low rank (Qwen3.8-Flash-Next): each sub-layer reads a gated mean of the streams' norms, and adds to each stream with
a factor of its own. These norms are the only ones: there is none before attention, before the feed-forward, or at the
end. Mixed (DeepSeek-V4): each sub-layer reads a weighted sum of the streams, and the streams are mixed as it is added.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.blocks import BranchBody
from zinc_rt.models.parts import GraphParts


@dataclass(frozen=True)
class Streams:
    """How many streams there are."""

    count: int

    def start(self, parts: GraphParts, x: BufferId) -> BufferId:
        """Every stream is x: f32[n_rows, count * n_embd]."""
        return self._to_all(parts, [x], "streams.start")

    def _to_all(self, parts: GraphParts, operands: list[BufferId], name: str, **attrs: float) -> BufferId:
        y = parts.temp(name, self.count * parts.info.n_embd)
        parts.g.node(Op.STREAM_ADD, operands, [y], f"{name}.stream_add", n_streams=self.count, **attrs)
        return y


@dataclass(frozen=True)
class LowRankStreams(Streams):
    """Streams with gates of low rank."""

    rank: int

    def read(self, parts: GraphParts, streams: BufferId, name: str) -> tuple[BufferId, tuple[BufferId, ...]]:
        """What a sub-layer gets, f32[n_rows, n_embd], and the norms of all streams. name: of the tensors, to `_`."""
        n = self.norm(parts, streams, f"{name}_norm")
        low = parts.scale(parts.project(n, f"{name}_down", self.rank), 1.0 / self.count, f"{name}_down.mean")
        opened = parts.times_sigmoid(low, low, f"{name}_down.silu")
        gates = parts.project(opened, f"{name}_up", parts.width(n))
        gated = parts.times_sigmoid(n, gates, f"{name}_gated")
        mean = parts.temp(f"{name}_mean", parts.info.n_embd)
        parts.g.node(Op.STREAM_SUM, [gated], [mean], f"{name}.stream_sum", n_streams=self.count)
        return mean, (n,)

    def write(
        self, parts: GraphParts, streams: BufferId, kept: tuple[BufferId, ...], y: BufferId, name: str
    ) -> BufferId:
        """The streams with y added. kept: the norms that `read` gave."""
        gates = parts.project(kept[0], f"{name}_inject", self.count)
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


@dataclass(frozen=True)
class MixedStreams(Streams):
    """Streams that sub-layers mix. eps, iterations: of what makes the sums of rows and columns of the mix 1."""

    eps: float
    iterations: int

    def read(
        self, parts: GraphParts, streams: BufferId, name: str, *, end: bool = False
    ) -> tuple[BufferId, tuple[BufferId, ...]]:
        """What a sub-layer gets, and how it is added: the streams' factors and their mix. end: behind the last one."""
        n, sizes = self.count, (self.count,) if end else (self.count, self.count, self.count**2)
        logits = parts.project(parts.norm(streams, f"{name}_normed", weight=False), f"{name}_fn", sum(sizes))
        given = [parts.weight(f"{name}_{part}.weight", m) for part, m in (("base", sum(sizes)), ("scale", len(sizes)))]
        made = [parts.temp(f"{name}_{what}", m) for what, m in zip(("reads", "writes", "mix"), sizes, strict=False)]
        more = {} if end else {"iterations": self.iterations}
        parts.g.node(Op.STREAM_MIX, [logits, *given], made, f"{name}.stream_mix", n_streams=n, eps=self.eps, **more)
        h = parts.temp(f"{name}_sum", parts.info.n_embd)
        parts.g.node(Op.STREAM_SUM, [streams, made[0]], [h], f"{name}.stream_sum", n_streams=n)
        return h, tuple(made[1:])

    def write(
        self, parts: GraphParts, streams: BufferId, kept: tuple[BufferId, ...], y: BufferId, name: str
    ) -> BufferId:
        """The streams mixed, with y added."""
        return self._to_all(parts, [y, streams, *kept], f"{name}_streams")


@dataclass(frozen=True)
class StreamBranch:
    """A sub-layer between streams. name: of its tensors, `blk.N.<name>_norm` and so on. norm: the tensor of the norm
    before it, without `blk.N.` and `.weight`; None for no other norm than those of the streams.
    """

    streams: LowRankStreams | MixedStreams
    name: str
    part: BranchBody
    norm: str | None = None

    def emit(self, parts: GraphParts, x: BufferId, layer: int) -> BufferId:
        """The streams behind it."""
        name = f"blk.{layer}.{self.name}"
        h, kept = self.streams.read(parts, x, name)
        if self.norm is not None:
            h = parts.norm(h, f"blk.{layer}.{self.norm}")
        return self.streams.write(parts, x, kept, self.part.emit(parts, h, layer), name)
