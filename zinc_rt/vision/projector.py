"""Rows of a text model from pictures: a tower on a backend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Backend, Capacity, LoweredGraph
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferKind
from zinc_rt.models.constants import Constants
from zinc_rt.models.definition import F32, ModelDefinition, ModelInfo
from zinc_rt.models.errors import ModelError
from zinc_rt.models.towers import define_tower
from zinc_rt.models.towers.tower import PATCHES, ROWS, Arrays, PatchGrid, Tower
from zinc_rt.utils.closing import Closing
from zinc_rt.vision.picture import Picture

U8 = npt.NDArray[np.uint8]


class Projector(Closing):
    """A projector's file on a backend. It belongs to the backend's thread, and is good as long as the backend is."""

    def __init__(self, file: GGUFFile, tower: Tower, backend: Backend) -> None:
        """file: the projector's, which is closed with this. tower: of that file."""
        self.file, self.tower = file, tower
        self._encoder = _Runner(self.tower.encoder, file, backend)
        self._projector = _Runner(self.tower.projector, file, backend)

    def close(self) -> None:
        """Close the file; the memory on the backend goes with that."""
        self.file.close()

    def rows(self, picture: Picture) -> F32:
        """The picture's rows in order of the text: f32[n_rows, n_out * (1 + deepstack layers)].

        A row's first n_out numbers stand for a token's embedding, the others are added behind the first layers.
        """
        work = self.start(self.tower.tiles(picture.pixels))
        while not work.advance():
            pass
        return work.rows

    def start(self, tiles: Sequence[U8]) -> PictureWork:
        """Work on a picture whose tiles these are, u8[height, width, 3] each, as `Tower.tiles` gives them."""
        return PictureWork(self, tiles)

    def compute(self, tiles: Sequence[U8]) -> F32:
        """The rows of a picture's tiles, at once."""
        size = self.tower.info.patch_size
        grids = [PatchGrid(tile.shape[1] // size, tile.shape[0] // size) for tile in tiles]
        patches = [self._patches(tile, grid) for tile, grid in zip(tiles, grids, strict=True)]
        encoded = self._encoder.run({PATCHES: np.concatenate(patches), **self.tower.step(grids)})
        projected = self._projector.run(self.tower.join(encoded, grids))
        names = [ROWS, *(f"{ROWS}.{i}" for i in range(1, self.tower.n_deepstack + 1))]
        return self.tower.arrange(np.concatenate([projected[name] for name in names], axis=1), grids)

    def _patches(self, pixels: U8, grid: PatchGrid) -> F32:
        """Normalised pixels of each patch, f32[n_patches, 3 * patch_size^2], in the encoder's order."""
        info, p = self.tower.info, self.tower.info.patch_size
        whole = pixels[: grid.ny * p, : grid.nx * p].reshape(grid.ny, p, grid.nx, p, 3)
        flat = whole.transpose(0, 2, 4, 1, 3).reshape(grid.n_patches, 3, p * p)[self.tower.order(grid)]
        mean, std = (np.array(values, np.float32)[:, None] for values in (info.mean, info.std))
        return np.asarray((flat / np.float32(255.0) - mean) / std, np.float32).reshape(len(flat), -1)


class PictureWork:
    """A picture on its way to rows. rows: what `Projector.rows` gives, once `advance` has said that it is over."""

    rows: F32

    def __init__(self, projector: Projector, tiles: Sequence[U8]) -> None:
        self._projector, self._tiles = projector, tiles

    def advance(self) -> bool:
        """Do a slice of the work; whether it is over. Raises `BackendError`."""
        self.rows = self._projector.compute(self._tiles)
        return True


def tower_for(file: GGUFFile, text_model: ModelInfo) -> Tower:
    """The tower of a projector's file, for a text model.

    Raises `ModelError` where the file has no tower that runs here, or one for another text model.
    """
    tower = define_tower(file)
    if tower.info.n_out != text_model.n_embd:
        raise ModelError(
            f"{file.path} gives rows of {tower.info.n_out} elements, the text model ({text_model.architecture}) has"
            f" {text_model.n_embd}: it is the projector of another model"
        )
    return tower


@dataclass
class _Runner:
    """A graph over rows, lowered for as many rows as a step has had."""

    definition: ModelDefinition
    file: GGUFFile
    backend: Backend
    lowered: LoweredGraph | None = None

    def run(self, inputs: Arrays) -> Mapping[str, F32]:
        """The outputs of one step, copies."""
        n = len(next(iter(inputs.values())))
        lowered = self._room(n)
        for name, array in lowered.inputs.items():
            given = np.ascontiguousarray(inputs[name]).view(np.int32)
            array[:n] = given.reshape(n, *array.shape[1:])
        lowered.counts[:] = n, 0
        self.backend.submit_and_wait(lowered)
        return {name: y[:n].view(np.float32).copy() for name, y in lowered.outputs.items()}

    def _room(self, n: int) -> LoweredGraph:
        """The graph for at least n rows; weights are shared with the one for fewer."""
        if self.lowered is None or self.lowered.limits[0] < n:
            rows = 1 << (n - 1).bit_length()
            definition, backend = self.definition, self.backend
            plan = backend.tune(backend.plan(definition.graph, Capacity(rows, 1, 1, 1, 1), self.lowered))
            weights = {b.name: definition.raw(self.file, b.name) for b in definition.graph.of_kind(BufferKind.WEIGHT)}
            release = partial(definition.release, self.file)
            self.lowered = backend.lower(plan, weights, Constants(definition.constants, 1), release)
        return self.lowered
