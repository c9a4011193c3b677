"""`TokenBoundary`: a context, five buffers and one indirect buffer that is written anew for every operation.

`boundary_operations` has the operations, `submissions` what each of them does with the buffers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import numpy as np

from zinc_rt.amdgpu.cs.session import CsSession
from zinc_rt.amdgpu.errors import StepFailed
from zinc_rt.amdgpu.gfx import GFX12
from zinc_rt.amdgpu.interface import DEFAULT_RENDER_NODE
from zinc_rt.lang.amd import AmdKernel
from zinc_rt.seed.cs.boundary_operations import Operations
from zinc_rt.seed.cs.boundary_programs import built_in, checked, upload
from zinc_rt.seed.cs.errors import named
from zinc_rt.utils.linux import Linux, host

IB_VA = 0x1_0200_0000
SIZES = {"ib": 64 << 10, "input": 2 << 20, "output": 32 << 10, "signal": 4096, "shader": 32 << 10}
"""Bytes of the buffers. Each one's address is where the one before ends, the first is at `IB_VA`.
"""
TIMEOUT = 10.0
S_ENDPGM = 0xBFB0_0000
"""What fills the shader buffer: a jump to a place without a program ends the wave."""
_EXECUTABLE = ("ib", "shader")


class TokenBoundary(Operations):
    """Made by `init_default` or `init_path`; a context manager. Two threads take turns; a forked child is refused.

    Public fields: file (the descriptor), ctx_id, ip_type, bo_list_handle; of each buffer its GPU
    address (`ib_va`, ...) and its dwords (`ib_map`, ...: u32[]); builder, over `ib_map`; submit_count,
    last_fence_handle, last_wait_status, last_ib_bytes. programs: the kernels in the shader buffer by name. timeout:
    seconds that an operation may take.
    """

    @classmethod
    def init_default(
        cls,
        *,
        timeout: float = TIMEOUT,
        linux: Linux | None = None,
        kernels: Mapping[str, AmdKernel] | None = None,
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
        kernels: Mapping[str, AmdKernel] | None = None,
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
    def _made(cls, session: CsSession, timeout: float, kernels: Mapping[str, AmdKernel] | None) -> Self:
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
