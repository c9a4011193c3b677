"""`DriverBackend`: what backends of GPUs behind a driver of their maker's share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from zinc_rt.backends.base import LoweredGraph
from zinc_rt.backends.gpu.backend import GpuBackend
from zinc_rt.backends.gpu.device import GpuDevice
from zinc_rt.backends.gpu.profile import GpuProfile
from zinc_rt.lang.launch import LaunchTime


class NamedCard(Protocol):
    """A GPU with a name."""

    @property
    def name(self) -> str: ...


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
    """A GPU backend whose device measures its launches."""

    gpu: TimedDevice

    def start_profile(self, lowered: LoweredGraph) -> None:
        """See `Backend.start_profile`: every submission is waited for."""
        self._check_open()
        self.gpu.start_times()

    def finish_profile(self) -> GpuProfile:
        """See `Backend.finish_profile`: of all work since `start_profile`."""
        self._check_open()
        return GpuProfile(self.gpu.card.name, self.gpu.stop_times())
