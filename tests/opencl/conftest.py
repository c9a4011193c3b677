"""The device of Intel's driver for processors; without the driver the tests here are skipped."""

from __future__ import annotations

from functools import cache

import pytest

from tests import opencl_driver
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.opencl.devices import OpenClCard, find_cards


@cache
def kernels() -> CompileCache:
    """Where compiled kernels and the driver's programs are kept."""
    return CompileCache(default_cache_dir())


@pytest.fixture(scope="session")
def card() -> OpenClCard:
    """The driver's device."""
    if opencl_driver.library() is None:
        pytest.skip("pyopencl or intel-opencl-rt is not installed: pip install -e '.[gpu-test]'")
    found, reason = find_cards()
    assert not reason
    (only,) = [one for one in found if one.processor]
    return only


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are built without optimisation."""
    if opencl_driver.library() is not None:
        monkeypatch.setattr("zinc_rt.opencl.device.BUILD_OPTIONS", opencl_driver.QUICKLY)
