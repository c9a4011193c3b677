"""CUDA's backend over the fake driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.cuda import fake
from tests.cuda.fake import FakeCuda
from tests.helpers import engine_for
from zinc_rt.backends.cuda import CudaBackend
from zinc_rt.backends.gpu import backend as gpu_backend
from zinc_rt.backends.gpu import selftest
from zinc_rt.cuda import devices
from zinc_rt.cuda.devices import find_cards
from zinc_rt.engine import engine as engine_module
from zinc_rt.engine.engine import Device, Engine
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.gpu_library import gpu_kernels


@cache
def kept() -> CompileCache:
    """Where compiled kernels are kept."""
    return CompileCache(default_cache_dir())


def ptx(specs: Mapping[str, Spec], target: str = "ptx80", **options: Any) -> dict[str, GpuKernel]:
    """As `gpu_kernels`, and the fake knows what they do."""
    fake.SPECS.update({spec.symbol: spec for spec in specs.values()})
    return gpu_kernels(specs, target, **{"cache": kept(), **options})


@contextmanager
def fake_cuda(made: FakeCuda) -> Iterator[None]:
    """The fake is this machine's driver; rules that were broken, leaks too, fail the test at the end."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (gpu_backend, selftest):
            patch.setattr(module, "gpu_kernels", ptx)
        patch.setattr(devices, "find_cards", lambda: find_cards(made.calls()))
        try:
            yield
        finally:
            assert made.findings == [], made.findings
    assert made.leaks() == []


@contextmanager
def cuda_backend(made: FakeCuda | None = None, **options: Any) -> Iterator[tuple[CudaBackend, FakeCuda]]:
    """A backend on it, see `fake_cuda`."""
    made = made or FakeCuda()
    with fake_cuda(made), CudaBackend(devices.find_cards()[0][0], cache=kept(), **options) as backend:
        yield backend, made


@contextmanager
def cuda_engine(path: Path, **options: Any) -> Iterator[tuple[Engine, FakeCuda]]:
    """An engine with a model on a fake card."""
    with cuda_backend() as (backend, fake), pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "open_backend", lambda *args, **how: (Device.cuda, backend))
        with engine_for(path, **options) as engine:
            yield engine, fake
