"""`qwen3vl_merger`: the tower of Qwen3-VL, and of Qwen 3.5 and later.

LayerNorm, GELU and biases throughout. Positions: a table, read between its entries for pictures of other sizes, and a
rotation by line and column. Four patches become a row; of some layers they do as well, and the text model adds those
rows behind its first layers (deepstack).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferId
from zinc_rt.models.definition import F32, ModelDefinition
from zinc_rt.models.errors import ModelError
from zinc_rt.models.towers.tower import (
    ROWS,
    Arrays,
    Fitting,
    PatchGrid,
    Tower,
    TowerInfo,
    TowerParts,
    angles,
    blocks,
    whole,
)

_SIDE = 2
"""Patches of a block, both ways."""
_LEAST, _MOST = 8, 4096
"""Rows of a picture."""
_BASE = 10000.0


class Qwen3VL(Tower):
    """See `Tower`."""

    def __init__(self, file: GGUFFile) -> None:
        """Raises `ModelError`."""
        info = self.info = TowerInfo.from_file(file, "qwen3vl_merger", "gelu")
        if info.head_dim % 4:
            raise ModelError(f"heads have {info.head_dim} elements, a multiple of 4 is needed for line and column")
        names = [n for n in range(info.n_layers) if f"v.deepstack.{n}.norm.weight" in file.tensors]
        self.n_deepstack = len(names)
        a = _SIDE * info.patch_size
        self.fitting = Fitting("bicubic", align=a, least=_LEAST * a * a, most=_MOST * a * a)
        parts = TowerParts(file, info)
        self._table = parts.table("v.position_embd.weight", info.n_embd)
        self._n = info.image_size // info.patch_size
        if len(self._table) != self._n**2:
            raise ModelError(
                f"v.position_embd.weight has {len(self._table)} rows, {self._n**2} are needed for pictures of"
                f" {info.image_size} pixels and patches of {info.patch_size}"
            )
        self.encoder = _encoder(parts, names)
        self.projector = _projector(TowerParts(file, info), names)

    def order(self, grid: PatchGrid) -> npt.NDArray[np.int64]:
        """See `Tower`."""
        return blocks(grid, _SIDE)

    def step(self, grids: Sequence[PatchGrid]) -> Arrays:
        """See `Tower`."""
        orders = [self.order(grid) for grid in grids]
        places = [between(self._table, self._n, grid)[order] for grid, order in zip(grids, orders, strict=True)]
        turned = [turns_of(order, grid, self.info.head_dim) for grid, order in zip(grids, orders, strict=True)]
        return {"places": np.concatenate(places), "angles": np.concatenate(turned), **whole(grids)}

    def join(self, outputs: Arrays, grids: Sequence[PatchGrid]) -> Arrays:
        """See `Tower`."""
        return {f"{name}.joined": x.reshape(len(x) // _SIDE**2, -1) for name, x in outputs.items()}


def define(file: GGUFFile) -> Qwen3VL:
    """The tower of a file. Raises `ModelError`."""
    return Qwen3VL(file)


def turns_of(order: npt.NDArray[np.int64], grid: PatchGrid, head_dim: int) -> F32:
    """The angles of patches: the first half of the pairs of a head turns by the line, the second by the column."""
    quarter = head_dim // 4
    frequencies = np.tile(_BASE ** (-np.arange(quarter) / quarter), 2)
    both = np.stack([order // grid.nx, order % grid.nx], axis=1)
    return angles(np.repeat(both, quarter, axis=1), frequencies)


def between(table: F32, n: int, grid: PatchGrid) -> F32:
    """A table of n * n places, read at the places of a grid whose corners are its corners: f32[n_patches, width].

    Bilinear in float32: lines first, then columns, each a + (b - a) * t.
    """
    if grid.nx == grid.ny == n:
        return table
    square = table.reshape(n, n, -1)
    y, ty = _steps(n, grid.ny)
    x, tx = _steps(n, grid.nx)
    upper, lower = square[y], square[np.minimum(y + 1, n - 1)]
    lines = upper + (lower - upper) * ty[:, None, None]
    left, right = lines[:, x], lines[:, np.minimum(x + 1, n - 1)]
    return np.asarray(left + (right - left) * tx[:, None]).reshape(grid.n_patches, -1)


def _steps(n: int, m: int) -> tuple[npt.NDArray[np.int64], F32]:
    """m places from 0 to n - 1: the entry before each, and how far behind it that is."""
    at = np.arange(m, dtype=np.float64) * ((n - 1) / (m - 1) if m > 1 else 0.0)
    entry = np.minimum(at.astype(np.int64), n - 1)
    return entry, (at - entry).astype(np.float32)


def _encoder(parts: TowerParts, stacked: Sequence[int]) -> ModelDefinition:
    info, e = parts.sizes, parts.sizes.n_embd
    x = parts.embed_patches(("v.patch_embd.weight", "v.patch_embd.weight.1"))
    x = parts.add(x, parts.given("places", e), "placed")
    turns, seen = parts.given("angles", info.head_dim), parts.seen()
    for n in range(info.n_layers):
        p = f"v.blk.{n}"
        h = parts.layer_norm(x, f"{p}.ln1")
        q, k, v = parts.split_project(h, f"{p}.attn_qkv", (e, e, e), bias=True)
        q, k = (parts.rotate(y, turns, f"{p}.{name}.rotated") for name, y in (("q", q), ("k", k)))
        out = parts.project(parts.attend(q, k, v, seen, f"{p}.attn"), f"{p}.attn_out", e, bias=True)
        x = parts.add(x, out, f"{p}.attn_sum")
        branch = parts.feed_forward(parts.layer_norm(x, f"{p}.ln2"), p)
        x = parts.add(x, branch, f"{p}.ffn_sum", parts.output(f"layer.{n}", e) if n in stacked else None)
    parts.layer_norm(x, "v.post_ln", parts.output("encoded", e))
    return parts.finish()


def _projector(parts: TowerParts, stacked: Sequence[int]) -> ModelDefinition:
    width, n_out = _SIDE**2 * parts.sizes.n_embd, parts.sizes.n_out

    def mlp(x: BufferId, first: str, second: str, out: str) -> None:
        inner = parts.gelu(parts.project(x, first, width, bias=True), f"{first}.gelu")
        parts.project(inner, second, n_out, bias=True, y=parts.output(out, n_out))

    mlp(parts.given("encoded.joined", width), "mm.0", "mm.2", ROWS)
    for i, n in enumerate(stacked, 1):
        p = f"v.deepstack.{n}"
        h = parts.layer_norm(parts.given(f"layer.{n}.joined", width), f"{p}.norm")
        mlp(h, f"{p}.fc1", f"{p}.fc2", f"{ROWS}.{i}")
    return parts.finish()
