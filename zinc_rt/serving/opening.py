"""`open_core`: from a model file to an `EngineCore`, as a server's engine is started."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from zinc_rt.loading import load
from zinc_rt.serving.core import CoreOptions, EngineCore


def open_core(
    path: str | None = None,
    *,
    max_step_ms: float | None = None,
    notify: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    **options: Any,
) -> EngineCore:
    """Load a model and put a core on its engine; closing the core closes both.

    Args:
        path: the file; None for the model inside the package.
        max_step_ms: see `CoreOptions`; None for its default.
        notify, progress, options: see `load`.

    Raises:
        UsageError: the model generates no text.
        What `load` raises.
    """
    model = load(path, notify=notify, progress=progress, **options)
    try:
        core = model.make_core(CoreOptions() if max_step_ms is None else CoreOptions(max_step_ms=max_step_ms))
        model.grammar_vocabulary.prepare()
        return core
    except BaseException:
        model.close()
        raise
