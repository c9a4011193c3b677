"""Rows of a text model from pictures: a tower on a backend."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Backend, Capacity, LoweredGraph, check_step
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferKind
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.models.constants import Constants
from zinc_rt.models.definition import F32, ModelDefinition
from zinc_rt.models.errors import ModelError
from zinc_rt.models.pictures import with_pictures
from zinc_rt.models.towers import define_tower
from zinc_rt.models.towers.tower import PATCHES, ROWS, Arrays, PatchGrid, Tower
from zinc_rt.utils.closing import Closing
from zinc_rt.vision.picture import Picture

_FIRST_ROOM: Final = 16
"""Rows that the graphs are lowered for when a projector is opened: that brings the weights to the backend, and measures
the ways of products with many rows where nobody has yet.
"""
U8 = npt.NDArray[np.uint8]


class Projector(Closing):
    """A projector's file on a backend. It belongs to the backend's thread, and is good as long as the backend is."""

    def __init__(self, file: GGUFFile, tower: Tower, backend: Backend) -> None:
        """file: the projector's, which is closed with this. tower: of that file. Raises what lowering graphs raises."""
        self.file, self.tower = file, tower
        self._encoder = _Runner(self.tower.encoder, file, backend)
        self._projector = _Runner(self.tower.projector, file, backend)
        self.working: PictureWork | None = None
        """The picture that the graphs are busy with, between two parts of it."""
        for runner in (self._encoder, self._projector):
            runner.room(_FIRST_ROOM)

    def close(self) -> None:
        """Close the file; the memory on the backend goes with that."""
        self.file.close()

    def rows(self, picture: Picture) -> F32:
        """The picture's rows in order of the text: f32[n_rows, n_out * (1 + deepstack layers)].

        A row's first n_out numbers stand for a token's embedding, the others are added behind the first layers.
        Raises what `PictureWork.advance` raises.
        """
        work = self.start(self.tower.tiles(picture.pixels), math.inf)
        while not work.advance(math.inf):
            pass
        return work.rows

    def start(self, tiles: Sequence[U8], part_seconds: float = 0.02) -> PictureWork:
        """Rows of a picture, to be computed by parts. tiles: u8[height, width, 3] each, as `Tower.tiles` gives them.
        They are cut up here and now, which any thread may do; the rest belongs to the backend's thread.

        part_seconds: that a part shall take on the CPU; its threads wait for each other at the end of each part.
        """
        size = self.tower.info.patch_size
        grids = [PatchGrid(tile.shape[1] // size, tile.shape[0] // size) for tile in tiles]
        patches = [self._patches(tile, grid) for tile, grid in zip(tiles, grids, strict=True)]
        return PictureWork(self, grids, {PATCHES: np.concatenate(patches), **self.tower.step(grids)}, part_seconds)

    def compute(self, grids: Sequence[PatchGrid], inputs: Arrays, part_seconds: float) -> Generator[None, None, F32]:
        """The rows of tiles, from the encoder's inputs; each turn of the generator is a part. For `PictureWork`."""
        encoded = yield from self._encoder.run(inputs, part_seconds)
        projected = yield from self._projector.run(self.tower.join(encoded, grids), part_seconds)
        names = [ROWS, *(f"{ROWS}.{i}" for i in range(1, self.tower.n_deepstack + 1))]
        return self.tower.arrange(np.concatenate([projected[name] for name in names], axis=1), grids)

    def _patches(self, pixels: U8, grid: PatchGrid) -> F32:
        """Normalised pixels of each patch, f32[n_patches, 3 * patch_size^2], in the encoder's order."""
        info, p = self.tower.info, self.tower.info.patch_size
        whole = pixels[: grid.ny * p, : grid.nx * p].reshape(grid.ny, p, grid.nx, p, 3)
        flat = whole.transpose(0, 2, 4, 1, 3).reshape(grid.n_patches, 3, p * p)[self.tower.order(grid)]
        mean, std = (np.array(values, np.float32)[:, None] for values in (info.mean, info.std))
        return np.asarray((flat / np.float32(255.0) - mean) / std, np.float32).reshape(len(flat), -1)


class PictureWork(Closing):
    """Rows of a picture in the making, as `Projector.start` gives it. Of a projector's pictures one is worked on at a
    time: from its first `advance` on until it is finished or closed.
    """

    def __init__(self, projector: Projector, grids: Sequence[PatchGrid], inputs: Arrays, part_seconds: float) -> None:
        self._projector, self._parts = projector, projector.compute(grids, inputs, part_seconds)
        self._rows: F32 | None = None

    def advance(self, seconds: float = 0.0) -> bool:
        """Compute for so long, and at least a part: of `part_seconds` on the CPU, a submission on a GPU. True once the
        rows are there.

        Between two calls other graphs may run on the backend. Raises `BackendError`, also where another picture of the
        projector is not finished, and where this one was given up.
        """
        if self._rows is not None:
            return True
        if self._projector.working not in (None, self):
            raise BackendError("the projector works on another picture; finish that one first, or close it")
        self._projector.working = self
        end = time.monotonic() + seconds
        try:
            while True:
                next(self._parts)
                if time.monotonic() >= end:
                    return False
        except StopIteration as finished:
            self._rows = finished.value
            self._projector.working = None
        except BaseException:
            self.close()
            raise
        if self._rows is None:
            raise BackendError("the picture was given up; start it again")
        return True

    @property
    def rows(self) -> F32:
        """See `Projector.rows`. Only when `advance` has said True."""
        assert self._rows is not None, "advance() has not finished"
        return self._rows

    def close(self) -> None:
        """Give the picture up, if it is not finished. The rows of a finished one stay."""
        self._parts.close()
        if self._projector.working is self:
            self._projector.working = None


def with_projector(definition: ModelDefinition, file: GGUFFile, shown: GGUFFile) -> tuple[Tower, ModelDefinition]:
    """The tower of a projector's file for a text model, and the model's definition for texts with pictures.

    Args:
        definition: of the text model.
        file: its file.
        shown: the projector's.

    Raises:
        ModelError: there is no tower that runs here, or it is for another text model.
    """
    tower, info = define_tower(shown), definition.info
    if tower.info.n_out != info.n_embd:
        raise ModelError(
            f"{shown.path} gives rows of {tower.info.n_out} elements, the text model ({info.architecture}) has"
            f" {info.n_embd}: it is the projector of another model"
        )
    reading = with_pictures(definition, file, tower.n_deepstack)
    if reading.pictures is not None and reading.pictures.max_rows is not None:
        tower.fitting = tower.fitting.within(reading.pictures.max_rows)
    return tower, reading


@dataclass
class _Runner:
    """A graph over rows, lowered for as many rows as a step has had."""

    definition: ModelDefinition
    file: GGUFFile
    backend: Backend
    lowered: LoweredGraph | None = None

    def run(self, inputs: Arrays, part_seconds: float) -> Generator[None, None, Mapping[str, F32]]:
        """The outputs of one step, copies; each turn is a part of it."""
        n = len(next(iter(inputs.values())))
        lowered = self.room(n)
        for name, array in lowered.inputs.items():
            given = np.ascontiguousarray(inputs[name]).view(np.int32)
            array[:n] = given.reshape(n, *array.shape[1:])
        lowered.counts[:] = n, 0
        yield from self.backend.run_parts(check_step(lowered), part_seconds)
        return {name: y[:n].view(np.float32).copy() for name, y in lowered.outputs.items()}

    def room(self, n: int) -> LoweredGraph:
        """The graph for at least n rows; weights are shared with the one for fewer.

        Raises `MemoryPlanError` where memory has no room for it, `BackendError`.
        """
        if self.lowered is None or self.lowered.limits[0] < n:
            rows = 1 << (n - 1).bit_length()
            definition, backend = self.definition, self.backend
            plan = backend.tune(backend.plan(definition.graph, Capacity(rows, 1, 1, 1, 1), self.lowered))
            needed, free = sum(plan.n_bytes.values()), backend.memory_available
            if free is not None and needed > free:
                raise MemoryPlanError(
                    f"a picture of {n} patches takes {needed >> 20} MiB of memory, {free >> 20} MiB are left;"
                    " scale the picture down"
                )
            weights = {b.name: definition.raw(self.file, b.name) for b in definition.graph.of_kind(BufferKind.WEIGHT)}
            release = partial(definition.release, self.file)
            self.lowered = backend.lower(plan, weights, Constants(definition.constants, 1), release)
        return self.lowered
