"""The readers of each buffer, and the nodes of heads that become one kernel.

The norm, the rotation and the cache write of a projection's heads become one pass over the heads, if no other node
reads the values between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from zinc_rt.ir.graph import BufferKind, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.ir.ops.kv_cache import ALONE


class Readers:
    """Nodes by the buffers that they read."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._of: dict[int, list[Node]] = {}
        for n in graph.nodes:
            for b in n.inputs:
                self._of.setdefault(b, []).append(n)

    def of(self, buffer: int) -> list[Node]:
        """In the graph's order."""
        return self._of.get(buffer, [])

    def kept(self, buffer: int) -> bool:
        """Whether a buffer outlives the step, or is the caller's: then it matters also where no node reads it."""
        return self._graph.buffer(buffer).kind is not BufferKind.TEMP

    def sole(self, buffer: int, *ops: Op) -> Node | None:
        """The only node that reads a temporary, if it is one of these operations."""
        readers = self.of(buffer)
        return readers[0] if len(readers) == 1 and readers[0].op in ops and not self.kept(buffer) else None


@dataclass(frozen=True)
class Heads:
    """A buffer of heads, and the operations that are still to be done to it. normed: whether each head gets a norm;
    weight: of the norm, if it has one; table: cosines and sines of a rotation, with the positions (None without one);
    pairs: how many pairs of a head rotate, from element `begin` on.
    """

    source: int
    n_heads: int
    dim: int
    weight: int | None = None
    eps: float = 0.0
    table: int | None = None
    positions: int | None = None
    pairs: int = 0
    interleaved: bool = False
    normed: bool = False
    begin: int = 0


class HeadChains:
    """Follows heads through a graph. Each method is called with the graph's nodes in order. It returns the heads that
    must be written now, or None if a later node can do this node's work with its own.
    """

    def __init__(self, graph: Graph, readers: Readers) -> None:
        self._graph, self._readers = graph, readers
        self._kept: dict[int, Heads] = {}

    def norm(self, n: Node) -> Heads | None:
        """After a norm of heads: what its output gets, None for nothing yet."""
        x, *weight = n.inputs
        known = replace(self._plain(n, x), normed=True, weight=weight[0] if weight else None, eps=float(n.attrs["eps"]))
        return self._now(n, known, Op.ROPE, Op.KV_WRITE)

    def rope(self, n: Node) -> Heads | None:
        """After a rotation: what its output gets, None for nothing yet."""
        x, positions, table = n.inputs
        known = replace(
            self._kept.get(x) or self._plain(n, x),
            table=table,
            positions=positions,
            pairs=int(self._graph.buffer(table).shape[1]),
            interleaved=bool(n.attrs["interleaved"]),
            begin=int(attributes(n)["begin"]),
        )
        return self._now(n, known, Op.KV_WRITE)

    def kv_write(self, n: Node) -> Iterator[Heads]:
        """What the cache gets: keys and values, the two parts of keys, or keys alone."""
        for source in n.inputs[:-3]:
            yield self._kept.get(source) or self._plain(n, source)

    @staticmethod
    def _plain(n: Node, source: int) -> Heads:
        return Heads(source, *_split(n, source))

    def _now(self, n: Node, known: Heads, *ops: Op) -> Heads | None:
        y = n.outputs[0]
        reader = self._readers.sole(y, *ops)
        if reader is None or _split(reader, y) != (known.n_heads, known.dim):
            return known
        self._kept[y] = known
        return None


def _split(n: Node, source: int) -> tuple[int, int]:
    """Heads that a node splits the rows of one of its inputs into, and their elements."""
    if n.op is not Op.KV_WRITE:
        return int(n.attrs["n_heads"]), int(n.attrs["head_dim"])
    attrs, first = attributes(n), source == n.inputs[0]
    for alone in ALONE:
        if alone in attrs:
            return int(attrs["n_kv_heads"]), int(attrs[alone])
    sizes = ("latent_dim", "rope_dim") if "latent_dim" in attrs else ("head_dim", "value_dim")
    return int(attrs["n_kv_heads"]), int(attrs[sizes[0 if first else 1]])
