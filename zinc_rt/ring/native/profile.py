"""Profiles: which thread ran how many units of which operation, and when.

The walker compiled with PROFILE writes an event after every stretch of units; without it nothing of this exists.
"""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.cpu import program as native
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.library import Library
from zinc_rt.lang.ops import cycle_counter
from zinc_rt.lang.types import i64
from zinc_rt.ring.native.program import Program, Runner
from zinc_rt.ring.native.records import address_of, table

MAX_EVENTS: Final = 1 << 19
_HEAD: Final = 8  # words before the first event
_EVENT_WORDS: Final = 4

PROMPT, TEXT = "prompt", "text"


@kernel
def ticks() -> i64:  # type: ignore[valid-type]
    """The cycle counter now."""
    return cycle_counter()


@dataclass(frozen=True)
class Event:
    """Units of an operation on a thread; times in nanoseconds from the start of the profile."""

    name: str
    kind: str
    thread: int
    units: int
    begin: float
    end: float


@dataclass(frozen=True)
class Row:
    """One kind of operation over all steps of a sort. seconds: summed over threads; bytes: of weights."""

    kind: str
    seconds: float
    calls: int
    bytes: int

    @property
    def gb_per_s(self) -> float:
        """Weights read per second of a thread's time, in 10^9 bytes."""
        return self.bytes / self.seconds / 1e9 if self.seconds else 0.0


@dataclass(frozen=True)
class Table:
    """Where the time of some steps went. seconds: from start to end of each, summed."""

    steps: int
    seconds: float
    threads: int
    rows: tuple[Row, ...]

    @property
    def waiting(self) -> float:
        """Seconds of threads in which they ran nothing: waiting for each other, or taken away."""
        return max(0.0, self.seconds * self.threads - sum(row.seconds for row in self.rows))


@dataclass(frozen=True)
class Profile:
    """What was recorded. tables: by PROMPT (steps of several rows) and TEXT (steps of one). dropped: events that did
    not fit.
    """

    events: tuple[Event, ...]
    tables: dict[str, Table]
    dropped: int

    def chrome_trace(self) -> str:
        """JSON that chrome://tracing and Perfetto read: one line for each thread, times in microseconds."""
        spans = (
            {
                "name": e.name, "cat": e.kind, "ph": "X", "ts": e.begin / 1e3, "dur": (e.end - e.begin) / 1e3, "pid": 1,
                "tid": e.thread, "args": {"units": e.units},
            }
            for e in self.events
        )  # fmt: skip
        return json.dumps({"traceEvents": list(spans), "displayTimeUnit": "ns"})


class Recorder:
    """Runs steps of one program and keeps what they record. Raises what compiling the recording walker raises."""

    def __init__(self, program: Program, runner: Runner, library: Library, max_events: int = MAX_EVENTS) -> None:
        self._program, self._runner, self._max = program, runner, max_events
        self._memory = np.zeros(_HEAD + _EVENT_WORDS * max_events, np.int64)
        library.load([(ticks, {}), *runner.kernels(profile=True)])
        self._ticks = ctypes.CFUNCTYPE(ctypes.c_int64)(library.address(ticks))
        program.words["events"] = address_of(self._memory)
        program.words["max_events"] = max_events
        self._steps: list[tuple[int, int, int]] = []  # rows, ticks before and after
        self._clock = time.perf_counter_ns(), self._ticks()

    def run(self, n_rows: int) -> None:
        """One step."""
        before = self._ticks()
        self._runner.run(self._program, profile=True)
        self._steps.append((n_rows, before, self._ticks()))

    def finish(self) -> Profile:
        """Read everything out; the recorder is of no use afterwards."""
        start_ns, start = self._clock
        ratio = (time.perf_counter_ns() - start_ns) / max(1, self._ticks() - start)  # nanoseconds of a tick
        self._runner.settle()
        count = int(self._memory[0])
        kept = min(count, self._max)
        layout = table(native.Event, 0).dtype
        records = self._memory[_HEAD : _HEAD + _EVENT_WORDS * kept].view(layout)
        operations = self._program.operations
        events = [
            Event(
                operations[int(r["operation"])].name, operations[int(r["operation"])].kind, int(r["thread"]),
                int(r["units"]), (int(r["begin"]) - start) * ratio, (int(r["end"]) - start) * ratio,
            )
            for r in records
        ]  # fmt: skip
        tables = {}
        for sort, steps in (
            (PROMPT, [s for s in self._steps if s[0] > 1]),
            (TEXT, [s for s in self._steps if s[0] == 1]),
        ):
            if steps:
                tables[sort] = self._table(records, steps, ratio)
        return Profile(tuple(events), tables, count - kept)

    def _table(self, records: npt.NDArray[np.void], steps: list[tuple[int, int, int]], ratio: float) -> Table:
        begins = np.array([begin for _, begin, _ in steps], np.int64)
        ends = np.array([end for _, _, end in steps], np.int64)
        at = np.searchsorted(begins, records["begin"], side="right") - 1
        mine = records[(at >= 0) & (records["begin"] <= ends[np.maximum(at, 0)])]
        rows = []
        kinds = [op.kind for op in self._program.operations]
        for kind in dict.fromkeys(kinds):
            numbers = [i for i, k in enumerate(kinds) if k == kind]
            chosen = mine[np.isin(mine["operation"], numbers)]
            if len(chosen):
                seconds = float((chosen["end"] - chosen["begin"]).sum()) * ratio / 1e9
                rows.append(Row(kind, seconds, len(chosen), self._bytes(chosen, numbers)))
        wall = float((ends - begins).sum()) * ratio / 1e9
        rows.sort(key=lambda row: -row.seconds)
        return Table(len(steps), wall, self._runner.threads, tuple(rows))

    def _bytes(self, chosen: npt.NDArray[np.void], numbers: Iterable[int]) -> int:
        """Weights behind the units that ran: products have one unit for each tile."""
        total = 0.0
        for i in numbers:
            op = self._program.operations[i]
            if op.bytes:
                total += op.bytes * float(chosen["units"][chosen["operation"] == i].sum()) / op.units
        return int(total)
