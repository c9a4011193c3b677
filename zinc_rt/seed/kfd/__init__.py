"""The way to PM4 over /dev/kfd: what the page `kfd` exports.

`bring_up_path` proves memory, `create_compute_queue_smoke_path` a queue; `zinc_rt.amdgpu.kfd.interface` has
`KfdInterface`.
"""

from zinc_rt.amdgpu.abi.kfd import (
    AcquireVmArgs,
    AllocMemoryOfGpuArgs,
    CreateQueueArgs,
    DestroyQueueArgs,
    FreeMemoryOfGpuArgs,
    GetProcessAperturesNewArgs,
    GetVersionArgs,
    MapMemoryToGpuArgs,
    ProcessDeviceApertures,
)
from zinc_rt.amdgpu.gfx import gfx_name as format_gfx_target
from zinc_rt.amdgpu.interface import DEFAULT_RENDER_NODE
from zinc_rt.amdgpu.kfd.calls import last_errno
from zinc_rt.amdgpu.kfd.constants import (
    ALLOC_MEM_FLAGS_COHERENT,
    ALLOC_MEM_FLAGS_DOORBELL,
    ALLOC_MEM_FLAGS_EXECUTABLE,
    ALLOC_MEM_FLAGS_GTT,
    ALLOC_MEM_FLAGS_PUBLIC,
    ALLOC_MEM_FLAGS_USERPTR,
    ALLOC_MEM_FLAGS_VRAM,
    ALLOC_MEM_FLAGS_WRITABLE,
    KFD_DEVICE_NODE,
    MIN_KFD_MAJOR,
    QUEUE_TYPE_COMPUTE,
    QUEUE_TYPE_COMPUTE_AQL,
    QUEUE_TYPE_SDMA,
    TOPOLOGY_NODES_DIR,
)
from zinc_rt.amdgpu.kfd.sizes import align_up, compute_cwsr_bo_size
from zinc_rt.amdgpu.kfd.topology import TopologyNode, find_topology_node, reachable, render_minor_of
from zinc_rt.seed.kfd.bring_up import BringUpResult, BringUpStatus, bring_up_default, bring_up_path
from zinc_rt.seed.kfd.queue_smoke import (
    ComputeQueueSmokeResult,
    ComputeQueueSmokeStatus,
    create_compute_queue_smoke_default,
    create_compute_queue_smoke_path,
)

__all__ = [
    "ALLOC_MEM_FLAGS_COHERENT",
    "ALLOC_MEM_FLAGS_DOORBELL",
    "ALLOC_MEM_FLAGS_EXECUTABLE",
    "ALLOC_MEM_FLAGS_GTT",
    "ALLOC_MEM_FLAGS_PUBLIC",
    "ALLOC_MEM_FLAGS_USERPTR",
    "ALLOC_MEM_FLAGS_VRAM",
    "ALLOC_MEM_FLAGS_WRITABLE",
    "DEFAULT_RENDER_NODE",
    "KFD_DEVICE_NODE",
    "MIN_KFD_MAJOR",
    "QUEUE_TYPE_COMPUTE",
    "QUEUE_TYPE_COMPUTE_AQL",
    "QUEUE_TYPE_SDMA",
    "TOPOLOGY_NODES_DIR",
    "AcquireVmArgs",
    "AllocMemoryOfGpuArgs",
    "BringUpResult",
    "BringUpStatus",
    "ComputeQueueSmokeResult",
    "ComputeQueueSmokeStatus",
    "CreateQueueArgs",
    "DestroyQueueArgs",
    "FreeMemoryOfGpuArgs",
    "GetProcessAperturesNewArgs",
    "GetVersionArgs",
    "MapMemoryToGpuArgs",
    "ProcessDeviceApertures",
    "TopologyNode",
    "align_up",
    "bring_up_default",
    "bring_up_path",
    "compute_cwsr_bo_size",
    "create_compute_queue_smoke_default",
    "create_compute_queue_smoke_path",
    "find_topology_node",
    "format_gfx_target",
    "last_errno",
    "reachable",
    "render_minor_of",
]
