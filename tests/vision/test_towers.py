"""Towers: rows against float64 formulas, and the same bits on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend
from tests.helpers import soon
from tests.vision import towers
from zinc_rt.amdgpu.submission_budget import SubmissionBudget
from zinc_rt.backends.base import Backend, Capacity
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.backends.reference.backend import ReferenceBackend
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGMLType, GGUFFile
from zinc_rt.ir.graph import BufferKind
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.models.constants import Constants
from zinc_rt.models.errors import ModelError
from zinc_rt.models.towers import define_tower, gemma4v
from zinc_rt.vision.picture import Picture, read_picture
from zinc_rt.vision.projector import PictureWork, Projector

SIZES = {"qwen2.5vl_merger": ((120, 16), (16, 120))}
"""Sizes by default, where the usual ones are slow tests: pictures of several windows; those down are slow, too."""


def picture(width: int, height: int, seed: int = 0) -> Picture:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return read_picture(pixels)


@pytest.fixture
def small_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gemma 4's tower makes no picture larger."""
    monkeypatch.setattr(gemma4v, "_LEAST", 2)


def opened(file: GGUFFile, backend: Backend) -> Projector:
    return Projector(file, define_tower(file), backend)


def started(projector: Projector, shown: Picture, part_seconds: float = 0.02) -> PictureWork:
    return projector.start(projector.tower.tiles(shown.pixels), part_seconds)


def rows(backend: Backend, path: Path, *pictures: Picture) -> list[np.ndarray]:
    with GGUFFile.open(path) as file:
        projector = opened(file, backend)
        return [projector.rows(each) for each in pictures]


def by_parts(backend: Backend, path: Path, shown: Picture) -> tuple[np.ndarray, int]:
    """A picture's rows, and how many parts they took."""
    with GGUFFile.open(path) as file:
        work, n_parts = started(opened(file, backend), shown), 1
        while not work.advance():
            n_parts += 1
        return work.rows, n_parts


def formula(tiny: towers.TinyProjector, shown: Picture) -> np.ndarray:
    """The tower's float64 formula over the tiles that the encoder sees."""
    with GGUFFile.open(tiny.path) as file:
        tower = define_tower(file)
        mean, std = (np.array(file.metadata[f"clip.vision.image_{name}"])[:, None, None] for name in ("mean", "std"))
    tiles = [(tile.transpose(2, 0, 1) / 255.0 - mean) / std for tile in tower.tiles(shown.pixels)]
    return np.concatenate([tiny.rows(tiny.tensors, tile) for tile in tiles])


def kinds_and_sizes() -> Iterator[Any]:
    """Each kind with an oblong picture by default."""
    for kind in towers.KINDS:
        sizes = SIZES.get(kind, ((40, 26),))
        for size in {(24, 24), (40, 26), *sizes}:
            name = f"{kind}-{size[0]}x{size[1]}"
            yield pytest.param(kind, size, id=name, marks=() if size == sizes[0] else pytest.mark.slow)


@pytest.mark.usefixtures("small_pictures")
@pytest.mark.parametrize(("kind", "size"), sorted(kinds_and_sizes(), key=lambda each: each.id))
@pytest.mark.parametrize("weights", soon((GGMLType.F16,), (GGMLType.F32, GGMLType.F16, GGMLType.BF16)))
def test_rows_are_those_of_float64(kind: str, size: tuple[int, int], weights: GGMLType, tmp_path: Path) -> None:
    """Within 1e-3 of the rows' spread; quantised weights round the rows between, so they are compared by bits alone."""
    tiny = towers.write(tmp_path / "mmproj.gguf", kind, weights)
    shown = picture(*size)
    want = formula(tiny, shown)
    (got,) = rows(ReferenceBackend(), tiny.path, shown)
    assert got.shape == want.shape
    assert np.abs(got - want).max() / np.sqrt((want**2).mean()) < 1e-3


@pytest.mark.usefixtures("small_pictures")
@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        pytest.param(kind, weights, id=f"{kind}-{weights.name}", marks=() if i % 2 == j else pytest.mark.slow)
        for i, kind in enumerate(towers.KINDS)
        for j, weights in enumerate((GGMLType.F16, GGMLType.Q8_0))
    ],
)
def test_every_backend_gives_the_same_bits(kind: str, weights: GGMLType, tmp_path: Path) -> None:
    """By default each tower with one of the two kinds of weights. The second picture needs less room than the first."""
    shown = [picture(40, 30, 1), picture(16, 32, 2)]
    path = towers.write(tmp_path / "mmproj.gguf", kind, weights).path
    want = rows(ReferenceBackend(), path, *shown)
    for a, b in zip(want, rows(CpuBackend(threads=3), path, *shown), strict=True):
        assert np.array_equal(a.view(np.uint32), b.view(np.uint32))


@pytest.mark.parametrize("weights", soon((GGMLType.Q4_0,), (GGMLType.Q4_0, GGMLType.Q6_K)))
def test_matrices_of_few_bits(weights: GGMLType, tmp_path: Path) -> None:
    """All whose rows are whole blocks: of Q6_K those of the projector."""
    shown, path = picture(24, 40), towers.write(tmp_path / "mmproj.gguf", "qwen2vl_merger", weights).path
    with GGUFFile.open(path) as file:
        packed = {name for name, tensor in file.tensors.items() if tensor.type is weights}
    assert {"mm.0.weight", "mm.2.weight"} <= packed
    assert weights is not GGMLType.Q4_0 or {"v.blk.0.attn_q.weight", "v.blk.2.ffn_down.weight"} <= packed
    (want,), (got,) = (rows(backend, path, shown) for backend in (ReferenceBackend(), CpuBackend(threads=2)))
    assert np.array_equal(want.view(np.uint32), got.view(np.uint32))


def test_gemmas_rows_of_a_picture(tmp_path: Path) -> None:
    with GGUFFile.open(towers.write(tmp_path / "mmproj.gguf", "gemma4v").path) as file:
        fitting = define_tower(file).fitting
    for size, n_rows in (((1, 1), 81), ((4000, 3000), 1064), ((2, 400), 119)):
        width, height = fitting.size(*size)
        assert width * height == n_rows * (3 * towers.P) ** 2


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


@pytest.mark.usefixtures("small_pictures")
@pytest.mark.slow  # takes seconds; `tests/kernels/test_encoder.py` has the operations, the tests below the parts
@pytest.mark.parametrize("kind", towers.KINDS)
def test_the_emulated_gpu_gives_the_same_bits(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step is cut into submissions of a few dispatches, which are the parts of `advance`."""
    monkeypatch.setattr(SubmissionBudget, "most_work", property(lambda self: 1 << 20))
    path, shown = towers.write(tmp_path / "mmproj.gguf", kind, n_layers=1).path, picture(8, 8)
    with amd_backend() as (backend, _):
        got, n_parts = by_parts(backend, path, shown)
    assert n_parts > 1
    (want,) = rows(ReferenceBackend(), path, shown)
    assert np.array_equal(got.view(np.uint32), want.view(np.uint32))


def test_another_activation_is_refused(tmp_path: Path) -> None:
    path = towers.write(tmp_path / "mmproj.gguf", "gemma3").path
    path.write_bytes(path.read_bytes().replace(b"clip.use_gelu", b"clip.use_silu"))
    with GGUFFile.open(path) as file, pytest.raises(ModelError, match=r"activation is silu .*; gelu is needed"):
        define_tower(file)


@pytest.mark.parametrize("kind", soon(("qwen2vl_merger",), ("qwen2vl_merger", "qwen2.5vl_merger")))
def test_old_files_name_two_matrices_by_each_other_and_leave_a_length_out(kind: str, tmp_path: Path) -> None:
    paths = [towers.write(tmp_path / f"{old}.gguf", kind, old=old).path for old in (False, True)]
    want, got = (rows(ReferenceBackend(), path, picture(8, 16))[0] for path in paths)
    assert np.array_equal(want, got)


def test_what_is_no_tower_is_refused_by_name(tmp_path: Path) -> None:
    path = towers.write(tmp_path / "mmproj.gguf", "gemma3").path
    path.write_bytes(path.read_bytes().replace(b"gemma3", b"gemma7"))
    with GGUFFile.open(path) as file, pytest.raises(ModelError, match="projector of type 'gemma7'"):
        define_tower(file)


@pytest.mark.parametrize("kind", soon(("qwen3vl_merger",), ("qwen3vl_merger", "idefics3")))
def test_parts_with_other_work_between_them(kind: str, tmp_path: Path) -> None:
    """A part of each of two projectors' pictures by turns: the bits of whole steps."""
    paths = [towers.write(tmp_path / f"{n}.gguf", kind, n_out=n).path for n in (40, 48)]
    shown = [picture(16, 16, 1), picture(24, 16, 2)]
    for backend in (ReferenceBackend(), CpuBackend(threads=2)):
        with GGUFFile.open(paths[0]) as first, GGUFFile.open(paths[1]) as second:
            projectors = [opened(file, backend) for file in (first, second)]
            want = [projector.rows(each) for projector, each in zip(projectors, shown, strict=True)]
            works = [started(projector, each, 1e-4) for projector, each in zip(projectors, shown, strict=True)]
            turns, finished = 0, [False]
            while not all(finished):
                finished = [work.advance() for work in works]
                turns += 1
            assert turns > 3 * towers.LAYERS
            for rows_of, work in zip(want, works, strict=True):
                assert np.array_equal(rows_of, work.rows)


def test_one_picture_of_a_projector_at_a_time(tmp_path: Path) -> None:
    with GGUFFile.open(towers.write(tmp_path / "mmproj.gguf", "gemma3").path) as file:
        projector = opened(file, ReferenceBackend())
        first, second = (started(projector, picture(24, 24, seed)) for seed in (1, 2))
        assert not first.advance()
        with pytest.raises(BackendError, match="another picture"):
            second.advance()
        first.close()
        with pytest.raises(BackendError, match="given up"):
            first.advance()
        third = started(projector, picture(24, 24, 2))
        assert third.advance(60.0)
        assert third.advance()
        assert np.array_equal(third.rows, projector.rows(picture(24, 24, 2)))


def test_a_picture_that_memory_has_no_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with GGUFFile.open(towers.write(tmp_path / "mmproj.gguf", "qwen3vl_merger").path) as file:
        projector = opened(file, CpuBackend(threads=1))
        monkeypatch.setattr(CpuBackend, "memory_available", 1 << 20)
        with pytest.raises(MemoryPlanError, match=r"picture of 1024 patches takes \d+ MiB of memory, 1 MiB are left"):
            projector.rows(picture(128, 128))
        monkeypatch.undo()
        assert projector.rows(picture(128, 128)).shape == (256, 120)
