"""The page `cpu_ring`: the ring that runs on the host."""

from zinc_rt.backends.cpu.backend import CpuBackend as CpuRing

__all__ = ["CpuRing"]
