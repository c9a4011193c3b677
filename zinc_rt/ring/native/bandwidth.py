"""How fast memory is read: what decoding, which reads every weight once a token, is measured against."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.cpu.structs import SumArgs
from zinc_rt.lang.library import Library
from zinc_rt.ring.native.choice import Choice
from zinc_rt.ring.native.memory import huge_bytes
from zinc_rt.ring.native.program import Operation, Program, Runner, Scale, plain_step

_CHUNK = 1 << 20
_WORD = 0x01010101
"""What every word of the buffer is; sums are checked against it."""


class Reader:
    """A buffer of its own and a program that adds up its words on all threads. Close it after use.

    n_bytes: rounded up to whole MiB. Raises `MemoryPlanError`, and what compiling raises.
    """

    def __init__(self, n_bytes: int, threads: int, library: Library) -> None:
        n = max(1, -(-n_bytes // _CHUNK))
        self.n_bytes = n * _CHUNK
        x = huge_bytes(self.n_bytes)
        x.view(np.uint32)[:] = _WORD
        self._sums: npt.NDArray[np.int64] = np.zeros(n, np.int64)
        op = Operation(
            "read", "read", Choice.of(library.target).read_sum(), SumArgs, {"x": x, "y": self._sums, "chunk": _CHUNK},
            n, Scale.ONCE, phase=0, bytes=self.n_bytes,
        )  # fmt: skip
        self._runner = Runner(library, threads)
        self._program = Program.build([op], plain_step(), library, threads)

    def once(self) -> float:
        """Read everything; bytes per second."""
        begin = time.perf_counter()
        self._runner.run(self._program)
        return self.n_bytes / (time.perf_counter() - begin)

    def right(self) -> bool:
        """Whether the last sums are what was written. Words are added in 32 bits, which wrap."""
        expected = np.array(_CHUNK // 4 * _WORD, np.uint64).astype(np.uint32).view(np.int32)
        return bool((self._sums == int(expected)).all())

    def close(self) -> None:
        """End the threads."""
        self._runner.close()


def read_bandwidth(n_bytes: int, threads: int, library: Library, *, seconds: float = 0.5) -> float:
    """Bytes per second at which `threads` threads read a buffer of `n_bytes`: the best of three medians, which leaves
    out moments when the machine was busy with something else. Measures for about `seconds`, at least nine reads.
    """
    reader = Reader(n_bytes, threads, library)
    try:
        reader.once()
        return max(statistics.median(_samples(reader, seconds / 3)) for _ in range(3))
    finally:
        reader.close()


def _samples(reader: Reader, seconds: float) -> Iterator[float]:
    until, count = time.perf_counter() + seconds, 0
    while count < 3 or time.perf_counter() < until:
        yield reader.once()
        count += 1
