"""Whole models on emulated GPUs: the reference's logits, through every interface, however a text is cut."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, GpuModel
from tests.amdgpu.queue.stage import machine
from tests.backends.cpu.both import assert_same
from tests.backends.cpu.test_whole_models import SPECS
from tests.helpers import random_tokens, run_tokens, write_model
from zinc_rt.backends.gpu import selftest
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
from zinc_rt.errors import BackendError, UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.models import define

LENGTH = 19


def logits(path: Path, tokens: list[int], chunk: int, options: Options, on: Machine | None = None) -> np.ndarray:
    linux = None if on is None else on.process()
    with GGUFFile.open(path) as file, Engine(options, linux=linux) as engine:
        engine.load(file, define(file))
        return run_tokens(engine, engine.open_sequence(), tokens, chunk)


SOON = "qwen3-f32"
"""The model of the default tests, whose text is computed at once; below, one of int8 has its text cut. The others
differ from these two by few kernels, which take longest to compile.
"""


@pytest.mark.parametrize(
    ("name", "device", "chunk"),
    [
        pytest.param(name, device, chunk, marks=() if (name, chunk) == (SOON, LENGTH) else pytest.mark.slow)
        for name in SPECS
        for device, chunk in ((Device.gpu_kfd, 7), (Device.gpu_umq, LENGTH))
    ],
)
def test_the_references_logits(name: str, device: Device, chunk: int, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", replace(SPECS[name], n_layers=1)).path
    tokens = random_tokens(1, LENGTH if chunk == LENGTH else chunk + 2, 61)
    options = Options(n_ctx=32, n_batch=LENGTH)
    want = logits(path, tokens, len(tokens), replace(options, kernels="reference"))
    with machine(shader=ShaderCore(), time_scale=100.0) as made:
        got = logits(path, tokens, chunk, replace(options, device=device), made)
    assert_same(got.view(np.uint32), want.view(np.uint32), f"{device}, chunks of {chunk}")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = replace(SPECS["qwen3-q8_0"], n_layers=1)
    return write_model(tmp_path_factory.mktemp("models") / "model.gguf", spec).path


SHARED = ((0, 6, 4), (6, 7, 3), (7, 8, 1))
LONG = ((0, 66, 4), (66, 136, 0), (136, 200, 3), (200, 268, 1), (268, 269, 1))
"""Beyond a split of attention, which `test_attention.py` has by default."""


@pytest.mark.parametrize("steps", [SHARED, pytest.param(LONG, marks=pytest.mark.slow)], ids=["short", "long"])
def test_shared_steps(small: Path, steps: tuple[tuple[int, int, int], ...]) -> None:
    """Two sequences, prompt and decode rows in one step. steps: rows of the first text, and how many of the second."""
    first, second = random_tokens(2, 270, 61), random_tokens(3, 9, 61)
    options = Options(n_ctx=288, n_batch=70, n_slots=2)
    results, done = [], []
    with GGUFFile.open(small) as file, machine(shader=ShaderCore(), time_scale=100.0) as made:
        on_gpu = Engine(replace(options, device=Device.gpu_kfd), linux=made.process())
        for engine in (Engine(replace(options, kernels="reference")), on_gpu):
            with engine:
                engine.load(file, define(file))
                a, b = engine.open_sequence(), engine.open_sequence()
                out = []
                for start, end, other in steps:
                    rows = [SequenceChunk(a, start, first[start:end], (end - start - 1,))]
                    if other:
                        at = sum(len(r) for r in done)
                        done.append(second[at : at + other])
                        rows.append(SequenceChunk(b, at, done[-1], range(other)))
                    out.append(engine.step(rows).logits.copy())
                done.clear()
                results.append(np.concatenate(out))
    assert_same(results[1].view(np.uint32), results[0].view(np.uint32), "two sequences")


def test_memory_that_the_processor_does_not_reach(small: Path) -> None:
    """A card whose window is small: weights go over by a kernel."""
    tokens = random_tokens(4, 2, 61)
    options = Options(n_ctx=32, n_batch=8)
    want = logits(small, tokens, 2, replace(options, kernels="reference"))
    card = replace(R9700, visible_vram=256 << 20)
    with machine(shader=ShaderCore(), time_scale=100.0, models=[card]) as made:
        got = logits(small, tokens, 2, replace(options, device=Device.gpu_kfd), made)
    assert_same(got.view(np.uint32), want.view(np.uint32), "small window")


def test_what_does_not_fit_is_refused_before_loading(small: Path) -> None:
    card = replace(R9700, vram=80 << 20, visible_vram=80 << 20)
    with (
        machine(shader=ShaderCore(), models=[card]) as made,
        GGUFFile.open(small) as file,
        Engine(Options(Device.gpu_kfd, n_ctx=1 << 17), linux=made.process()) as engine,
        pytest.raises(MemoryPlanError, match="smaller context"),
    ):
        engine.load(file, define(file))


@pytest.mark.parametrize(
    ("spec", "card", "why"),
    [
        ({"head_dim": 12}, R9700, "of 12 elements"),
        ({}, replace(R9700, vram=80 << 20, visible_vram=80 << 20), "not enough memory"),
    ],
    ids=["shape", "memory"],
)
def test_a_model_that_the_gpu_cannot_take(
    spec: dict, card: GpuModel, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`auto` says so and goes on with the CPU; who named the device gets the reason and what to do."""
    path = write_model(tmp_path / "model.gguf", replace(SPECS["qwen3-f32"], **spec)).path
    monkeypatch.setattr(selftest, "check_results", lambda backend: None)
    options = Options(Device.auto, n_ctx=1 << 17)
    with machine(shader=ShaderCore(), models=[card]) as made, GGUFFile.open(path) as file:
        lines: list[str] = []
        with Engine(options, linux=made.process(), notify=lines.append) as engine:
            assert engine.device is Device.gpu_cs
            left = engine.device
            engine.load(file, define(file))
            assert (engine.device, engine.features.kernels) == (Device.cpu, "native")
            assert engine.step([SequenceChunk(engine.open_sequence(), 0, [3], (0,))]).tokens.shape == (1,)
        assert any(line.startswith(f"device cpu; skipped {left}: ") and why in line for line in lines)
        with (
            Engine(replace(options, device=left), linux=made.process()) as engine,
            pytest.raises((BackendError, MemoryPlanError), match=f"{why}.*; .*use "),
        ):
            engine.load(file, define(file))


def test_ids_outside_of_the_vocabulary_run_nothing(small: Path) -> None:
    with GGUFFile.open(small) as file, Engine(Options(Device.emu, n_ctx=32)) as engine:
        engine.load(file, define(file))
        slot = engine.open_sequence()
        with pytest.raises(TokenOutOfRange, match="token id 61 is outside the vocabulary of 61"):
            engine.step([SequenceChunk(slot, 0, [3, 61])])
        assert engine.step([SequenceChunk(slot, 0, [3], (0,))]).tokens.shape == (1,)
        with pytest.raises(BackendError, match="no profile was started"):
            engine.finish_profile()


@pytest.mark.parametrize("how", [{"kernels": "reference"}, {"threads": 2}, {"isa": "avx2"}])
def test_options_of_the_cpu_are_not_the_gpus(how: dict) -> None:
    with pytest.raises(UsageError, match=f"^--{next(iter(how))} applies to the CPU only"):
        Engine(Options(device=Device.emu, **how))


def test_results_can_be_read_after_the_end(small: Path) -> None:
    with GGUFFile.open(small) as file, Engine(Options(Device.emu, n_ctx=32)) as engine:
        engine.load(file, define(file))
        result = engine.step([SequenceChunk(engine.open_sequence(), 0, [3], (0,))])
        want = result.logits.copy()
    assert (result.logits == want).all()
    with Engine(Options(Device.emu)):  # whose maps may lie where the others were
        assert (result.logits == want).all()
