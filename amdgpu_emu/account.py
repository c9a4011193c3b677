"""Where the time of predicted steps goes: phases of a kind together, and what each part of their time is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from amdgpu_emu.constants import LIKELY
from amdgpu_emu.cost import phase_seconds
from amdgpu_emu.models import GpuModel
from amdgpu_emu.profiler import DispatchRecord
from amdgpu_emu.work import SIMDS


class Parts(NamedTuple):
    """Seconds of a phase: seconds in all; memory: of the bytes alone; first: until the first loads are there; drain:
    while the last waves end; alone: of the last workgroups behind all others; rest: latencies in a row, and what keeps
    the card busy longer than memory.
    """

    seconds: float
    memory: float
    first: float
    drain: float
    alone: float
    rest: float


@dataclass(frozen=True)
class PhaseKind:
    """Phases of the same kernels. times: how many; parts: of all of them together; bytes: that come from memory or go
    to it, or the cache before it; waves: of a phase; generations: in which they come; occupancy: of a SIMD, of the
    longest dispatch.
    """

    kernels: str
    times: int
    parts: Parts
    bytes: int
    waves: int
    generations: float
    occupancy: int


def account(records: Sequence[DispatchRecord], model: GpuModel) -> list[PhaseKind]:
    """The kinds of phases of steps, the longest in all first."""
    kinds: dict[tuple[str, ...], list[list[DispatchRecord]]] = {}
    for _, part in groupby(records, lambda record: record.phase):
        phase = list(part)
        kinds.setdefault(tuple(sorted(_short(record.name) for record in phase)), []).append(phase)
    found = [_kind(names, phases, model) for names, phases in kinds.items()]
    return sorted(found, key=lambda kind: -kind.parts.seconds)


def _kind(names: Sequence[str], phases: Sequence[Sequence[DispatchRecord]], model: GpuModel) -> PhaseKind:
    longest = max(phases[0], key=lambda record: record.cost.seconds)
    waves = sum(record.work.waves for record in phases[0])
    return PhaseKind(
        " + ".join(name if n == 1 else f"{n} {name}" for name, n in Counter(names).items()),
        len(phases),
        Parts(*map(sum, zip(*map(_parts, phases), strict=True))),
        sum(record.work.memory_bytes for phase in phases for record in phase),
        waves,
        waves / (longest.work.occupancy * model.cu * SIMDS),
        longest.work.occupancy,
    )


def _parts(phase: Sequence[DispatchRecord]) -> Parts:
    costs = [record.cost for record in phase]
    seconds, last = phase_seconds(costs), min(costs, key=lambda cost: cost.ends)
    memory = sum(cost.shares["memory"] for cost in costs)
    first = max(costs, key=lambda cost: cost.shares["memory"]).lead
    alone = last.parts["alone"]
    left = seconds - memory - first - alone
    drain = max(0.0, min(last.ends - alone, left))
    return Parts(seconds, memory, first, drain, alone, left - drain)


def _short(name: str) -> str:
    """A kernel's function and its formats."""
    return " ".join(word for i, word in enumerate(name.split()) if i == 0 or (word[:2].isupper() and "=" not in word))


def lines(kinds: Sequence[PhaseKind], barriers: int, full: int, submissions: int) -> Iterator[str]:
    """A table in Markdown, in microseconds of all steps together. full: of the barriers, those that drop the L2."""
    head = ("phase", "times", "us", "memory", "first loads", "drain", "alone", "rest", "MB", "waves", "generations")
    yield "| " + " | ".join(head) + " |"
    yield "|---" + "|---:" * (len(head) - 1) + "|"
    for kind in kinds:
        yield (
            f"| {kind.kernels} | {kind.times} | "
            + " | ".join(f"{n * 1e6:.1f}" for n in kind.parts)
            + f" | {kind.bytes / 1e6:.1f} | {kind.waves} | {kind.generations:.2f} of {kind.occupancy} a SIMD |"
        )
    waits = barriers * LIKELY.barrier + full * LIKELY.full_barrier
    empty = " |" * 8
    yield f"| barriers, {full} of them full | {barriers} | {waits * 1e6:.1f} |{empty}"
    yield f"| submissions | {submissions} | {submissions * LIKELY.submission * 1e6:.1f} |{empty}"
