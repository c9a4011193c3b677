"""Kernels of the language on Intel's OpenCL driver for processors, at addresses of this process."""

from __future__ import annotations

import struct
from functools import cache
from typing import TYPE_CHECKING

import pytest

from tests import opencl_driver
from tests.cuda.matrix import kernels
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.types import Float, Ptr, Type

if TYPE_CHECKING:
    from zinc_rt.opencl.device import OpenClDevice


@cache
def device() -> OpenClDevice:
    """The processor, with kernels that are built without optimisation. Skips the test without the driver."""
    if opencl_driver.library() is None:
        pytest.skip("pyopencl or intel-opencl-rt is not installed: pip install -e '.[gpu-test]'")
    from zinc_rt.opencl.device import OpenClDevice
    from zinc_rt.opencl.devices import find_cards

    card = next(card for card in find_cards()[0] if card.processor)
    return OpenClDevice(card, cache=CompileCache(default_cache_dir()), options=opencl_driver.QUICKLY, buffers=False)


def run(spec: Spec, groups: tuple[int, int, int], arguments: list[bytes]) -> None:
    """Run a kernel to its end. arguments: as they stand in memory; pointers are addresses of this process."""
    compiled = kernels({spec.symbol: spec}, cache=CompileCache(default_cache_dir()))[spec.symbol]
    values = [_value(a.type, raw) for a, raw in zip(compiled.arguments, arguments, strict=True)]
    here = device()
    commands = here.commands(spec.symbol).dispatch(here.load_kernel(compiled), groups, *values)
    here.wait(here.submit(commands))


def _value(kind: Type, raw: bytes) -> int | float:
    if isinstance(kind, Float):
        return float(struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0])
    return int.from_bytes(raw, "little", signed=not isinstance(kind, Ptr) and getattr(kind, "signed", False))
