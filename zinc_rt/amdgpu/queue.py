"""`GpuQueue`: memory, kernels, command lists and fences of a GPU, the same over every interface.

    with GpuQueue(CsInterface()) as queue:
        x, w, y = (queue.alloc(4096) for _ in range(3))
        queue.write(x, values)
        kernel = queue.load_kernel(compiled)
        queue.wait(queue.submit(CommandList("norm").dispatch(kernel, 4, x, w, y, 256, 1e-6)))
        result = queue.read(y)

`command_list` says what a list may hold, `packets` what becomes of it, `command_buffer` how it is submitted again.
"""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from typing import Any

import numpy as np

from zinc_rt.amdgpu.advice import KERNEL_LOG
from zinc_rt.amdgpu.command_buffer import PacketCopy, RecordedLists
from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.errors import SignalMismatch
from zinc_rt.amdgpu.fence import QueueFence
from zinc_rt.amdgpu.gfx import Gfx, generations, gfx_name, gfx_of
from zinc_rt.amdgpu.heaps import Bytes, Heaps
from zinc_rt.amdgpu.interface import DeviceInfo, Heap, HostUse, Interface
from zinc_rt.amdgpu.loaded_kernel import LoadedKernel, padded
from zinc_rt.amdgpu.pending import PendingSubmission, PendingSubmissions
from zinc_rt.amdgpu.pool import ALIGNMENT, GpuMemory
from zinc_rt.amdgpu.submission_budget import SubmissionBudget
from zinc_rt.errors import BackendError, FenceTimeout
from zinc_rt.lang.amd import CODE_ALIGN, AmdKernel, for_amd
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.occupancy import workgroups_at_once
from zinc_rt.utils.closing import Closing
from zinc_rt.utils.device_lock import DeviceLock
from zinc_rt.utils.gpu_calls import bytes_of, checked_span

TIMEOUT = 10.0
_CODE_CHUNK, _PACKET_CHUNK = 1 << 20, 1 << 20
_SIGNAL, _MARK, _FLAG = 0, 64, 128  # byte offsets in the queue's own memory
_OWN_BYTES = 192
_TIMES_CHUNK = 1 << 14


class GpuQueue(Closing):
    """timeout: seconds that `wait` allows by default; marks: note after each dispatch that it is done, so that a hang
    names its kernel (some time per dispatch, and nothing is kept of a list). The interface is the queue's from here on,
    also when this raises: `BackendError` for a GPU of another generation, `InterfaceError` without memory.

    The queue makes the checks that interfaces leave to their caller. Threads take turns, each with one call, a wait
    included: only one thread is ever inside an interface. A forked child is refused with `BackendError`. After the
    device was lost every call raises `DeviceLost` and says so, after `close` `BackendError`. Memory, fences and
    timeouts are checked for being this queue's, in use, and finite.
    """

    def __init__(self, interface: Interface, *, timeout: float = TIMEOUT, marks: bool = False) -> None:
        self.interface, self.timeout, self.marks = interface, timeout, marks
        self._guard = DeviceLock(interface.linux, f"the queue over {interface.device.render_node} ({interface.name})")
        self._heaps = Heaps(interface)
        self._programs: dict[tuple[str, bytes], LoadedKernel] = {}
        self._pending = PendingSubmissions()
        self._submitted = self._retired = self._dispatched = self._freed = 0
        self.budget = SubmissionBudget(interface.longest_job, interface.device.compute_units)
        self._ended = 0  # by the GPU's counter, the last submission that was measured
        self._code = self._heaps.add(self.default_heap, "kernels", _CODE_CHUNK, executable=True)
        packets = self._heaps.add("gtt", "packets", _PACKET_CHUNK, executable=True)
        try:
            _finite(timeout)
            self.gfx = _generation(interface.device)
            self._own = self._heaps.add("gtt", "signals", _OWN_BYTES, use="polls").allocate(_OWN_BYTES, "signals")
            self._signal = self._heaps.view(self._own).view(np.uint64)
            self._signal[:] = 0
            signal_va = self._own.va + _SIGNAL
            flag_va = self._own.va + _FLAG
            times = self._heaps.add("gtt", "times", _TIMES_CHUNK, use="polls")
            self._lists = RecordedLists(interface.linux, self._heaps, packets, times, self.gfx, signal_va, flag_va)
            self._lists.by_release = not self.device.partial_flush
        except BaseException:
            interface.close()
            raise

    @property
    def device(self) -> DeviceInfo:
        """The GPU."""
        return self.interface.device

    @property
    def default_heap(self) -> Heap:
        """Where `alloc` takes memory from: `DeviceInfo.data_heap` when the processor reaches it, else system memory."""
        return self._heaps.default

    @property
    def kernel_target(self) -> str:
        """What kernels are compiled for, a name of `zinc_rt.lang.target.TARGETS`."""
        return self.gfx.kernel_target

    @property
    def host_reaches_all(self) -> bool:
        """Whether the processor reads and writes all memory of the GPU itself."""
        return self.device.data_heap == "gtt" or not self.device.vram or self.device.visible_vram >= self.device.vram

    @property
    def most_work(self) -> int:
        """Work that one submission shall have at most; see `submission_budget`."""
        return self.budget.most_work

    def at_once(self, kernel: GpuKernel) -> int:
        """Workgroups of a kernel that all compute units hold at once. Raises `LangError` for another GPU's."""
        kernel = for_amd(kernel)
        return workgroups_at_once(
            self.device.compute_units,
            wave=kernel.wave,
            vgprs=kernel.vgprs,
            lds_bytes=kernel.lds_bytes,
            workgroup=kernel.workgroup,
            wgp=kernel.wgp,
        )

    # Memory.

    def alloc(
        self,
        n_bytes: int,
        *,
        heap: Heap | None = None,
        visible: bool = True,
        use: HostUse = "writes",
        label: str = "memory",
    ) -> GpuMemory:
        """Memory aligned to 256 bytes; its contents are undefined. visible: for `map`, `read` and `write`; use: what
        the processor does with system memory.

        Raises `BackendError` for a size below 1, `InterfaceError` when there is not enough.
        """
        with self._entered():
            return self._heaps.of(heap, visible, use).allocate(n_bytes, label)

    def free(self, memory: GpuMemory) -> None:
        """Give memory back; what was submitted before may still use it. Raises `BackendError` when it is not in use."""
        with self._entered():
            self._retire()
            self._pending.free_later(self._heaps.owner(memory), memory)
            self._freed += 1

    def map(self, memory: GpuMemory) -> Bytes:
        """The memory itself, u8[size], without a copy. Valid until it is freed; after `close` it can still be read.

        Write before `submit`, read after `wait`. Reading is slow unless the memory was made for it (`use`).
        Raises `BackendError` for memory that is freed, not visible, or another queue's.
        """
        with self._entered():
            self._heaps.owner(memory)
            return self._heaps.view(memory)

    def write(self, memory: GpuMemory, data: Any, offset: int = 0) -> None:
        """Store bytes or an array at a byte offset. Raises `BackendError` as `map`, and when it does not fit."""
        raw = bytes_of(data)
        checked_span(memory, raw.size, offset)
        self.map(memory)[offset : offset + raw.size] = raw

    def read(self, memory: GpuMemory, n_bytes: int | None = None, offset: int = 0) -> bytes:
        """A copy of its bytes, by default all from `offset` on. Raises `BackendError` as `map`, and outside of it."""
        n_bytes = checked_span(memory, n_bytes, offset)
        return self.map(memory)[offset : offset + n_bytes].tobytes()

    # Kernels.

    def load_kernel(self, kernel: GpuKernel) -> LoadedKernel:
        """A compiled kernel in executable memory; the same one is uploaded once. It stays until `close`.

        Raises `BackendError` for one that needs scratch memory, on a GPU that it was not compiled for, and where no
        compute unit holds a whole workgroup.
        """
        if (
            not isinstance(kernel, AmdKernel)
            or kernel.target != self.gfx.kernel_target
            or not self.gfx.runs_kernels(self.device.gfx_target_version)
        ):
            raise BackendError(
                f"{kernel.name} is compiled for {kernel.target}; {self.device.render_node} is"
                f" {gfx_name(self.device.gfx_target_version)}, and kernels run on {generations(executed=True)} alone"
            )
        if kernel.scratch_bytes:
            raise BackendError(
                f"{kernel.name} needs {kernel.scratch_bytes} bytes of scratch memory a wave, which queues do not give:"
                " use fewer registers"
            )
        registers = self.gfx.vgprs_per_simd(self.device.gfx_target_version)
        if not kernel.occupancy_of(registers):
            raise BackendError(
                f"{kernel.name} has workgroups of {kernel.workgroup} work-items with {kernel.vgprs} vector registers"
                f" and {kernel.lds_bytes} bytes of LDS, more than {gfx_name(self.device.gfx_target_version)} holds at"
                " once: use smaller workgroups"
            )
        return self.load_code(
            kernel.name,
            kernel.code[: kernel.size + kernel.constants],
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
        kernel: AmdKernel | None = None,
    ) -> LoadedKernel:
        """Machine code in executable memory, with room behind it for prefetch. The fields are those of
        `LoadedKernel`.
        """
        if self.interface.saves_waves:
            rsrc1 |= self.gfx.saved_rsrc1
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

    def commands(self, label: str) -> CommandList:
        """An empty command list."""
        return CommandList(label)

    def submit(self, commands: CommandList) -> QueueFence:
        """Start a command list behind all earlier ones.

        The first submission copies its packets to the GPU's memory; a later one stores the fence's two dwords there.
        Raises `BackendError` for freed memory, `InterfaceError`, `DeviceLost`.
        """
        with self._entered():
            self._retire()
            recorded = self._lists.of(commands, self._freed)
            if self.marks:
                packets = self._lists.take_marked(commands, self._own.va + _MARK, self._dispatched)
            else:
                packets = self._lists.take(recorded)
            sequence = self._submitted + 1
            memory = packets.memory
            try:
                packets.set_fence(self.interface.linux, sequence)
                interface_sequence = self.interface.submit(memory.buffer, memory.offset, packets.n_dwords)
            except Exception:  # not Ctrl-C, which may come when they run already: then they stay until `close`
                self._lists.free(packets)
                raise
            self._submitted = sequence
            fence = QueueFence(sequence)
            names = recorded.kernels
            self._pending.add(
                PendingSubmission(fence, interface_sequence, packets, commands.label, names, self._dispatched)
            )
            self._dispatched += len(names)
            return fence

    def wait(self, fence: QueueFence, timeout: float | None = None) -> None:
        """Return once the fence has retired; seconds. Raises `FenceTimeout`, `DeviceLost`, `SignalMismatch`, and
        `BackendError` for another queue's fence or a timeout that is not finite.
        """
        with self._entered():
            seconds = self.timeout if timeout is None else _finite(timeout)
            if fence.retired:
                return
            submission = self._pending.of(fence)
            if submission is None:
                raise BackendError(
                    f"fence {fence.sequence} is not of this queue; its submissions are {self._submitted}"
                )
            try:
                self.interface.wait(submission.interface_sequence, seconds)
            except FenceTimeout as error:
                self._retire()
                late = f"{submission} did not retire within {seconds:g} s"
                raise FenceTimeout(f"{late}; {self._progress()}; {error}") from None
            self._retire()

    def drain(self, timeout: float | None = None) -> None:
        """Return once everything that was submitted has retired. Raises what `wait` raises."""
        with self._entered():
            newest = self._pending.newest
            if newest is not None:
                self.wait(newest.fence, timeout)

    def wait_by_release(self) -> None:
        """Let no barrier count on CS_PARTIAL_FLUSH from now on, also in lists that ran before. Raises what `drain`
        raises.
        """
        with self._entered():
            self.drain()
            self.interface.wait_by_release()
            self._lists.by_release = True
            self._lists.forget()

    def retired(self) -> int:
        """The sequence number of the last submission that has retired, without waiting; 0 when none has."""
        with self._entered():
            self._retire()
            return self._retired

    def _retire(self) -> None:
        self._lists.collect()
        if not self._pending:
            return
        for submission in self._pending.retire(self.interface.retired()):
            self._learn(submission.packets)
            self._lists.give(submission.packets)
            signal = int(self._signal[_SIGNAL // 8])
            if signal < submission.fence.sequence:
                self._guard.lost = (
                    f"{submission} retired, but its last packet did not run: the signal is {signal}. The driver may"
                    f" have stopped it; {KERNEL_LOG}"
                )
                raise SignalMismatch(self._guard.lost)
            submission.fence.retired = True
            self._retired = submission.fence.sequence

    def _learn(self, packets: PacketCopy) -> None:
        """How long it ran says how much work the next ones may have."""
        ended, ticks = packets.took(self.interface.linux, self._ended)
        if ended:
            self._ended = ended
            self.budget.took(packets.work, ticks / self.device.clock_hz)

    def _progress(self) -> str:
        said = f"the last one that retired is {self._retired or 'none'}, {len(self._pending)} are waiting"
        oldest = next(iter(self._pending), None)
        if oldest is None or not oldest.kernels:
            return said
        if not self.marks:
            return f"{said}; {oldest} is next: a queue made with marks=True says which of its kernels hangs"
        done = min(max(0, int(self._signal[_MARK // 8]) - oldest.dispatched_before), len(oldest.kernels))
        if done == len(oldest.kernels):
            return f"{said}; all kernels of {oldest} are done"
        return f"{said}; {oldest} hangs in kernel {done + 1} of {len(oldest.kernels)}, {oldest.kernels[done]}"

    # Who may use it, and its end.

    def _entered(self) -> AbstractContextManager[None]:
        return self._guard.entered(self._progress)

    def check_integrity(self) -> None:
        """Raise `BackendError` when the books of a pool do not add up."""
        with self._guard.lock:
            self._heaps.check_integrity()

    def close(self) -> None:
        """Wait for what runs, as long as the interface does, and give everything back. Again, or in a forked child:
        nothing.

        Arrays from `map` can still be read; they hold their memory until they are gone.
        """
        self._guard.close(self._give_back)

    def _give_back(self) -> None:
        del self._signal
        self._lists.close()
        self._heaps.let_go()
        self.interface.close()


def _generation(device: DeviceInfo) -> Gfx:
    gfx = gfx_of(device.gfx_target_version)
    if gfx is None:
        raise BackendError(
            f"{device.render_node} is {gfx_name(device.gfx_target_version)}; the packets here are for {generations()}"
        )
    return gfx


def _finite(seconds: float) -> float:
    if not 0 <= seconds < math.inf:
        raise BackendError(f"a timeout of {seconds} s; it must be finite and not negative")
    return seconds
