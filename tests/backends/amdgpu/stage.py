"""Graphs on emulated GPUs, through any interface."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.machine import Machine
from tests.amdgpu.queue.stage import INTERFACES, NODE, machine
from tests.backends.cpu.both import Case, Outputs, compare, outputs
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.lang.cache import CompileCache, default_cache_dir


@cache
def kernels() -> CompileCache:
    """Where compiled kernels are kept."""
    return CompileCache(default_cache_dir())


@contextmanager
def amd_backend(interface: str = "cs", **how: Any) -> Iterator[tuple[AmdBackend, Machine]]:
    """A backend on a machine of its own; what it found wrong, leaks too, raises at the end."""
    with (
        machine(**{"shader": ShaderCore(), "time_scale": 100.0, **how}) as made,
        AmdBackend(INTERFACES[interface](NODE, linux=made.process()), cache=kernels(), timeout=300.0) as backend,
    ):
        yield backend, made
        backend.gpu.check_integrity()


def check(backend: AmdBackend, case: Case, want: Outputs) -> None:
    """The GPU kernels give the reference's bits and touch no row that a step does not have."""
    compare(case, outputs(backend, case), want, "GPU")
