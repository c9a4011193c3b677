"""The calls that pyopencl does not offer, or offers slowly, through the loader that it has brought: kernels whose
arguments are addresses, launch after launch without Python in between, command buffers, ends of work, unified memory of
Intel's extension.

Numbers and signatures are those of OpenCL's headers (cl.h, cl_ext.h).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, Final, Protocol

import pyopencl as cl

from zinc_rt.errors import BackendError, DeviceLost

_SUB_GROUP_SIZES: Final = 0x4108
_SVM_FINE_GRAIN: Final = 1 << 10
_READ_WRITE: Final = 1 << 0
_EXEC_SVM_POINTERS: Final = 0x11B6
_EXEC_INDIRECT: Final = (0x4200, 0x4201, 0x4202)  # host, device, shared memory of the extension
_EXECUTION_STATUS: Final = 0x11D3  # CL_EVENT_COMMAND_EXECUTION_STATUS; above 0: it has not ended
_ALIGNMENT: Final = 256
_GONE: Final = frozenset({-2, -5, -14, -36, -9999})
"""DEVICE_NOT_AVAILABLE, OUT_OF_RESOURCES, an event that ended in an error, INVALID_COMMAND_QUEUE, and what drivers say
of a hang: nothing more can be asked of the device.
"""

_library = ctypes.CDLL(cl._cl.__file__)
_pointer, _size, _int, _uint = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_uint32


def _core(name: str, returns: Any, *arguments: Any) -> Any:
    function = getattr(_library, name)
    function.restype, function.argtypes = returns, arguments
    return function


_get_device_info = _core("clGetDeviceInfo", _int, _pointer, _uint, _size, _pointer, _pointer)
_extension = _core("clGetExtensionFunctionAddressForPlatform", _pointer, _pointer, ctypes.c_char_p)
_svm_alloc = _core("clSVMAlloc", _pointer, _pointer, ctypes.c_uint64, _size, _uint)
_svm_free = _core("clSVMFree", None, _pointer, _pointer)
_set_svm = _core("clSetKernelArgSVMPointer", _int, _pointer, _uint, _pointer)
_set_exec_info = _core("clSetKernelExecInfo", _int, _pointer, _uint, _size, _pointer)
_wait = _core("clWaitForEvents", _int, _uint, _pointer)
_marker = _core("clEnqueueMarkerWithWaitList", _int, _pointer, _uint, _pointer, _pointer)
_flush = _core("clFlush", _int, _pointer)
_get_event_info = _core("clGetEventInfo", _int, _pointer, _uint, _size, _pointer, _pointer)
_release_event = _core("clReleaseEvent", _int, _pointer)
ENQUEUE: Final = ctypes.cast(_library.clEnqueueNDRangeKernel, _pointer).value or 0
"""The address of clEnqueueNDRangeKernel."""


def check(code: int, action: str) -> None:
    """Raises `DeviceLost` or `BackendError` for an error code."""
    if code in _GONE:
        raise DeviceLost(f"{action}: {error_name(code)}; the OpenCL device does not answer any more")
    if code:
        raise BackendError(f"{action}: {error_name(code)}")


def error_name(code: int) -> str:
    """An error code as OpenCL's headers call it."""
    try:
        return str(cl.status_code.to_string(code))
    except (ValueError, AttributeError):
        return f"error {code}"


def sub_group_sizes(device: cl.Device) -> list[int]:
    """Sizes of sub-groups that kernels may ask for (cl_intel_required_subgroup_size); none where that is unknown."""
    sizes, length = (_size * 16)(), _size()
    code = _get_device_info(device.int_ptr, _SUB_GROUP_SIZES, ctypes.sizeof(sizes), sizes, ctypes.byref(length))
    return [] if code else list(sizes[: length.value // ctypes.sizeof(_size)])


def extension(device: cl.Device, name: str, returns: Any, *arguments: Any) -> Any:
    """A function of an extension. Raises `BackendError` where the driver does not have it."""
    address = _extension(device.platform.int_ptr, name.encode())
    if not address:
        raise BackendError(f"{device.platform.name} promises {name} and does not have it; update the driver")
    return ctypes.CFUNCTYPE(returns, *arguments)(address)


class QueueEnd:
    """The end of all that is in an in-order queue now, which begins to run. label: for messages. Raises as `check`."""

    def __init__(self, queue: int, label: str) -> None:
        self._event, self._status, self._label = _pointer(), _int(), label
        self._at, self._where = ctypes.byref(self._event), ctypes.byref(self._status)
        check(_marker(queue, 0, None, self._at), label)
        check(_flush(queue), label)

    def reached(self) -> bool:
        """Whether it has come, also by an error. Raises as `check`."""
        check(_get_event_info(self._event, _EXECUTION_STATUS, 4, self._where, None), self._label)
        return self._status.value <= 0

    def result(self) -> int:
        """Once it is reached: the error code. What was written is seen from then on."""
        return int(_wait(1, self._at))

    def __del__(self, release: Any = _release_event) -> None:  # held here: at exit modules go before their objects
        if self._event:
            release(self._event)


class Addresses(Protocol):
    """Memory of a device whose addresses kernels take."""

    host: bool
    """Whether the processor reads and writes all of it."""

    def allocate(self, n_bytes: int, *, host: bool) -> int:
        """Its address, 0 where there is none left. host: whether the processor must reach it."""

    def free(self, address: int) -> None:
        """Give it back; nothing that runs may use it."""

    def set_argument(self, kernel: int, number: int, address: int) -> int:
        """Set a pointer argument of a kernel: an error code."""

    def allow(self, kernel: int, addresses: Sequence[int]) -> int:
        """Let a kernel follow pointers to these pieces that it finds in memory: an error code."""


class SharedMemory:
    """Fine-grained shared virtual memory, of OpenCL itself."""

    host = True

    def __init__(self, context: cl.Context) -> None:
        self._context = context.int_ptr

    def allocate(self, n_bytes: int, *, host: bool) -> int:
        """See `Addresses.allocate`."""
        return _svm_alloc(self._context, _READ_WRITE | _SVM_FINE_GRAIN, n_bytes, _ALIGNMENT) or 0

    def free(self, address: int) -> None:
        """See `Addresses.free`."""
        _svm_free(self._context, address)

    def set_argument(self, kernel: int, number: int, address: int) -> int:
        """See `Addresses.set_argument`."""
        return int(_set_svm(kernel, number, address))

    def allow(self, kernel: int, addresses: Sequence[int]) -> int:
        """See `Addresses.allow`."""
        pieces = (_pointer * len(addresses))(*addresses)
        return int(_set_exec_info(kernel, _EXEC_SVM_POINTERS, ctypes.sizeof(pieces), pieces))


class UnifiedMemory:
    """Memory of cl_intel_unified_shared_memory: of the device, or of the host where both reach it."""

    def __init__(self, context: cl.Context, device: cl.Device) -> None:
        self._context, self._device = context.int_ptr, device.int_ptr
        self.host = bool(device.host_unified_memory)
        code = ctypes.POINTER(_int)
        self._of_host = extension(device, "clHostMemAllocINTEL", _pointer, _pointer, _pointer, _size, _uint, code)
        self._of_device = extension(
            device, "clDeviceMemAllocINTEL", _pointer, _pointer, _pointer, _pointer, _size, _uint, code
        )
        self._free = extension(device, "clMemBlockingFreeINTEL", _int, _pointer, _pointer)
        self._set = extension(device, "clSetKernelArgMemPointerINTEL", _int, _pointer, _uint, _pointer)

    def allocate(self, n_bytes: int, *, host: bool) -> int:
        """See `Addresses.allocate`."""
        code = _int()
        given = n_bytes, _ALIGNMENT, ctypes.byref(code)
        if host or self.host:
            return self._of_host(self._context, None, *given) or 0
        return self._of_device(self._context, self._device, None, *given) or 0

    def free(self, address: int) -> None:
        """See `Addresses.free`."""
        self._free(self._context, address)

    def set_argument(self, kernel: int, number: int, address: int) -> int:
        """See `Addresses.set_argument`."""
        return int(self._set(kernel, number, address))

    def allow(self, kernel: int, addresses: Sequence[int]) -> int:
        """See `Addresses.allow`. The extension knows kinds of memory, not pieces."""
        true = _uint(1)
        codes = (_set_exec_info(kernel, kind, ctypes.sizeof(true), ctypes.byref(true)) for kind in _EXEC_INDIRECT)
        return next((int(code) for code in codes if code), 0)
