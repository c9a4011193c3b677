"""`OpenClDevice`: an OpenCL device as graphs want it: memory with addresses, kernels, launch lists, fences."""

from __future__ import annotations

import ctypes
import sys
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Literal
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
import pyopencl as cl

from zinc_rt.errors import BackendError, DeviceLost, FenceTimeout
from zinc_rt.lang.cache import CompileCache, cache_key
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.image import Image
from zinc_rt.lang.launch import LaunchTime
from zinc_rt.opencl.calls import Addresses, QueueEnd, SharedMemory, UnifiedMemory, check
from zinc_rt.opencl.devices import COMMAND_BUFFER, UNIFIED, OpenClCard
from zinc_rt.opencl.launches import LaunchList, LoadedProgram, starter
from zinc_rt.utils.gpu_calls import bytes_of, checked_span, ended_within

Bytes = npt.NDArray[np.uint8]
TIMEOUT: Final = 10.0
"""Seconds that a step of up to 64 rows may take on a GPU."""
_PROCESSOR_TIMEOUT: Final = 600.0
_ALIGNMENT: Final = 256
_LOG_LINES: Final = 3
BUILD_OPTIONS = ""
"""Of the driver's compiler, where nothing else is said: none, which relax what the kernels rely on."""


@dataclass(eq=False)
class OpenClMemory:
    """A piece of memory; host: whether the processor reaches it."""

    va: int
    size: int
    label: str
    host: bool
    freed: bool = False


@dataclass(eq=False)
class LaunchFence:
    """The end of a submission. code: of an error, 0 for none; None until it was waited for."""

    end: QueueEnd
    label: str
    code: int | None = None


class OpenClDevice:
    """One device with one in-order queue.

    Args:
        card: the device, which must lack nothing.
        cache: where built programs are kept, None for nowhere.
        options: of the driver's compiler.
        buffers: whether lists are command buffers; None: where the driver has them.

    Raises `BackendError` for what the driver refuses.
    """

    at_once = None
    host_use: Literal["writes", "reads", "polls"] = "writes"

    def __init__(
        self,
        card: OpenClCard,
        *,
        cache: CompileCache | None = None,
        options: str | None = None,
        buffers: bool | None = None,
    ) -> None:
        if card.lacks:
            raise BackendError(f"{card.refusal}: kernels cannot run there")
        self.card, self._cache, self._options = card, cache, BUILD_OPTIONS if options is None else options
        self.timeout = _PROCESSOR_TIMEOUT if card.processor else TIMEOUT
        try:
            self._context = cl.Context([card.device])
            self._queue = cl.CommandQueue(self._context, card.device)
        except cl.Error as error:
            raise BackendError(f"{card.name} cannot be opened: {error}") from error
        has = card.device.extensions.split()
        self._addresses: Addresses = (
            UnifiedMemory(self._context, card.device) if UNIFIED in has else SharedMemory(self._context)
        )
        by_buffers = COMMAND_BUFFER in has if buffers is None else buffers
        self._starter = starter(card.device, self._queue, cache, buffers=by_buffers)
        self._starts: WeakKeyDictionary[LaunchList, tuple[int, Callable[[], None]]] = WeakKeyDictionary()
        self._programs: dict[tuple[str, bytes], LoadedProgram] = {}
        self._pieces: dict[int, OpenClMemory] = {}
        self._last: LaunchFence | None = None
        self._timing: cl.CommandQueue | None = None
        self._times: list[LaunchTime] = []
        self._lost: DeviceLost | None = None

    @property
    def kernel_target(self) -> str:
        """See `GpuDevice`."""
        return self.card.target

    @property
    def host_reaches_all(self) -> bool:
        """See `GpuDevice`."""
        return self._addresses.host

    @property
    def most_work(self) -> int:
        """See `GpuDevice`: the driver cuts by itself where a display waits."""
        return sys.maxsize

    @property
    def allocated(self) -> int:
        """Bytes in use."""
        return sum(piece.size for piece in self._pieces.values())

    # Memory.

    def alloc(
        self,
        n_bytes: int,
        *,
        heap: Literal["vram", "gtt"] | None = None,
        visible: bool = True,
        use: Literal["writes", "reads", "polls"] = "writes",
        label: str = "memory",
    ) -> OpenClMemory:
        """See `GpuDevice.alloc`. Raises `BackendError` where the device has no more."""
        self._check()
        host = heap == "gtt" or self.host_reaches_all or (heap is None and visible)
        size = max(n_bytes, _ALIGNMENT)
        address = self._addresses.allocate(size, host=host)
        if not address:
            raise BackendError(
                f"{label}: {self.card.name} gives no {size} bytes; {self.allocated} are in use of"
                f" {self.card.memory}: use a shorter context, a smaller batch, or --device cpu"
            )
        piece = self._pieces[address] = OpenClMemory(address, size, label, host)
        return piece

    def free(self, memory: OpenClMemory) -> None:
        """See `GpuDevice.free`."""
        if not memory.freed:
            memory.freed = True
            del self._pieces[memory.va]
            with suppress(BackendError):
                self.drain()
            self._addresses.free(memory.va)

    def map(self, memory: OpenClMemory) -> Bytes:
        """See `GpuDevice.map`."""
        if memory.freed or not memory.host:
            raise BackendError(f"{memory.label}: {'freed' if memory.freed else 'the processor does not reach it'}")
        return np.ctypeslib.as_array((ctypes.c_uint8 * memory.size).from_address(memory.va))

    def write(self, memory: OpenClMemory, data: Any, offset: int = 0) -> None:
        """See `GpuDevice.write`."""
        raw = bytes_of(data)
        checked_span(memory, raw.size, offset)
        self.map(memory)[offset : offset + raw.size] = raw

    def read(self, memory: OpenClMemory, n_bytes: int | None = None, offset: int = 0) -> bytes:
        """See `GpuDevice.read`."""
        n_bytes = checked_span(memory, n_bytes, offset)
        return self.map(memory)[offset : offset + n_bytes].tobytes()

    # Kernels.

    def load_kernel(self, kernel: GpuKernel) -> LoadedProgram:
        """See `GpuDevice.load_kernel`. Raises `BackendError` with the driver's words where it cannot be built."""
        if kernel.target != self.kernel_target:
            raise BackendError(
                f"{kernel.name} is compiled for {kernel.target}; {self.card.name} takes {self.kernel_target}"
            )
        key = kernel.symbol, kernel.code
        if key not in self._programs:
            self._programs[key] = LoadedProgram(kernel, self._built(kernel))
        return self._programs[key]

    def _built(self, kernel: GpuKernel) -> cl.Program:
        card, cache = self.card, self._cache or CompileCache(None)
        name = cache_key(["opencl", card.name, card.driver, self._options, kernel.code])
        known = cache.get(name)
        if known is not None:
            with suppress(cl.Error):  # a driver may refuse what it made before; then it is built again
                return self._build(cl.Program(self._context, [card.device], [known.code]))
        try:
            program = self._build(cl.Program(self._context, kernel.code))
            binary = program.get_info(cl.program_info.BINARIES)[0]
        except cl.Error as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            words = "; ".join(lines[:_LOG_LINES])
            raise BackendError(f"the driver {card.driver} cannot build {kernel.name}: {words}; update it") from error
        cache.put(name, Image(bytes(binary), {kernel.symbol: 0}, card.target))
        return program

    def _build(self, program: cl.Program) -> cl.Program:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", cl.CompilerWarning)  # what it has to say beside errors
            return program.build(options=self._options.split())

    # Work.

    def commands(self, label: str) -> LaunchList:
        """See `GpuDevice.commands`."""
        return LaunchList(label, self._addresses)

    def submit(self, commands: LaunchList) -> LaunchFence:
        """See `GpuDevice.submit`."""
        self._check()
        length, start = self._starts.get(commands, (-1, None))
        if start is None or length != len(commands):
            for kernel in commands.kernels:
                check(self._addresses.allow(kernel.int_ptr, list(self._pieces)), commands.label)
            start = self._starter(commands)
            self._starts[commands] = len(commands), start
        try:
            if self._timing is not None:
                self._time(commands, self._timing)
            elif len(commands):
                start()
            fence = LaunchFence(QueueEnd(self._queue.int_ptr, commands.label), commands.label)
        except DeviceLost as error:
            self._lost = error
            raise
        except cl.Error as error:
            check(error.code, commands.label)
            raise BackendError(f"{commands.label}: {error}") from error
        self._last = fence
        return fence

    def start_times(self) -> None:
        """Measure each launch from now on, by events of a queue that notes times; lists are waited for."""
        self.drain()
        properties = cl.command_queue_properties.PROFILING_ENABLE
        self._timing = cl.CommandQueue(self._context, self.card.device, properties=properties)
        self._times = []

    def stop_times(self) -> list[LaunchTime]:
        """What was measured since `start_times`."""
        self._timing = None
        return self._times

    def _time(self, commands: LaunchList, queue: cl.CommandQueue) -> None:
        step = self._times[-1].step + 1 if self._times else 0
        events = []
        for kernel, row in zip(commands.kernels, commands.launches.tolist(), strict=True):
            events.append(cl.enqueue_nd_range_kernel(queue, kernel, tuple(row[1:4]), tuple(row[4:7])))
        queue.finish()
        began = events[0].profile.start if events else 0
        for name, row, event in zip(commands.names, commands.launches.tolist(), events, strict=True):
            start, end = event.profile.start, event.profile.end
            groups = row[1] // row[4], row[2], row[3]
            self._times.append(LaunchTime(name, groups, step, (start - began) / 1e9, (end - start) / 1e9))

    def wait(self, fence: LaunchFence, timeout: float | None = None) -> None:
        """See `GpuDevice.wait`."""
        seconds = self.timeout if timeout is None else timeout
        try:
            if fence.code is None:
                if not ended_within(seconds, fence.end.reached):
                    raise FenceTimeout(f"{fence.label}: {self.card.name} did not end within {seconds:g} s")
                fence.code = fence.end.result()
            check(fence.code, fence.label)
        except DeviceLost as error:
            self._lost = error
            raise

    def drain(self, timeout: float | None = None) -> None:
        """See `GpuDevice.drain`."""
        if self._last is not None:
            self.wait(self._last, timeout)

    def close(self) -> None:
        """See `GpuDevice.close`; calling it again does nothing."""
        with suppress(BackendError):
            self.drain()
        self._starts.clear()
        for piece in list(self._pieces.values()):
            self.free(piece)
        self._programs.clear()

    def _check(self) -> None:
        if self._lost is not None:
            raise self._lost
