"""The page `kmd`: what the kernel says a render node can do, and the calls that a user queue is built from.

The direct tiers must prove that the kernel offers compute user queues: a kernel version promises nothing, the number
of slots that it reports does. `file` is an open render node: a descriptor, or anything with `fileno`.
"""

from zinc_rt.amdgpu.abi.cs import AMDGPU_HW_IP_COMPUTE
from zinc_rt.amdgpu.abi.gem import (
    AMDGPU_GEM_CREATE_CPU_GTT_USWC,
    AMDGPU_GEM_CREATE_VM_ALWAYS_VALID,
    AMDGPU_GEM_CREATE_VRAM_CLEARED,
    AMDGPU_GEM_DOMAIN_DOORBELL,
    AMDGPU_GEM_DOMAIN_GTT,
    AMDGPU_GEM_DOMAIN_VRAM,
    AMDGPU_VA_OP_MAP,
    AMDGPU_VM_MTYPE_DEFAULT,
    AMDGPU_VM_PAGE_EXECUTABLE,
    AMDGPU_VM_PAGE_READABLE,
    AMDGPU_VM_PAGE_WRITEABLE,
    DrmAmdgpuGemCreate,
    DrmAmdgpuGemCreateIn,
    DrmAmdgpuGemCreateOut,
    DrmAmdgpuGemMmap,
    DrmAmdgpuGemMmapIn,
    DrmAmdgpuGemMmapOut,
    DrmAmdgpuGemVa,
)
from zinc_rt.amdgpu.abi.info import (
    AMDGPU_INFO_HW_IP_INFO,
    AMDGPU_INFO_UQ_FW_AREAS,
    DrmAmdgpuInfo,
    DrmAmdgpuInfoHwIp,
    DrmAmdgpuInfoUqMetadata,
)
from zinc_rt.amdgpu.abi.userq import (
    AMDGPU_USERQ_OP_CREATE,
    AMDGPU_USERQ_OP_FREE,
    DrmAmdgpuUserq,
    DrmAmdgpuUserqIn,
    DrmAmdgpuUserqMqdComputeGfx11,
    DrmAmdgpuUserqOut,
)
from zinc_rt.amdgpu.drm.call import File, last_errno
from zinc_rt.amdgpu.drm.gem import Bo, Mapped, close_gem, create_gem, map_gem_va, mmap_gem, unmap_gem, unmap_gem_va
from zinc_rt.amdgpu.drm.query import (
    ComputeUserqInfo,
    QueryResult,
    QueryStatus,
    query_compute_userq,
    query_hw_ip,
    query_info,
)
from zinc_rt.amdgpu.drm.userq import create_compute_userq, free_userq
from zinc_rt.amdgpu.errors import CallFailed, IoctlFailed
from zinc_rt.amdgpu.errors import CallFailed as KmdError

__all__ = [
    "AMDGPU_GEM_CREATE_CPU_GTT_USWC",
    "AMDGPU_GEM_CREATE_VM_ALWAYS_VALID",
    "AMDGPU_GEM_CREATE_VRAM_CLEARED",
    "AMDGPU_GEM_DOMAIN_DOORBELL",
    "AMDGPU_GEM_DOMAIN_GTT",
    "AMDGPU_GEM_DOMAIN_VRAM",
    "AMDGPU_HW_IP_COMPUTE",
    "AMDGPU_INFO_HW_IP_INFO",
    "AMDGPU_INFO_UQ_FW_AREAS",
    "AMDGPU_USERQ_OP_CREATE",
    "AMDGPU_USERQ_OP_FREE",
    "AMDGPU_VA_OP_MAP",
    "AMDGPU_VM_MTYPE_DEFAULT",
    "AMDGPU_VM_PAGE_EXECUTABLE",
    "AMDGPU_VM_PAGE_READABLE",
    "AMDGPU_VM_PAGE_WRITEABLE",
    "Bo",
    "CallFailed",
    "ComputeUserqInfo",
    "DrmAmdgpuGemCreate",
    "DrmAmdgpuGemCreateIn",
    "DrmAmdgpuGemCreateOut",
    "DrmAmdgpuGemMmap",
    "DrmAmdgpuGemMmapIn",
    "DrmAmdgpuGemMmapOut",
    "DrmAmdgpuGemVa",
    "DrmAmdgpuInfo",
    "DrmAmdgpuInfoHwIp",
    "DrmAmdgpuInfoUqMetadata",
    "DrmAmdgpuUserq",
    "DrmAmdgpuUserqIn",
    "DrmAmdgpuUserqMqdComputeGfx11",
    "DrmAmdgpuUserqOut",
    "File",
    "IoctlFailed",
    "KmdError",
    "Mapped",
    "QueryResult",
    "QueryStatus",
    "close_gem",
    "create_compute_userq",
    "create_gem",
    "free_userq",
    "last_errno",
    "map_gem_va",
    "mmap_gem",
    "query_compute_userq",
    "query_hw_ip",
    "query_info",
    "unmap_gem",
    "unmap_gem_va",
]
