"""Lists of launches: recorded once, started as often as wanted by one call, in the order of the queue."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final, Self

import numpy as np
import pyopencl as cl

from zinc_rt.errors import BackendError
from zinc_rt.kernels.cpu.launch_all import LAUNCH_WORDS, launch_all
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.native import checked_argument, compile
from zinc_rt.lang.types import Float, Ptr
from zinc_rt.opencl.calls import ENQUEUE, Addresses, check, extension
from zinc_rt.utils.gpu_calls import Groups, checked_groups

_pointer, _size, _int, _uint = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_uint32
_MAX_GROUPS: Final = ((1 << 31) - 1,) * 3  # their numbers are i32 in kernels
_FLAGS: Final = 0x1293  # CL_COMMAND_BUFFER_FLAGS_KHR
_AT_ONCE: Final = 1 << 0  # CL_COMMAND_BUFFER_SIMULTANEOUS_USE_KHR


class LoadedProgram:
    """A kernel that a device has built. make: a new kernel object, whose arguments are its own."""

    def __init__(self, kernel: GpuKernel, program: cl.Program) -> None:
        self.name, self.kernel = kernel.name, kernel
        self._program = program

    def make(self) -> cl.Kernel:
        """A kernel object with arguments of its own."""
        return cl.Kernel(self._program, self.kernel.symbol)


class LaunchList:
    """Launches in order. An in-order queue runs one after the other, so barriers are there by themselves.

    label: for messages; memory: what it names, which must not be freed before its last submission; work: see
    `DispatchList`. Methods raise `BackendError` for what cannot be run, and return the list.
    """

    def __init__(self, label: str, addresses: Addresses) -> None:
        self.label = label
        self.memory: list[Any] = []
        self.work = 0
        self._addresses = addresses
        self._kernels: list[cl.Kernel] = []
        self._words: list[tuple[int, ...]] = []
        self.names: list[str] = []
        """Of the kernels, in order."""

    def __len__(self) -> int:
        return len(self._kernels)

    @property
    def kernels(self) -> list[cl.Kernel]:
        """The kernel objects, in order."""
        return self._kernels

    @property
    def launches(self) -> np.ndarray[Any, np.dtype[np.uint64]]:
        """u64[launches, LAUNCH_WORDS]: what `launch_all` reads."""
        return np.array(self._words, np.uint64).reshape(-1, LAUNCH_WORDS)

    def dispatch(self, program: LoadedProgram, groups: Groups, /, *arguments: Any) -> Self:
        """See `DispatchList.dispatch`."""
        compiled = program.kernel
        x, y, z = checked_groups(program.name, groups, _MAX_GROUPS)
        if len(arguments) != len(compiled.arguments):
            raise BackendError(f"{program.name} takes {len(compiled.arguments)} arguments, got {len(arguments)}")
        kernel = program.make()
        for number, (argument, value) in enumerate(zip(compiled.arguments, arguments, strict=True)):
            value = checked_argument(program.name, argument.name, argument.type, getattr(value, "va", value))
            if isinstance(argument.type, Ptr):
                code = self._addresses.set_argument(kernel.int_ptr, number, value or 0)
                check(code, f"{program.name}: setting {argument.name}")
            else:
                kernel.set_arg(number, _scalar(argument.type, value))
        self._kernels.append(kernel)
        self.names.append(program.name)
        self._words.append((kernel.int_ptr, x * compiled.workgroup, y, z, compiled.workgroup, 1, 1))
        return self

    def barrier(self, *, light: bool = False) -> Self:
        """See `DispatchList.barrier`."""
        return self


def _scalar(kind: Any, value: Any) -> np.generic:
    if isinstance(kind, Float):
        return np.float32(value) if kind.bits == 32 else np.float64(value)
    made: np.generic = np.dtype(f"{'i' if kind.signed else 'u'}{kind.size}").type(value)
    return made


def starter(
    device: cl.Device, queue: cl.CommandQueue, cache: CompileCache | None, *, buffers: bool
) -> Callable[[LaunchList], Callable[[], None]]:
    """What makes a function of a list that starts it. buffers: by a command buffer of the driver, otherwise by a
    compiled loop over its launches.
    """
    if buffers:
        calls = _CommandBuffers(device, queue)
        return calls.starts
    loop = compile(launch_all, cache=cache if cache is not None else CompileCache(None))

    def of(commands: LaunchList) -> Callable[[], None]:
        launches = commands.launches

        def start() -> None:
            check(loop(launches, len(launches), queue.int_ptr, ENQUEUE), commands.label)

        return start

    return of


class _CommandBuffers:
    """Command buffers of cl_khr_command_buffer."""

    def __init__(self, device: cl.Device, queue: cl.CommandQueue) -> None:
        self._queue = (_pointer * 1)(queue.int_ptr)
        self._held = queue, queue.context  # a buffer that outlives them cannot be released
        code = ctypes.POINTER(_int)
        many, one = ctypes.POINTER(_pointer), _pointer
        self._create = extension(device, "clCreateCommandBufferKHR", _pointer, _uint, many, one, code)
        self._launch = extension(
            device, "clCommandNDRangeKernelKHR", _int, one, one, one, one, _uint, one, one, one, _uint, one, one, one
        )
        self._finalize = extension(device, "clFinalizeCommandBufferKHR", _int, one)
        self._enqueue = extension(device, "clEnqueueCommandBufferKHR", _int, _uint, many, one, _uint, one, one)
        self._release = extension(device, "clReleaseCommandBufferKHR", _int, one)

    def starts(self, commands: LaunchList) -> Callable[[], None]:
        """The function that starts a list."""
        code = _int()
        flags = (ctypes.c_uint64 * 3)(_FLAGS, _AT_ONCE, 0)
        buffer = self._create(1, self._queue, flags, ctypes.byref(code))
        check(code.value, f"{commands.label}: a command buffer")
        launches = commands.launches
        for row in launches:
            sizes = row.ctypes.data
            code = self._launch(buffer, None, None, int(row[0]), 3, None, sizes + 8, sizes + 32, 0, None, None, None)
            check(code, f"{commands.label}: recording a launch")
        check(self._finalize(buffer), f"{commands.label}: a command buffer")
        return _Started(self, commands.label, buffer)


class _Started:
    """Starts a command buffer, and releases it with itself."""

    def __init__(self, calls: _CommandBuffers, label: str, buffer: int) -> None:
        self._calls, self._label, self._buffer = calls, label, buffer

    def __call__(self) -> None:
        check(self._calls._enqueue(1, self._calls._queue, self._buffer, 0, None, None), self._label)

    def __del__(self) -> None:
        self._calls._release(self._buffer)
