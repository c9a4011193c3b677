"""The page `cpu_ring`: the ring that runs on the host."""

from __future__ import annotations

from zinc_rt.backends.base import LoweredGraph
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.seed.ring import PacketBatch

__all__ = ["CpuRing"]


class CpuRing(CpuBackend):
    """`CpuBackend` with the seed's names for opening and closing, and with packets."""

    @classmethod
    def init(cls) -> CpuRing:
        """The ring with its defaults."""
        return cls()

    def deinit(self) -> None:
        """The same as `close`."""
        self.close()

    def submit_and_wait(self, lowered: LoweredGraph | PacketBatch) -> None:
        """Run a step to its end, or packets in order on the caller's thread.

        Raises what `submit`, `wait` and the packets' kernels raise; a packet that raises is the last one that runs.
        """
        if not isinstance(lowered, PacketBatch):
            super().submit_and_wait(lowered)
            return
        self._check_open()
        for packet in lowered.packets:
            packet.run()
