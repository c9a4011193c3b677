"""GPUs that are not AMD's, by published constants: nothing here has run on one, and nothing emulates one.

Their prediction is a bound: the bytes that a token reads, over a share of the memory's bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amdgpu_emu.constants import Interval
from zinc_rt.gguf import GGUFFile
from zinc_rt.mem.plan import MemoryPlan, kept_free
from zinc_rt.models import define
from zinc_rt.models.cache_format import CacheFormat, with_cache
from zinc_rt.perf_model.forecast import CardForecast, Forecast

GIB = 1 << 30


REGISTERS: Final = 65_536
"""Of 32 bits in an NVIDIA multiprocessor of every capability below."""
SHARED_BYTES: Final = {
    "7.5": 64 << 10,
    "8.0": 164 << 10,
    "8.6": 100 << 10,
    "8.9": 100 << 10,
    "9.0": 228 << 10,
    "12.0": 100 << 10,
}
"""Shared memory of an NVIDIA multiprocessor by compute capability (NVIDIA, CUDA C++ Programming Guide, "Technical
Specifications per Compute Capability", where `REGISTERS` is from, too; the same in CCCL's `arch_traits`).
"""


@dataclass(frozen=True)
class PublishedGpu:
    """Constants of makers' documents.

    memory: bytes; gb_per_s: 10^9 bytes a second of the memory's pins; sms: multiprocessors (NVIDIA's SMs, Intel's Xe
    cores); clock_mhz: boost, of Intel's cards "graphics clock"; float_lanes: float32 multiply-adds of a multiprocessor
    a clock; int8_tops: 10^12 int8 operations a second of the tensor cores at that clock with dense matrices, a
    multiply-add counting as two; capability: NVIDIA's compute capability, a key of `SHARED_BYTES`. None: not NVIDIA's.
    """

    name: str
    memory: int
    gb_per_s: float
    sms: int
    clock_mhz: int
    float_lanes: int
    int8_tops: float | None = None
    capability: str | None = None

    @property
    def int8_ops(self) -> float | None:
        """Dense int8 operations of a multiprocessor a clock, a multiply-add counting as two; None without a rate."""
        return None if self.int8_tops is None else self.int8_tops * 1e6 / (self.sms * self.clock_mhz)

    @property
    def description(self) -> str:
        """The constants in a line."""
        products = "" if self.int8_tops is None else f", {self.int8_tops:g} TOPS of int8"
        return f"{self.gb_per_s:g} GB/s, {self.sms} units at {self.clock_mhz} MHz{products}"


PUBLISHED: Final = {
    # NVIDIA T4 datasheet: 320 GB/s, 130 TOPS; Turing whitepaper: 40 SMs of 64 lanes at 1590 MHz.
    "t4": PublishedGpu("NVIDIA T4", 16 * GIB, 320, 40, 1590, 64, 130, "7.5"),
    # A100 datasheet (80 GB, SXM): 2039 GB/s, 624 TOPS; A100 whitepaper: 108 SMs of 64 lanes at 1410 MHz.
    "a100": PublishedGpu("NVIDIA A100 80GB SXM", 80 * GIB, 2039, 108, 1410, 64, 624, "8.0"),
    # NVIDIA's tables of the GeForce RTX 30 series: 28 SMs at 1777 MHz, 360 GB/s, 102 TOPS.
    "rtx3060": PublishedGpu("NVIDIA GeForce RTX 3060", 12 * GIB, 360, 28, 1777, 128, 102, "8.6"),
    # GA102 whitepaper, appendix A: 82 SMs at 1695 MHz, 936 GB/s, 284 TOPS.
    "rtx3090": PublishedGpu("NVIDIA GeForce RTX 3090", 24 * GIB, 936, 82, 1695, 128, 284, "8.6"),
    # Ada whitepaper, appendix A: 128 SMs at 2520 MHz, 1008 GB/s, 660.6 TOPS.
    "rtx4090": PublishedGpu("NVIDIA GeForce RTX 4090", 24 * GIB, 1008, 128, 2520, 128, 660.6, "8.9"),
    # RTX Blackwell whitepaper, appendix A: 170 SMs at 2407 MHz, 1792 GB/s, 838 TOPS.
    "rtx5090": PublishedGpu("NVIDIA GeForce RTX 5090", 32 * GIB, 1792, 170, 2407, 128, 838, "12.0"),
    # H100 whitepaper: 132 SMs, 1830 MHz while tensor cores work and 1980 else, 1978.9 TOPS; datasheet: 3.35 TB/s.
    "h100": PublishedGpu("NVIDIA H100 SXM", 80 * GIB, 3350, 132, 1830, 128, 1978.9, "9.0"),
    # Intel's product specifications: 32 Xe cores at 2100 MHz, 560 GB/s; 4096 lanes.
    "a770": PublishedGpu("Intel Arc A770", 16 * GIB, 560, 32, 2100, 128),
    # Intel's product specifications: 20 Xe cores at 2670 MHz, 456 GB/s; 2560 lanes.
    "b580": PublishedGpu("Intel Arc B580", 12 * GIB, 456, 20, 2670, 128),
}
SHARE: Final = Interval(
    0.40,
    0.70,
    0.90,
    "of the pins' rate",
    "published by users of other runtimes from end to end: 73 and 87 % with an 8B model as Q4_0 and Q8_0 on an RTX"
    " 3090, half with experts on other cards",
)


def share_forecast(
    path: Path, gpu: PublishedGpu, depths: Sequence[int], *, kv: CacheFormat, n_ctx: int | None = None
) -> CardForecast:
    """Bound the speed of a token behind texts of these lengths. Raises what opening a file raises.

    Args:
        path: the model's file.
        gpu: one of `PUBLISHED`.
        depths: in tokens.
        kv: format of the KV cache.
        n_ctx: tokens that the cache has room for; None: what the tests need.
    """
    with GGUFFile.open(path) as file:
        definition = with_cache(define(file), kv)
        weights = sum(tensor.nbytes for tensor in file.tensors.values())
    room = n_ctx or max((depth + 2 for depth in depths), default=1)
    cache = sum(state.bytes_read(room) + state.sequence_bytes for state in definition.states)
    spare = kept_free(gpu.memory)
    tests = []
    for depth in depths:
        n_bytes = definition.step_bytes(depth + 1)
        low, likely, high = (n_bytes / gpu.gb_per_s / 1e9 / share for share in (SHARE.high, SHARE.likely, SHARE.low))
        tests.append(Forecast("text", 1, depth, Interval(low, likely, high, "s"), 1, 0, 0, 0, n_bytes))
    plan = MemoryPlan(weights, 0, cache, 0, 0, gpu.memory - spare, kept_free=spare)
    note = (
        f"By published constants ({gpu.description}), never run: the bytes of a token over {SHARE.low:.0%} to"
        f" {SHARE.high:.0%} of the bandwidth."
    )
    return CardForecast(gpu.name, tests, plan, gpu.memory, note)
