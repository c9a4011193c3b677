"""`CudaDevice`: memory, kernels, lists of launches and fences of an NVIDIA GPU.

    with CudaDevice(find_cards()[0][0]) as device:
        x, y = device.alloc(4096), device.alloc(4096)
        device.write(x, values)
        kernel = device.load_kernel(compiled)
        device.wait(device.submit(device.commands("norm").dispatch(kernel, 4, x, y, 256)))
        result = device.read(y)

One stream has all work in order. The context is the device's primary one, which other libraries of the process share;
calls make it the calling thread's.
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from ctypes import addressof, byref, c_char, c_size_t, c_uint64, c_void_p
from dataclasses import dataclass
from mmap import mmap
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from zinc_rt.cuda.calls import EXEC_TIMEOUT, MAPPED, NON_BLOCKING, UNTIMED, attribute
from zinc_rt.cuda.devices import CudaCard
from zinc_rt.cuda.kernels import CudaKernel, CudaModules
from zinc_rt.cuda.launches import CudaLaunches, CudaMemory, graph_of, launch
from zinc_rt.cuda.timing import LaunchTimes
from zinc_rt.errors import BackendError, FenceTimeout
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.launch import LaunchTime
from zinc_rt.mem.arena import align_up
from zinc_rt.utils.closing import Closing
from zinc_rt.utils.device_lock import DeviceLock
from zinc_rt.utils.gpu_calls import bytes_of, checked_span, ended_within
from zinc_rt.utils.linux import host

TIMEOUT: Final = 10.0
ALIGNMENT: Final = 256
_UNLIMITED: Final = 1 << 62
_WATCHED: Final = 1 << 38
"""Work of a submission on a card whose watchdog stops kernels after some seconds. The slowest card that kernels run on
does 10^12 products a second or more.
"""


@dataclass(eq=False)
class CudaFence:
    """A point in a device's submissions. `sequence` counts from 1; `retired` turns True once, by the device."""

    sequence: int
    label: str
    event: c_void_p
    retired: bool = False


@dataclass(eq=False)
class _Graph:
    """What is known of a list. launches: that it had; freed: of the device's memory, when the list's was looked at;
    exec: the graph, None before the second submission; drop: gives it up, which happens with the list at the latest.
    """

    launches: int
    freed: int
    exec: c_void_p | None = None
    drop: Callable[[], object] = lambda: None


class CudaDevice(Closing):
    """card: the GPU, of `devices.find_cards`; cache: keeps machine code; timeout: seconds that `wait` allows.

    Threads take turns. A forked child is refused with `BackendError`. After the GPU was lost every call raises
    `DeviceLost`, after `close` `BackendError`. The constructor raises `CudaCallFailed`, and `BackendError` for
    a card that lacks something.
    """

    at_once = None
    """Nothing is loaded ahead of its phase: how much is worth it was measured on no card."""
    host_reaches_all = False

    def __init__(
        self,
        card: CudaCard,
        *,
        cache: CompileCache | None = None,
        timeout: float = TIMEOUT,
    ) -> None:
        self.timeout = _finite(timeout)
        if card.lacks:
            raise BackendError(f"{card.refusal}; kernels cannot run there")
        self.card, self._cuda = card, card.cuda
        self._guard = DeviceLock(host(), f"{card.name} (cuda:{card.number})")
        self._times: LaunchTimes | None = None
        self._memory: dict[int, CudaMemory] = {}  # by address
        self._later: deque[tuple[int, CudaMemory]] = deque()  # freed behind the submission of that number
        self._unused: list[c_void_p] = []  # graphs of lists that are gone
        self._graphs: weakref.WeakKeyDictionary[CudaLaunches, _Graph] = weakref.WeakKeyDictionary()
        self._pending: deque[CudaFence] = deque()
        self._events: list[c_void_p] = []
        self._submitted = self._retired = self._freed = 0
        self._context, self._stream = c_void_p(), c_void_p()
        self._cuda.cuDevicePrimaryCtxRetain(byref(self._context), self.card.handle)
        try:
            self._cuda.cuCtxSetCurrent(self._context)
            self._watched = bool(attribute(self._cuda, self.card.handle, EXEC_TIMEOUT))
            self._modules = CudaModules(self.card, cache)
            self._cuda.cuStreamCreate(byref(self._stream), NON_BLOCKING)
        except BaseException:
            self._cuda.cuDevicePrimaryCtxRelease_v2(self.card.handle)
            raise

    @property
    def kernel_target(self) -> str:
        """See `GpuDevice`."""
        return self.card.target

    @property
    def most_work(self) -> int:
        """Work that one submission shall have at most."""
        return _WATCHED if self._watched else _UNLIMITED

    @property
    def drives_display(self) -> bool:
        """Whether a watchdog stops long kernels."""
        return self._watched

    def memory_info(self) -> tuple[int, int]:
        """Bytes that are free now, and of all memory."""
        free, total = c_size_t(), c_size_t()
        with self._entered():
            self._cuda.cuMemGetInfo_v2(byref(free), byref(total))
        return free.value, total.value

    # Memory.

    def alloc(
        self,
        n_bytes: int,
        *,
        heap: Literal["vram", "gtt"] | None = None,
        visible: bool = True,
        use: str = "writes",
        label: str = "memory",
    ) -> CudaMemory:
        """Memory with undefined contents. heap: "vram", the GPU's own, also for None; "gtt", the system's, which both
        reach and which alone can be mapped. visible, use: make no difference.

        Raises `BackendError` for a size below 1, `CudaOutOfMemory`.
        """
        if n_bytes < 1:
            raise BackendError(f"{label}: {n_bytes} bytes of memory; it must be 1 or more")
        size, va = align_up(n_bytes, ALIGNMENT), c_uint64()
        with self._entered():
            self._retire()
            if heap == "gtt":
                # Registered, not the driver's own: arrays on it may outlive the device. It is shared, as a private page
                # becomes another one when the process writes to it after a fork.
                pages = mmap(-1, size)
                start = addressof(c_char.from_buffer(pages))
                self._cuda.cuMemHostRegister_v2(start, size, MAPPED)
                self._cuda.cuMemHostGetDevicePointer_v2(byref(va), start, 0)
                made = CudaMemory(va.value, n_bytes, label, pages)
            else:
                self._cuda.cuMemAlloc_v2(byref(va), size)
                made = CudaMemory(va.value, n_bytes, label)
            self._memory[made.va] = made
        return made

    def free(self, memory: CudaMemory) -> None:
        """Give memory back; what was submitted before may still use it. Raises `BackendError` when it is not in use."""
        with self._entered():
            self._check(memory)
            del self._memory[memory.va]
            memory.freed = True
            self._freed += 1
            self._later.append((self._submitted, memory))
            self._retire()

    def map(self, memory: CudaMemory) -> npt.NDArray[np.uint8]:
        """System memory itself, u8[size], good also after `close`. Raises `BackendError` for the GPU's own."""
        with self._entered():
            self._check(memory)
        if memory.host is None:
            raise BackendError(f"{memory.label}: the processor does not reach the GPU's memory; use read and write")
        return np.frombuffer(memory.host, np.uint8, memory.size)

    def write(self, memory: CudaMemory, data: Any, offset: int = 0) -> None:
        """Store bytes or an array at a byte offset, behind what was submitted where it is the GPU's own. Raises
        `BackendError` when it does not fit, and what `wait` raises.
        """
        raw = bytes_of(data)
        checked_span(memory, raw.size, offset)
        if memory.host is not None:
            self.map(memory)[offset : offset + raw.size] = raw
            return
        with self._entered():
            self._check(memory)
            self._cuda.cuMemcpyHtoDAsync_v2(memory.va + offset, raw.ctypes.data, raw.size, self._stream)
            self._await(self._fence("write"), self.timeout)

    def read(self, memory: CudaMemory, n_bytes: int | None = None, offset: int = 0) -> bytes:
        """A copy of its bytes, by default all from `offset` on. Raises as `write`."""
        n_bytes = checked_span(memory, n_bytes, offset)
        if memory.host is not None:
            return self.map(memory)[offset : offset + n_bytes].tobytes()
        out = np.empty(n_bytes, np.uint8)
        with self._entered():
            self._check(memory)
            self._cuda.cuMemcpyDtoHAsync_v2(out.ctypes.data, memory.va + offset, n_bytes, self._stream)
            self._await(self._fence("read"), self.timeout)
        return out.tobytes()

    # Kernels and submissions.

    def load_kernel(self, kernel: GpuKernel) -> CudaKernel:
        """A compiled kernel on the GPU; the same one is loaded once, and stays until `close`. Raises as
        `CudaModules.load`.
        """
        with self._entered():
            return self._modules.load(kernel)

    def compile(self, kernel: GpuKernel) -> None:
        """Have machine code made of a kernel, so that `load_kernel` finds it; threads may do so side by side. Raises
        as `load_kernel`.
        """
        with self._entered():
            context = self._context
        self._cuda.cuCtxSetCurrent(context)
        self._modules.compile(kernel)

    def commands(self, label: str) -> CudaLaunches:
        """An empty list."""
        return CudaLaunches(label)

    def submit(self, commands: CudaLaunches) -> CudaFence:
        """Start a list behind all earlier ones. Raises `BackendError` for freed memory, `CudaCallFailed`,
        `DeviceLost`.
        """
        with self._entered():
            self._retire()
            known = self._graphs.get(commands)
            looked_at = known is not None and known.freed == self._freed
            if not looked_at and (gone := next((m for m in commands.memory if m.freed), None)):
                raise BackendError(f"{commands.label} names {gone.label}: {gone.size} bytes that were freed")
            if self._times is not None:
                self._times.run(self._stream, commands)
                fence = self._fence(commands.label)
                self._await(fence, self.timeout)
                self._times.collect()
                return fence
            if known is None or known.launches != commands.n_launches:
                for one in (one for phase in commands.phases for one in phase):
                    launch(self._cuda, one, self._stream)
                self._graphs[commands] = _Graph(commands.n_launches, self._freed)
            else:
                self._cuda.cuGraphLaunch(self._graph(known, commands), self._stream)
            return self._fence(commands.label)

    def start_times(self) -> None:
        """Measure each launch from now on; `submit` returns when the list has run."""
        self._times = self._times or LaunchTimes(self._cuda)

    def stop_times(self) -> list[LaunchTime]:
        """What was measured since `start_times`."""
        with self._entered():
            times, self._times = self._times, None
            if times is None:
                return []
            times.close()
            return times.found

    def wait(self, fence: CudaFence, timeout: float | None = None) -> None:
        """Return once the fence has retired; seconds. Raises `FenceTimeout`, `DeviceLost`, and `BackendError` for
        another device's fence or a timeout that is not finite.
        """
        seconds = self.timeout if timeout is None else _finite(timeout)
        with self._entered():
            if not fence.retired:
                if fence not in self._pending:
                    raise BackendError(f"fence {fence.sequence} is not of {self.card.name}; it has {self._submitted}")
                self._await(fence, seconds)

    def drain(self, timeout: float | None = None) -> None:
        """Return once everything that was submitted has retired. Raises what `wait` raises."""
        with self._entered():
            if self._pending:
                self.wait(self._pending[-1], timeout)

    def close(self) -> None:
        """Wait for what runs, as long as `wait` does, and give everything back. Again, or in a forked child: nothing.
        What still runs then is left to the end of the process. Arrays from `map` can still be read.
        """
        self._guard.close(self._give_back)

    def _graph(self, known: _Graph, commands: CudaLaunches) -> c_void_p:
        if known.exec is None:
            known.exec = graph_of(self._cuda, commands.phases)
            known.drop = drop = weakref.finalize(known, self._unused.append, known.exec)
            drop.atexit = False
        known.freed = self._freed
        return known.exec

    def _fence(self, label: str) -> CudaFence:
        event = self._events.pop() if self._events else c_void_p()
        if not event:
            self._cuda.cuEventCreate(byref(event), UNTIMED)
        self._cuda.cuEventRecord(event, self._stream)
        self._submitted += 1
        self._pending.append(CudaFence(self._submitted, label, event))
        return self._pending[-1]

    def _await(self, fence: CudaFence, seconds: float) -> None:
        ended = ended_within(seconds, lambda: self._cuda.cuEventQuery(fence.event))
        self._retire()
        if not ended:
            raise FenceTimeout(
                f"{fence.label} (submission {fence.sequence}) did not retire within {seconds:g} s on"
                f" {self.card.name}; the last one that retired is {self._retired or 'none'}"
            )

    def _retire(self) -> None:
        while self._pending and self._cuda.cuEventQuery(self._pending[0].event):
            fence = self._pending.popleft()
            fence.retired, self._retired = True, fence.sequence
            self._events.append(fence.event)
        while self._later and self._later[0][0] <= self._retired:
            self._release(self._later.popleft()[1])
        while self._unused and not self._pending:
            self._cuda.cuGraphExecDestroy(self._unused.pop())

    def _release(self, memory: CudaMemory) -> None:
        if memory.host is None:
            self._cuda.cuMemFree_v2(memory.va)
        else:
            self._cuda.cuMemHostUnregister(addressof(c_char.from_buffer(memory.host)))

    def _check(self, memory: CudaMemory) -> None:
        if self._memory.get(memory.va) is not memory:
            raise BackendError(f"{memory.label}: {memory.size} bytes that are not in use on {self.card.name}")

    @contextmanager
    def _entered(self) -> Iterator[None]:
        with self._guard.entered():
            self._cuda.cuCtxSetCurrent(self._context)
            yield

    def _give_back(self) -> None:
        try:
            self._cuda.cuCtxSetCurrent(self._context)
            if self._pending:
                self._await(self._pending[-1], self.timeout)
            for known in self._graphs.values():
                known.drop()
            self._retire()
            for memory in self._memory.values():
                self._release(memory)
            for event in self._events:
                self._cuda.cuEventDestroy_v2(event)
            if self._times is not None:
                self._times.close()
            self._modules.close()
            self._cuda.cuStreamDestroy_v2(self._stream)
        except FenceTimeout:
            return  # whatever is freed now waits for what hangs
        except BackendError:
            pass  # the context goes with all that is in it
        with suppress(BackendError):
            self._cuda.cuDevicePrimaryCtxRelease_v2(self.card.handle)


def _finite(seconds: float) -> float:
    if not 0 <= seconds < math.inf:
        raise BackendError(f"a timeout of {seconds} s; it must be finite and not negative")
    return seconds
