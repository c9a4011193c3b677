"""`gemma3` and `idefics3` (SmolVLM): SigLIP towers. LayerNorm, GELU, biases, learned positions for one size of picture.

Gemma 3 takes the mean of blocks of patches, norms and projects it. Idefics 3 sees a picture as tiles and as a whole,
each a picture of its own to the tower, and projects blocks of patches put together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.errors import ModelError
from zinc_rt.models.keys import Keys
from zinc_rt.models.towers.resize import resize
from zinc_rt.models.towers.tower import (
    ROWS,
    Arrays,
    Fitting,
    PatchGrid,
    PictureLayout,
    Tower,
    TowerInfo,
    TowerParts,
    block_means,
    blocks,
    whole,
)

_AROUND = "<fake_token_around_image>"


class SigLIP(Tower):
    """See `Tower`."""

    def __init__(self, file: GGUFFile, kind: str, side: int) -> None:
        """side: patches of a block that becomes a row, both ways. Raises `ModelError`."""
        info = self.info = TowerInfo.from_file(file, kind, "gelu")
        self.side, n = side, info.image_size // info.patch_size
        if n % side:
            raise ModelError(f"{kind}: {n} patches a side are no multiple of the {side} that make a row")
        parts = TowerParts(file, info)
        self._table = parts.table("v.position_embd.weight", info.n_embd)
        if len(self._table) != n * n:
            raise ModelError(f"v.position_embd.weight has {len(self._table)} rows, {n * n} are needed")
        self.encoder = _encoder(parts)

    def order(self, grid: PatchGrid) -> npt.NDArray[np.int64]:
        """See `Tower`."""
        return blocks(grid, self.side)

    def step(self, grids: Sequence[PatchGrid]) -> Arrays:
        """See `Tower`."""
        places = np.concatenate([self._table[self.order(grid)] for grid in grids])
        return {"places": places, **whole(grids)}


class Gemma3(SigLIP):
    """See `Tower`."""

    frame = "<start_of_image>", "<end_of_image>"

    def __init__(self, file: GGUFFile) -> None:
        """Raises `ModelError`."""
        super().__init__(file, "gemma3", Keys(file.metadata, "clip").integer("vision.projector.scale_factor", 4))
        info = self.info
        self.fitting = Fitting("bilinear", square=info.image_size)
        parts = TowerParts(file, info)
        x = parts.norm(parts.given("mean", info.n_embd), "mm.soft_emb_norm")
        weight = parts.turned("mm.input_projection.weight", info.n_out, info.n_embd)
        parts.product(x, weight, "mm.input_projection", parts.output(ROWS, info.n_out))
        self.projector = parts.finish()

    def join(self, outputs: Arrays, grids: Sequence[PatchGrid]) -> Arrays:
        """The mean of each block."""
        return {"mean": block_means(outputs["encoded"], self.side)}


class Idefics3(SigLIP):
    """See `Tower`."""

    def __init__(self, file: GGUFFile) -> None:
        """Raises `ModelError`."""
        keys = Keys(file.metadata, "clip")
        super().__init__(file, "idefics3", keys.integer("vision.projector.scale_factor", 1))
        info = self.info
        self._longest = keys.integer("vision.preproc_image_size", maximum=1 << 14)
        parts = TowerParts(file, info)
        width = self.side**2 * info.n_embd
        parts.project(parts.given("joined", width), "mm.model.fc", info.n_out, y=parts.output(ROWS, info.n_out))
        self.projector = parts.finish()

    def join(self, outputs: Arrays, grids: Sequence[PatchGrid]) -> Arrays:
        """See `Tower`."""
        return {"joined": outputs["encoded"].reshape(-1, self.side**2 * self.info.n_embd)}

    def tiles(self, pixels: npt.NDArray[np.uint8]) -> Sequence[npt.NDArray[np.uint8]]:
        """Tiles line by line, then the whole picture: stretched, not fitted."""
        side, (width, height) = self.info.image_size, self._lengthened(pixels.shape[1], pixels.shape[0])
        across, down = self._grid(pixels.shape[1], pixels.shape[0])
        stretched = resize(pixels, width, height, "lanczos")
        stretched = resize(stretched, across * side, down * side, "lanczos")
        cut = stretched.reshape(down, side, across, side, 3).transpose(0, 2, 1, 3, 4).reshape(-1, side, side, 3)
        return [*cut, resize(stretched, side, side, "lanczos")]

    def layout(self, width: int, height: int) -> PictureLayout:
        """Tiles by their line and column, and the whole."""
        across, down = self._grid(width, height)
        n = (self.info.image_size // self.info.patch_size // self.side) ** 2
        pieces: list[str | int] = []
        for line in range(1, down + 1):
            for column in range(1, across + 1):
                pieces += [f"{_AROUND}<row_{line}_col_{column}>", n]
            if line < down:
                pieces.append("\n")
        return PictureLayout((*pieces, f"\n\n{_AROUND}<global-img>", n, _AROUND))

    def _grid(self, width: int, height: int) -> tuple[int, int]:
        """Tiles across and down."""
        side, sizes = self.info.image_size, self._lengthened(width, height)
        return math.ceil(sizes[0] / side), math.ceil(sizes[1] / side)

    def _lengthened(self, width: int, height: int) -> tuple[int, int]:
        """The picture's size when the longer side has the model's length; the other one is even."""
        longest, aspect = self._longest, width / height
        if width >= height:
            other = int(longest / aspect)
            return longest, max(other + other % 2, 2)
        other = int(longest * aspect)
        return max(other + other % 2, 2), longest


def _encoder(parts: TowerParts) -> ModelDefinition:
    e = parts.info.n_embd
    x = parts.add(parts.embed_patches(), parts.given("places", e), "placed")
    seen = parts.seen()
    for n in range(parts.info.n_layers):
        p = f"v.blk.{n}"
        h = parts.layer_norm(x, f"{p}.ln1")
        q, k, v = (parts.project(h, f"{p}.attn_{name}", e, bias=True) for name in "qkv")
        out = parts.project(parts.attend(q, k, v, seen, f"{p}.attn"), f"{p}.attn_out", e, bias=True)
        x = parts.add(x, out, f"{p}.attn_sum")
        x = parts.add(x, parts.feed_forward(parts.layer_norm(x, f"{p}.ln2"), p), f"{p}.ffn_sum")
    parts.layer_norm(x, "v.post_ln", parts.output("encoded", e))
    return parts.finish()
