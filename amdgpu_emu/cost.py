"""A model of the time of a dispatch, and of phases of dispatches, on a real card, from counts of the emulated core.

Parts of a dispatch that overlap:

    memory    distinct lines read, half lines written, once each, that lie in no cache, at the memory's bandwidth, and
              for each matrix of a chosen expert the way to where it begins
    infinity  the same, with those that lie in the Infinity Cache, at that cache's rate
    l2        lines that workgroups read for the first time, once for each workgroup
    cache     what vector loads and stores move between the registers and the caches of their compute units: the bytes
              of their lanes, or, where that is more, the half lines in which these lie
    valu      vector instructions, on the SIMDs that have waves
    lds       local memory
    issue     scalar instructions, branches and waits, one of a kind each cycle on a SIMD

The longest of them is what the dispatch is busy with, behind the latency of the first loads and before the drain of the
last waves. A wave on its own takes its instructions and the way to the level that each round of loads reaches; memory
that is busy answers later. Waves that do not fit at once come in generations, and the last one takes a wave's time
however few it has. What the last workgroup to arrive does alone comes on top, and so does the packet.

Dispatches with no barrier between them share the card: their parts add up, but the last waves of all of them cost what
those of the shortest do. Each barrier, each submission costs its own time. The constants
stand in `constants`, with their intervals; `spread` gives the interval of a prediction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from amdgpu_emu.constants import LIKELY, CardConstants
from amdgpu_emu.core.counters import HALF, LINE
from amdgpu_emu.models import R9700, GpuModel
from amdgpu_emu.residency import INFINITY, L2, MEMORY, OWN
from amdgpu_emu.work import SIMDS, VGPRS, Work, cycles

CHANNEL: Final = 16
"""Pins of a channel of the memory."""


@dataclass(frozen=True)
class PredictedTime:
    """The predicted time of a dispatch. seconds: in all; parts: seconds of each part alone; bound: the longest;
    bandwidth: share of the memory's that the distinct bytes take, without what else is in their lines; shares: seconds
    of each part if the dispatch had the whole card for it; lead, ends: seconds from the barrier to the first loads, and
    from the last ones to the end; tail: seconds at its end in which waves end and none begins.
    """

    seconds: float
    parts: Mapping[str, float]
    bound: str
    bandwidth: float
    shares: Mapping[str, float]
    lead: float = 0.0
    ends: float = 0.0
    tail: float = 0.0


def bandwidth_name(gfx: tuple[int, int, int]) -> str:
    """The constant that says which share of its pins' rate a graphics core reaches."""
    return {11: "bandwidth_gfx11_5" if gfx[1] >= 5 else "bandwidth_gfx11"}.get(gfx[0], "bandwidth")


def bandwidth_of(model: GpuModel, constants: CardConstants = LIKELY) -> float:
    """Memory bandwidth of a card that can be reached, in bytes per second."""
    share: float = getattr(constants, bandwidth_name(model.gfx))
    return share * model.pins


def predict(work: Work, model: GpuModel = R9700, constants: CardConstants = LIKELY) -> PredictedTime:
    """Predict the time of a dispatch on a card. Raises `ValueError` for a workgroup that does not fit."""
    if not work.occupancy:
        raise ValueError(f"a workgroup with {work.vgprs} VGPRs and {work.lds_bytes} bytes of LDS fits no compute unit")
    c, clock = constants, model.clock_mhz * 1e6 * constants.clock
    units = min(model.cu, max(work.workgroups, 1) * (2 if work.paired else 1))  # compute units with work
    parts = _busy_parts(work, model, c, units)
    simds = min(units * SIMDS, max(work.waves, 1))
    wide = {"l2": units / model.cu, "cache": units / model.cu, "lds": units / model.cu}
    shares = {
        name: seconds * wide.get(name, 1.0 if name in ("memory", "infinity") else simds / (model.cu * SIMDS))
        for name, seconds in parts.items()
    }
    bound = max(parts, key=lambda name: parts[name])
    busy = parts[bound]
    first, wave = _latencies(work, model, c, busy, parts["memory"])
    per_second = model.shader_engines * clock / max(c.wave_cycles, 1e-9)
    parts["launch"] = shares["launch"] = c.packet + work.waves / per_second
    parts["alone"] = _alone(work, c, clock)
    turns = -(-work.waves // (work.occupancy * model.cu * SIMDS))
    parts["latency"] = turns * wave + (work.waves / per_second if turns == 1 else 0.0)
    tail = c.drain * min(wave, busy)
    streaming = first + busy + tail
    running = max(streaming, parts["latency"])
    if parts["latency"] > streaming or busy < first:
        bound = "latency"
    if parts["launch"] >= running:
        bound = "launch"
    seconds = max(parts["launch"], c.packet + running + parts["alone"])
    share = (work.unique_read + work.unique_written) / seconds / bandwidth_of(model, c)
    ends = tail + parts["alone"]
    last = ends if running == streaming else parts["alone"]
    return PredictedTime(seconds, parts, bound, share, shares, c.packet + first, ends, last)


def _busy_parts(work: Work, model: GpuModel, c: CardConstants, units: int) -> dict[str, float]:
    """Seconds of the parts that keep the card busy. units: compute units with work."""
    clock = model.clock_mhz * 1e6 * c.clock
    ports, simds = work.ports, min(units * SIMDS, max(work.waves, 1))
    near = LINE * work.l2_lines
    busiest = max(n for name, n in ports.items() if name not in ("valu", "cache", "lds"))
    behind_l2 = max(0, work.memory_bytes - near)
    infinity = c.infinity_rate * model.memory_bits / CHANNEL * model.memory_clock_mhz * 1e6
    return {
        "memory": max(0, behind_l2 - LINE * work.infinity_lines) / bandwidth_of(model, c) + work.pieces * c.piece,
        "infinity": behind_l2 / infinity if model.infinity else 0.0,
        "l2": (LINE * work.asked_lines + HALF * work.written_halves) / (c.l2_rate * units * clock),
        "cache": ports["cache"] / (c.cache_rate * units * clock),
        "valu": ports["valu"] / simds / clock,
        "lds": ports["lds"] / (c.lds_rate * units * clock),
        "issue": busiest / simds / clock,
    }


def _latencies(work: Work, model: GpuModel, c: CardConstants, busy: float, memory: float) -> tuple[float, float]:
    """Seconds of the first loads of a dispatch, and of a wave that may issue in every cycle. busy: seconds of the
    longest part; memory: those of memory.
    """
    if not work.waves:
        return 0.0, 0.0
    clock = model.clock_mhz * 1e6 * c.clock
    levels = work.levels or {MEMORY: work.rounds - work.late_rounds}
    near = {OWN: c.first_level, L2: c.l2, INFINITY: c.infinity}
    first = 0.0
    if reached := [level for level, n in levels.items() if 2 * n >= work.waves]:
        first = {**near, MEMORY: c.memory_idle}[max(reached)]
    own = work.shared_cycles + work.delays[0] * c.dependent_cycles + work.lds_rounds * c.lds_cycles
    waits = sum(near[level] * n for level, n in levels.items() if level != MEMORY)
    far = levels.get(MEMORY, 0)
    idle = (own / clock + waits + far * c.memory_idle) / work.waves
    load = min(1.0, memory / max(busy + first, idle)) if memory else 0.0
    return first, idle + load * far * (c.memory_loaded - c.memory_idle) / work.waves


def _alone(work: Work, c: CardConstants, clock: float) -> float:
    """Seconds of what the last workgroups do behind all others, their waves side by side, on what the L2 holds."""
    if not work.late_rounds and not work.late:
        return 0.0
    each = work.late_waves or work.waves / max(work.workgroups, 1)
    own = cycles(work.late, work.lanes) + work.delays[1] * c.dependent_cycles
    return (own / clock + work.late_rounds * c.l2) / each


def phase_seconds(costs: Sequence[PredictedTime]) -> float:
    """Seconds of dispatches that run at once: the longest of them, or what they do together with the whole card, behind
    the first loads of the one that does most of it, and before the end of one.
    """
    if len(costs) == 1:
        return costs[0].seconds
    ends = min(cost.ends for cost in costs)
    together = [sum(cost.shares["launch"] for cost in costs)]
    for name in costs[0].shares.keys() - {"launch"}:
        most = max(costs, key=lambda cost: cost.shares[name])
        together.append(most.lead + sum(cost.shares[name] for cost in costs) + ends)
    return max(*together, *(cost.seconds for cost in costs))


def step_seconds(
    phases: Iterable[tuple[Sequence[Work], bool]], submissions: int, model: GpuModel, constants: CardConstants = LIKELY
) -> float:
    """Seconds of steps. phases: dispatches that no barrier divides, and whether the barrier before them drops the L2.
    submissions: of the steps; each begins with a phase that needs no barrier.
    """
    known: dict[int, PredictedTime] = {}
    seconds, barriers = 0.0, -submissions
    for works, full in phases:
        for work in works:
            if id(work) not in known:
                known[id(work)] = predict(work, model, constants)
        seconds += phase_seconds([known[id(work)] for work in works])
        seconds += constants.full_barrier if full else 0.0
        barriers += 1
    return seconds + max(0, barriers) * constants.barrier + submissions * constants.submission


def resident_seconds(
    phases: Sequence[tuple[Sequence[Work], bool]],
    occupancy: int,
    model: GpuModel,
    constants: CardConstants = LIKELY,
    asked: Sequence[tuple[int, int, int]] = (),
) -> float:
    """Seconds of a step of these phases as one resident program, whose workgroups meet behind each. occupancy: waves of
    the program on a SIMD; asked: bytes that workgroups ask for before they meet, as (phase before the meeting, phase
    that reads them, bytes). Nothing is launched but once; all kernels have the registers of the greatest.

    What is asked for comes while the last waves of a phase end, while all meet, and in phases that leave half of the
    card idle. It takes as long as it takes: the meeting is over when it is there. Then it lies in the L2.
    """
    within = replace(constants, packet=0.0, wave_cycles=0.0)
    waves, seconds = occupancy * model.cu * SIMDS, 0.0
    for i, (works, full) in enumerate(phases):
        if full:
            raise ValueError("a phase that drops the L2 is no part of a resident program")
        made = [replace(work, vgprs=VGPRS * 32 // work.lanes // occupancy, lds_bytes=0) for work in works]
        near = sum(size for _, phase, size in asked if phase == i)
        costs = [predict(work, model, within) for work in _nearer(made, near)]
        took = phase_seconds(costs)
        seconds += took
        if i + 1 == len(phases):
            break
        idle = min(cost.tail for cost in costs)
        if 2 * sum(work.waves for work in works) <= waves:
            idle = max(idle, took - sum(cost.parts["memory"] for cost in costs))
        size = sum(size for meeting, _, size in asked if meeting == i)
        coming = constants.memory_idle + size / bandwidth_of(model, constants) if size else 0.0
        seconds += max(constants.meeting, coming - idle)
    start = constants.packet + waves * constants.wave_cycles / model.shader_engines / model.clock_mhz / 1e6
    return seconds + start + constants.submission


def _nearer(works: Sequence[Work], size: int) -> list[Work]:
    """The works of a phase when so many bytes of what they read from memory lie in the L2: of each the same share."""
    far = [max(0, work.memory_bytes - LINE * (work.l2_lines + work.infinity_lines)) for work in works]
    share = min(1.0, size / max(sum(far), 1))
    found = []
    for work, n_bytes in zip(works, far, strict=True):
        levels = dict(work.levels or {MEMORY: work.rounds - work.late_rounds})
        moved = round(share * levels.get(MEMORY, 0))
        levels[MEMORY], levels[L2] = levels.get(MEMORY, 0) - moved, levels.get(L2, 0) + moved
        found.append(replace(work, levels=levels, l2_lines=work.l2_lines + round(share * n_bytes / LINE)))
    return found
