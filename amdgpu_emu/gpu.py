"""One emulated GPU: its memory, its streams of packets, and the thread that runs them beside the program."""

from __future__ import annotations

import errno
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amdgpu_emu.caches import Caches
from amdgpu_emu.errors import CallRefused, GpuFault, GpuHang
from amdgpu_emu.memory import BufferObject, Placement
from amdgpu_emu.models import GpuModel

if TYPE_CHECKING:
    from amdgpu_emu.drm.device import DrmDevice
    from amdgpu_emu.machine import Machine
    from amdgpu_emu.shader import Dispatch

_SLICE = 64
"""Packets executed per turn of a stream."""
_POLL = 0.0005
"""Seconds between two polls of memory that a stream waits for."""

PROGRESS, POLLING, IDLE = "progress", "polling", "idle"


@dataclass(eq=False)
class Stream:
    """A stream of packets under execution: a job of a kernel ring, or a queue.

    steps: yields after each packet `PROGRESS`, `POLLING` (waits for memory or time: look again soon) or `IDLE`
    (nothing to do until `Gpu.kick`); ends when the work is done. finished: called once with what went wrong, or None.
    timeout: seconds without progress while polling until it counts as hung, None for never. state: its last step.
    """

    name: str
    steps: Iterator[str]
    finished: Callable[[Exception | None], None]
    timeout: float | None = None
    waits_since: float | None = None
    state: str = PROGRESS


class Gpu:
    """A GPU of an emulated machine. Callers hold the machine's lock, except for `stop`."""

    def __init__(self, machine: Machine, index: int, model: GpuModel) -> None:
        self.machine, self.index, self.model = machine, index, model
        self.render_minor = 128 + index
        self.gpu_id = 0x4A7B + 0x1111 * index & 0xFFFF  # sixteen bits, not zero, unique
        self.used = {Placement.VRAM: 0, Placement.GTT: 0}
        self.limits = {Placement.VRAM: model.vram, Placement.GTT: model.gtt}
        self.resets = 0
        self.generation = 0  # of VRAM's contents: raised when a reset loses them
        self.lost = False  # off the bus: every call fails with ENODEV
        self.in_reset = False  # a reset goes on: nothing new is taken
        self.fence_delay = 0.0  # seconds by which every fence comes late
        self.seconds_of: Callable[[Dispatch], float] | None = None  # what a dispatch takes on the card; None: no time
        self.elapsed = 0.0  # seconds that all dispatches have taken so
        self.flush_waits = True  # whether CS_PARTIAL_FLUSH waits for waves, which it does not on every card
        self._ticks = 0
        self.ring_reset = model.gfx[0] >= 11  # a hang resets one ring; otherwise the whole card, and VRAM is lost
        self.at_reset: list[Callable[[], None]] = []  # called after a reset of the whole card
        self.drm: DrmDevice | None = None  # the DRM driver's own state, from the first open on
        self.buffers: weakref.WeakSet[BufferObject] = weakref.WeakSet()
        self.caches = Caches(lambda text: machine.report("lost-writes", text), arrays=model.gfx[0] == 11)
        self._streams: list[Stream] = []
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._turns = False  # its streams have a turn

    @property
    def render_node(self) -> str:
        """Path of the GPU's device file."""
        return f"/dev/dri/renderD{self.render_minor}"

    def clock(self) -> int:
        """The 100 MHz counter, of modelled time. It never stands still."""
        self._ticks += 1
        return int(self.elapsed * 1e8) + self._ticks

    # Memory.

    def allocate(
        self, size: int, placement: Placement, label: str, *, write_combined: bool = False, uncached: bool = False
    ) -> BufferObject:
        """Allocate zeroed pages. Raises `CallRefused` (ENOMEM)."""
        if placement in self.used:
            if self.used[placement] + size > self.limits[placement]:
                raise CallRefused(
                    errno.ENOMEM,
                    f"{size} bytes of {placement}: {self.used[placement]} of {self.limits[placement]} are taken",
                )
            self.used[placement] += size
        bo = BufferObject(size, placement, label, write_combined=write_combined, uncached=uncached)
        self.buffers.add(bo)
        return bo

    def release(self, bo: BufferObject) -> None:
        """Free the pages of a buffer."""
        if bo.placement in self.used:
            self.used[bo.placement] -= bo.size
        for gpu in self.machine.gpus:
            gpu.caches.drop(bo)
        bo.release()

    def reset(self, *, whole: bool) -> None:
        """Count a reset of one ring, or of the whole card; the latter loses the contents of VRAM."""
        self.resets += 1
        if whole:
            self.generation += 1
            for bo in self.buffers:
                if bo.placement is Placement.VRAM:
                    bo.clear()
            self.caches.reset()
            for call in tuple(self.at_reset):
                call()

    # Execution.

    def start(self, stream: Stream) -> None:
        """Start to run a stream beside the others."""
        self._streams.append(stream)
        if self._thread is None:
            name = f"emulated {self.model.name}"
            self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
            self._thread.start()
        self.kick()

    def remove(self, stream: Stream) -> None:
        """Remove a stream without calling its `finished`."""
        if stream in self._streams:
            self._streams.remove(stream)

    def kick(self) -> None:
        """Wake the GPU's thread: a doorbell rang or memory changed."""
        for stream in self._streams:
            stream.state = PROGRESS
        self.machine.changed.notify_all()

    def busy(self) -> bool:
        """Whether any stream has work: one that has not ended and is not an empty queue."""
        return any(stream.state != IDLE for stream in self._streams)

    def computes(self) -> bool:
        """Whether its thread has packets to run, or runs some. May be asked without the machine's lock."""
        return self._turns or any(stream.state == PROGRESS for stream in tuple(self._streams))

    def stop(self) -> None:
        """End the GPU's thread. Called without the machine's lock."""
        with self.machine.lock:
            self._stopping = True
            self.kick()
        if self._thread is not None:
            self._thread.join()

    def _loop(self) -> None:
        machine = self.machine
        while True:
            with machine.lock:
                if self._stopping:
                    return
                was_busy = self.busy()
                self._turns = True
                for stream in tuple(self._streams):
                    stream.state = self._advance(stream)
                self._turns = False
                states = {stream.state for stream in self._streams}
                if was_busy and not self.busy():
                    machine.changed.notify_all()  # for callers that wait until the GPU is idle
                if PROGRESS not in states:
                    if POLLING in states:
                        machine.clock.wait(machine.changed, _POLL)
                    else:
                        machine.changed.wait()
            time.sleep(0)  # the lock is not fair: let a waiting ioctl have it

    def _advance(self, stream: Stream) -> str:
        state = IDLE
        try:
            for _ in range(_SLICE):
                now = next(stream.steps)
                if now != PROGRESS:
                    self._check_patience(stream, now)
                    return state if state == PROGRESS else now
                state, stream.waits_since = PROGRESS, None
        except StopIteration:
            self._finish(stream, None)
            return PROGRESS
        except (GpuFault, GpuHang, CallRefused) as error:
            self._finish(stream, error)
            return PROGRESS
        except Exception as error:  # a fault of the emulator must not look like a GPU that never answers
            what = f"{stream.name}: {type(error).__name__}: {error}"
            self.machine.report("emulator", f"an internal error, please report it: {what}")
            self._finish(stream, GpuHang(what))
            return PROGRESS
        return state

    def _check_patience(self, stream: Stream, state: str) -> None:
        if state == IDLE or stream.timeout is None:
            stream.waits_since = None
            return
        now = self.machine.clock.now()
        if stream.waits_since is None:
            stream.waits_since = now
        elif now - stream.waits_since > stream.timeout:
            hang = GpuHang(f"{stream.name} made no progress for {stream.timeout:g} s")
            if isinstance(stream.steps, Generator):
                stream.steps.throw(hang)  # comes back with the packet that waits, and what it waits for
            raise hang

    def _finish(self, stream: Stream, error: Exception | None) -> None:
        self.remove(stream)
        stream.finished(error)
        self.machine.changed.notify_all()
