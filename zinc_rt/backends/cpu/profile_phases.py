"""The time of steps, phase by phase: the bytes that a phase read, and how long no thread read anything.

A phase lasts from the begin of its first unit to that of the next phase's first unit. The first phase also has the time
before it, and the last one the time after it. So the times of the phases add up to the time of the step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.cpu.program import CpuOperation

_LAYER = re.compile(r"^blk\.\d+\.")

Ints = npt.NDArray[np.int64]
Events = npt.NDArray[np.void]
"""Of `kernels.cpu.program.EventRecord`."""


@dataclass(frozen=True)
class PhaseRow:
    """All phases of one sort, over layers and steps. seconds: on the clock; idle: the part of them in which no thread
    read weights or cache; calls: how many phases; bytes: read in them.
    """

    label: str
    seconds: float
    idle: float
    calls: int
    bytes: int


@dataclass(frozen=True)
class Reading:
    """Seconds on the clock by how many threads read weights or cache: all of them, some, none."""

    all: float
    some: float
    none: float


class PhaseSums:
    """Adds up the phases of steps, in ticks."""

    def __init__(self, operations: Sequence[CpuOperation]) -> None:
        self._time, self._idle, self._calls = (np.zeros(0, np.int64) for _ in range(3))
        self._bytes: npt.NDArray[np.float64] = np.zeros(0)
        self._levels: dict[int, int] = {}  # ticks by the number of threads that read
        self.extend(operations)

    def extend(self, operations: Sequence[CpuOperation]) -> None:
        """Go on with these operations: those that there were, and maybe more behind them."""
        self._labels = _labels(operations)
        self._phase_of: Ints = np.array([op.phase for op in operations], np.int64)
        n = max((op.phase for op in operations), default=-1) + 1
        more = (0, n - len(self._time))
        self._time, self._idle, self._calls = (np.pad(a, more) for a in (self._time, self._idle, self._calls))
        self._bytes = np.pad(self._bytes, more)

    def add(self, events: Events, begin: int, end: int, n_bytes: npt.NDArray[np.float64]) -> None:
        """A step between two times. n_bytes: of each event's reading, f64[n]."""
        if not len(events):
            self._levels[0] = self._levels.get(0, 0) + end - begin
            return
        n, phase = len(self._time), self._phase_of[events["operation"]]
        opened: Ints = np.full(n, np.iinfo(np.int64).max, np.int64)
        np.minimum.at(opened, phase, events["begin"])
        ran = np.flatnonzero(np.bincount(phase, minlength=n))
        starts = np.maximum.accumulate(np.clip(opened[ran], begin, end))
        starts[0] = begin
        self._time[ran] += np.diff(starts, append=end)
        self._calls[ran] += 1
        self._bytes += np.bincount(phase, n_bytes, n)
        read = events[n_bytes > 0]
        ends = (np.clip(read["begin"], begin, end), np.clip(read["end"], begin, end))
        times = np.concatenate((starts, *ends))
        change = np.repeat([0, 1, -1], [len(starts), len(read), len(read)])
        order = np.argsort(times, kind="stable")
        times, levels = times[order], np.cumsum(change[order])
        spent = np.diff(times, append=end)
        for level in np.unique(levels).tolist():
            self._levels[level] = self._levels.get(level, 0) + int(spent[levels == level].sum())
        # A stretch belongs to the last phase that was open when it began; those of no length to any.
        idle = np.flatnonzero((levels == 0) & (spent > 0))
        place = np.searchsorted(starts, times[idle], side="right") - 1
        np.add.at(self._idle, ran[place], spent[idle])

    def rows(self, ratio: float) -> tuple[PhaseRow, ...]:
        """By label, in the order of the program. ratio: nanoseconds of a tick."""
        out: dict[str, PhaseRow] = {}
        for i, label in enumerate(self._labels):
            if self._calls[i]:
                old = out.get(label, PhaseRow(label, 0.0, 0.0, 0, 0))
                out[label] = PhaseRow(
                    label,
                    old.seconds + float(self._time[i]) * ratio / 1e9,
                    old.idle + float(self._idle[i]) * ratio / 1e9,
                    old.calls + int(self._calls[i]),
                    old.bytes + int(self._bytes[i]),
                )
        return tuple(out.values())

    def reading(self, ratio: float, threads: int) -> Reading:
        """How long how many of the threads read."""
        sums = {"none": 0, "some": 0, "all": 0}
        for level, ticks in self._levels.items():
            sums["none" if level == 0 else "all" if level >= threads else "some"] += ticks
        return Reading(**{name: ticks * ratio / 1e9 for name, ticks in sums.items()})


def phase_lines(rows: Sequence[PhaseRow], reading: Reading, steps: int) -> Iterator[str]:
    """The rows, and their sums, as lines."""
    yield f"  {'ms a step':>11}{'share':>8}{'no reader':>11}{'phases':>8}{'MB a step':>12}{'GB/s':>8}  phase"
    whole = sum(row.seconds for row in rows)
    idle, calls, n_bytes = (sum(column) for column in zip(*((r.idle, r.calls, r.bytes) for r in rows), strict=True))
    for row in (*rows, PhaseRow("(sum)", whole, idle, calls, n_bytes)):
        mb, speed = "", ""
        if row.bytes and row.seconds:
            mb, speed = f"{row.bytes / steps / 1e6:.1f}", f"{row.bytes / row.seconds / 1e9:.1f}"
        times = f"{row.seconds / steps * 1e3:>11.4f}{row.seconds / whole:>8.1%}{row.idle / steps * 1e3:>11.4f}"
        yield f"  {times}{row.calls / steps:>8.4g}{mb:>12}{speed:>8}  {row.label}"
    parts = (("all threads", reading.all), ("some", reading.some), ("none", reading.none))
    said = ", ".join(f"{name} {part / steps * 1e3:.4f} ms" for name, part in parts)
    yield f"  reading weights or cache: {said}"


def _labels(operations: Sequence[CpuOperation]) -> list[str]:
    """What each phase is called: its operations' kinds, and their names without layer and last part."""
    kinds: dict[int, dict[str, None]] = {}
    names: dict[int, dict[str, None]] = {}
    for op in operations:
        kinds.setdefault(op.phase, {})[op.kind] = None
        short = _LAYER.sub("", op.name)
        if "." in short:
            short = short.rsplit(".", 1)[0]
        names.setdefault(op.phase, {})[short] = None
    return [
        " ".join(dict.fromkeys(("+".join(kinds.get(i, ())), "+".join(names.get(i, ())))))
        for i in range(max(kinds, default=-1) + 1)
    ]
