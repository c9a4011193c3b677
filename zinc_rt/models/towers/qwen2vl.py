"""`qwen2vl_merger`: the tower of Qwen2-VL.

As `qwen3vl_merger`, without a position table and deepstack layers: LayerNorm, the quick GELU, biases, a rotation by
line and column, and four patches to a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.towers.qwen3vl import QwenTower, turns_of
from zinc_rt.models.towers.tower import ROWS, Arrays, Fitting, PatchGrid, TowerInfo, TowerParts, blocks, whole

_SIDE: Final = QwenTower.side
"""Patches of a block, both ways."""
_LEAST, _MOST = 8, 4096
"""Rows of a picture."""


class Qwen2VL(QwenTower):
    """See `Tower`."""

    def __init__(self, file: GGUFFile) -> None:
        """Raises `ModelError`."""
        info = self.info = TowerInfo.from_file(file, "qwen2vl_merger", "gelu_quick")
        self._quarter = info.quarter()
        self.fitting = Fitting.of_rows(_SIDE * info.patch_size, _LEAST, _MOST)
        self.encoder = _encoder(TowerParts(file, info))
        self.projector = _projector(TowerParts(file, info))

    def order(self, grid: PatchGrid) -> npt.NDArray[np.int64]:
        """See `Tower`."""
        return blocks(grid, _SIDE)

    def step(self, grids: Sequence[PatchGrid]) -> Arrays:
        """See `Tower`."""
        turned = [turns_of(self.order(grid), grid, self._quarter) for grid in grids]
        return {"angles": np.concatenate(turned), **whole(grids)}

    def join(self, outputs: Arrays, grids: Sequence[PatchGrid]) -> Arrays:
        """See `Tower`."""
        x = outputs["encoded"]
        return {"joined": x.reshape(len(x) // _SIDE**2, -1)}


def _encoder(parts: TowerParts) -> ModelDefinition:
    info, e = parts.info, parts.info.n_embd
    x = parts.embed_patches(("v.patch_embd.weight", "v.patch_embd.weight.1"))
    turns, seen = parts.given("angles", info.head_dim), parts.seen()
    for n in range(info.n_layers):
        p = f"v.blk.{n}"
        h = parts.layer_norm(x, f"{p}.ln1")
        q, k, v = (parts.project(h, f"{p}.attn_{name}", e, bias=True) for name in "qkv")
        q, k = (parts.rotate(y, turns, f"{p}.{name}.rotated") for name, y in (("q", q), ("k", k)))
        out = parts.project(parts.attend(q, k, v, seen, f"{p}.attn"), f"{p}.attn_out", e, bias=True)
        x = parts.add(x, out, f"{p}.attn_sum")
        x = parts.add(x, parts.feed_forward(parts.layer_norm(x, f"{p}.ln2"), p), f"{p}.ffn_sum")
    parts.layer_norm(x, "v.post_ln", parts.output("encoded", e))
    return parts.finish()


def _projector(parts: TowerParts) -> ModelDefinition:
    width = _SIDE**2 * parts.info.n_embd
    parts.two_products(parts.given("joined", width), "mm.0", "mm.2", width, ROWS)
    return parts.finish()
