"""Pieces of GPU memory brought to the host and back, by way of system memory that both reach."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np

from zinc_rt.backends.base import Bytes
from zinc_rt.backends.gpu.device import DeviceKernel, DeviceMemory, GpuDevice, HostUse

_STAGING: Final = 16 << 20
"""Bytes that go at once, at least one piece."""


def fetch(gpu: GpuDevice, move: DeviceKernel, places: Sequence[int], size: int) -> Bytes:
    """u8[len(places), size]: what lies at addresses. size: a multiple of 4; move: the program of `elementwise.move`.

    Raises what `GpuDevice.submit` and `wait` raise.
    """
    out = np.empty((len(places), size), np.uint8)
    for first, some, staging in _parts(gpu, places, size, "reads"):
        commands = gpu.commands("fetch")
        for at, place in enumerate(some):
            commands.dispatch(move, -(-size // 4 // 1024), place, staging.va + at * size, size // 4)
        gpu.wait(gpu.submit(commands))
        got = np.frombuffer(gpu.read(staging, size * len(some)), np.uint8)
        out[first : first + len(some)] = got.reshape(len(some), size)
    return out


def store(gpu: GpuDevice, move: DeviceKernel, places: Sequence[int], contents: Bytes) -> None:
    """Put u8[len(places), size] to addresses. Raises what `fetch` raises."""
    size = contents.shape[1]
    for first, some, staging in _parts(gpu, places, size, "writes"):
        gpu.write(staging, np.ascontiguousarray(contents[first : first + len(some)]).reshape(-1))
        commands = gpu.commands("store")
        for at, place in enumerate(some):
            commands.dispatch(move, -(-size // 4 // 1024), staging.va + at * size, place, size // 4)
        gpu.wait(gpu.submit(commands))


def _parts(
    gpu: GpuDevice, places: Sequence[int], size: int, use: HostUse
) -> Iterator[tuple[int, Sequence[int], DeviceMemory]]:
    """Places in lots that fit the staging memory: the index of the first, the places, the memory."""
    lot = max(1, _STAGING // size)
    staging = gpu.alloc(size * min(lot, max(1, len(places))), heap="gtt", use=use, label="staging")
    try:
        for first in range(0, len(places), lot):
            yield first, places[first : first + lot], staging
    finally:
        gpu.free(staging)
