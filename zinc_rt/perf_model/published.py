"""GPUs that are not AMD's, by published constants: nothing here has run on one, and nothing emulates one.

Their prediction is a bound: the bytes that a token reads, over a share of the memory's bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from amdgpu_emu.constants import Interval
from zinc_rt.amdgpu.room import kept_free
from zinc_rt.gguf import GGUFFile
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.models import define
from zinc_rt.models.cache_format import CacheFormat, with_cache
from zinc_rt.perf_model.forecast import CardForecast, Forecast

GIB = 1 << 30


@dataclass(frozen=True)
class PublishedGpu:
    """Constants of makers' data sheets. memory: bytes; gb_per_s: 10^9 bytes a second of the memory's pins; units: SMs
    or Xe cores; clock_mhz: boost; dp4a: instructions of four int8 products a clock of a unit (NVIDIA's programming
    guide, by compute capability; Intel's descriptions of Xe cores), None where none is published.
    """

    name: str
    memory: int
    gb_per_s: float
    units: int
    clock_mhz: int
    dp4a: int | None

    @property
    def description(self) -> str:
        """The constants in a line."""
        products = "" if self.dp4a is None else f", {self.dp4a} dp4a a clock of each"
        return f"{self.gb_per_s:g} GB/s, {self.units} units at {self.clock_mhz} MHz{products}"


PUBLISHED: Final = {
    "rtx3060": PublishedGpu("NVIDIA GeForce RTX 3060", 12 * GIB, 360, 28, 1777, 64),
    "rtx3090": PublishedGpu("NVIDIA GeForce RTX 3090", 24 * GIB, 936, 82, 1695, 64),
    "rtx4090": PublishedGpu("NVIDIA GeForce RTX 4090", 24 * GIB, 1008, 128, 2520, 64),
    "rtx5090": PublishedGpu("NVIDIA GeForce RTX 5090", 32 * GIB, 1792, 170, 2407, None),
    "h100": PublishedGpu("NVIDIA H100 SXM", 80 * GIB, 3350, 132, 1980, 64),
    "a770": PublishedGpu("Intel Arc A770", 16 * GIB, 560, 32, 2100, 128),
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
