"""Every call of a model's life on a GPU fails once, from opening the interface to the last step: the error has a type
and
says what failed, nothing stays behind, and where the engine lives on, the same step works the next time.
"""

from __future__ import annotations

import errno
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700
from amdgpu_emu.shader import Dispatch, Shader
from amdgpu_emu.shader_memory import ShaderMemory
from tests.amdgpu.queue.stage import INTERFACES, NODE, machine
from tests.backends.amdgpu.stage import kernels
from tests.backends.cpu.test_whole_models import SPECS
from tests.helpers import write_model
from zinc_rt.amdgpu import heaps
from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.pool import GpuMemory
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.gpu import memory
from zinc_rt.engine import engine as engines
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
from zinc_rt.errors import BackendError, DeviceLost, FenceTimeout
from zinc_rt.gguf import GGUFFile
from zinc_rt.mem.arena import align_up
from zinc_rt.models import define
from zinc_rt.sampling.gpu import common_shape
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import DeviceSampling, SampledStep, SamplingRequest
from zinc_rt.sampling.sampler import Sampler

MEMORY = {
    "cs": ("mmap", "AMDGPU_GEM_CREATE", "AMDGPU_GEM_MMAP", "AMDGPU_GEM_VA", "AMDGPU_CS"),
    "kfd": ("mmap", "KFD_ALLOC_MEMORY_OF_GPU", "KFD_MAP_MEMORY_TO_GPU"),
    "umq": ("mmap", "AMDGPU_GEM_CREATE", "AMDGPU_GEM_MMAP", "AMDGPU_GEM_VA"),
}
"""Calls that a model's life makes after its interface is open; what that takes has tests with the interfaces."""
SOON = (
    ("cs", "AMDGPU_CS"),
    ("kfd", "KFD_MAP_MEMORY_TO_GPU"),
    ("umq", "mmap"),
)
SMALL = replace(R9700, visible_vram=256 << 20)


class Idle(Shader):
    """Dispatches that do nothing: what is at stake here is memory."""

    def run(self, dispatch: Dispatch, memory: ShaderMemory) -> None:
        pass


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = replace(SPECS["qwen3-q8_0"], n_layers=1)
    return write_model(tmp_path_factory.mktemp("models") / "model.gguf", spec).path


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each piece of memory is a buffer of its own, so that any of them can be the one that fails."""
    monkeypatch.setattr(heaps, "DATA_CHUNK", 4096)
    monkeypatch.setattr(memory, "_STAGING", 8192)


def gpu(**how: object) -> Machine:
    return machine(shader=Idle(), time_scale=1.0, **how)


def opened(on: Machine, interface: str, timeout: float = 5.0) -> Engine:
    """An engine over an interface of the machine's process."""
    linux = next(iter(on.processes))

    def backend(*_: object, **__: object) -> tuple[Device, AmdBackend]:
        return Device.gpu_kfd, AmdBackend(INTERFACES[interface](NODE, linux=linux), cache=kernels(), timeout=timeout)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "open_backend", backend)
        return Engine(Options(Device.gpu_kfd, n_ctx=32, n_batch=8))


def backend_of(engine: Engine) -> AmdBackend:
    assert isinstance(engine._backend, AmdBackend)
    return engine._backend


def requests() -> list[SamplingRequest]:
    """For a plan with 64 candidates and some tokens with a bias."""
    params = SamplingParams(seed=1, top_k=64, logit_bias={1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0})
    return [SamplingRequest(Sampler(params, 61), [1])]


def opened_sampling(engine: Engine) -> DeviceSampling:
    """What the engine opens for these requests."""
    found = common_shape(requests(), 32, 61)
    assert found is not None
    assert engine._lowered is not None
    assert isinstance(engine._backend, AmdBackend)
    return engine._backend.open_sampling(engine._lowered, 61, 1, found[1])


def used(backend: AmdBackend) -> int:
    """Bytes in use, without kernels and recorded batches, which stay, and packets and their times, which land later."""
    kept = (piece for batch in backend._batches for made in batch.recorded._kept.values() for piece in made.arguments)
    whole = sum(pool.used for pool in backend.gpu._heaps if pool.label not in ("kernels", "packets", "times"))
    return whole - sum(align_up(piece.size, 256) for piece in kept)


def life(on: Machine, interface: str, path: Path) -> list[str]:
    """A model that is loaded, steps of three shapes, one of them sampled. A step that fails is tried once more; what
    its error said.
    """
    failed: list[str] = []
    with opened(on, interface) as engine, GGUFFile.open(path) as file:
        engine.load(file, define(file))
        slot, backend = engine.open_sequence(), backend_of(engine)

        def sampled(at: int) -> SampledStep:
            return engine.step([SequenceChunk(slot, at, [1], (0,))], requests())

        for step in (
            lambda: engine.step([SequenceChunk(slot, 0, [1, 2, 3], (2,))]),
            lambda: engine.step([SequenceChunk(slot, 3, [1])]),
            lambda: opened_sampling(engine),
            lambda: sampled(4),
            lambda: sampled(5).logits,
        ):
            before = used(backend)
            try:
                step()
            except DeviceLost:
                raise
            except BackendError as error:
                failed.append(str(error))  # not the error, whose frames hold arrays
                assert used(backend) == before
                step()
            backend.gpu.check_integrity()
            engine.cache.check_integrity()
    return failed


@cache
def calls_of_a_life(interface: str, path: Path, small: bool) -> tuple[Counter[str], Counter[str]]:
    """How often each kind of call is made in all, and by opening the interface alone."""
    counters = []
    for whole in (True, False):
        with gpu(**({"models": [SMALL]} if small else {})) as on:
            on.process()
            faults = {call: on.inject(call, 0, skip=1 << 30) for call in MEMORY[interface]}
            if whole:
                life(on, interface, path)
            else:
                INTERFACES[interface](NODE, linux=next(iter(on.processes))).close()
            counters.append(Counter({call: fault.seen for call, fault in faults.items()}))
    return counters[0], counters[1]


@pytest.mark.parametrize(
    "small", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["all in reach", "small window"]
)
@pytest.mark.parametrize(
    ("interface", "call"),
    [
        pytest.param(interface, call, marks=() if (interface, call) in SOON else pytest.mark.slow)
        for interface in MEMORY
        for call in MEMORY[interface]
    ],
)
def test_each_call_fails_once(interface: str, call: str, small: bool, path: Path) -> None:
    whole, before = calls_of_a_life(interface, path, small)
    told = 0
    for skip in range(before[call], whole[call], 2 if interface == "cs" else 3):
        with gpu(**({"models": [SMALL]} if small else {})) as on:
            on.process()
            fault = on.inject(call, errno.ENOMEM, skip=skip)
            try:
                said = life(on, interface, path)
            except BackendError as error:
                said = [str(error)]
            assert fault.seen > skip
            told += bool(said)
            assert all(len(text) > 30 and "\n" not in text for text in said)
    assert told


@pytest.mark.parametrize("interface", MEMORY)
def test_a_gpu_that_is_lost_in_the_middle_of_a_text(interface: str, path: Path) -> None:
    """Every call says so from then on, and the end is one."""
    with gpu() as on, GGUFFile.open(path) as file:
        on.process()
        with opened(on, interface) as engine:
            engine.load(file, define(file))
            slot = engine.open_sequence()
            engine.step([SequenceChunk(slot, 0, [1, 2, 3], (2,))])
            on.gpus[0].lost = True
            for _ in range(2):
                with pytest.raises(DeviceLost, match=r"lost|gone|left the bus"):
                    engine.step([SequenceChunk(slot, 3, [1], (0,))])
        with pytest.raises(BackendError):
            backend_of(engine).gpu.alloc(4)


@pytest.mark.parametrize("interface", MEMORY)
def test_a_step_that_is_late_can_be_had_again(interface: str, path: Path) -> None:
    """The message says what is late; the next step waits for it."""
    with gpu() as on, GGUFFile.open(path) as file:
        on.process()
        with opened(on, interface, timeout=0.05) as engine:
            engine.load(file, define(file))
            slot, backend = engine.open_sequence(), backend_of(engine)
            on.gpus[0].fence_delay = 0.5
            for _ in range(2):
                with pytest.raises(FenceTimeout, match=r"step of 3 rows.* did not retire within 0\.05 s"):
                    engine.step([SequenceChunk(slot, 0, [1, 2, 3], (2,))])
            assert backend.gpu.retired() == 0
            on.gpus[0].fence_delay = 0.0
            backend.gpu.timeout = 5.0
            engine.drain()
            engine.step([SequenceChunk(slot, 0, [1, 2, 3], (2,))])
            assert np.array_equal(backend._batches[0].inputs["token_ids"][:3], [1, 2, 3])
            assert backend.gpu.retired() == 2
            assert backend._patience(130) == 15.0


def test_a_batch_that_cannot_be_recorded_keeps_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with gpu() as on, GGUFFile.open(path) as file:
        on.process()
        with opened(on, "cs") as engine:
            engine.load(file, define(file))
            slot, backend = engine.open_sequence(), backend_of(engine)
            opened_sampling(engine)
            before, alloc = used(backend), backend.gpu.alloc

            def short(n_bytes: int, **how: Any) -> GpuMemory:
                if how["label"] == "arguments of sampling":
                    raise InterfaceError("allocating", errno.ENOMEM)
                return alloc(n_bytes, **how)

            monkeypatch.setattr(backend.gpu, "alloc", short)
            with pytest.raises(InterfaceError, match="allocating"):
                engine.step([SequenceChunk(slot, 0, [1], (0,))], requests())
            assert used(backend) == before
            monkeypatch.undo()
            engine.step([SequenceChunk(slot, 0, [1], (0,))], requests())
