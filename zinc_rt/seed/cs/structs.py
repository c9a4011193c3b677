"""The kernel's structs and constants of command submission, under the names of the original's page."""

from __future__ import annotations

from zinc_rt.amdgpu.abi.cs import (
    AMDGPU_BO_LIST_OP_CREATE,
    AMDGPU_BO_LIST_OP_DESTROY,
    AMDGPU_CHUNK_ID_BO_HANDLES,
    AMDGPU_CHUNK_ID_IB,
    AMDGPU_CTX_OP_ALLOC_CTX,
    AMDGPU_CTX_OP_FREE_CTX,
    AMDGPU_HW_IP_COMPUTE,
    AMDGPU_HW_IP_GFX,
    AMDGPU_IB_FLAG_EMIT_MEM_SYNC,
    DrmAmdgpuBoList,
    DrmAmdgpuBoListEntry,
    DrmAmdgpuBoListIn,
    DrmAmdgpuBoListOut,
    DrmAmdgpuCs,
    DrmAmdgpuCsChunk,
    DrmAmdgpuCsChunkIb,
    DrmAmdgpuCsIn,
    DrmAmdgpuCsOut,
    DrmAmdgpuCtx,
    DrmAmdgpuCtxIn,
    DrmAmdgpuCtxOutAlloc,
    DrmAmdgpuCtxOutState,
    DrmAmdgpuWaitCs,
    DrmAmdgpuWaitCsIn,
    DrmAmdgpuWaitCsOut,
)

DEFAULT_RENDER_NODE = "/dev/dri/renderD128"
"""The first render node."""

__all__ = [
    "AMDGPU_BO_LIST_OP_CREATE",
    "AMDGPU_BO_LIST_OP_DESTROY",
    "AMDGPU_CHUNK_ID_BO_HANDLES",
    "AMDGPU_CHUNK_ID_IB",
    "AMDGPU_CTX_OP_ALLOC_CTX",
    "AMDGPU_CTX_OP_FREE_CTX",
    "AMDGPU_HW_IP_COMPUTE",
    "AMDGPU_HW_IP_GFX",
    "AMDGPU_IB_FLAG_EMIT_MEM_SYNC",
    "DEFAULT_RENDER_NODE",
    "DrmAmdgpuBoList",
    "DrmAmdgpuBoListEntry",
    "DrmAmdgpuBoListIn",
    "DrmAmdgpuBoListOut",
    "DrmAmdgpuCs",
    "DrmAmdgpuCsChunk",
    "DrmAmdgpuCsChunkIb",
    "DrmAmdgpuCsIn",
    "DrmAmdgpuCsOut",
    "DrmAmdgpuCtx",
    "DrmAmdgpuCtxIn",
    "DrmAmdgpuCtxOutAlloc",
    "DrmAmdgpuCtxOutState",
    "DrmAmdgpuWaitCs",
    "DrmAmdgpuWaitCsIn",
    "DrmAmdgpuWaitCsOut",
]
