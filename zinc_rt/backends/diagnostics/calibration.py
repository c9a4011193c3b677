"""Measures the constants of the cost model on a GPU, by kernels that each do one thing.

Names are those of the model's constants (`amdgpu_emu.constants`). Times are the host's. Submissions are compared that
differ in one thing alone, so everything else cancels out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.loaded_kernel import LoadedKernel
from zinc_rt.amdgpu.pool import GpuMemory
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.kernels.gpu.calibration import STREAMS, chase, stream
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.gpu_library import gpu_kernels

STEP: Final = 256
"""Bytes from one link of a chain to the next: more than a line, so that no line has two."""
_REPEATED: Final = 3


@dataclass(frozen=True)
class Extent:
    """The extent of a measurement. levels: bytes of a chain that lies in a level, by the name of its latency; stream:
    bytes that are read for the bandwidth, by so many workgroups; dispatches: of a list.
    """

    levels: Mapping[str, int]
    stream: int
    groups: int
    dispatches: int


CARD: Final = Extent(
    {"first_level": 8 << 10, "l2": 2 << 20, "infinity": 24 << 20, "memory_idle": 256 << 20}, 512 << 20, 1024, 256
)
"""For a card: 32 KiB of vector cache, 4 to 8 MiB of L2, 32 to 96 MiB behind it. Takes less than three seconds."""
SMALL: Final = Extent(dict.fromkeys(CARD.levels, 4 << 10), 1 << 18, 16, 4)
"""For the emulator, whose times are its own."""


def measure(
    queue: GpuQueue,
    *,
    cache: CompileCache | None = None,
    notify: Callable[[str], None] | None = None,
    extent: Extent = CARD,
) -> dict[str, float]:
    """Measure a GPU that nobody else uses.

    Args:
        queue: of the GPU; nothing may be running.
        cache: where compiled kernels are kept.
        notify: gets lines worth showing.
        extent: how much.

    Returns:
        Bytes per second of `bandwidth`; seconds of a load that lies in `first_level`, `l2`, `infinity` or `memory_idle`
        (the address included), of a `dispatch` without barrier, of a `barrier` and a `full_barrier` beside the dispatch
        behind it, of a `submission` from the call to its fence.

    A card of whose memory the processor reaches less than is read gives no bandwidth and no latencies.

    Raises:
        DeviceLost: the GPU failed.
        InterfaceError: memory is short.
    """
    isa = queue.gfx.kernel_target
    compiled = gpu_kernels({"chase": Spec(chase), "stream": Spec(stream)}, isa, cache=cache, notify=notify)
    kernels = {name: queue.load_kernel(kernel) for name, kernel in compiled.items()}
    largest = max(extent.stream, *extent.levels.values())
    reached = not queue.device.vram or queue.device.visible_vram > 2 * largest
    largest = largest if reached else STEP
    source = queue.alloc(largest, label="calibration")
    target = queue.alloc(4 * 256 * extent.groups, label="calibration")
    try:
        found: dict[str, float] = {}
        if reached:
            found["bandwidth"] = _bandwidth(queue, kernels["stream"], source, target, extent)
            for name, n_bytes in extent.levels.items():
                found[name] = _latency(queue, kernels["chase"], source, target, n_bytes)
        return found | _launches(queue, kernels["chase"], source, target, extent.dispatches)
    finally:
        for memory in (source, target):
            queue.free(memory)


def _seconds(queue: GpuQueue, commands: CommandList) -> float:
    """The least of some runs, the first one left out: from the call to the fence."""
    found = []
    for _ in range(1 + _REPEATED):
        start = time.perf_counter()
        queue.wait(queue.submit(commands))
        found.append(time.perf_counter() - start)
    return min(found[1:])


def _bandwidth(queue: GpuQueue, kernel: LoadedKernel, source: GpuMemory, target: GpuMemory, extent: Extent) -> float:
    """Bytes per second: all of them against a part, as lists differ."""
    width = 256 * extent.groups
    turns = max(4, extent.stream // (4 * width * STREAMS))

    def run(n: int) -> float:
        return _seconds(queue, CommandList("stream").dispatch(kernel, extent.groups, source, target, n, width))

    # What the shorter one reads is the beginning of the longer one, and so small that it leaves the caches again.
    few = turns // 4
    return 4 * width * STREAMS * (turns - few) / _positive(run(turns) - run(few))


def _latency(queue: GpuQueue, kernel: LoadedKernel, chain: GpuMemory, target: GpuMemory, n_bytes: int) -> float:
    """Seconds of a load of a chain through so many bytes, each line once, in random order."""
    links = n_bytes // STEP
    order = np.random.default_rng(1).permutation(links)
    order = np.roll(order, -int(np.flatnonzero(order == 0)[0]))
    words = np.zeros((links, STEP // 4), np.uint32)
    words[order, :32] = (np.roll(order, -1) * (STEP // 4))[:, None] + np.arange(32)
    queue.write(chain, words)
    n = max(links, 4096) if links > 64 else 16 * links

    def run(steps: int) -> float:
        return _seconds(queue, CommandList("chase").dispatch(kernel, 1, chain, target, steps))

    return _positive(run(n) - run(n // 2)) / (n - n // 2)


def _launches(queue: GpuQueue, kernel: LoadedKernel, chain: GpuMemory, target: GpuMemory, n: int) -> dict[str, float]:
    """Seconds of a dispatch, of barriers beside it, and of a submission."""

    def run(count: int, *barriers: bool) -> float:
        commands = CommandList("launches")
        for _ in range(count):
            commands.dispatch(kernel, 1, chain, target, 0)
            for light in barriers:
                commands.barrier(light=light)
        return _seconds(queue, commands)

    single = run(1)
    plain = _positive(run(n) - single) / (n - 1)
    light, full = (_positive(run(n, kind) - single) / (n - 1) for kind in (True, False))
    return {
        "dispatch": plain,
        "barrier": max(0.0, light - plain),
        "full_barrier": max(0.0, full - light),
        "submission": single,
    }


def _positive(seconds: float) -> float:
    """A difference of times, which noise may have made nothing."""
    return max(seconds, 1e-9)
