"""Times of launches by the GPU's own clock: an event before and behind each, which keeps them apart."""

from __future__ import annotations

from ctypes import byref, c_float, c_void_p

from zinc_rt.cuda.calls import TIMED, DriverCalls
from zinc_rt.cuda.launches import CudaLaunches, launch
from zinc_rt.lang.launch import LaunchTime


class LaunchTimes:
    """Collects times of lists, one after the other. Every call needs the context to be current."""

    def __init__(self, cuda: DriverCalls) -> None:
        self._cuda = cuda
        self.found: list[LaunchTime] = []
        self.lists = 0
        self._events: list[c_void_p] = []
        self._running: list[tuple[str, tuple[int, int, int]]] = []

    def run(self, stream: c_void_p, commands: CudaLaunches) -> None:
        """CudaLaunch a list's kernels one by one. `collect` before the next one."""
        self._mark(0, stream)
        for one in (one for phase in commands.phases for one in phase):
            launch(self._cuda, one, stream)
            self._running.append((one.program.name, one.groups))
            self._mark(len(self._running), stream)

    def collect(self) -> None:
        """Take the times of the list that has run."""
        before = 0.0
        for i, (name, groups) in enumerate(self._running, 1):
            milliseconds = c_float()
            self._cuda.cuEventElapsedTime(byref(milliseconds), self._events[0], self._events[i])
            now = milliseconds.value / 1e3
            self.found.append(LaunchTime(name, groups, self.lists, before, now - before))
            before = now
        self._running.clear()
        self.lists += 1

    def close(self) -> None:
        """Give the events back."""
        while self._events:
            self._cuda.cuEventDestroy_v2(self._events.pop())

    def _mark(self, number: int, stream: c_void_p) -> None:
        while len(self._events) <= number:
            event = c_void_p()
            self._cuda.cuEventCreate(byref(event), TIMED)
            self._events.append(event)
        self._cuda.cuEventRecord(self._events[number], stream)
