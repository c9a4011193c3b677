"""Kernels of the language on Intel's OpenCL driver for processors, at addresses of this process."""

from __future__ import annotations

import os
import struct
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.gpu_library import gpu_kernels
from zinc_rt.lang.types import Float, Ptr, Type

if TYPE_CHECKING:
    from zinc_rt.opencl.device import OpenClDevice


@cache
def device() -> OpenClDevice:
    """The processor. Skips the test where the driver is not installed."""
    found = find_spec("pyopencl")
    if found is None or found.origin is None:
        pytest.skip("pyopencl is not installed")
    driver = Path(found.origin).parents[3] / "libintelocl.so"
    if not driver.exists():
        pytest.skip("intel-opencl-rt is not installed")
    from zinc_rt.opencl.device import OpenClDevice
    from zinc_rt.opencl.devices import find_cards

    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "x.icd").write_text(f"{driver}\n", encoding="utf-8")
        os.environ.setdefault("OCL_ICD_VENDORS", folder)  # read once, when the first platform is asked for
        cards, reason = find_cards()
    processors = [card for card in cards if card.processor and not card.lacks]
    if not processors:
        pytest.skip(f"no OpenCL driver that runs kernels on this processor: {reason}")
    return OpenClDevice(processors[0], cache=CompileCache(default_cache_dir()), buffers=False)


def run(spec: Spec, groups: tuple[int, int, int], arguments: list[bytes]) -> None:
    """Run a kernel to its end. arguments: as they stand in memory; pointers are addresses of this process."""
    compiled = gpu_kernels({spec.symbol: spec}, "spirv", cache=CompileCache(default_cache_dir()))[spec.symbol]
    values = [_value(a.type, raw) for a, raw in zip(compiled.arguments, arguments, strict=True)]
    here = device()
    commands = here.commands(spec.symbol).dispatch(here.load_kernel(compiled), groups, *values)
    here.wait(here.submit(commands))


def _value(kind: Type, raw: bytes) -> int | float:
    if isinstance(kind, Float):
        return float(struct.unpack("<f" if len(raw) == 4 else "<d", raw)[0])
    return int.from_bytes(raw, "little", signed=not isinstance(kind, Ptr) and getattr(kind, "signed", False))
