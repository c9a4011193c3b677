"""`GpuQueue`: memory, kernels, batches and fences of a GPU, the same over every interface.

    with GpuQueue(CsInterface()) as queue:
        x, w, y = (queue.alloc(4096) for _ in range(3))
        queue.write(x, values)
        kernel = queue.load_kernel(compiled)
        queue.wait(queue.submit(Batch("norm").dispatch(kernel, 4, x, w, y, 256, 1e-6)))
        result = queue.read(y)

`batch` says what a batch may hold, `lower` what becomes of it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import numpy as np

from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.errors import DeviceLost, FenceTimeout, SignalMismatch
from zinc_rt.amdgpu.fence import Fence
from zinc_rt.amdgpu.flights import Flight, Flights
from zinc_rt.amdgpu.heaps import Bytes, Heaps
from zinc_rt.amdgpu.interface import KERNELS_FOR, DeviceInfo, Heap, Interface
from zinc_rt.amdgpu.loaded_kernel import LoadedKernel, padded
from zinc_rt.amdgpu.packets import Words, fence_packets, lower, packets_of
from zinc_rt.amdgpu.pool import ALIGNMENT, GpuMemory
from zinc_rt.errors import BackendClosed, BackendError
from zinc_rt.lang.gpu import CODE_ALIGN, GpuKernel

TIMEOUT = 10.0
_GENERATIONS = (11, 12)
_CODE_CHUNK, _PACKET_CHUNK = 1 << 20, 1 << 20
_SIGNAL, _MARK = 0, 64  # byte offsets in the queue's own memory
_RING_BYTES = 128


class GpuQueue:
    """timeout: seconds that `wait` allows by default; marks: note after each dispatch that it is done, so that a hang
    names its kernel (some time per dispatch). The interface is the queue's from here on, also when this raises:
    `BackendError`
    for a GPU of another generation, `InterfaceError` without memory.

    Two threads take turns; a forked child is refused with `BackendError`. After the device was lost every call raises
    `DeviceLost` and says so, after `close` `BackendClosed`.
    """

    def __init__(self, interface: Interface, *, timeout: float = TIMEOUT, marks: bool = False) -> None:
        self.interface, self.timeout, self.marks = interface, timeout, marks
        self._lock = threading.RLock()
        self._pid = interface.linux.pid()
        self._closed = False
        self._lost: str | None = None
        self._heaps = Heaps(interface)
        self._programs: dict[tuple[str, bytes], LoadedKernel] = {}
        self._flights = Flights()
        self._submitted = self._retired = self._dispatched = 0
        self._code = self._heaps.add(self.default_heap, "kernels", _CODE_CHUNK, executable=True)
        self._packets = self._heaps.add("gtt", "packets", _PACKET_CHUNK, executable=True)
        try:
            _finite(timeout)
            _check_generation(interface.device)
            self._own = self._heaps.add("gtt", "signals", _RING_BYTES).allocate(_RING_BYTES, "signals")
            self._signal = self._heaps.view(self._own).view(np.uint64)
            self._signal[:] = 0
        except BaseException:
            interface.close()
            raise

    @property
    def device(self) -> DeviceInfo:
        """The GPU."""
        return self.interface.device

    @property
    def default_heap(self) -> Heap:
        """Where `alloc` takes memory from: VRAM when the processor reaches all of it, else system memory."""
        return self._heaps.default

    # Memory.

    def alloc(
        self, n_bytes: int, *, heap: Heap | None = None, visible: bool = True, label: str = "memory"
    ) -> GpuMemory:
        """Memory aligned to 256 bytes; its contents are undefined. visible: for `map`, `read` and `write`.

        Raises `BackendError` for a size below 1, `InterfaceError` when there is not enough.
        """
        with self._entered():
            return self._heaps.of(heap, visible).allocate(n_bytes, label)

    def free(self, memory: GpuMemory) -> None:
        """Give memory back; what was submitted before may still use it. Raises `BackendError` when it is not in use."""
        with self._entered():
            self._land()
            self._flights.free_later(self._heaps.owner(memory), memory)

    def map(self, memory: GpuMemory) -> Bytes:
        """The memory itself, u8[size], without a copy. Valid until it is freed; after `close` it can still be read.

        Write before `submit`, read after `wait`. Reading is slow: the processor does not cache it.
        Raises `BackendError` for memory that is freed, not visible, or another queue's.
        """
        with self._entered():
            self._heaps.owner(memory)
            return self._heaps.view(memory)

    def write(self, memory: GpuMemory, data: Any, offset: int = 0) -> None:
        """Store bytes or an array at a byte offset. Raises `BackendError` as `map`, and when it does not fit."""
        raw = np.frombuffer(np.ascontiguousarray(data) if isinstance(data, np.ndarray) else data, np.uint8)
        if offset < 0 or offset + raw.size > memory.size:
            raise BackendError(f"{memory.label}: {raw.size} bytes at {offset} do not fit into its {memory.size}")
        self.map(memory)[offset : offset + raw.size] = raw

    def read(self, memory: GpuMemory, n_bytes: int | None = None, offset: int = 0) -> bytes:
        """A copy of its bytes, by default all from `offset` on. Raises `BackendError` as `map`, and outside of it."""
        n_bytes = memory.size - offset if n_bytes is None else n_bytes
        if offset < 0 or n_bytes < 0 or offset + n_bytes > memory.size:
            raise BackendError(f"{memory.label}: {n_bytes} bytes at {offset} are not all in its {memory.size}")
        return self.map(memory)[offset : offset + n_bytes].tobytes()

    # Kernels.

    def load_kernel(self, kernel: GpuKernel) -> LoadedKernel:
        """A compiled kernel in executable memory; the same one is uploaded once. It stays until `close`.

        Raises `BackendError` for one that needs scratch memory, or on a GPU that it was not compiled for.
        """
        if self.device.gfx_target_version // 100 != KERNELS_FOR:
            raise BackendError(
                f"{kernel.name} is compiled for gfx1201; {self.device.render_node} is gfx_target_version"
                f" {self.device.gfx_target_version}"
            )
        if kernel.scratch_bytes:
            raise BackendError(
                f"{kernel.name} needs {kernel.scratch_bytes} bytes of scratch memory a wave, which queues do not give:"
                " use fewer registers"
            )
        return self.load_code(
            kernel.name,
            kernel.code[: kernel.size],
            rsrc1=kernel.rsrc1,
            rsrc2=kernel.rsrc2,
            rsrc3=kernel.rsrc3,
            threads=(kernel.workgroup, 1, 1),
            n_user_data=kernel.dwords,
            wave32=kernel.wave == 32,
            kernel=kernel,
        )

    def load_code(
        self,
        name: str,
        code: bytes,
        *,
        rsrc1: int,
        rsrc2: int,
        rsrc3: int = 0,
        threads: tuple[int, int, int],
        n_user_data: int,
        wave32: bool = True,
        kernel: GpuKernel | None = None,
    ) -> LoadedKernel:
        """Machine code in executable memory, with room behind it for prefetch. The fields are those of
        `LoadedKernel`.
        """
        with self._entered():
            words = (rsrc1, rsrc2, rsrc3, threads, n_user_data, wave32)
            key = (f"{name} {words}", code)
            if key not in self._programs:
                if not code:
                    raise BackendError(f"{name} has no code")
                memory = self._code.allocate(len(padded(code)), name)
                self._heaps.view(memory)[:] = np.frombuffer(padded(code), np.uint8)
                assert memory.va % CODE_ALIGN == 0 == ALIGNMENT % CODE_ALIGN
                self._programs[key] = LoadedKernel(
                    name, memory.va, rsrc1, rsrc2, rsrc3, threads, n_user_data, wave32, kernel
                )
            return self._programs[key]

    # Submission.

    def submit(self, batch: CommandList) -> Fence:
        """Start a batch behind all earlier ones. Raises `BackendError` for freed memory, `InterfaceError`,
        `DeviceLost`.
        """
        with self._entered():
            freed = next((memory for memory in batch.memory if memory.freed), None)
            if freed is not None:
                raise BackendError(f"{batch.label} uses {freed.label}, {freed.size} bytes that were freed")
            self._land()
            words = self._packets_of(batch)
            sequence = self._submitted + 1
            tail = fence_packets(len(words), self._own.va + _SIGNAL, sequence)
            n = len(words) + len(tail)
            packets = self._packets.allocate(4 * n, f"packets of submission {sequence}")
            try:
                self._put(packets, words, tail)
                interface_sequence = self.interface.submit(packets.buffer, packets.offset, n)
            except Exception:  # not Ctrl-C, which may come when they run already: then they stay until `close`
                self._packets.free(packets)
                raise
            self._submitted = sequence
            fence = Fence(sequence)
            names = [program.name for program in batch.programs]
            self._flights.add(Flight(fence, interface_sequence, packets, batch.label, names, self._dispatched))
            self._dispatched += len(names)
            return fence

    def _put(self, packets: GpuMemory, words: Words, tail: list[int]) -> None:
        # Apart from `submit`: an error's traceback must not keep an array of the map alive.
        there = self._heaps.view(packets).view(np.uint32)
        there[: len(words)], there[len(words) :] = words, tail

    def _packets_of(self, batch: CommandList) -> Words:
        if not self.marks:
            return packets_of(batch)
        return np.array(lower(batch, (self._own.va + _MARK, self._dispatched)), np.uint32)

    def wait(self, fence: Fence, timeout: float | None = None) -> None:
        """Return once the fence has retired; seconds. Raises `FenceTimeout`, `DeviceLost`, `SignalMismatch`, and
        `BackendError` for another queue's fence or a timeout that is not finite.
        """
        with self._entered():
            seconds = self.timeout if timeout is None else _finite(timeout)
            if fence.retired:
                return
            flight = self._flights.of(fence)
            if flight is None:
                raise BackendError(
                    f"fence {fence.sequence} is not of this queue; its submissions are {self._submitted}"
                )
            try:
                self.interface.wait(flight.interface_sequence, seconds)
            except FenceTimeout as error:
                self._land()
                late = f"{flight} did not retire within {seconds:g} s"
                raise FenceTimeout(f"{late}; {self._progress()}; {error}") from None
            self._land()

    def drain(self, timeout: float | None = None) -> None:
        """Return once everything that was submitted has retired. Raises what `wait` raises."""
        with self._entered():
            newest = self._flights.newest
            if newest is not None:
                self.wait(newest.fence, timeout)

    def retired(self) -> int:
        """The sequence number of the last submission that has retired, without waiting; 0 when none has."""
        with self._entered():
            self._land()
            return self._retired

    def _land(self) -> None:
        if not self._flights:
            return
        for flight in self._flights.land(self.interface.retired(), self._packets):
            signal = int(self._signal[_SIGNAL // 8])
            if signal < flight.fence.sequence:
                self._lost = (
                    f"{flight} retired, but its last packet did not run: the signal is {signal}. The driver may have"
                    " stopped it: look for amdgpu in the kernel's log (dmesg)"
                )
                raise SignalMismatch(self._lost)
            flight.fence.retired = True
            self._retired = flight.fence.sequence

    def _progress(self) -> str:
        said = f"the last one that retired is {self._retired or 'none'}, {len(self._flights)} are waiting"
        oldest = next(iter(self._flights), None)
        if oldest is None or not oldest.kernels:
            return said
        if not self.marks:
            return f"{said}; {oldest} is next: a queue made with marks=True says which of its kernels hangs"
        done = min(max(0, int(self._signal[_MARK // 8]) - oldest.dispatched_before), len(oldest.kernels))
        if done == len(oldest.kernels):
            return f"{said}; all kernels of {oldest} are done"
        return f"{said}; {oldest} hangs in kernel {done + 1} of {len(oldest.kernels)}, {oldest.kernels[done]}"

    # Who may use it, and its end.

    @contextmanager
    def _entered(self) -> Iterator[None]:
        if self.interface.linux.pid() != self._pid:
            raise BackendError(
                f"the queue was made by process {self._pid}, this is {self.interface.linux.pid()}: a forked child has"
                " to open an interface of its own"
            )
        with self._lock:
            if self._closed:
                raise BackendClosed(f"the queue over {self.device.render_node} ({self.interface.name}) was closed")
            if self._lost is not None:
                raise DeviceLost(self._lost)
            try:
                yield
            except DeviceLost as error:
                if self._lost is None:
                    self._lost = f"{error}; {self._progress()}"
                raise DeviceLost(self._lost) from None

    def check_integrity(self) -> None:
        """Raise `PoolIntegrityError` when the books of a pool do not add up."""
        with self._lock:
            self._heaps.check_integrity()

    def close(self) -> None:
        """Wait for what runs, as long as the interface does, and give everything back. Again, or in a forked child:
        nothing.

        Arrays from `map` can still be read; they hold their memory until they are gone.
        """
        if self.interface.linux.pid() != self._pid:
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            del self._signal
            self._heaps.let_go()
            self.interface.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _check_generation(device: DeviceInfo) -> None:
    if device.gfx_target_version // 10000 not in _GENERATIONS:
        raise BackendError(
            f"{device.render_node} is gfx_target_version {device.gfx_target_version}; the packets here are for gfx11 and"
            " gfx12"
        )


def _finite(seconds: float) -> float:
    if not 0 <= seconds < math.inf:
        raise BackendError(f"a timeout of {seconds} s; it must be finite and not negative")
    return seconds
