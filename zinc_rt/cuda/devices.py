"""The NVIDIA GPUs of this machine, and what each lacks."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t
from dataclasses import dataclass
from typing import Final

from zinc_rt.cuda.calls import (
    BUS_BITS,
    COMPUTE_MODE,
    MAJOR,
    MEMORY_CLOCK_KHZ,
    MINOR,
    MULTIPROCESSORS,
    PROHIBITED,
    UNIFIED,
    UUID_BYTES,
    WARP,
    DriverCalls,
    attribute,
    load,
)
from zinc_rt.cuda.errors import CudaMissing
from zinc_rt.errors import BackendError, ZincError
from zinc_rt.lang.machines import WAVE

LEAST_CAPABILITY: Final = (7, 5)
"""The code of target "ptx" is for sm_75 and all later GPUs: LLVM names it so in the text."""
LEAST_DRIVER: Final = 11040
"""CUDA 11.4, the first with all functions of `calls`; PTX 7.0 is older."""
_TEXT_BYTES: Final = 256


@dataclass(frozen=True)
class CudaGpu:
    """One GPU. number: in the driver's order, which CUDA_VISIBLE_DEVICES changes; handle: the driver's; memory: bytes;
    capability: compute capability; pci: its address, as "0000:01:00.0"; driver: the newest CUDA that the driver knows,
    as 12040 for 12.4; bandwidth: bytes a second by its memory's clock and width, 0 where the driver says none; lacks:
    why kernels cannot run on it, "" where they can.
    """

    number: int
    handle: int
    name: str
    memory: int
    capability: tuple[int, int]
    pci: str
    uuid: str
    driver: int
    multiprocessors: int
    bandwidth: int
    lacks: str

    @property
    def architecture(self) -> str:
        """As NVIDIA's compilers name it."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


def cuda_gpus(cuda: DriverCalls | None = None) -> tuple[list[CudaGpu], str]:
    """All GPUs, and why there is none, "" where there is one. Never raises. cuda: None to load the driver."""
    try:
        cuda = cuda or load()
        driver = _begun(cuda)
        count = c_int()
        cuda.cuDeviceGetCount(byref(count))
        found = [_described(cuda, number, driver) for number in range(count.value)]
    except ZincError as error:
        return [], str(error)
    return found, "" if found else "NVIDIA's driver sees no GPU; look at CUDA_VISIBLE_DEVICES"


def cuda_gpu(number: int, cuda: DriverCalls | None = None) -> tuple[DriverCalls, CudaGpu]:
    """The driver and one GPU that kernels run on. Raises `CudaMissing`, `CudaCallFailed`, and `BackendError` for a GPU
    that lacks something.
    """
    cuda = cuda or load()
    found = _described(cuda, number, _begun(cuda))
    if found.lacks:
        raise BackendError(f"cuda:{number}, {found.name}: {found.lacks}")
    return cuda, found


def _begun(cuda: DriverCalls) -> int:
    """Start the driver; its version."""
    version = c_int()
    cuda.cuInit(0)
    cuda.cuDriverGetVersion(byref(version))
    if version.value < LEAST_DRIVER:
        raise CudaMissing(
            f"NVIDIA's driver knows CUDA {_version(version.value)}; {_version(LEAST_DRIVER)} is needed: install a newer"
            " driver"
        )
    return version.value


def _described(cuda: DriverCalls, number: int, driver: int) -> CudaGpu:
    handle, memory = c_int(), c_size_t()
    cuda.cuDeviceGet(byref(handle), number)
    device = handle.value

    def text(call: str) -> str:
        buffer = ctypes.create_string_buffer(_TEXT_BYTES)
        getattr(cuda, call)(buffer, _TEXT_BYTES, device)
        return buffer.value.decode(errors="replace")

    cuda.cuDeviceTotalMem_v2(byref(memory), device)
    uuid = ctypes.create_string_buffer(UUID_BYTES)
    cuda.cuDeviceGetUuid_v2(uuid, device)
    capability = attribute(cuda, device, MAJOR), attribute(cuda, device, MINOR)
    return CudaGpu(
        number,
        device,
        text("cuDeviceGetName"),
        memory.value,
        capability,
        text("cuDeviceGetPCIBusId").lower(),
        uuid.raw.hex(),
        driver,
        attribute(cuda, device, MULTIPROCESSORS),
        # Two transfers a clock.
        2 * 1000 * attribute(cuda, device, MEMORY_CLOCK_KHZ) * attribute(cuda, device, BUS_BITS) // 8,
        _lack(cuda, device, capability),
    )


def _lack(cuda: DriverCalls, device: int, capability: tuple[int, int]) -> str:
    if capability < LEAST_CAPABILITY:
        had, least = (".".join(map(str, c)) for c in (capability, LEAST_CAPABILITY))
        return f"it has compute capability {had}; kernels are for {least} and later, GPUs of 2018 (Turing) and newer"
    if attribute(cuda, device, WARP) != WAVE:
        return f"its warps have {attribute(cuda, device, WARP)} lanes, kernels need {WAVE}"
    if not attribute(cuda, device, UNIFIED):
        return "it has no unified addresses"
    if attribute(cuda, device, COMPUTE_MODE) == PROHIBITED:
        return "its compute mode is prohibited; `nvidia-smi -c DEFAULT` allows programs again"
    return ""


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
