"""A step as one resident program on emulated GPUs: the bits of the dispatched step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.models import R9700
from tests.amdgpu.queue.stage import INTERFACES, NODE, machine
from tests.backends.amdgpu.stage import amd_backend, check, kernels
from tests.backends.amdgpu.test_experts import Layer, layer
from tests.backends.amdgpu.test_product_heads import SHAPES, projected
from tests.backends.amdgpu.test_recurrent import ALL as RECURRENT
from tests.backends.cpu.both import Case, assert_same, expected
from tests.backends.cpu.test_whole_models import SPECS
from tests.helpers import random_tokens, run_tokens, write_model
from zinc_rt.amdgpu.command_list import ListedDispatch
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.amdgpu.resident import PRODUCTS_A_PHASE, ResidentPrograms, tasks
from zinc_rt.backends.devices import ResidentUse
from zinc_rt.backends.gpu.work import StepDispatch
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
from zinc_rt.errors import DeviceLost
from zinc_rt.gguf import GGUFFile
from zinc_rt.kernels.amd import resident
from zinc_rt.kernels.gpu.catalogue import DECODE
from zinc_rt.models import define
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler

TOKENS = 2
CARD = replace(R9700, cu=16)
"""With fewer compute units there are fewer workgroups that wait for each other, which takes the emulator time."""


def steps(path: Path, device: Device, use: ResidentUse = "auto") -> tuple[np.ndarray, list[int], int]:
    """Logits of a text token by token; workgroups of the last step's dispatches; and a sampled token behind it."""
    tokens = random_tokens(1, TOKENS, 61)
    with (
        machine(shader=ShaderCore(), time_scale=100.0, models=[CARD]) as made,
        GGUFFile.open(path) as file,
        Engine(Options(device, n_ctx=32, n_batch=24, resident=use), linux=made.process()) as engine,
    ):
        engine.load(file, define(file))
        slot = engine.open_sequence()
        logits = run_tokens(engine, slot, tokens, 1).copy()
        groups = [item.groups[0] for item in last_items(engine) if isinstance(item, ListedDispatch)]
        params = SamplingParams(seed=1, temperature=2.0, top_k=20, repetition_penalty=1.1, min_p=0.0, top_p=0.99)
        request = SamplingRequest(Sampler(params, 61), [*tokens, 5])
        token = engine.step([SequenceChunk(slot, TOKENS, [5], logits_indices=(0,))], [request]).tokens()[0].token_id
        assert use == "auto" or len([item for item in last_items(engine) if isinstance(item, ListedDispatch)]) == 1
        return logits, groups, token


def last_items(engine: Engine) -> list[object]:
    (batch,) = next(reversed(engine._lowered.recorded._kept.values())).batches  # type: ignore[union-attr]
    return list(batch.items)


@pytest.fixture(scope="module", params=["qwen3-q8_0", pytest.param("llama-q4_k_m", marks=pytest.mark.slow)])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "model.gguf", replace(SPECS[request.param], n_layers=1)).path


@pytest.mark.slow  # by default `test_resident_proof.py` compares a resident step with the reference
def test_a_text(path: Path) -> None:
    want, many, token = steps(path, Device.gpu_kfd)
    assert len(many) > 10
    got, groups, sampled = steps(path, Device.gpu_kfd, "always")
    assert len(groups) == 1
    assert groups[0] > 8
    assert_same(got.view(np.uint32), want.view(np.uint32), "resident")
    assert sampled == token


CASES: dict[str, tuple[Callable[[], Case], str]] = {
    **{name: (RECURRENT[name], "delta_net") for name in ("norm 64", "norm 128")},
    "experts": (lambda: layer(Layer(n_experts=12, k=2), (1, 3)), "gated_experts"),
    "convolution behind its product": (RECURRENT["product, conv 4"], "matvec_conv"),
    "heads behind their products": (lambda: projected(SHAPES[0]), "matvec_bias_heads"),
}


@pytest.mark.slow  # by default `test_a_text` has heads, and a step of much work has experts
@pytest.mark.parametrize("name", CASES)
def test_other_operations(name: str) -> None:
    """Workgroups of one, two, four and eight waves, with barriers and without, and the last of some to arrive."""
    made, kernel = CASES[name]
    case = made()
    with amd_backend("cs") as (backend, _):
        backend.resident.use = "always"
        check(backend, case, expected(case))
        taken = [symbols for symbols, program in backend.resident._loaded.items() if program is not None]
    assert any(symbol.startswith(kernel) for symbols in taken for symbol in symbols)


def test_a_step_of_more_work_than_one_submission_may_have() -> None:
    """It is cut between its dispatches, and one program again when more is allowed."""
    case = layer(Layer(n_experts=12, k=2), (1,))
    with amd_backend("cs", models=[CARD]) as (backend, _):
        backend.resident.use = "always"
        pace = backend.gpu.budget
        rate, pace.rate = pace.rate, 1.0
        want = expected(case)
        check(backend, case, want)
        assert not backend.resident.programs
        pace.rate = rate
        check(backend, case, want)
        assert backend.resident.programs


def test_a_meeting_without_its_acquire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier phase stored may be hidden by a cache; the emulator says so."""
    source = Path(resident.__file__).read_text(encoding="utf-8")
    assert source.count('    fence("acquire")\n') == 1
    file = tmp_path / "broken.py"
    file.write_text(source.replace('    fence("acquire")\n', ""), encoding="utf-8")
    broken = ModuleType("broken")
    exec(compile(file.read_text(encoding="utf-8"), str(file), "exec"), broken.__dict__)
    monkeypatch.setattr("zinc_rt.backends.amdgpu.resident.resident", broken)
    case = layer(Layer(n_experts=12, k=2), (1,))
    want = expected(case)
    with machine(shader=ShaderCore(), time_scale=0.01, models=[CARD]) as made:
        interface = INTERFACES["cs"](NODE, linux=made.process())
        backend = AmdBackend(interface, cache=kernels(), timeout=20.0, resident="always")
        with pytest.raises(DeviceLost):
            check(backend, case, want)
        backend.close()
    assert any("stored in this dispatch" in line for line in made.dmesg)


def test_the_table() -> None:
    with amd_backend() as (backend, _):
        backend._load([DECODE["move"], DECODE["add"]])
        move, add = (DECODE[name].spec for name in ("move", "add"))

        def work(kernel, groups, *arguments):
            return StepDispatch(kernel, backend._loaded[kernel.symbol], groups, arguments, work=1)

        phases = [
            [work(move, (3, 1, 1), 0x100000000, 0x200000000, 5), work(add, (4, 2, 1), 16, 32, 48, 7)],
            [work(move, (1, 1, 1), 64, 128, 9)],
        ]
        table = tasks(phases, [move.symbol, add.symbol], 10)
    assert table[:, : resident.MEET + 1].tolist() == [[0, 3, 3, 3, 0, 0], [1, 8, 4, 8, 3, 1], [0, 1, 1, 1, 0, 0]]
    assert table[0, resident.ARGUMENTS :].tolist() == [0, 1, 0, 2, 5, *[0] * 11, *[0] * 8]
    assert table[1, resident.ARGUMENTS :].tolist() == [16, 0, 32, 0, 48, 0, 7, *[0] * 17]


def test_when_it_is_faster() -> None:
    """Small models, where a card has run such programs, on interfaces where a dispatch may run for long."""
    for interface in ("cs", "kfd", "umq"):
        with amd_backend(interface) as (backend, _):
            programs, allowed = ResidentPrograms(backend.gpu, None, None, "auto"), interface != "umq"
            assert not programs._wanted([[]] * 7, 1)
            programs.proven = True
            assert programs._wanted([[]] * 7, 7 * PRODUCTS_A_PHASE) == allowed
            assert not programs._wanted([[]] * 7, 7 * PRODUCTS_A_PHASE + 1)
            programs.use = "always"
            assert programs._wanted([[]] * 7, 7 * PRODUCTS_A_PHASE + 1) == allowed
            programs.use = "never"
            assert not programs._wanted([[]] * 7, 1)


@pytest.mark.slow
def test_workgroups_that_never_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program ends by itself, and the step and all that come are dispatched."""
    case, lines, reasons = projected(SHAPES[0]), [], []
    want = expected(case)
    with amd_backend("cs", models=[replace(R9700, cu=2)]) as (backend, _):
        programs = backend.resident
        programs.use, programs.patience = "always", 50
        monkeypatch.setattr(programs, "workgroups", lambda kernel, phases: programs.fitting(kernel) + 1)
        backend._notify, backend.on_early_end = lines.append, reasons.append
        check(backend, case, want)
        assert programs.programs
        assert programs.use == "never"
    assert [line for line in lines if "did not all come to its meeting 1 in time; steps are lists" in line]
    assert len(reasons) == 1
