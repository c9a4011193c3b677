"""What dispatches really load and store, against the barriers between them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from tests.amdgpu.queue.stage import machine
from tests.backends.cpu.test_whole_models import SPECS
from tests.helpers import random_tokens, write_model
from zinc_rt.amdgpu.command_list import Barrier, CommandList, ListedDispatch
from zinc_rt.backends.gpu import placement
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler

LINE = 128


@dataclass
class Touched:
    """Addresses, one for each byte."""

    kernel: int
    loaded: np.ndarray
    stored: np.ndarray


class Observed(ShaderCore):
    """Notes what each dispatch loads and stores."""

    def __init__(self) -> None:
        super().__init__(measure=True, keep=1)
        self.seen: list[Touched] = []

    def run(self, dispatch, memory) -> None:
        super().run(dispatch, memory)
        found = [
            np.concatenate([number * len(chunk) + np.flatnonzero(chunk) for number, chunk in chunks.items()] or [[]])
            for chunks in (self.counters[-1]._touched["read"], self.counters[-1]._touched["write"])
        ]
        self.seen.append(Touched(dispatch.address, *(f.astype(np.int64) for f in found)))


def check(batch: CommandList, seen: list[Touched]) -> int:
    """That dispatches between two barriers do not touch what one of them stores, and that nothing is stored over what
    was loaded since the last full barrier. How many barriers are full.
    """
    phases: list[tuple[bool, int]] = [(True, 0)]
    for item in batch.items:
        if isinstance(item, Barrier):
            phases.append((not item.light, 0))
        else:
            assert isinstance(item, ListedDispatch)
            phases[-1] = (phases[-1][0], phases[-1][1] + 1)
    assert sum(n for _, n in phases) == len(seen)
    loaded: set[int] = set()
    at = 0
    for full, n in phases:
        part = seen[at : at + n]
        at += n
        for i, a in enumerate(part):
            for b in part[i + 1 :]:
                for x, y in ((a.stored, b.stored), (a.stored, b.loaded), (a.loaded, b.stored)):
                    assert not np.intersect1d(x, y).size
        if full:
            loaded.clear()
        for a in part:
            assert not loaded & set(np.unique(a.stored // LINE).tolist()), "stored over what was loaded before"
        for a in part:
            loaded |= set(np.unique(a.loaded // LINE).tolist())
    return sum(full for full, _ in phases[1:])


@pytest.fixture(scope="module", params=["qwen3-q8_0", pytest.param("qwen3-f32", marks=pytest.mark.slow)])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model.gguf", replace(SPECS[request.param], n_layers=1)).path


@pytest.mark.slow  # takes long; `test_fusion.py` does it with a model of more kinds of layers
def test_steps_are_ordered(path: Path) -> None:
    observe(path, 6)


def observe(path: Path, most: int) -> None:
    tokens, core = random_tokens(5, 10, 61), Observed()
    options = Options(Device.gpu_kfd, n_ctx=32, n_batch=most)
    with (
        machine(shader=core, time_scale=100.0) as made,
        GGUFFile.open(path) as file,
        Engine(options, linux=made.process()) as engine,
    ):
        engine.load(file, define(file))
        slot = engine.open_sequence()
        full = []
        for start, end in ((0, most), (most, most + 2), (most + 2, most + 3)):
            core.seen.clear()
            engine.step([SequenceChunk(slot, start, tokens[start:end], (0,))])
            full.append(check(last_batch(engine), core.seen))
        # A step of as many rows as there may be shares memory; of few rows everything has its own.
        assert full[0] > 0
        assert full[2] == 0
        sampler = Sampler(SamplingParams(seed=1, repetition_penalty=1.2), 61)
        request = SamplingRequest(sampler, tokens[: end + 1])
        rows = [SequenceChunk(slot, end, tokens[end : end + 1], (0,))]
        engine.step(rows, [request])  # uploads what sampling needs
        core.seen.clear()
        engine.step(rows, [request])
        assert check(last_batch(engine), core.seen) == 0


def last_batch(engine: Engine) -> CommandList:
    """What was submitted last."""
    return next(reversed(engine._lowered.recorded._kept.values())).batches[0]  # type: ignore[union-attr]


def test_the_full_barrier_where_temporaries_share_memory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it the check above fails in the first step: light barriers only are not enough."""
    real = placement.phases
    monkeypatch.setattr("zinc_rt.backends.gpu.batches.phases", lambda *a: ((part, False) for part, _ in real(*a)))
    with pytest.raises(AssertionError, match="stored over what was loaded"):
        observe(path, 2)
