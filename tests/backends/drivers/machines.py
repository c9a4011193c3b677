"""Machines that must give one answer: the CPU, an emulated AMD card, OpenCL's CPU driver, a CUDA driver over that one.

With `pytest --gpu` there is one: the card of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest

from tests import hardware, opencl_driver
from tests.cuda import opencl_cpu
from tests.cuda.fake import FakeCuda
from tests.cuda.stage import fake_cuda
from zinc_rt.backends.gpu import selftest


@contextmanager
def opencl(device: str = "") -> Iterator[str]:
    """OpenCL's CPU driver, where no device of it is named."""
    device = device or f"opencl:{opencl_cpu.device().card.number}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zinc_rt.opencl.device.BUILD_OPTIONS", opencl_driver.QUICKLY)
        yield device


@contextmanager
def cuda() -> Iterator[str]:
    """A fake CUDA driver, strict about its rules."""
    opencl_cpu.device()
    with fake_cuda(FakeCuda()):
        yield "cuda"


@contextmanager
def unproven(machine: Callable[[], AbstractContextManager[str]]) -> Iterator[str]:
    """Without the self-test, which has tests of its own: half of the kernels are built for it alone."""
    with machine() as device, pytest.MonkeyPatch.context() as patch:
        for name in ("prepare", "check_arithmetic", "check_results"):
            patch.setattr(selftest, name, lambda *_: None)
        yield device


MACHINES: Mapping[str, Callable[[], AbstractContextManager[str]]] = (
    {"card": lambda: (opencl if hardware.state["processor"] else nullcontext)(hardware.state["device"])}
    if hardware.state["device"]
    else {
        "cpu": lambda: nullcontext("cpu"),
        "emulated amd": lambda: nullcontext("emu"),
        "opencl": lambda: unproven(opencl),
        "cuda": lambda: unproven(cuda),
    }
)
"""By name; what is entered gives what `--device` takes."""
