"""Watches a GPU for resets, by a context that submits nothing, and for the last page fault."""

from __future__ import annotations

import contextlib
import errno

from zinc_rt.amdgpu import drm
from zinc_rt.amdgpu.abi.cs import (
    AMDGPU_CTX_OP_ALLOC_CTX,
    AMDGPU_CTX_OP_FREE_CTX,
    AMDGPU_CTX_OP_QUERY_STATE2,
    AMDGPU_CTX_QUERY2_FLAGS_RESET,
    AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST,
    DrmAmdgpuCtx,
    DrmAmdgpuCtxIn,
)
from zinc_rt.amdgpu.abi.info import AMDGPU_INFO_GPUVM_FAULT, DrmAmdgpuInfoGpuvmFault
from zinc_rt.amdgpu.abi.requests import AMDGPU_CTX
from zinc_rt.amdgpu.drm import ioctl
from zinc_rt.amdgpu.errors import IoctlFailed
from zinc_rt.utils.linux import Linux


class Watch:
    """Watches one open render node, from now on."""

    def __init__(self, fd: int, linux: Linux) -> None:
        """Raises `IoctlFailed`."""
        self._fd, self._linux = fd, linux
        self._context: int = self._ctx(AMDGPU_CTX_OP_ALLOC_CTX).out_alloc.ctx_id
        self._fault_before = self._fault().addr

    def gone(self) -> str:
        """Why nothing on the GPU can be trusted any more; empty when that is not known."""
        try:
            flags = self._state()
        except IoctlFailed as error:
            return "the GPU left the bus" if error.errno == errno.ENODEV else ""
        return "the GPU was reset and its memory lost" if flags & AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST else ""

    def was_reset(self) -> bool:
        """Whether some engine of the GPU was reset. It may have been another program's work alone."""
        try:
            return bool(self._state() & AMDGPU_CTX_QUERY2_FLAGS_RESET)
        except IoctlFailed:
            return False

    def fault(self) -> int | None:
        """The address of a page fault that happened since; None when the kernel tells of none."""
        address: int = self._fault().addr
        return address if address and address != self._fault_before else None

    def close(self) -> None:
        """Give the context back."""
        with contextlib.suppress(IoctlFailed):
            self._ctx(AMDGPU_CTX_OP_FREE_CTX, self._context)

    def _state(self) -> int:
        return int(self._ctx(AMDGPU_CTX_OP_QUERY_STATE2, self._context).out_state.flags)

    def _fault(self) -> DrmAmdgpuInfoGpuvmFault:
        fault = DrmAmdgpuInfoGpuvmFault()
        with contextlib.suppress(IoctlFailed):
            drm.query_info(self._fd, AMDGPU_INFO_GPUVM_FAULT, fault, linux=self._linux)
        return fault

    def _ctx(self, op: int, context: int = 0) -> DrmAmdgpuCtx:
        argument = DrmAmdgpuCtx(in_=DrmAmdgpuCtxIn(op, 0, context))
        ioctl(self._fd, AMDGPU_CTX, argument, self._linux)
        return argument
