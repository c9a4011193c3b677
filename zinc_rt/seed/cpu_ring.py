"""The page `cpu_ring`: the ring that runs on the host."""

from __future__ import annotations

from zinc_rt.backends.cpu.backend import CpuBackend

__all__ = ["CpuRing"]


class CpuRing(CpuBackend):
    """`CpuBackend` with the seed's names for opening and closing."""

    @classmethod
    def init(cls) -> CpuRing:
        """The ring with its defaults."""
        return cls()

    def deinit(self) -> None:
        """The same as `close`."""
        self.close()
