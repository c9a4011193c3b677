"""`qwen2.5vl_merger`: the tower of Qwen2.5-VL, and of the pictures of Qwen2.5-Omni.

RMS norms, biases and a gated SiLU; a rotation by line and column. Rows see their window of 8 x 8 patches, in some
layers the whole picture. So the encoder takes blocks of four patches window by window.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.definition import F32, ModelDefinition
from zinc_rt.models.keys import Keys
from zinc_rt.models.towers.qwen3vl import QwenTower, turns_of
from zinc_rt.models.towers.tower import (
    ROWS,
    Arrays,
    Fitting,
    PatchGrid,
    TowerInfo,
    TowerParts,
    blocks,
    spans,
    whole,
)

_SIDE: Final = QwenTower.side
"""Patches of a block, both ways."""
_LEAST, _MOST = 8, 4096
"""Rows of a picture."""
_WINDOW: Final = 112
"""Pixels of a window's side; the file's own key does not count."""


class Qwen25VL(QwenTower):
    """See `Tower`."""

    def __init__(self, file: GGUFFile) -> None:
        """Raises `ModelError`."""
        info = self.info = TowerInfo.from_file(file, "qwen2.5vl_merger", "silu")
        self._quarter = info.quarter()
        every = Keys(file.metadata, "clip").integer("vision.n_wa_pattern")
        a = _SIDE * info.patch_size
        self.fitting = Fitting.of_rows(a, _LEAST, _MOST)
        self._window = max(_WINDOW // a, 1)  # in blocks
        self.encoder = _encoder(TowerParts(file, info), every)
        self.projector = _projector(TowerParts(file, info))

    def _windows(self, grid: PatchGrid) -> list[npt.NDArray[np.int64]]:
        """The blocks of each window, as numbers in reading order; windows at the edges are smaller."""
        g, wide = self._window, grid.nx // _SIDE
        numbers = np.arange(grid.n_patches // _SIDE**2).reshape(-1, wide)
        return [numbers[y : y + g, x : x + g].reshape(-1) for y in range(0, len(numbers), g) for x in range(0, wide, g)]

    def order(self, grid: PatchGrid) -> npt.NDArray[np.int64]:
        """See `Tower`."""
        return blocks(grid, _SIDE).reshape(-1, _SIDE**2)[np.concatenate(self._windows(grid))].reshape(-1)

    def step(self, grids: Sequence[PatchGrid]) -> Arrays:
        """See `Tower`."""
        turned = [turns_of(self.order(grid), grid, self._quarter) for grid in grids]
        n = [len(window) * _SIDE**2 for grid in grids for window in self._windows(grid)]
        return {"angles": np.concatenate(turned), **whole(grids), **spans(n, "window_")}

    def join(self, outputs: Arrays, grids: Sequence[PatchGrid]) -> Arrays:
        """See `Tower`."""
        x = outputs["encoded"]
        return {"joined": x.reshape(len(x) // _SIDE**2, -1)}

    def arrange(self, rows: F32, grids: Sequence[PatchGrid]) -> F32:
        """Rows from window order to reading order."""
        out, start = np.empty_like(rows), 0
        for grid in grids:
            order = np.concatenate(self._windows(grid))
            out[start + order] = rows[start : start + len(order)]
            start += len(order)
        return out


def _encoder(parts: TowerParts, every: int) -> ModelDefinition:
    info, e = parts.info, parts.info.n_embd
    x = parts.embed_patches(("v.patch_embd.weight", "v.patch_embd.weight.1"))
    turns, seen, window = parts.given("angles", info.head_dim), parts.seen(), parts.seen("window_")
    for n in range(info.n_layers):
        p = f"v.blk.{n}"
        h = parts.norm(x, f"{p}.ln1")
        q, k, v = (parts.project(h, f"{p}.attn_{name}", e, bias=True) for name in "qkv")
        q, k = (parts.rotate(y, turns, f"{p}.{name}.rotated") for name, y in (("q", q), ("k", k)))
        out = parts.attend(q, k, v, seen if (n + 1) % every == 0 else window, f"{p}.attn")
        x = parts.add(x, parts.project(out, f"{p}.attn_out", e, bias=True), f"{p}.attn_sum")
        branch = parts.gated_feed_forward(parts.norm(x, f"{p}.ln2"), p, bias=True)
        x = parts.add(x, branch, f"{p}.ffn_sum")
    parts.norm(x, "v.post_ln", y=parts.output("encoded", e))
    return parts.finish()


def _projector(parts: TowerParts) -> ModelDefinition:
    width = _SIDE**2 * parts.info.n_embd
    parts.two_products(parts.given("joined", width), "mm.0", "mm.2", width, ROWS)
    return parts.finish()
