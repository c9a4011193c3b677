"""Kernels of the language on Intel's OpenCL driver for processors, at addresses of this process."""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import tempfile
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import KERNELS
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.gpu_library import gpu_kernels
from zinc_rt.lang.types import Ptr

SYSTEM_MEMORY = 1 << 2  # CL_DEVICE_SVM_FINE_GRAIN_SYSTEM: kernels reach all of the process's memory


@cache
def opened() -> tuple[Any, Any]:
    """A context and its in-order queue. Skips the test where the driver is not installed."""
    cl = pytest.importorskip("pyopencl")
    driver = next(Path(sys.prefix).glob("lib/libintelocl.so"), None) or next(
        (p for p in (Path(cl.__file__).parents[3] / "libintelocl.so",) if p.exists()), None
    )
    if driver is None:
        pytest.skip("intel-opencl-rt is not installed")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "x.icd").write_text(f"{driver}\n", encoding="utf-8")
        os.environ.setdefault("OCL_ICD_VENDORS", folder)  # read once, when the first platform is asked for
        devices = [d for p in cl.get_platforms() for d in p.get_devices(cl.device_type.CPU) if "Intel" in p.name]
    if not devices or not devices[0].svm_capabilities & SYSTEM_MEMORY:
        pytest.skip("no OpenCL driver for processors whose kernels reach all memory")
    context = cl.Context(devices[:1])
    return context, cl.CommandQueue(context)


def _built(code: bytes) -> Any:
    """The program of a module; the driver's own machine code is kept, since making it takes half a second."""
    import pyopencl as cl

    context, queue = opened()
    device = queue.device
    kept = KERNELS.parent / "opencl" / hashlib.sha256(code + device.driver_version.encode()).hexdigest()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if kept.exists():
            return cl.Program(context, [device], [kept.read_bytes()]).build()
        program = cl.Program(context, code).build(cache_dir=False)
    kept.parent.mkdir(parents=True, exist_ok=True)
    half = kept.with_suffix(f".{os.getpid()}")
    half.write_bytes(program.binaries[0])
    half.replace(kept)
    return program


@cache
def _kernel(symbol: str, code: bytes) -> Any:
    import pyopencl as cl

    return cl.Kernel(_built(code), symbol)


class CpuKernel:
    """A kernel, compiled at the first run."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._made: Any = None

    def run(self, groups: tuple[int, int, int], arguments: list[bytes]) -> None:
        """Run it to its end. arguments: as they stand in memory; pointers are addresses of this process."""
        import pyopencl as cl

        if self._made is None:
            compiled = gpu_kernels({"k": self._spec}, "spirv", cache=CompileCache(default_cache_dir()))["k"]
            self._made = compiled, _kernel(compiled.symbol, compiled.code)
        compiled, made = self._made
        for i, (argument, raw) in enumerate(zip(compiled.arguments, arguments, strict=True)):
            if isinstance(argument.type, Ptr):
                address = int.from_bytes(raw, "little")
                made.set_arg(i, cl.SVM(np.ctypeslib.as_array((ctypes.c_ubyte * 1).from_address(address))))
            else:
                made.set_arg(i, raw)
        size = (groups[0] * compiled.workgroup, groups[1], groups[2])
        cl.enqueue_nd_range_kernel(opened()[1], made, size, (compiled.workgroup, 1, 1)).wait()
