"""One submission at a time over the boundary's buffers: sentinel, padding, submission, wait, check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import numpy as np
import numpy.typing as npt

from zinc_rt.amdgpu.abi.cs import AMDGPU_HW_IP_COMPUTE
from zinc_rt.amdgpu.cs.session import CsSession
from zinc_rt.amdgpu.drm_memory import RenderBuffer
from zinc_rt.amdgpu.errors import SignalMismatch
from zinc_rt.amdgpu.host_map import HostMap
from zinc_rt.amdgpu.pm4 import PacketBuilder
from zinc_rt.seed.cs.boundary_programs import BoundaryProgram, pair, record_dispatch
from zinc_rt.seed.cs.errors import InputTooLarge, OutputTooLarge, ShapeMismatch, named
from zinc_rt.seed.cs.operands import Bytes, Floats
from zinc_rt.seed.cs.sentinels import BoundaryOperation, sentinel
from zinc_rt.utils.device_lock import DeviceLock

BUFFERS = ("ib", "input", "output", "signal", "shader")
NO_ID = 0xFFFF_FFFF
"""What words for ids hold before a kernel writes them."""
NO_FLOAT = 0x7FC0_0000
"""What words for floats hold before: a quiet NaN."""
_ALIGN = 64
_PAD_DWORDS = 64

Record = Callable[[PacketBuilder, int, int], None]
"""Writes an operation's packets: builder, address of the signal, the sentinel that its last packet must write there."""


class Submissions:
    """The buffers of a `TokenBoundary` and one submission at a time over them.

    The input vector lies at byte 0 of the input buffer, weights behind it at the next multiple of 64.
    """

    def __init__(self, session: CsSession, buffers: dict[str, RenderBuffer], timeout: float) -> None:
        self._session, self._buffers = session, buffers
        self._guard = DeviceLock(session.linux, session.node)
        self._maps = {
            name: HostMap(session.linux, buffer.address, buffer.size)
            for name, buffer in buffers.items()
            if buffer.address is not None
        }
        self.timeout = timeout
        self.file, self.ctx_id, self.ip_type = session.fd, session.ctx_id, AMDGPU_HW_IP_COMPUTE
        self.bo_list_handle = session.list_handle or 0
        self.ib_va, self.input_va, self.output_va, self.signal_va, self.shader_va = (
            buffers[n].va or 0 for n in BUFFERS
        )
        self.ib_map, self.input_map, self.output_map, self.signal_map, self.shader_map = (
            self._maps[name].view().view(np.uint32) for name in BUFFERS
        )
        self.builder = PacketBuilder(self.ib_map)
        self.submit_count = 0
        self.last_fence_handle = 0
        self.last_wait_status = 0
        self.last_ib_bytes = 0
        self.programs: dict[str, BoundaryProgram] = {}
        self._unfinished = False  # a submission may still use the indirect buffer

    def exclusive(self) -> AbstractContextManager[None]:
        """Keep other threads from submitting, from preparing the input to reading the output.

        Raises `BackendError`, also in a forked child.
        """
        return self._guard.entered()

    def perform(self, operation: BoundaryOperation, prepare: Callable[[], object], record: Record) -> None:
        """One submission. prepare: writes input and output buffers once nothing uses them any more.

        A submission that timed out is waited for first: its packets are in the indirect buffer.
        Raises as `Operations` says.
        """
        with self._guard.entered(), named():
            if self._unfinished:
                self._wait()
            expected = sentinel(operation, self.submit_count + 1)
            prepare()
            self.signal_map[:2] = 0
            self.builder.reset()
            self.builder.write_nop(1)
            record(self.builder, self.signal_va, expected)
            self.builder.pad_to_alignment(_PAD_DWORDS)
            self.last_ib_bytes = 4 * self.builder.cursor
            self.last_fence_handle = self._session.submit(self.ib_va, self.last_ib_bytes)
            self._unfinished = True
            self._wait()
            self.submit_count += 1
            found = int(self.signal_map[0]) | int(self.signal_map[1]) << 32
            if found != expected:
                raise SignalMismatch(
                    f"{operation.name}, submission {self.submit_count}: the signal is {found:#x}, not {expected:#x}:"
                    " the fence retired, but the packets did not run to their end"
                )

    def _wait(self) -> None:
        try:
            self._session.wait(self.last_fence_handle, self.timeout)
        finally:
            self.last_wait_status = self._session.last_wait_status
        self._unfinished = False

    def dispatch(
        self,
        operation: BoundaryOperation,
        kernel: str,
        user_data: Sequence[int],
        stage: Callable[[], object],
        n_words: int,
        before: tuple[int, ...],
    ) -> npt.NDArray[np.uint32]:
        """Run one workgroup; u32[n_words] that the kernel left in the output.

        stage: writes the input; before: what the output's words hold before, in turns.
        """

        def prepare() -> None:
            stage()
            self.output_map[:n_words] = np.resize(np.array(before, np.uint32), n_words)

        def record(builder: PacketBuilder, signal_va: int, expected: int) -> None:
            record_dispatch(builder, self.programs[kernel], user_data)
            builder.release_mem_signal(signal_va, expected)

        with self.exclusive():
            self.perform(operation, prepare, record)
            return self.output_map[:n_words].copy()

    def multiply(
        self,
        operation: BoundaryOperation,
        kernel: str,
        x: Floats,
        parts: Sequence[Bytes],
        rows: int,
        cols: int,
        *,
        n_words: int | None = None,
        before: tuple[int, ...] = (NO_FLOAT,),
    ) -> npt.NDArray[np.uint32]:
        """Rows times an input vector; u32[n_words] that the kernel wrote, a word for each row by default.

        parts: packed rows, one part behind the other. Raises `ShapeMismatch`, `InputTooLarge`, `OutputTooLarge` and
        what `perform` raises.
        """
        n_words = rows if n_words is None else n_words
        if len(x) != cols:
            raise ShapeMismatch(f"the input has {len(x)} elements, the rows {cols} columns")
        at = -(-x.nbytes // _ALIGN) * _ALIGN
        self.check_room(at + sum(map(len, parts)), 4 * n_words)

        def stage() -> None:
            memory = self.input_map.view(np.uint8)
            memory[: x.nbytes] = x.view(np.uint8)
            place = at
            for part in parts:
                memory[place : place + len(part)] = part
                place += len(part)

        words = (*pair(self.input_va), *pair(self.output_va), *pair(self.input_va + at), cols, rows)
        return self.dispatch(operation, kernel, words, stage, n_words, before)

    def check_room(self, n_input: int, n_output: int) -> None:
        """Raise `InputTooLarge` or `OutputTooLarge` unless so many bytes fit; `BackendError` after the end."""
        with self.exclusive():
            if n_input > (room := self.input_map.nbytes):
                raise InputTooLarge(f"the operands take {n_input} bytes; the input buffer has {room}")
            if n_output > (room := self.output_map.nbytes):
                raise OutputTooLarge(f"the results take {n_output} bytes; the output buffer has {room}")
