"""Profiles: which thread ran how many units of which operation, and when.

The walker compiled with PROFILE writes an event after every stretch of units; without it nothing of this exists. After
each step its events are added up and, for the trace, neighbours of one operation joined.
"""

from __future__ import annotations

import ctypes
import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arg_structs import address_of, table
from zinc_rt.backends.cpu.profile_phases import PhaseRow, PhaseSums, Reading, phase_lines
from zinc_rt.backends.cpu.program import CpuOperation, CpuProgram, Runner
from zinc_rt.kernels.cpu import program as native
from zinc_rt.kernels.cpu.attention_split import AttentionShape
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.library import Library
from zinc_rt.lang.ops import cycle_counter
from zinc_rt.lang.types import i64

MAX_EVENTS: Final = 1 << 19
"""Of a step."""
MAX_SPANS: Final = 1 << 18
"""Of a trace, which is then some 40 MB of JSON."""
_HEAD: Final = 8  # words before the first event
_EVENT_WORDS: Final = 4
_JOIN: Final = 3000  # ticks between two stretches of an operation that a trace shows as one: about a microsecond

PROMPT, TEXT = "prompt", "text"
Events = npt.NDArray[np.void]
"""Of `kernels.cpu.program.Event`."""


@kernel
def ticks() -> i64:  # type: ignore[valid-type]
    """The cycle counter now."""
    return cycle_counter()


@dataclass(frozen=True)
class ProfileSpan:
    """Units of an operation on a thread; times in nanoseconds from the start of the profile."""

    name: str
    kind: str
    thread: int
    units: int
    begin: float
    end: float


@dataclass(frozen=True)
class Row:
    """One kind of operation, over all steps of one sort. seconds: summed over threads; calls: operations that ran;
    bytes: of weights, and of the keys and values that attention read.
    """

    kind: str
    seconds: float
    calls: int
    bytes: int

    @property
    def gb_per_s(self) -> float:
        """Bytes read per second of a thread's time, in 10^9 bytes."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0


@dataclass(frozen=True)
class Table:
    """The time of some steps. seconds: from begin to end of each step, summed; busy: seconds in which each thread ran
    units; phases, reading: how the same seconds, on the clock, are divided.
    """

    steps: int
    seconds: float
    rows: tuple[Row, ...]
    busy: dict[int, float]
    phases: tuple[PhaseRow, ...]
    reading: Reading

    @property
    def threads(self) -> int:
        """How many took part, or could have."""
        return len(self.busy)

    @property
    def waiting(self) -> float:
        """Seconds of threads in which they ran nothing: waiting for each other, or taken away."""
        return max(0.0, self.seconds * self.threads - sum(self.busy.values()))


@dataclass(frozen=True)
class CpuProfile:
    """A finished recording. tables: by PROMPT (steps of several rows) and TEXT (steps of one). dropped: events that did
    not fit, and are in no table; untraced: joined events that are in the tables and not in the trace.
    """

    spans: tuple[Events, ...]  # joined, step after step
    tables: dict[str, Table]
    dropped: int
    untraced: int
    threads: dict[int, str]  # by number
    operations: tuple[CpuOperation, ...]
    start: int  # ticks
    ratio: float  # nanoseconds of a tick

    @cached_property
    def events(self) -> tuple[ProfileSpan, ...]:
        """The trace's."""
        return tuple(self._events())

    def _events(self) -> Iterator[ProfileSpan]:
        for spans in self.spans:
            for operation, thread, units, begin, end in spans.tolist():
                op = self.operations[operation]
                times = ((t - self.start) * self.ratio for t in (begin, end))
                yield ProfileSpan(op.name, op.kind, thread, units, *times)

    @property
    def n_events(self) -> int:
        """Spans of the trace."""
        return len(self.events)

    def lines(self) -> Iterator[str]:
        """The tables, as lines."""
        for sort, found in self.tables.items():
            steps = "step" if found.steps == 1 else "steps"
            each = found.seconds / found.steps * 1e3
            yield f"{sort}: {found.steps} {steps}, {each:.3f} ms each, {found.threads} threads"
            yield from _rows(found)
            if found.phases:
                yield from phase_lines(found.phases, found.reading, found.steps)
        if self.dropped:
            yield f"{self.dropped} events of long steps did not fit and are missing above; use a shorter -b or prompt"
        if self.untraced:
            yield f"the trace ends early: {self.untraced} spans more would make it too large to look at"

    def chrome_trace(self) -> str:
        """JSON that chrome://tracing and Perfetto read: a row for each thread, times in microseconds."""
        names: list[dict[str, Any]] = [
            {"name": "thread_name", "ph": "M", "pid": 1, "tid": number, "args": {"name": name}}
            for number, name in self.threads.items()
        ]
        spans = [
            {
                "name": e.name,
                "cat": e.kind,
                "ph": "X",
                "ts": round(e.begin / 1e3, 3),
                "dur": round((e.end - e.begin) / 1e3, 3),
                "pid": 1,
                "tid": e.thread,
                "args": {"units": e.units},
            }
            for e in self.events
        ]
        return json.dumps({"traceEvents": [*names, *spans], "displayTimeUnit": "ns"})


def _rows(table: Table) -> Iterator[str]:
    whole = table.seconds * table.threads
    yield f"  {'operation':<11}{'ms a step':>11}{'share':>8}{'calls':>8}{'MB a step':>12}{'GB/s':>8}"
    for row in table.rows:
        mb, speed = "", ""
        if row.bytes:
            mb, speed = f"{row.bytes / table.steps / 1e6:.1f}", f"{row.gb_per_s * table.threads:.1f}"
        milliseconds = row.seconds / table.threads / table.steps * 1e3
        share = row.seconds / whole
        calls = f"{row.calls / table.steps:.4g}"
        yield f"  {row.kind:<11}{milliseconds:>11.4f}{share:>8.1%}{calls:>8}{mb:>12}{speed:>8}"
    milliseconds = table.waiting / table.threads / table.steps * 1e3
    threads = ", ".join(f"{1 - busy / table.seconds:.1%}" for busy in table.busy.values())
    each = f"   of the threads {threads}" if table.threads > 1 else ""
    yield f"  {'(waiting)':<11}{milliseconds:>11.4f}{table.waiting / whole:>8.1%}{each}"


class _Sums:
    """Adds up steps for a table, in ticks."""

    def __init__(self) -> None:
        self.steps = self.wall = 0
        self.phases = PhaseSums(())
        self.time: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.calls: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self.bytes: npt.NDArray[np.float64] = np.zeros(0)
        self.busy: dict[int, int] = {}

    def extend(self, operations: list[CpuOperation]) -> None:
        """Go on with these operations: those that there were, and maybe more behind them."""
        self.phases.extend(operations)
        more = (0, len(operations) - len(self.time))
        self.time, self.calls, self.bytes = np.pad(self.time, more), np.pad(self.calls, more), np.pad(self.bytes, more)

    def add(self, events: Events, begin: int, end: int, bytes_of_unit: npt.NDArray[np.float64]) -> None:
        """A step between two times. bytes_of_unit: f64[n_operations]."""
        operations, n = events["operation"], len(self.time)
        spent = events["end"] - events["begin"]
        self.steps += 1
        self.wall += end - begin
        self.phases.add(events, begin, end, bytes_of_unit[operations] * events["units"])
        self.time += np.bincount(operations, spent, n).astype(np.int64)
        self.calls += np.bincount(operations, minlength=n) > 0
        self.bytes += np.bincount(operations, events["units"], n) * bytes_of_unit
        for thread in np.unique(events["thread"]).tolist():
            self.busy[thread] = self.busy.get(thread, 0) + int(spent[events["thread"] == thread].sum())

    def table(self, operations: list[CpuOperation], ratio: float, threads: int) -> Table:
        """In seconds, by kind, the longest first. A thread that ran nothing has no number: it counts as 0, -1, …"""
        rows = []
        for kind in dict.fromkeys(op.kind for op in operations):
            mine = np.array([op.kind == kind for op in operations])
            if calls := int(self.calls[mine].sum()):
                seconds = float(self.time[mine].sum()) * ratio / 1e9
                rows.append(Row(kind, seconds, calls, int(self.bytes[mine].sum())))
        rows.sort(key=lambda row: -row.seconds)
        busy = {thread: time * ratio / 1e9 for thread, time in self.busy.items()}
        busy |= {-i: 0.0 for i in range(threads - len(busy))}
        phases, reading = self.phases.rows(ratio), self.phases.reading(ratio, threads)
        return Table(self.steps, self.wall * ratio / 1e9, tuple(rows), busy, phases, reading)


class ProfileRecorder:
    """Runs steps of one program and keeps what they record. Raises what compiling the recording walker raises."""

    def __init__(self, program: CpuProgram, runner: Runner, library: Library) -> None:
        self._program, self._runner = program, runner
        self._memory: npt.NDArray[np.int64] = np.zeros(_HEAD + _EVENT_WORDS * MAX_EVENTS, np.int64)
        library.load([(ticks, {}), *runner.kernels(profile=True)])
        self._ticks = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address(ticks))
        program.words["events"] = address_of(self._memory)
        program.words["max_events"] = MAX_EVENTS
        self._sums = {PROMPT: _Sums(), TEXT: _Sums()}
        self._extend()
        self._spans: list[Events] = []
        self._room, self._dropped, self._untraced = MAX_SPANS, 0, 0
        self._clock = time.perf_counter_ns(), self._ticks()

    def _extend(self) -> None:
        operations = self._program.operations
        for sums in self._sums.values():
            sums.extend(operations)
        self._weights = np.array([op.bytes / max(1, op.units) for op in operations], np.float64)
        self._caches = np.array([_bytes_of_position(op) for op in operations], np.float64)

    def records(self, program: CpuProgram) -> bool:
        """Whether it is this program whose steps are recorded."""
        return program is self._program

    def run(self, n_rows: int, n_positions: int) -> None:
        """One step. n_positions: of all its sequences, that attention looks at."""
        if len(self._program.operations) > len(self._weights):  # the first step that ends with something more
            self._extend()
        before = self._ticks()
        self._runner.run(self._program, profile=True)
        after = self._ticks()
        count = int(self._memory[0])
        self._memory[0] = 0
        kept = min(count, MAX_EVENTS)
        self._dropped += count - kept
        events = self._memory[_HEAD : _HEAD + _EVENT_WORDS * kept].view(table(native.EventRecord, 0).dtype)
        # Attention's units differ from step to step: its bytes are spread over those that ran.
        units = np.bincount(events["operation"], events["units"], len(self._weights))
        caches = self._caches * n_positions / np.maximum(1, units)
        self._sums[PROMPT if n_rows > 1 else TEXT].add(events, before, after, self._weights + caches)
        spans = _joined(events)
        self._spans.append(spans[: self._room])
        self._untraced += max(0, len(spans) - self._room)
        self._room -= len(self._spans[-1])

    def finish(self) -> CpuProfile:
        """What there is; the recorder is of no use afterwards."""
        start_ns, start = self._clock
        ratio = (time.perf_counter_ns() - start_ns) / max(1, self._ticks() - start)
        self._runner.drain()
        operations, threads = self._program.operations, self._runner.threads
        tables = {sort: sums.table(operations, ratio, threads) for sort, sums in self._sums.items() if sums.steps}
        own = threading.get_native_id()
        others = sorted({thread for sums in self._sums.values() for thread in sums.busy} - {own})
        names = {own: "caller", **{thread: f"worker {i}" for i, thread in enumerate(others, 1)}}
        return CpuProfile(
            tuple(self._spans), tables, self._dropped, self._untraced, names, tuple(operations), start, ratio
        )


def _bytes_of_position(op: CpuOperation) -> int:
    """Of keys and values in float16, that attention reads for each position."""
    if op.kind != "attention":
        return 0
    shape = op.kernel[1]["S"]
    assert isinstance(shape, AttentionShape)
    return 2 * int(op.arguments["n_kv"]) * (shape.DIM + (0 if shape.LATENT else shape.VALUE))


def _joined(events: Events) -> Events:
    """Stretches of one operation that follow each other on a thread as one, in order of thread and time."""
    ordered = events[np.lexsort((events["begin"], events["thread"]))]
    if not len(ordered):
        return ordered
    before, after = ordered[:-1], ordered[1:]
    apart = (
        (before["thread"] != after["thread"])
        | (before["operation"] != after["operation"])
        | (after["begin"] - before["end"] > _JOIN)
    )
    first = np.flatnonzero(np.concatenate(([True], apart)))
    last = np.append(first[1:], len(ordered)) - 1
    joined = ordered[first].copy()
    joined["end"] = ordered["end"][last]
    joined["units"] = np.add.reduceat(ordered["units"], first)
    return joined
