"""`DriverBackend`: what backends of GPUs behind a driver of their maker's share."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from zinc_rt.backends.base import LoweredGraph
from zinc_rt.backends.gpu.backend import GpuBackend
from zinc_rt.backends.gpu.device import DeviceKernel, GpuDevice
from zinc_rt.backends.gpu.profile import GpuProfile
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.launch import LaunchTime
from zinc_rt.mem.plan import kept_free

_TELL_AGAIN = 2.0
"""Seconds between two lines about how far the driver is."""


class NamedCard(Protocol):
    """A GPU. memory: its own, bytes."""

    @property
    def name(self) -> str: ...
    @property
    def memory(self) -> int: ...


class TimedDevice(GpuDevice, Protocol):
    """A device that measures its launches."""

    @property
    def card(self) -> NamedCard:
        """The GPU."""

    def start_times(self) -> None:
        """Measure each launch from now on; submissions are waited for."""

    def stop_times(self) -> Sequence[LaunchTime]:
        """What was measured since `start_times`."""


class DriverBackend(GpuBackend):
    """A GPU backend whose driver compiles kernels once more, and whose device measures its launches."""

    gpu: TimedDevice

    @property
    def memory_kept_free(self) -> int:
        """A tenth of the device's memory."""
        return kept_free(self.gpu.card.memory)

    def _brought(self, kernels: Iterable[GpuKernel]) -> Iterable[DeviceKernel]:
        wanted, told = list(kernels), time.monotonic()
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as threads:  # each takes up to seconds
            for done, _ in enumerate(threads.map(self._compile, wanted), 1):
                if self._notify is not None and time.monotonic() - told > _TELL_AGAIN:
                    self._notify(f"the driver has built {done} of {len(wanted)} kernels")
                    told = time.monotonic()
        return super()._brought(wanted)

    def _compile(self, kernel: GpuKernel) -> None:
        """Have the driver compile a kernel, side by side with others."""
        self.gpu.load_kernel(kernel)

    def start_profile(self, lowered: LoweredGraph) -> None:
        """See `Backend.start_profile`: every submission is waited for."""
        self._check_open()
        self.gpu.start_times()

    def finish_profile(self) -> GpuProfile:
        """See `Backend.finish_profile`: of all work since `start_profile`."""
        self._check_open()
        return GpuProfile(self.gpu.card.name, self.gpu.stop_times())
