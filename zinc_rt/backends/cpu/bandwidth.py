"""How fast memory can be read: the measure of a decode step, which reads every weight once."""

from __future__ import annotations

import mmap
import statistics
import time

import numpy as np

from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.backends.cpu.program import CpuOperation, CpuProgram, Runner, UnitsPer, plain_step
from zinc_rt.backends.host_memory import huge_bytes
from zinc_rt.kernels.cpu.structs import SumArgs
from zinc_rt.lang.library import Library

_UNIT = 1 << 20
_ROUNDS = 7


def read_bandwidth(n_bytes: int, library: Library, runner: Runner) -> float:
    """10^9 bytes per second at which all threads together read a buffer of this size: the median of several rounds.

    The size matters: what fits a cache is read faster. Raises `MemoryPlanError` when there is no room.
    """
    units = max(1, n_bytes // _UNIT)
    memory = huge_bytes(units * _UNIT)
    memory[:: mmap.PAGESIZE] = 1  # untouched pages are all the same page of zeros
    sums = np.zeros(units, np.int64)
    op = CpuOperation(
        "read",
        "read",
        TargetTuning.of(library.target).read_sum(),
        SumArgs,
        {"x": memory, "y": sums, "chunk": _UNIT},
        units,
        UnitsPer.ONCE,
        phase=0,
    )
    program = CpuProgram.build([op], plain_step(), library, runner.threads)
    seconds = []
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        runner.run(program)
        seconds.append(time.perf_counter() - start)
    runner.drain()
    return memory.nbytes / statistics.median(seconds[1:]) / 1e9
