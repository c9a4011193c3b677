"""CUDA's backend over the fake driver."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from tests.cuda import fake
from tests.cuda.fake import FakeCuda
from zinc_rt.backends.cuda import CudaBackend
from zinc_rt.backends.gpu import backend as gpu_backend
from zinc_rt.backends.gpu import selftest
from zinc_rt.cuda.devices import find_cards
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
def cuda_backend(made: FakeCuda | None = None, **options: Any) -> Iterator[tuple[CudaBackend, FakeCuda]]:
    """A backend; rules that it broke, leaks too, fail the test at the end."""
    made = made or FakeCuda()
    with pytest.MonkeyPatch.context() as patch:
        for module in (gpu_backend, selftest):
            patch.setattr(module, "gpu_kernels", ptx)
        try:
            with CudaBackend(find_cards(made.calls())[0][0], cache=kept(), **options) as backend:
                yield backend, made
        finally:
            assert made.findings == [], made.findings
    assert made.leaks() == []
