"""Towers: rows against float64 formulas, and the same bits on every backend."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend
from tests.helpers import soon
from tests.vision import towers
from zinc_rt.backends.base import Backend, Capacity
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.backends.reference.backend import ReferenceBackend
from zinc_rt.gguf import GGMLType, GGUFFile
from zinc_rt.ir.graph import BufferKind
from zinc_rt.models.constants import Constants
from zinc_rt.models.errors import ModelError
from zinc_rt.models.towers import define_tower
from zinc_rt.vision.picture import Picture, read_picture
from zinc_rt.vision.projector import Projector

SIZES = {"qwen2.5vl_merger": ((120, 16), (16, 120))}
"""Further sizes: pictures of several windows, across and down."""


def picture(width: int, height: int, seed: int = 0) -> Picture:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return read_picture(pixels)


def rows(backend: Backend, path: Path, *pictures: Picture) -> list[np.ndarray]:
    with GGUFFile.open(path) as file:
        projector = Projector(file, define_tower(file), backend)
        return [projector.rows(each) for each in pictures]


def formula(tiny: towers.TinyProjector, shown: Picture) -> np.ndarray:
    """The tower's float64 formula over the tiles that the encoder sees."""
    with GGUFFile.open(tiny.path) as file:
        tower = define_tower(file)
    mean, std = (np.array(values)[:, None, None] for values in (tower.info.mean, tower.info.std))
    tiles = [(tile.transpose(2, 0, 1) / 255.0 - mean) / std for tile in tower.tiles(shown.pixels)]
    return np.concatenate([tiny.rows(tiny.tensors, tile) for tile in tiles])


@pytest.mark.parametrize("kind", towers.KINDS)
@pytest.mark.parametrize("weights", soon((GGMLType.F16,), (GGMLType.F32, GGMLType.F16, GGMLType.BF16)))
def test_rows_are_those_of_float64(kind: str, weights: GGMLType, tmp_path: Path) -> None:
    """Within 1e-3 of the rows' spread; quantised weights round the rows between, so they are compared by bits alone."""
    tiny = towers.write(tmp_path / "mmproj.gguf", kind, weights)
    for size in ((24, 24), (40, 26), *SIZES.get(kind, ())):
        shown = picture(*size)
        want = formula(tiny, shown)
        (got,) = rows(ReferenceBackend(), tiny.path, shown)
        assert got.shape == want.shape
        assert np.abs(got - want).max() / np.sqrt((want**2).mean()) < 1e-3


@pytest.mark.parametrize("kind", towers.KINDS)
def test_every_backend_gives_the_same_bits(kind: str, tmp_path: Path) -> None:
    shown = [picture(24, 24), picture(40, 30, 1), picture(16, 32, 2)]
    for weights in (GGMLType.F16, GGMLType.Q8_0):
        path = towers.write(tmp_path / f"{weights.name}.gguf", kind, weights).path
        want = rows(ReferenceBackend(), path, *shown)
        for threads in (1, 3):
            for a, b in zip(want, rows(CpuBackend(threads=threads), path, *shown), strict=True):
                assert np.array_equal(a.view(np.uint32), b.view(np.uint32))


def test_a_profile_names_what_a_tower_does(tmp_path: Path) -> None:
    backend = CpuBackend(threads=1)
    with GGUFFile.open(towers.write(tmp_path / "mmproj.gguf", "gemma3").path) as file:
        tower = define_tower(file)
        lowered = backend.lower(
            backend.tune(backend.plan(tower.encoder.graph, Capacity(64, 1, 1, 1, 1))),
            {b.name: tower.encoder.raw(file, b.name) for b in tower.encoder.graph.of_kind(BufferKind.WEIGHT)},
            Constants(tower.encoder.constants, 1),
        )
        backend.start_profile(lowered)
        lowered.counts[:] = 64, 0
        backend.submit_and_wait(lowered)
        lines = list(backend.finish_profile().lines())
    assert any("row attention" in line for line in lines)


@pytest.mark.parametrize("kind", soon(("qwen3vl_merger",), towers.KINDS))
def test_the_emulated_gpu_gives_the_same_bits(kind: str, tmp_path: Path) -> None:
    path, shown = towers.write(tmp_path / "mmproj.gguf", kind).path, picture(8, 12)
    with amd_backend() as (backend, _):
        (got,) = rows(backend, path, shown)
    (want,) = rows(ReferenceBackend(), path, shown)
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))


def test_another_activation_is_refused(tmp_path: Path) -> None:
    path = towers.write(tmp_path / "mmproj.gguf", "gemma3").path
    path.write_bytes(path.read_bytes().replace(b"clip.use_gelu", b"clip.use_silu"))
    with GGUFFile.open(path) as file, pytest.raises(ModelError, match=r"activation is silu .*; gelu is needed"):
        define_tower(file)


def test_what_is_no_tower_is_refused_by_name(tmp_path: Path) -> None:
    path = towers.write(tmp_path / "mmproj.gguf", "gemma3").path
    path.write_bytes(path.read_bytes().replace(b"gemma3", b"gemma7"))
    with GGUFFile.open(path) as file, pytest.raises(ModelError, match="projector of type 'gemma7'"):
        define_tower(file)
