"""The NVIDIA GPUs of this machine, and what each lacks."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_int, c_size_t
from dataclasses import dataclass, field
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
from zinc_rt.errors import ZincError
from zinc_rt.lang.machines import WAVE

LEAST_CAPABILITY: Final = (7, 5)
"""The code of target "ptx" is for sm_75 and all later GPUs: LLVM names it so in the text."""
LEAST_DRIVER: Final = 11040
"""CUDA 11.4, the first with all functions of `calls`; PTX 7.0 is older."""
_TEXT_BYTES: Final = 256


@dataclass(frozen=True)
class CudaCard:
    """A GPU. number: in the driver's order, which CUDA_VISIBLE_DEVICES changes; handle: the driver's; memory: bytes;
    capability: compute capability; pci: its address, as "0000:01:00.0"; version: the newest CUDA that the driver knows,
    as 12040 for 12.4; bandwidth: bytes a second by its memory's clock and width, 0 where the driver says none; lacks:
    why kernels cannot run on it, "" where they can; cuda: the
    driver; processor: it is none.
    """

    number: int
    handle: int
    name: str
    memory: int
    capability: tuple[int, int]
    pci: str
    uuid: str
    version: int
    multiprocessors: int
    bandwidth: int
    lacks: str
    cuda: DriverCalls = field(repr=False, compare=False)
    processor: bool = False

    @property
    def driver(self) -> str:
        """The driver's version, for people."""
        return f"CUDA {_version(self.version)}"

    @property
    def refusal(self) -> str:
        """Why the runtime does not use it; empty where it may."""
        return f"{self.name}: {self.lacks}" if self.lacks else ""

    @property
    def target(self) -> str:
        """Of `lang`: the best that the GPU takes."""
        return "ptx80" if self.capability >= (8, 0) else "ptx"

    @property
    def architecture(self) -> str:
        """As NVIDIA's compilers name it."""
        return f"sm_{self.capability[0]}{self.capability[1]}"


def find_cards(cuda: DriverCalls | None = None) -> tuple[list[CudaCard], str]:
    """All GPUs, and why there are none. Never raises. cuda: None to load the driver."""
    try:
        cuda = cuda or load()
        version, count = _begun(cuda), c_int()
        cuda.cuDeviceGetCount(byref(count))
        found = [_card(cuda, number, version) for number in range(count.value)]
    except ZincError as error:
        return [], str(error)
    return found, "" if found else "NVIDIA's driver shows no GPU; look at CUDA_VISIBLE_DEVICES"


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


def _card(cuda: DriverCalls, number: int, version: int) -> CudaCard:
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
    return CudaCard(
        number,
        device,
        text("cuDeviceGetName"),
        memory.value,
        capability,
        text("cuDeviceGetPCIBusId").lower(),
        uuid.raw.hex(),
        version,
        attribute(cuda, device, MULTIPROCESSORS),
        # Two transfers a clock.
        2 * 1000 * attribute(cuda, device, MEMORY_CLOCK_KHZ) * attribute(cuda, device, BUS_BITS) // 8,
        _lack(cuda, device, capability),
        cuda,
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
