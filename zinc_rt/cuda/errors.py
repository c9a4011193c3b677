"""Errors of NVIDIA's driver: the call, the result's name and number, what it means and what helps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from zinc_rt.errors import BackendError, DeviceLost

NOT_READY: Final = 600
_MEMORY: Final = 2
LOST: Final = frozenset({214, 220, 226, 700, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721})
"""Results after which every call of the process fails (the CUresult values of cuda.h): errors of memory and links that
cannot be corrected, and kernels that were stopped.
"""
_UPDATE: Final = "install a newer driver"
REMEDIES: Final[Mapping[int, str]] = {
    _MEMORY: "use a smaller context (-c) or fewer slots, or end programs that hold the card's memory (nvidia-smi)",
    3: "restart the machine, or load the module nvidia_uvm",
    34: "a stub library is found before the driver's own libcuda.so.1: correct LD_LIBRARY_PATH",
    46: "another program has the card for itself (nvidia-smi, compute mode)",
    100: "look at CUDA_VISIBLE_DEVICES, and whether nvidia-smi sees a card",
    101: "choose a number that `zinc check` lists",
    209: _UPDATE,
    218: _UPDATE,
    221: "install libnvidia-ptxjitcompiler.so.1, a part of the driver",
    222: _UPDATE,
    304: "load the module nvidia_uvm, and see that /dev/nvidia* may be opened",
    702: "the card drives a display, whose watchdog stops long kernels; use a card without one",
    801: "use --device cpu",
    802: "start nvidia-fabricmanager",
    803: "restart the machine: the driver's module and its library are of different releases",
    804: "remove the package cuda-compat, or install a newer driver",
    999: "reload the module nvidia_uvm, or restart the machine",
}
_REPORT: Final = "`dmesg` has the driver's own lines (NVRM: Xid)"


class CudaMissing(BackendError):
    """There is no driver, or one that is too old."""


class CudaCallFailed(BackendError):
    """The driver refused a call. call: its name in cuda.h; code: the CUresult; log: of its compiler, "" for none."""

    def __init__(self, call: str, code: int, reason: str, log: str = "") -> None:
        super().__init__(_message(call, code, reason, REMEDIES.get(code, "")) + (f"\n{log}" if log else ""))
        self.call, self.code, self.log = call, code, log


class CudaOutOfMemory(CudaCallFailed):
    """The card, or the system, has too little memory."""


class CudaDeviceLost(DeviceLost):
    """A call says that the GPU, or the process's work on it, is gone. call, code: as of `CudaCallFailed`."""

    def __init__(self, call: str, code: int, reason: str) -> None:
        super().__init__(_message(call, code, reason, REMEDIES.get(code, _REPORT)))
        self.call, self.code = call, code


def failure(call: str, code: int, reason: str, log: str = "") -> BackendError:
    """The error for a result. reason: its name and meaning, as the driver says them."""
    if code in LOST:
        return CudaDeviceLost(call, code, reason)
    return (CudaOutOfMemory if code == _MEMORY else CudaCallFailed)(call, code, reason, log)


def _message(call: str, code: int, reason: str, remedy: str) -> str:
    return f"{call} failed: {reason} ({code}){'; ' + remedy if remedy else ''}"
