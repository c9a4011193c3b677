"""`pixtral`: the tower of Pixtral, and of Mistral's models from Small 3.1 on.

RMS norms and no biases; a rotation of neighbouring pairs by line and column. Blocks of patches are merged by a matrix,
channel by channel. After each line of rows but the last stands a row that says so.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile
from zinc_rt.kernels.reference.nearest import power
from zinc_rt.models.definition import F32, ModelDefinition
from zinc_rt.models.errors import ModelError
from zinc_rt.models.keys import Keys
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

_LEAST, _MOST = 8, 1024
"""Rows of a picture, without those that end lines."""
_BASE = 10000.0
_BREAK = "v.token_embd.img_break"
_MERGER = "mm.patch_merger"


class Pixtral(Tower):
    """See `Tower`."""

    frame = "", "[IMG_END]"

    def __init__(self, file: GGUFFile) -> None:
        """Raises `ModelError`."""
        info = self.info = TowerInfo.from_file(file, "pixtral", "gelu", "silu")
        self._quarter = info.quarter()
        self.side = Keys(file.metadata, "clip").integer("vision.spatial_merge_size", 1)
        if self.side > 1 and f"{_MERGER}.weight" not in file.tensors:
            raise ModelError(f"{_MERGER}.weight is missing, which blocks of {self.side} x {self.side} patches need")
        self.fitting = Fitting.of_rows(self.side * info.patch_size, _LEAST, _MOST)
        self.encoder = _encoder(TowerParts(file, info), self.side)
        parts = TowerParts(file, info)
        self._line_end = parts.table_row(_BREAK, info.n_out)
        self.projector = _projector(parts, self.side)

    def layout(self, width: int, height: int) -> PictureLayout:
        """See `Tower`."""
        lines = self.fitting.size(width, height)[1] // (self.side * self.info.patch_size)
        before, n, after = super().layout(width, height).pieces
        return PictureLayout((before, int(n) + lines - 1, after))

    def order(self, grid: PatchGrid) -> npt.NDArray[np.int64]:
        """See `Tower`."""
        return blocks(grid, self.side)

    def step(self, grids: Sequence[PatchGrid]) -> Arrays:
        """Pairs of the first half of a head turn by the line, those of the second one by the column."""
        dim, i = self.info.head_dim, np.arange(self._quarter)
        by_line, by_column = power(_BASE, -4 * i / dim), power(_BASE, -(4 * i + 2) / dim)
        turned = [angles(self.order(grid), grid, by_line, by_column) for grid in grids]
        return {"angles": np.concatenate(turned), **whole(grids)}

    def join(self, outputs: Arrays, grids: Sequence[PatchGrid]) -> Arrays:
        """A block's patches stand side by side in each channel."""
        x, n = outputs["encoded"], self.side**2
        return {"joined": x.reshape(-1, n, x.shape[1]).transpose(0, 2, 1).reshape(len(x) // n, -1)}

    def arrange(self, rows: F32, grids: Sequence[PatchGrid]) -> F32:
        """The row that ends a line after each line of a picture but the last."""
        out, at = [], 0
        for grid in grids:
            wide, lines = grid.nx // self.side, grid.ny // self.side
            for line in range(lines):
                out.append(rows[at : at + wide])
                at += wide
                if line < lines - 1:
                    out.append(self._line_end)
        return np.concatenate(out)


def _encoder(parts: TowerParts, side: int) -> ModelDefinition:
    info, e = parts.info, parts.info.n_embd
    x = parts.norm(parts.embed_patches(), "v.pre_ln")
    turns, seen = parts.given("angles", info.head_dim), parts.seen()
    for n in range(info.n_layers):
        p = f"v.blk.{n}"
        h = parts.norm(x, f"{p}.ln1")
        q, k, v = (parts.project(h, f"{p}.attn_{name}", e) for name in "qkv")
        q, k = (parts.rotate(y, turns, f"{p}.{name}.rotated", interleaved=True) for name, y in (("q", q), ("k", k)))
        x = parts.add(x, parts.project(parts.attend(q, k, v, seen, f"{p}.attn"), f"{p}.attn_out", e), f"{p}.attn_sum")
        last = parts.output("encoded", e) if side == 1 and n == info.n_layers - 1 else None
        branch = parts.gated_feed_forward(parts.norm(x, f"{p}.ln2"), p, bias=False)
        x = parts.add(x, branch, f"{p}.ffn_sum", last)
    if side > 1:
        parts.norm(x, "mm.input_norm", y=parts.output("encoded", e))
    return parts.finish()


def _projector(parts: TowerParts, side: int) -> ModelDefinition:
    e = parts.info.n_embd
    x = parts.given("joined", side**2 * e)
    if side > 1:
        x = parts.project(x, _MERGER, e)
    parts.two_products(x, "mm.1", "mm.2", parts.info.n_out, ROWS, bias=None)
    return parts.finish()
