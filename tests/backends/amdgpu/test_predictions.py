"""The emulated card's predictions."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from amdgpu_emu.cost import predict
from amdgpu_emu.profiler import DispatchRecord, side_by_side
from tests.helpers import QWEN3, write_model
from zinc_rt.backends.amdgpu.emulated import EmulatedBackend, Prediction
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGUFFile
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.models import define


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Prediction:
    """Two decode steps."""
    path = write_model(tmp_path_factory.mktemp("models") / "model.gguf", replace(QWEN3, n_layers=1)).path
    with GGUFFile.open(path) as file, Engine(Options(Device.emu, n_ctx=32)) as engine:
        engine.load(file, define(file))
        slot = engine.open_sequence()
        engine.step([SequenceChunk(slot, 0, [1])])
        engine.start_profile()
        for at in (1, 2):
            engine.step([SequenceChunk(slot, at, [at], (0,))])
        prediction = engine.finish_profile()
        with pytest.raises(BackendError, match="no profile was started"):
            engine.finish_profile()
    assert isinstance(prediction, Prediction)
    return prediction


def test_what_ran(found: Prediction) -> None:
    assert found.steps == 2
    names = [record.name for record in found.records]
    assert names[: len(names) // 2] == names[len(names) // 2 :]
    attention = "attention G=2 DIM=24 VALUE=24 ROPE=0"
    assert {"move", "matvec_float F32 M=1", attention, "embed_float F32", "argmax"} <= set(names)
    assert found.seconds == pytest.approx(sum(predict(record.work, found.model).seconds for record in found.records))


def test_phases_overlap(found: Prediction) -> None:
    """Three products of one norm are in one phase; a phase lasts as long as its longest dispatch at least."""
    by_phase: dict[int, list[DispatchRecord]] = {}
    for record in found.records:
        by_phase.setdefault(record.phase, []).append(record)
    assert max(sum(r.name.startswith("matvec") for r in part) for part in by_phase.values()) == 3
    longest = sum(max(r.cost.seconds for r in part) for part in by_phase.values())
    assert longest <= found.overlapped < found.seconds
    assert side_by_side(found.records[:1]) == found.records[0].cost.seconds


def test_table_and_trace(found: Prediction) -> None:
    first, header, *rows = found.lines()
    assert first.startswith("predicted for AMD Radeon AI PRO R9700: 2 steps, 0.")
    assert f"in {found.barriers // 2} barriers and the submission" in first
    assert found.overlapped < found.total.low < found.total.likely < found.total.high
    assert header.split()[:2] == ["kernel", "us"]
    shares = [float(row.split("%")[0].split()[-1]) for row in rows]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(100, abs=1)
    spans = json.loads(found.chrome_trace())["traceEvents"]
    assert len(spans) == found.n_events == len(found.records)
    assert spans[-1]["ts"] + spans[-1]["dur"] == pytest.approx(found.seconds * 1e6, abs=0.1)


def test_nothing_ran() -> None:
    with EmulatedBackend(cache=CompileCache(default_cache_dir())) as backend:
        backend.start_profile(None)  # type: ignore[arg-type]
        assert list(backend.finish_profile().lines()) == ["no step ran"]
