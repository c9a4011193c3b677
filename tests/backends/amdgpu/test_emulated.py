"""The emulated card's backend: what it says of steps, whose memory it takes, and how it ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from zinc_rt.backends.amdgpu import emulated
from zinc_rt.backends.amdgpu.emulated import EmulatedBackend
from zinc_rt.engine.engine import SequenceChunk
from zinc_rt.llm.model import Model
from zinc_rt.mem.errors import MemoryPlanError


@pytest.fixture(scope="module")
def model(shallow: Path) -> Iterator[Model]:
    with zinc_rt.load(shallow, device="emu", n_ctx=64) as made:
        yield made


def test_a_profile_counts_sampled_steps_and_names_their_kernels(model: Model) -> None:
    model.engine.start_profile()
    model.generate([1], max_tokens=2, temperature=0)
    profile = model.engine.finish_profile()
    lines = list(profile.lines())
    assert ": 2 steps, " in lines[0]
    assert any(line.strip().startswith("sample_draw") for line in lines)
    assert not any(line.strip().startswith("0x") for line in lines)


def test_the_cards_memory_is_this_processs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emulated, "available_memory", lambda: 70 << 20)
    with pytest.raises(MemoryPlanError, match=r"70\.0 MiB are available"):
        zinc_rt.load(device="emu", n_ctx=4096)


def left_alone(model: Model, tokens: list[int]) -> None:
    """A step that was submitted, and nobody waited for, as Ctrl-C leaves one."""
    backend, slot = model.engine._backend, model.engine.open_sequence()
    assert isinstance(backend, EmulatedBackend)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "wait", stopped)
        with pytest.raises(KeyboardInterrupt):
            model.engine.step([SequenceChunk(slot, 0, tokens, (len(tokens) - 1,))])


def stopped(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_step_that_was_left_alone_is_waited_for(model: Model, shallow: Path) -> None:
    """Before the next one's inputs are written, which it would read."""
    left_alone(model, [5])
    backend, newest = model.engine._backend.gpu, model.engine._backend.gpu._pending.newest
    assert newest is not None
    assert backend.retired() < newest.fence.sequence
    model.engine.drain()
    assert backend.retired() == newest.fence.sequence
    left_alone(model, [5])
    got = model.logits([9])
    with zinc_rt.load(shallow, device="cpu", n_ctx=64) as other:
        assert np.array_equal(got, other.logits([9]))


def test_the_end_does_not_wait_for_a_whole_step() -> None:
    """A step of six layers takes the emulator a second."""
    with zinc_rt.load(device="emu", n_ctx=64) as model:
        backend = model.engine._backend
        assert isinstance(backend, EmulatedBackend)
        left_alone(model, [1])
    assert isinstance(backend.machine.shader, emulated.Idle)
