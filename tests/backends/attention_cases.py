"""Graphs with one attention, for every backend: shapes, windows, soft caps, sinks, keys that are values, too.

A first step fills the cache page by page, each page as the first of a sequence of its own, which costs next to nothing;
the later steps read the pages through longer tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.backends.cpu.both import Case, Net, Step
from tests.backends.cpu.hostile import hostile
from tests.kernels.material import packed_rows
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.graph import DType
from zinc_rt.ir.op import Op
from zinc_rt.numerics import pages_for

Row = tuple[int, int]
"""A row of a step: sequence, position."""


@dataclass(frozen=True)
class Shape:
    """dim: elements of a key. group: query heads that share one of the n_kv key-value heads. value_dim: None for dim.
    rope: elements of a key beside the latent ones, which are the value; 0 for a value cache. sinks: one a head.
    product: a Q8_0 matrix reads the output, and nothing else does. kv: what the caches hold.
    """

    dim: int
    group: int
    n_kv: int
    value_dim: int | None = None
    rope: int = 0
    window: int | None = None
    softcap: float | None = None
    sinks: tuple[float, ...] = ()
    scale: float | None = None
    product: bool = False
    kv: DType = DType.F16
    chunk: int | None = None

    @property
    def n_heads(self) -> int:
        return self.n_kv * self.group

    @property
    def out_dim(self) -> int:
        return self.dim - self.rope if self.rope else self.value_dim or self.dim

    @property
    def widths(self) -> dict[str, int]:
        """Elements of a row of each activation."""
        if self.rope:
            latent = self.dim - self.rope
            return {
                "q": self.n_heads * latent,
                "q_rope": self.n_heads * self.rope,
                "k": self.n_kv * latent,
                "k_rope": self.n_kv * self.rope,
            }
        return {"q": self.n_heads * self.dim, "k": self.n_kv * self.dim, "v": self.n_kv * self.out_dim}

    def attributes(self) -> dict[str, Any]:
        """Of both nodes."""
        if self.rope:
            return {"n_kv_heads": self.n_kv, "latent_dim": self.dim - self.rope, "rope_dim": self.rope}
        more = {} if self.value_dim is None else {"value_dim": self.value_dim}
        return {"n_kv_heads": self.n_kv, "head_dim": self.dim, **more}


def material(rng: np.random.Generator, n: int, width: int, how: str) -> np.ndarray:
    """ordinary: scores of a few units; hostile: all that float16 holds; wild: some rows beyond it and not finite."""
    out = rng.standard_normal((n, width)).astype(np.float32)
    if how == "hostile":
        return np.where(rng.random((n, 1)) < 0.5, out, np.clip(hostile(rng, n, width), -65504, 65504))
    if how == "wild":
        return np.where(rng.random((n, 1)) < 0.98, out, hostile(rng, n, width, finite=False))
    return out


def add_nodes(net: Net, s: Shape) -> None:
    """The graph: keys and values to the cache, then attention."""
    sources = {name: net.rows(name, width) for name, width in s.widths.items()}
    where = net.where()
    caches = [net.cache(s.n_kv, s.dim, s.kv)] if s.rope else net.caches(s.n_kv, s.dim, s.value_dim, s.kv)
    written = [b for name, b in sources.items() if name[0] != "q"]
    queries = [b for name, b in sources.items() if name[0] == "q"]
    net.node(Op.KV_WRITE, [*written, *where], caches, **s.attributes())
    more, width = {"window": s.window, "softcap": s.softcap, "chunk": s.chunk}, s.n_heads * s.out_dim
    y = net.temp(width) if s.product else net.out("y", width)
    net.node(
        Op.FLASH_ATTN,
        [*queries, *caches, *where, *([net.vector(np.float32(s.sinks))] if s.sinks else [])],
        [y],
        scale=s.dim**-0.5 if s.scale is None else s.scale,
        n_heads=s.n_heads,
        **s.attributes(),
        **{name: value for name, value in more.items() if value is not None},
    )
    if s.product:
        rows = packed_rows(GGMLType.Q8_0, np.random.default_rng(width), 5, width)
        net.node(Op.MATMUL, [y, net.matrix(GGMLType.Q8_0, np.ascontiguousarray(rows))], [net.out("out", 5)])


def build(s: Shape, contexts: Sequence[int], steps: Mapping[str, list[Row]], how: str) -> Case:
    """The graph, and steps over sequences of these lengths whose pages lie in any order."""
    pages = [pages_for(n) for n in contexts]
    rng = np.random.default_rng([s.dim, s.group, s.n_kv, len(how)])
    n_pages = sum(pages)
    net = Net(16 * n_pages, n_ctx=max(contexts), n_slots=n_pages, n_pages=n_pages)
    add_nodes(net, s)

    def step(rows: list[Row], table: np.ndarray, how: str) -> Step:
        n = len(rows)
        slots, positions = np.array(rows).T
        inputs = {name: material(rng, n, width, how) for name, width in s.widths.items()}
        return Step(n, {**inputs, "positions": positions, "slots": slots, "page_table": table})

    own = np.zeros((n_pages, max(pages)), np.int32)
    own[:, 0] = rng.permutation(n_pages)
    fill = step([(page, at) for page in range(n_pages) for at in range(16)], own, how)
    shuffled, table, at = rng.permutation(n_pages), np.zeros_like(own), 0
    for sequence, count in enumerate(pages):
        table[sequence, :count] = shuffled[at : at + count]
        at += count
    return net.case([fill, *(step(rows, table, "ordinary" if how == "wild" else how) for rows in steps.values())])
