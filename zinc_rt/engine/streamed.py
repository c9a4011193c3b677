"""Models that are larger than memory: their plan, and what is told of their speed before the load."""

from __future__ import annotations

from dataclasses import replace

from zinc_rt.backends.base import Backend, GraphPlan, StreamedWeights
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGUFFile
from zinc_rt.mem.disk import read_rate
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.plan import HEADROOM, MIB, MemoryPlan, format_bytes


def streamed(backend: Backend, planned: GraphPlan, plan: MemoryPlan, file: GGUFFile) -> tuple[GraphPlan, MemoryPlan]:
    """Both plans with as much of the weights in memory as is available. Raises `MemoryPlanError` where that is less
    than steps need, `BackendError` where the backend reads no weights from a disk.
    """
    assert plan.available is not None
    others = plan.total - sum(planned.n_bytes.values())
    try:
        made = backend.within(planned, plan.available - HEADROOM - others, file.identity)
    except BackendError as error:
        raise MemoryPlanError(f"not enough memory: {error}") from None
    assert made.streamed is not None
    return made, replace(plan, streamed=made.streamed.file_bytes, **made.n_bytes)


def speed_of(weights: StreamedWeights, file: GGUFFile) -> str:
    """How fast text comes at the most, in a line. Reads a little of a file in the weights' folder, or of the model's
    where that has none: the folder may be on another disk.
    """
    said = f"{format_bytes(weights.token_bytes)} of weights are read from the disk for each token"
    rate = next(filter(None, map(read_rate, weights.folder.glob("*"))), None) or read_rate(file.paths[0])
    if rate is None:
        return said
    return f"{said}: about {_figure(rate / max(1, weights.token_bytes))} tokens/s, as the disk gives {_rate(rate)}"


def offer(backend: Backend, planned: GraphPlan, plan: MemoryPlan, file: GGUFFile) -> str:
    """What the option `--memory` would do for a plan that does not fit, as the end of a sentence; may be empty."""
    try:
        made, _ = streamed(backend, planned, plan, file)
    except (MemoryPlanError, BackendError):
        return ""
    assert made.streamed is not None
    assert plan.available is not None
    where = f"{format_bytes(made.streamed.file_bytes)} in {made.streamed.folder}"
    return (
        f"; or give --memory {plan.available // MIB}M, and steps read weights from the disk ({where}):"
        f" {speed_of(made.streamed, file)}"
    )


def _figure(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e9:.2g} GB/s"
