"""`qwen3vl_merger`: the tower of Qwen3-VL, and of Qwen 3.5 and later.

LayerNorm, GELU and biases throughout. Positions: a table, read between its entries for pictures of other sizes, and a
rotation by line and column. Four patches become a row; of some layers they do as well, and the text model adds those
rows behind its first layers (deepstack).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile
from zinc_rt.kernels.reference.nearest import power
from zinc_rt.models.definition import F32, ModelDefinition
from zinc_rt.models.errors import ModelError
from zinc_rt.models.towers.tower import (
    ROWS,
    Arrays,
    Fitting,
    PatchGrid,
    PictureLayout,
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


class QwenTower(Tower):
    """A tower of the Qwen family, whose text models have positions with lines and columns."""

    side = _SIDE
    frame = "<|vision_start|>", "<|vision_end|>"

    def layout(self, width: int, height: int) -> PictureLayout:
        """See `Tower`."""
        size = self.side * self.info.patch_size
        columns, lines = (n // size for n in self.fitting.size(width, height))
        return replace(super().layout(width, height), columns=columns, lines=lines)


class Qwen3VL(QwenTower):
    """See `Tower`."""

    def __init__(self, file: GGUFFile) -> None:
        """Raises `ModelError`."""
        info = self.info = TowerInfo.from_file(file, "qwen3vl_merger", "gelu")
        self._quarter = info.quarter()
        names = [n for n in range(info.n_layers) if f"v.deepstack.{n}.norm.weight" in file.tensors]
        self.n_deepstack = len(names)
        self.fitting = Fitting.of_rows(_SIDE * info.patch_size, _LEAST, _MOST)
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
        turned = [turns_of(order, grid, self._quarter) for grid, order in zip(grids, orders, strict=True)]
        return {"places": np.concatenate(places), "angles": np.concatenate(turned), **whole(grids)}

    def join(self, outputs: Arrays, grids: Sequence[PatchGrid]) -> Arrays:
        """See `Tower`."""
        return {f"{name}.joined": x.reshape(len(x) // _SIDE**2, -1) for name, x in outputs.items()}


def turns_of(order: npt.NDArray[np.int64], grid: PatchGrid, quarter: int) -> F32:
    """The angles of patches: line and column turn pairs by the same frequencies."""
    frequencies = power(_BASE, -np.arange(quarter) / quarter)
    return angles(order, grid, frequencies, frequencies)


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
    info, e = parts.info, parts.info.n_embd
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
    width = _SIDE**2 * parts.info.n_embd
    parts.two_products(parts.given("encoded.joined", width), "mm.0", "mm.2", width, ROWS)
    for i, n in enumerate(stacked, 1):
        p = f"v.deepstack.{n}"
        h = parts.layer_norm(parts.given(f"layer.{n}.joined", width), f"{p}.norm")
        parts.two_products(h, f"{p}.fc1", f"{p}.fc2", width, f"{ROWS}.{i}")
    return parts.finish()
