"""`gemma4v`: the tower of Gemma 4.

RMS norms before and behind each branch, and of heads; a gated quick GELU, no biases. Positions: a table of columns and
one of lines, added, and a rotation of one half of each head by the column, of the other by the line. What goes into a
matrix and what comes out of it is held between numbers of the file. Blocks of patches are averaged to rows.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferId
from zinc_rt.kernels.reference.nearest import power
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.errors import ModelError
from zinc_rt.models.keys import Keys
from zinc_rt.models.towers.tower import (
    ROWS,
    Arrays,
    Fitting,
    PatchGrid,
    Tower,
    TowerInfo,
    TowerParts,
    angles,
    block_means,
    blocks,
    whole,
)

_LEAST, _MOST = 70, 1120
"""Rows of a picture."""
_BASE: Final = 100.0
_TABLES: Final = "v.position_embd.weight"


class Gemma4V(Tower):
    """See `Tower`."""

    frame = "<|image>", "<image|>"

    def __init__(self, file: GGUFFile) -> None:
        """Raises `ModelError`."""
        info = TowerInfo.from_file(file, "gemma4v", "gelu_quick")
        # The kernels see 2 x - 1 of normalised pixels x. With powers of two, as in files, the bits are the same.
        mean = tuple(m + s / 2 for m, s in zip(info.mean, info.std, strict=True))
        self.info = info = dataclasses.replace(info, mean=mean, std=tuple(s / 2 for s in info.std))
        self._quarter = info.quarter()
        self.side = Keys(file.metadata, "clip").integer("vision.projector.scale_factor", 3)
        self.fitting = Fitting.of_rows(self.side * info.patch_size, _LEAST, _MOST)
        parts = TowerParts(file, info)
        self._columns, self._lines = parts.tables(_TABLES, 2, info.n_embd)
        if len(self._columns) < self.side * _MOST:
            raise ModelError(
                f"{_TABLES} has {len(self._columns)} rows of a table, {self.side * _MOST} are needed for pictures of"
                f" one line of blocks"
            )
        self._bias, self._scale = (parts.vector(f"v.std_{name}", info.n_embd) for name in ("bias", "scale"))
        if (self._bias is None) != (self._scale is None):
            raise ModelError("v.std_bias and v.std_scale come together; the file has one of them")
        self.encoder = _encoder(parts)
        self.projector = _projector(TowerParts(file, info))

    def order(self, grid: PatchGrid) -> npt.NDArray[np.int64]:
        """See `Tower`."""
        return blocks(grid, self.side)

    def step(self, grids: Sequence[PatchGrid]) -> Arrays:
        """Of the angles those of the column come first."""
        places, turned = [], []
        frequencies, none = power(_BASE, -np.arange(self._quarter) / self._quarter), np.zeros(0)
        for grid in grids:
            order = self.order(grid)
            line, column = np.divmod(order, grid.nx)
            places.append(self._columns[column] + self._lines[line])
            by_column, by_line = (none, frequencies), (frequencies, none)
            turned.append(np.concatenate([angles(order, grid, *by) for by in (by_column, by_line)], axis=1))
        return {"places": np.concatenate(places), "angles": np.concatenate(turned), **whole(grids)}

    def join(self, outputs: Arrays, grids: Sequence[PatchGrid]) -> Arrays:
        """The mean of each block, times the root of its length; then, where the file says so, less a bias and scaled.

        In float32, a rounding each.
        """
        x = block_means(outputs["encoded"], self.side) * np.float32(math.sqrt(self.info.n_embd))
        if self._bias is not None and self._scale is not None:
            x = (x - self._bias) * self._scale
        return {"means": np.asarray(x)}


def _encoder(parts: TowerParts) -> ModelDefinition:
    info, e = parts.info, parts.info.n_embd
    heads, dim = info.n_heads, info.head_dim
    x = parts.add(parts.embed_patches(), parts.given("places", e), "placed")
    turns, seen = parts.given("angles", dim), parts.seen()
    for n in range(info.n_layers):
        p = f"v.blk.{n}"
        h = parts.norm(x, f"{p}.ln1")
        q, k, v = (_held(parts, h, f"{p}.attn_{name}", e) for name in "qkv")
        q, k = (parts.head_norm(y, f"{p}.attn_{name}_norm", heads, dim) for name, y in (("q", q), ("k", k)))
        q, k = (parts.rotate(y, turns, f"{p}.{name}.rotated", tables=2) for name, y in (("q", q), ("k", k)))
        v = parts.head_norm(v, f"{p}.attn_v_norm", heads, dim, weight=False)
        out = _held(parts, parts.attend(q, k, v, seen, f"{p}.attn", scale=1.0), f"{p}.attn_out", e)
        x = parts.add(x, parts.norm(out, f"{p}.attn_post_norm"), f"{p}.attn_sum")
        h = parts.norm(x, f"{p}.ln2")
        gate, up = (_held(parts, h, f"{p}.ffn_{name}", info.n_ff) for name in ("gate", "up"))
        inner = parts.gate(gate, up, f"{p}.ffn_act", activation=info.activation)
        branch = parts.norm(_held(parts, inner, f"{p}.ffn_down", e), f"{p}.ffn_post_norm")
        factor, last = parts.number(f"{p}.out_scale.weight"), n == info.n_layers - 1
        y = parts.output("encoded", e) if last else None
        x = parts.add(x, branch, f"{p}.ffn_sum", y if factor is None else None)
        if factor is not None:
            x = parts.scale(x, factor, f"{p}.out", y)
    return parts.finish()


def _projector(parts: TowerParts) -> ModelDefinition:
    info = parts.info
    x = parts.head_norm(parts.given("means", info.n_embd), "mm.norm", 1, info.n_embd, weight=False)
    _held(parts, x, "mm.input_projection", info.n_out, parts.output(ROWS, info.n_out))
    return parts.finish()


def _held(parts: TowerParts, x: BufferId, name: str, n_out: int, y: BufferId | None = None) -> BufferId:
    """W x, where the file has bounds for the matrix between those of its input and those of its output."""
    before, behind = (_bounds(parts, f"{name}.{side}") for side in ("input", "output"))
    if before is not None:
        x = parts.clamp(x, *before, f"{name}.input")
    if behind is None:
        return parts.project(x, name, n_out, y=y)
    return parts.clamp(parts.project(x, name, n_out), *behind, f"{name}.output", y)


def _bounds(parts: TowerParts, name: str) -> tuple[float, float] | None:
    """The numbers `name`_min and `name`_max; None where the file has neither, or they hold nothing.

    Raises `ModelError` where one is missing, or they are not in order.
    """
    low, high = (parts.vector(f"{name}_{end}", 1) for end in ("min", "max"))
    if low is None and high is None:
        return None
    if low is None or high is None or not low[0] <= high[0]:
        raise ModelError(f"{name}_min and {name}_max are {low} and {high}; two numbers in order are needed, or none")
    if np.isinf([low[0], high[0]]).all():
        return None
    if np.isinf([low[0], high[0]]).any():
        raise ModelError(f"{name}_min and {name}_max are {low} and {high}; both or neither may be infinite")
    return float(low[0]), float(high[0])
