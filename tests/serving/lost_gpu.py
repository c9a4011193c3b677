"""An engine on an emulated GPU that leaves the bus in the middle of an answer, once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from zinc_rt.backends.amdgpu.emulated import EmulatedBackend
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.messages import StepReport
from zinc_rt.serving import load_engine

_AT = 5
"""Turns of the engine until its card is lost: the prompt's, and a few tokens."""


def open_core(path: str | None = None, *, marker: str, **options: Any) -> EngineCore:
    """As `load_engine.open_core`. marker: a file that stands where a card was lost already."""
    core = load_engine.open_core(path, **{**options, "device": "emu", "threads": None})
    backend = core._engine._backend
    assert isinstance(backend, EmulatedBackend)
    turn, left = core.turn, [_AT]

    def until_lost() -> StepReport:
        left[0] -= 1
        if not left[0] and not Path(marker).exists():
            Path(marker).touch()
            backend.machine.gpus[0].lost = True
        return turn()

    core.turn = until_lost  # type: ignore[method-assign]
    return core
