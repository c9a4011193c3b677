"""Packets into the ring of a queue, waiting for their fences, and in words what took the GPU away."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable
from math import ceil

from zinc_rt.amdgpu.abi.kfd import (
    KFD_HW_EXCEPTION_ECC,
    KFD_HW_EXCEPTION_PER_ENGINE_RESET,
    HsaHwExceptionData,
    HsaMemoryExceptionData,
)
from zinc_rt.amdgpu.address_range import AddressRange, place
from zinc_rt.amdgpu.errors import InterfaceError, StepFailed
from zinc_rt.amdgpu.gfx import gfx_of
from zinc_rt.amdgpu.interface import DeviceBuffer
from zinc_rt.amdgpu.kfd.events import KfdEvents
from zinc_rt.amdgpu.kfd.messages import driver_text, interface_error
from zinc_rt.amdgpu.kfd.queue import KfdQueue, KfdSubmission
from zinc_rt.amdgpu.kfd.session import KfdSession
from zinc_rt.amdgpu.submission_packets import SubmissionPackets, interrupt_packets
from zinc_rt.errors import DeviceLost, FenceTimeout

SPIN_SECONDS = 0.002
"""A decode step takes some milliseconds: sleeping sooner would add the interrupt's way to most of them."""
SLEEP_SECONDS = 0.1
"""Of one WAIT_EVENTS, which reports faults as well."""
POLL_SECONDS = 0.001
"""Between two looks at the fence when no interrupt will come for it."""
FULL_SECONDS = 10.0
"""How long a submission waits for room in the ring."""


class KfdSubmissions:
    """The submissions of one interface. last: the number of the latest; told_late: the latest when a timeout was
    reported; lost: whether the GPU is gone.
    """

    def __init__(
        self,
        session: KfdSession,
        queue: KfdQueue,
        events: KfdEvents | None,
        ranges: Callable[[], Iterable[AddressRange]],
        *,
        flush_hdp: bool = True,
        partial_flush: bool = True,
    ) -> None:
        """ranges: where the interface's buffers are, for messages; flush_hdp: see `SubmissionPackets`; partial_flush:
        see `DeviceInfo`.
        """
        self._session, self._linux = session, session.linux
        self._queue, self._events, self._ranges = queue, events, ranges
        gfx = gfx_of(session.node.gfx_target_version)
        assert gfx is not None, "the interface takes no other GPU"
        self._gfx = gfx
        self._flush_hdp = flush_hdp
        self._packets = self._packets_of(partial_flush=partial_flush)
        self._interrupt_behind = 0
        self.last = self.told_late = 0
        self.lost = False

    def _packets_of(self, *, partial_flush: bool) -> SubmissionPackets:
        return SubmissionPackets(
            self._queue.fence_va, self._gfx, flush_hdp=self._flush_hdp, partial_flush=partial_flush
        )

    def wait_by_release(self) -> None:
        """See `Interface`."""
        self._packets = self._packets_of(partial_flush=False)

    def submit(self, buffer: DeviceBuffer, offset: int, n_dwords: int) -> int:
        """The new number. Raises `InterfaceError`."""
        queue, ring = self._queue, self._queue.ring
        if queue.room() < self._packets.n_dwords:
            self._wait_for_room(self._packets.n_dwords)
        self.last += 1
        ring.put(self._packets.build(buffer.va + offset, n_dwords, self.last))
        queue.pending.append(KfdSubmission(self.last, ring.written, buffer.label, offset))
        ring.kick()
        return self.last

    def wait(self, sequence: int, timeout: float) -> None:
        """Spin for `SPIN_SECONDS`, then sleep. Raises `InterfaceError`, `FenceTimeout`, `DeviceLost`."""
        queue, started = self._queue, self._now()
        deadline = started + max(timeout, 0.0)
        spin_until = min(deadline, started + SPIN_SECONDS)
        while queue.retired() < sequence and self._now() < spin_until:
            self._linux.sleep(0)
        while queue.retired() < sequence:
            left = deadline - self._now()
            exact = self._ask_for_interrupt(sequence)
            self.sleep(min(max(left, 0.0), SLEEP_SECONDS if exact else POLL_SECONDS))
            if left <= 0 and queue.retired() < sequence:
                self.told_late = self.last
                raise FenceTimeout(self._late_text(sequence, timeout))

    def sleep(self, seconds: float) -> None:
        """Until something happens or the time is over. Raises `DeviceLost`."""
        if self._events is None:
            self._linux.sleep(min(seconds, POLL_SECONDS))
            return
        try:
            heard = self._events.wait(ceil(seconds * 1000))
        except OSError as error:
            if error.errno in (errno.ENODEV, errno.EIO):
                raise self.loss("the GPU is gone or being reset, says WAIT_EVENTS") from None
            raise interface_error(self._session, StepFailed("wait_failed", error.errno)) from None
        if heard.fault is not None:
            raise self.loss(fault_text(heard.fault, [*self._ranges(), *self._queue.ranges()]))
        if heard.reset is not None:
            raise self.loss(reset_text(heard.reset))

    def loss(self, why: str) -> DeviceLost:
        """The GPU is gone, from now on."""
        self.lost = True
        return DeviceLost(
            f"{self._session.render_node} is lost: {why}; {self._progress()}. The kernel's log has more (dmesg,"
            " amdgpu); a new process may open it again"
        )

    def _wait_for_room(self, n_dwords: int) -> None:
        deadline = self._now() + FULL_SECONDS
        while self._queue.room() < n_dwords:
            if self._now() > deadline:
                raise InterfaceError(
                    "submitting", None, f"the ring stayed full for {FULL_SECONDS:g} s; {self._progress()}"
                )
            self.sleep(POLL_SECONDS)

    def _ask_for_interrupt(self, sequence: int) -> bool:
        """One for everything that was submitted so far: one per submission would flood the driver. Whether it comes as
        soon as the number retires.
        """
        events, queue = self._events, self._queue
        if events is not None and self._interrupt_behind < sequence:
            packets = interrupt_packets(events.mailbox, events.number)
            if queue.room() >= len(packets):
                queue.ring.put(packets)
                queue.ring.kick()
                self._interrupt_behind = self.last
        return self._interrupt_behind == sequence

    def _progress(self) -> str:
        queue = self._queue
        retired = queue.retired()
        oldest = f", {queue.pending[0]} is next" if queue.pending else ""
        return (
            f"submission {retired} of {self.last} was the last to retire{oldest}; the write pointer is at"
            f" {queue.ring.written} dwords, the read pointer at {queue.ring.read_pointer()}"
        )

    def _late_text(self, sequence: int, timeout: float) -> str:
        what = next((str(s) for s in self._queue.pending if s.sequence == sequence), "?")
        return (
            f"submission {sequence} ({what}) did not retire within {timeout:g} s on {self._session.render_node}:"
            f" {self._progress()}. With equal pointers a wave or a wait does not end, with others the scheduler does"
            f" not run the queue or a packet is stuck; look at dmesg for amdgpu and MES ({driver_text(self._session)})"
        )

    def _now(self) -> float:
        return self._linux.monotonic_ns() / 1e9


def fault_text(fault: HsaMemoryExceptionData, ranges: Iterable[AddressRange]) -> str:
    """A page fault, with the buffer that it hit. amdkfd tells the page, not the byte."""
    why = fault.failure
    reasons = [
        text
        for flag, text in (
            (why.NotPresent, "nothing is mapped there"),
            (why.ReadOnly, "it may not be written"),
            (why.NoExecute, "it may not be executed"),
            (why.imprecise, "the address is imprecise"),
        )
        if flag
    ]
    reason = ", ".join(reasons) or "no reason given"
    return f"page fault at {fault.va:#x} ({reason}), {place(fault.va, ranges)}"


def reset_text(reset: HsaHwExceptionData) -> str:
    """A reset."""
    kind = "an engine was reset" if reset.reset_type == KFD_HW_EXCEPTION_PER_ENGINE_RESET else "the GPU was reset"
    cause = "an ECC error" if reset.reset_cause == KFD_HW_EXCEPTION_ECC else "a hang"
    return f"{kind} after {cause}{', its memory is lost' if reset.memory_lost else ''}"
