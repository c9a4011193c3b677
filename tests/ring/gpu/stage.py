"""Graphs on emulated GPUs, through any door."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from tests.native.both import Case, Outputs, compare, outputs
from tests.ring.door.stage import DOORS, NODE, machine
from zinc_rt.emu.core.core import ShaderCore
from zinc_rt.emu.machine import Machine
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.ring.gpu.ring import AmdRing


@cache
def kernels() -> CompileCache:
    """Where compiled kernels are kept."""
    return CompileCache(default_cache_dir())


@contextmanager
def amd_ring(door: str = "cs", **how: Any) -> Iterator[tuple[AmdRing, Machine]]:
    """A ring on a machine of its own; what it found wrong, leaks too, raises at the end."""
    with (
        machine(**{"shader": ShaderCore(), "time_scale": 100.0, **how}) as made,
        AmdRing(DOORS[door](NODE, linux=made.process()), cache=kernels(), timeout=300.0) as ring,
    ):
        yield ring, made
        ring.gpu.check_integrity()


def check(ring: AmdRing, case: Case, want: Outputs) -> None:
    """The GPU kernels give the reference's bits and touch no row that a step does not have."""
    compare(case, outputs(ring, case), want, "GPU")
