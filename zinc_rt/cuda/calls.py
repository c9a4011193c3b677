"""The functions of libcuda.so.1 that are used here, with their C types: no more than a C program would call.

`DriverCalls` has them under their names in cuda.h (CUDA 11.4 and later). A suffix as `_v2` is part of the name in the
library: it stands for the form of the arguments, and a driver keeps all old forms.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any, Final

from zinc_rt.cuda.errors import NOT_READY, CudaMissing, failure

LIBRARY: Final = "libcuda.so.1"
# Numbers of cuda.h.
MULTIPROCESSORS, EXEC_TIMEOUT, MEMORY_CLOCK_KHZ, BUS_BITS = 16, 17, 36, 37  # CUdevice_attribute
MAJOR, MINOR, UNIFIED, WARP, COMPUTE_MODE = 75, 76, 41, 10, 20
PROHIBITED: Final = 2  # CUcomputemode
SHARED_BYTES, LOCAL_BYTES, REGISTERS, THREADS = 1, 3, 4, 0  # CUfunction_attribute
INPUT_PTX: Final = 1  # CUjitInputType
ERROR_LOG, ERROR_LOG_BYTES = 5, 6  # CUjit_option
NON_BLOCKING: Final = 1  # CUstream_flags: beside the default stream
TIMED, UNTIMED = 0, 2  # CUevent_flags
MAPPED: Final = 2  # CU_MEMHOSTREGISTER_DEVICEMAP


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v1."""

    _fields_ = (
        ("func", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared", c_uint),
        ("parameters", POINTER(c_void_p)),
        ("extra", POINTER(c_void_p)),
    )


_PTR, _DEVICEPTR, _DEVICE = c_void_p, c_uint64, c_int
_HANDLE, _INT, _SIZE, _ADDRESS = POINTER(c_void_p), POINTER(c_int), POINTER(c_size_t), POINTER(c_uint64)
_OPTIONS: Final = (c_uint, POINTER(c_int), POINTER(c_void_p))
NAMES: Final[Mapping[str, tuple[Any, ...]]] = {
    "cuGetErrorName": (c_int, POINTER(c_char_p)),
    "cuGetErrorString": (c_int, POINTER(c_char_p)),
}
SIGNATURES: Final[Mapping[str, tuple[Any, ...]]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_INT,),
    "cuDeviceGetCount": (_INT,),
    "cuDeviceGet": (_INT, c_int),
    "cuDeviceGetName": (c_char_p, c_int, _DEVICE),
    "cuDeviceGetAttribute": (_INT, c_int, _DEVICE),
    "cuDeviceTotalMem_v2": (_SIZE, _DEVICE),
    "cuDeviceGetUuid_v2": (c_char_p, _DEVICE),
    "cuDeviceGetPCIBusId": (c_char_p, c_int, _DEVICE),
    "cuDevicePrimaryCtxRetain": (_HANDLE, _DEVICE),
    "cuDevicePrimaryCtxRelease_v2": (_DEVICE,),
    "cuCtxSetCurrent": (_PTR,),
    "cuMemGetInfo_v2": (_SIZE, _SIZE),
    "cuMemAlloc_v2": (_ADDRESS, c_size_t),
    "cuMemFree_v2": (_DEVICEPTR,),
    "cuMemHostRegister_v2": (_PTR, c_size_t, c_uint),
    "cuMemHostGetDevicePointer_v2": (_ADDRESS, _PTR, c_uint),
    "cuMemHostUnregister": (_PTR,),
    "cuMemcpyHtoDAsync_v2": (_DEVICEPTR, _PTR, c_size_t, _PTR),
    "cuMemcpyDtoHAsync_v2": (_PTR, _DEVICEPTR, c_size_t, _PTR),
    "cuLinkCreate_v2": (*_OPTIONS, _HANDLE),
    "cuLinkAddData_v2": (_PTR, c_int, _PTR, c_size_t, c_char_p, *_OPTIONS),
    "cuLinkComplete": (_PTR, _HANDLE, _SIZE),
    "cuLinkDestroy": (_PTR,),
    "cuModuleLoadData": (_HANDLE, _PTR),
    "cuModuleUnload": (_PTR,),
    "cuModuleGetFunction": (_HANDLE, _PTR, c_char_p),
    "cuFuncGetAttribute": (_INT, c_int, _PTR),
    "cuStreamCreate": (_HANDLE, c_uint),
    "cuStreamDestroy_v2": (_PTR,),
    "cuEventCreate": (_HANDLE, c_uint),
    "cuEventRecord": (_PTR, _PTR),
    "cuEventQuery": (_PTR,),
    "cuEventElapsedTime": (POINTER(c_float), _PTR, _PTR),
    "cuEventDestroy_v2": (_PTR,),
    "cuLaunchKernel": (_PTR, *[c_uint] * 7, _PTR, POINTER(c_void_p), POINTER(c_void_p)),
    "cuGraphCreate": (_HANDLE, c_uint),
    "cuGraphAddKernelNode": (_HANDLE, _PTR, POINTER(c_void_p), c_size_t, POINTER(KernelNode)),
    "cuGraphAddEmptyNode": (_HANDLE, _PTR, POINTER(c_void_p), c_size_t),
    "cuGraphInstantiateWithFlags": (_HANDLE, _PTR, c_uint64),
    "cuGraphDestroy": (_PTR,),
    "cuGraphLaunch": (_PTR, _PTR),
    "cuGraphExecDestroy": (_PTR,),
}
"""Arguments of each function; all return a CUresult."""
UUID_BYTES: Final = 16


class DriverCalls:
    """The functions as attributes, by their names. Each returns True, or False for "not ready yet"; raises
    `CudaCallFailed`, `CudaOutOfMemory` or `CudaDeviceLost` for other results.
    """

    def __init__(self, find: Callable[[str, tuple[Any, ...]], Any]) -> None:
        """find: gives the function of a name, with these types of arguments. Raises `CudaMissing` for none."""
        self._names = [find(name, types) for name, types in NAMES.items()]
        for name, types in SIGNATURES.items():
            function = find(name, types)
            function.errcheck = self._checked(name)
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"{name} is not among the functions of {LIBRARY} that are used here")

    def reason(self, code: int) -> str:
        """The name and the meaning of a result, as the driver says them."""
        texts = []
        for function in self._names:
            text = c_char_p()
            found = function(code, ctypes.byref(text)) == 0 and text.value is not None
            texts.append((text.value or b"").decode(errors="replace") if found else "")
        return f"{texts[0]}: {texts[1]}" if texts[1] else texts[0] or "an unknown result"

    def _checked(self, name: str) -> Callable[[int, Any, tuple[Any, ...]], bool]:
        def check(code: int, _: Any, __: tuple[Any, ...]) -> bool:
            if code == 0:
                return True
            if code == NOT_READY and name == "cuEventQuery":
                return False
            raise failure(name, code, self.reason(code))

        return check


def load(library: str = LIBRARY) -> DriverCalls:
    """The driver's functions. Raises `CudaMissing` where there is no driver, or one from before CUDA 11.4."""
    try:
        loaded = ctypes.CDLL(library)
    except OSError as error:
        raise CudaMissing(f"NVIDIA's driver is not installed here: {error}") from None

    def find(name: str, types: tuple[Any, ...]) -> Any:
        try:
            function = loaded[name]  # an object of its own, which nobody else changes
        except AttributeError:
            problem = f"{library} has no {name}: the driver is from before CUDA 11.4; install a newer one"
            raise CudaMissing(problem) from None
        function.argtypes, function.restype = types, c_int
        return function

    return DriverCalls(find)


def attribute(cuda: DriverCalls, device: int, number: int) -> int:
    """A device's attribute. Raises as `DriverCalls`."""
    value = c_int()
    cuda.cuDeviceGetAttribute(ctypes.byref(value), number, device)
    return value.value
