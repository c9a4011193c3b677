"""A program in memory: operations with their arguments, phases, the step; and running it."""

from __future__ import annotations

import ctypes
import enum
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arg_structs import Records, address_of, record, table
from zinc_rt.backends.cpu.choice import Kernel
from zinc_rt.backends.cpu.late import NEVER, first_writers, safe_distances
from zinc_rt.backends.cpu.thread_pool import ThreadPool, system_words
from zinc_rt.backends.host_memory import aligned_zeros
from zinc_rt.kernels.cpu import pool as native_pool
from zinc_rt.kernels.cpu import program as native
from zinc_rt.kernels.cpu import structs
from zinc_rt.kernels.cpu.flights import LINE
from zinc_rt.lang.library import Library
from zinc_rt.lang.types import layout_of

_THREAD_NUMBER = {202: 186, 98: 178}  # gettid, beside the number of futex (syscall_64.tbl, asm-generic/unistd.h)


class UnitsPer(enum.IntEnum):
    """The size of a step that the units of an operation are counted by."""

    ONCE = 0
    ROWS = 1
    LOGITS = 2
    ATTENTION = 3  # blocks of rows, or rows x splits
    MERGE = 4  # rows of a step whose attention is split up, else none
    SAMPLED = 5  # logits, in steps that end with tokens


# As plain numbers: a step sets a handful of words, and looking up a member takes longer than setting one.
_ROWS, _LOGITS, _ATTENTION, _MERGE, _SAMPLED = map(
    int, (UnitsPer.ROWS, UnitsPer.LOGITS, UnitsPer.ATTENTION, UnitsPer.MERGE, UnitsPer.SAMPLED)
)
_JOBS = len(UnitsPer)
_EVERY_UNIT = (1 << 31) - 1
_CLAIM_BYTES = 96 << 10  # of weights, at least: reading them takes ten times as long as claiming and beginning
_MOST_BYTES = 512 << 10  # of weights: a thread that is late holds up others by the time that these take
_N_ROWS, _N_LOGITS, _N_SPLITS = (
    layout_of(structs.StepRecord).offsets[name] // 4 for name in ("n_rows", "n_logits", "n_splits")
)


@dataclass
class CpuOperation:
    """One kernel call. reads, writes: names of what it touches, which order operations."""

    name: str
    kind: str  # for profiles: matmul, norm, attention, …
    kernel: Kernel
    struct: object  # of its arguments
    arguments: dict[str, Any]  # numbers; arrays stand for their address, names for what is placed later
    units: int
    scale: int  # a member of `UnitsPer`, or beyond: jobs of experts' rows, see `CpuLowered.choices`
    reads: tuple[Hashable, ...] = ()
    writes: tuple[Hashable, ...] = ()
    bytes: int = 0  # of weights, that each execution reads
    again: bool = False  # units may be done twice, even at once: they read nothing that they write
    phase: int = -1


@dataclass
class CpuProgram:
    """Ready to run. `keep` holds whatever the arguments point at; rows and phases have room for one more."""

    operations: list[CpuOperation]
    step: npt.NDArray[np.void]
    multipliers: npt.NDArray[np.int32]
    words: npt.NDArray[np.void]
    rows: npt.NDArray[np.void]
    phases: npt.NDArray[np.void]
    flights: npt.NDArray[np.uint64]
    keep: list[Any] = field(default_factory=list)
    endings: list[tuple[CpuOperation, Records, int]] = field(default_factory=list)
    """What `end_with` got: operations, their arguments, the addresses of their kernels."""
    n_few_rows: int = -1  # rows of a step whose units may be done again: its operations are those of `few_rows`
    few_rows: npt.NDArray[np.void] | None = None
    _few_now: bool = False
    _sizes: tuple[int, int] = (-1, -1)

    def prepare(
        self, *, n_rows: int, n_logits: int, splits: int, attention: int, jobs: Sequence[int] = (), sampled: int = 0
    ) -> None:
        """Set the sizes of the next step. splits: of each row's attention, 0 for whole heads; attention: its units;
        jobs: of experts' rows, by `CpuLowered.choices`; sampled: rows of logits whose tokens are chosen.
        """
        words, counts = self._step_words, self.multipliers
        if (n_rows, n_logits) != self._sizes:
            self.wait_for_late()
            self._sizes = n_rows, n_logits
        words[_N_ROWS], words[_N_LOGITS], words[_N_SPLITS] = n_rows, n_logits, splits
        counts[_ROWS], counts[_LOGITS], counts[_ATTENTION] = n_rows, n_logits, attention
        counts[_MERGE] = n_rows if splits else 0
        counts[_SAMPLED] = sampled
        if jobs:
            counts[_JOBS:] = jobs
        if (n_rows <= self.n_few_rows and n_logits <= self.n_few_rows) is not self._few_now:
            self._take_turns()

    def parts(self, run: Callable[[], None], seconds: float) -> Iterator[None]:
        """Run a prepared step of many rows by parts: a phase, or as many of its units as take so long. The program
        stays as it is between them. run: runs it.
        """
        n_phases, paces = int(self.words["n_phases"][0]), dict[Hashable, float]()
        for phase in range(n_phases):
            first, count = int(self.phases[phase]["first"]), int(self.phases[phase]["count"])
            operations = self.operations[first : first + count]
            units = sum(op.units * int(self.multipliers[op.scale]) for op in operations)
            # Layers are alike: how long the units of one take says how many of the next make a part.
            alike = tuple((_key(op.kernel), op.units) for op in operations)
            begin = 0
            while begin < units:
                size = int(seconds / paces[alike]) if alike in paces else -(-units // 64)
                end = min(units, begin + max(size, 1))
                before = time.perf_counter()
                try:
                    self.words["first_phase"], self.words["n_phases"] = phase, phase + 1
                    self.words["begin"], self.words["end"] = begin, end
                    run()
                finally:
                    self.words["first_phase"], self.words["n_phases"] = 0, n_phases
                    self.words["begin"], self.words["end"] = 0, _EVERY_UNIT
                paces[alike] = max((time.perf_counter() - before) / (end - begin), 1e-9)
                begin = end
                yield

    def wait_for_late(self) -> None:
        """Return when no thread is late at units of the last step."""
        while self.flights[0]:
            time.sleep(0)

    def _take_turns(self) -> None:
        """Between steps of few rows and others."""
        assert self.few_rows is not None
        self._few_now = not self._few_now
        self.words["operations"] = address_of(self.few_rows if self._few_now else self.rows)
        self.words["again"] = int(self._few_now)

    def allow_again(self, rows: int, arguments: Sequence[Mapping[str, Any]]) -> None:
        """Let units be done again in steps of up to so many rows, where operations have these arguments: what those
        that are `again` read and write shares memory with nothing else.
        """
        written = Records(op.struct for op in self.operations)
        self.n_few_rows = rows
        self.few_rows = table(native.OperationRecord, len(self.rows))
        self.few_rows[:] = self.rows
        for i, values in enumerate(arguments):
            self.few_rows[i]["arguments"] = written.write(i, values)
        self.keep += [written, *(v for values in arguments for v in values.values() if isinstance(v, np.ndarray))]

    def end_with(self, op: CpuOperation, library: Library) -> None:
        """Make an operation the last phase, in place of one that was that before; between steps. Its kernel is loaded
        now, so that programs that do without never load it.
        """
        if self.endings and self.operations[-1] is op:
            return
        found = next((known for known in self.endings if known[0] is op), None)
        if found is None:
            found = op, Records([op.struct]), library.address(*op.kernel)
            found[1].write(0, op.arguments)
        if self.endings:
            self.operations[-1] = op
        else:
            self.operations.append(op)
            self.words["n_phases"] += 1
        if not any(known is found for known in self.endings):
            self.endings.append(found)
        n = len(self.operations) - 1
        op.phase = int(self.words["n_phases"][0]) - 1
        for rows in (self.rows, self.few_rows):
            if rows is not None:
                rows[n] = (found[2], address_of(found[1].memory), op.units, int(op.scale))
        self.phases[op.phase] = (n, 1, 1, 1, 0, NEVER, 0)

    @cached_property
    def _step_words(self) -> npt.NDArray[np.int32]:
        """The step as plain words: setting a field of a struct takes NumPy twenty times as long."""
        return self.step.view(np.int32)

    @classmethod
    def build(
        cls, operations: list[CpuOperation], step: npt.NDArray[np.void], library: Library, threads: int
    ) -> CpuProgram:
        """Load the kernels and lay everything out. Phases must have been given."""
        kernels = {_key(op.kernel): op.kernel for op in operations}
        library.load(kernels.values())
        addresses = {key: library.address(*kernel) for key, kernel in kernels.items()}
        rows, arguments = (
            table(native.OperationRecord, len(operations) + 1),
            Records(op.struct for op in operations),
        )
        n_phases = operations[-1].phase + 1 if operations else 0
        phases = table(native.Phase, n_phases + 1)
        flights = aligned_zeros(8 * LINE * (threads + 1)).view(np.uint64)
        keep: list[Any] = [library, rows, phases, arguments, flights]
        first, safe, renewed = 0, safe_distances(operations), first_writers(operations)
        for i, op in enumerate(operations):
            at = arguments.write(i, op.arguments)
            keep += [v for v in op.arguments.values() if isinstance(v, np.ndarray)]
            rows[i] = (addresses[_key(op.kernel)], at, op.units, int(op.scale))
            if op.phase != operations[first].phase:
                first = i
            phase = operations[first : i + 1]
            again = int(all(op.again for op in phase))
            phases[op.phase] = (first, len(phase), *_claims(phase, threads), again, safe[op.phase], renewed[op.phase])
        multipliers = np.zeros(max([len(UnitsPer), *(op.scale + 1 for op in operations)]), np.int32)
        multipliers[UnitsPer.ONCE] = 1
        call, futex, yield_number, _ = (int(v) for v in system_words(0))
        words = record(
            native.ProgramRecord,
            {
                "claim": native.ALL_PHASES << 32, "n_phases": n_phases, "n_threads": threads,
                "operations": rows, "phases": phases, "step": step, "multipliers": multipliers, "system_call": call,
                "yield_number": yield_number, "thread_number": _THREAD_NUMBER[futex], "flights": flights,
                "end": _EVERY_UNIT,
            },
        )  # fmt: skip
        return cls(operations, step, multipliers, words, rows, phases, flights, keep)


def _claims(phase: Sequence[CpuOperation], threads: int) -> tuple[int, int]:
    """Units that a thread takes at least and at most, of a phase whose operations are these."""
    units, n_bytes = sum(op.units for op in phase), sum(op.bytes for op in phase)
    if not n_bytes:
        return max(1, units // (8 * threads)), max(1, units)
    least = max(1, min(_CLAIM_BYTES * units // n_bytes, units // (2 * threads)))
    return least, max(least, _MOST_BYTES * units // n_bytes)


def _key(kernel: Kernel) -> Hashable:
    return kernel[0], tuple(kernel[1].items())


class Runner:
    """Runs programs on this thread and a pool's."""

    def __init__(self, library: Library, threads: int) -> None:
        self.threads = threads
        self._library = library
        self._calls: dict[bool, Any] = {}
        self._last: CpuProgram | None = None  # what the next three were made for
        self._profile = False
        self._call: Callable[..., None] = _nothing
        self._arguments: tuple[int, ...] = ()

    @cached_property
    def pool(self) -> ThreadPool | None:
        """The other threads, from the first use on; None for a single thread."""
        return ThreadPool(self.threads - 1, library=self._library, limit=1 << 16) if self.threads > 1 else None

    def kernels(self, *, profile: bool = False) -> list[Kernel]:
        """What running takes besides the operations' kernels; profile: recording."""
        constants: dict[str, Any] = {"PROFILE": profile}
        pool = native_pool
        shared: list[Kernel] = [
            *((f, {}) for f in (pool.worker, pool.give_task, pool.finish_task, pool.wait_idle)),
            (pool.run_program, constants),
            (native.help_program, constants),
        ]
        return [
            *(shared if self.threads > 1 else ()),
            *([(native.run_alone, constants)] if self.threads == 1 else ()),
        ]

    def run(self, program: CpuProgram, *, profile: bool = False) -> None:
        """One step; returns when all of it is done."""
        if program is not self._last or profile is not self._profile:
            self._prepare(program, profile)
        self._call(*self._arguments)

    def _prepare(self, program: CpuProgram, profile: bool) -> None:
        if program is not self._last:
            self.drain()
        if profile not in self._calls:
            self._calls[profile] = self._load(profile)
        self._call, helper = self._calls[profile]
        self._arguments = (address_of(program.words),)
        if self.pool is not None:
            self._arguments += (self.pool.slots, self.pool.n, self.pool.system, helper)
        self._last, self._profile = program, profile

    def _load(self, profile: bool) -> tuple[Any, int]:
        constants: dict[str, Any] = {"PROFILE": profile}
        if self.pool is None:
            return ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._library.address(native.run_alone, constants)), 0
        wanted = [(native_pool.run_program, constants), (native.help_program, constants)]
        self._library.load(wanted)
        p = ctypes.c_void_p
        kind = ctypes.CFUNCTYPE(None, p, p, ctypes.c_int32, p, ctypes.c_uint64)
        return kind(self._library.address(*wanted[0])), self._library.address(*wanted[1])

    def drain(self) -> None:
        """Wait until no thread looks at the last program any more: a late one may, after the step is over."""
        if self.pool is not None:
            self.pool.wait_idle()
        self._last = None

    def close(self) -> None:
        """End the threads, and let go of the last program: one that copies weights keeps the model's file mapped."""
        if "pool" in self.__dict__ and self.pool is not None:
            self.pool.close()
        self._last, self._arguments = None, ()

    def __del__(self) -> None:
        # Before the last program is let go: a late thread may still look at it.
        if "pool" in self.__dict__ and self.pool is not None:
            self.pool.close()


def _nothing(*_: int) -> None:
    """Before the first program."""


def plain_step() -> npt.NDArray[np.void]:
    """A step without rows, for programs that read none."""
    return record(structs.StepRecord, {})
