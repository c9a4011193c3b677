"""`TokenBoundary`: a context, five buffers and one indirect buffer that is written anew for every operation.

Operations live in modules of their own (`boundary_operations` names them). Each says what packets to record; `perform`
does the rest: sentinel, padding, submission, wait, check.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from zinc_rt.amdgpu.abi.cs import AMDGPU_HW_IP_COMPUTE
from zinc_rt.amdgpu.cs.session import CsSession
from zinc_rt.amdgpu.drm_memory import RenderBuffer
from zinc_rt.amdgpu.errors import SignalMismatch, StepFailed
from zinc_rt.amdgpu.gfx import GFX12
from zinc_rt.amdgpu.guard import DeviceGuard
from zinc_rt.amdgpu.host_map import HostMap
from zinc_rt.amdgpu.interface import DEFAULT_RENDER_NODE
from zinc_rt.amdgpu.pm4 import PacketBuilder
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.linux import Linux, host
from zinc_rt.seed.cs.boundary_operations import Operations
from zinc_rt.seed.cs.boundary_programs import BoundaryProgram, built_in, checked, upload
from zinc_rt.seed.cs.errors import named
from zinc_rt.seed.cs.sentinels import BoundaryOperation, sentinel

IB_VA = 0x1_0200_0000
SIZES = {"ib": 64 << 10, "input": 2 << 20, "output": 32 << 10, "signal": 4096, "shader": 32 << 10}
"""Bytes of the buffers. Each one's address is where the one before ends, the first is at `IB_VA`. The original's shader
buffer has 8 KiB; the kernels here take more.
"""
TIMEOUT = 10.0
S_ENDPGM = 0xBFB0_0000
"""What fills the shader buffer: a jump to a place without a program ends the wave."""
_PAD_DWORDS = 64
_EXECUTABLE = ("ib", "shader")

Words = npt.NDArray[np.uint32]
Record = Callable[[PacketBuilder, int, int], None]
"""Writes an operation's packets: builder, address of the signal, the sentinel that its last packet must write there."""


class TokenBoundary(Operations):
    """Made by `init_default` or `init_path`; a context manager. Two threads take turns; a forked child is refused.

    Public fields as the original's: file (the descriptor), ctx_id, ip_type, bo_list_handle; of each buffer its GPU
    address (`ib_va`, ...) and its dwords (`ib_map`, ...: u32[]); builder, over `ib_map`; submit_count,
    last_fence_handle, last_wait_status, last_ib_bytes. programs: the kernels in the shader buffer by name. timeout:
    seconds that an operation may take.
    """

    def __init__(self, session: CsSession, buffers: dict[str, RenderBuffer], timeout: float) -> None:
        self._session, self._buffers = session, buffers
        self._guard = DeviceGuard(session.linux, session.node)
        self._maps = {
            name: HostMap(session.linux, buffer.address, buffer.size)
            for name, buffer in buffers.items()
            if buffer.address is not None
        }
        self.timeout = timeout
        self.file, self.ctx_id, self.ip_type = session.fd, session.ctx_id, AMDGPU_HW_IP_COMPUTE
        self.bo_list_handle = session.list_handle or 0
        self.ib_va, self.input_va, self.output_va, self.signal_va, self.shader_va = (buffers[n].va or 0 for n in SIZES)
        self.ib_map, self.input_map, self.output_map, self.signal_map, self.shader_map = (
            self._maps[name].view().view(np.uint32) for name in SIZES
        )
        self.builder = PacketBuilder(self.ib_map)
        self.submit_count = 0
        self.last_fence_handle = 0
        self.last_wait_status = 0
        self.last_ib_bytes = 0
        self.programs: dict[str, BoundaryProgram] = {}
        self._unfinished = False  # a submission may still use the indirect buffer

    @classmethod
    def init_default(
        cls,
        *,
        timeout: float = TIMEOUT,
        linux: Linux | None = None,
        kernels: Mapping[str, GpuKernel] | None = None,
    ) -> Self:
        """`init_path` of the first render node."""
        return cls.init_path(DEFAULT_RENDER_NODE, timeout=timeout, linux=linux, kernels=kernels)

    @classmethod
    def init_path(
        cls,
        node: str,
        *,
        timeout: float = TIMEOUT,
        linux: Linux | None = None,
        kernels: Mapping[str, GpuKernel] | None = None,
    ) -> Self:
        """Open a render node and make everything that operations need.

        kernels: by name; by default those of the compile cache, which are compiled when they are not there.

        Raises `UnsupportedOs`, `RenderNodeOpenFailed`, `HwIpQueryFailed`, `NoComputeRings`, `UnsupportedComputeIp`,
        `CtxAllocFailed`, `BoListFailed`, and for each buffer one of `IbBoFailed`, `IbMapFailed`, `IbVaFailed` and so
        on; `BackendError` for kernels that cannot be launched, `LangError` where they cannot be compiled. What was
        acquired is given back then.
        """
        with named():
            return cls._made(CsSession.open(node, linux or host(), _check_generation), timeout, kernels)

    @classmethod
    def _made(cls, session: CsSession, timeout: float, kernels: Mapping[str, GpuKernel] | None) -> Self:
        try:
            chosen = checked(built_in() if kernels is None else kernels)
            buffers, va = {}, IB_VA
            for name, size in SIZES.items():
                buffers[name] = session.create(name, size, va, executable=name in _EXECUTABLE)
                va += size
            session.list_buffers([buffer.handle for buffer in buffers.values()])
            boundary = cls(session, buffers, timeout)
            boundary.shader_map[:] = S_ENDPGM
            boundary.programs = upload(chosen, boundary.shader_map.view(np.uint8), boundary.shader_va)
        except BaseException:
            session.close()
            raise
        return boundary

    # For operations.

    def exclusive(self) -> AbstractContextManager[None]:
        """From preparing to reading the output nobody else may submit. Raises `BackendClosed`; `BackendError` in a
        forked child.
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

    # The end.

    def deinit(self) -> None:
        """Give the list, the context, the maps, the buffers and the descriptor back.

        Arrays taken from the maps stay readable; the last of them undoes its map. Calling it again does nothing, and
        so does calling it in a forked child.
        """
        self._guard.close(self._give_back)

    def _give_back(self) -> None:
        empty: Any = np.zeros(0, np.uint32)
        self.builder.words = empty
        self.builder.reset()
        self.ib_map = self.input_map = self.output_map = self.signal_map = self.shader_map = empty
        for name in tuple(self._maps):
            if self._maps.pop(name).retire():
                self._buffers[name].address = None
        self._session.close()

    close = deinit

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.deinit()


def _check_generation(session: CsSession) -> None:
    major, minor = session.ip_version
    if session.rings and major != GFX12.major:
        raise StepFailed(
            "unsupported_compute_ip",
            None,
            f"{session.node}: checking its compute engine",
            f"it is of generation {major}.{minor}, the kernels here are for {GFX12.major}",
        )
