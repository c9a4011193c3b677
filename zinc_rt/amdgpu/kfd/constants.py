"""Paths, flags and queue types of /dev/kfd, under short names."""

from __future__ import annotations

from zinc_rt.amdgpu.abi import kfd as uapi

KFD_DEVICE_NODE = "/dev/kfd"
TOPOLOGY_NODES_DIR = "/sys/devices/virtual/kfd/kfd/topology/nodes"
MIN_KFD_MAJOR = 1
"""Below this major version of the interface there is no PM4 queue as we create it."""

ALLOC_MEM_FLAGS_VRAM = uapi.KFD_IOC_ALLOC_MEM_FLAGS_VRAM
ALLOC_MEM_FLAGS_GTT = uapi.KFD_IOC_ALLOC_MEM_FLAGS_GTT
ALLOC_MEM_FLAGS_USERPTR = uapi.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR
ALLOC_MEM_FLAGS_DOORBELL = uapi.KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL
ALLOC_MEM_FLAGS_UNCACHED = uapi.KFD_IOC_ALLOC_MEM_FLAGS_UNCACHED
ALLOC_MEM_FLAGS_COHERENT = uapi.KFD_IOC_ALLOC_MEM_FLAGS_COHERENT
ALLOC_MEM_FLAGS_NO_SUBSTITUTE = uapi.KFD_IOC_ALLOC_MEM_FLAGS_NO_SUBSTITUTE
ALLOC_MEM_FLAGS_PUBLIC = uapi.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC
ALLOC_MEM_FLAGS_EXECUTABLE = uapi.KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE
ALLOC_MEM_FLAGS_WRITABLE = uapi.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE

QUEUE_TYPE_COMPUTE = uapi.KFD_IOC_QUEUE_TYPE_COMPUTE
QUEUE_TYPE_SDMA = uapi.KFD_IOC_QUEUE_TYPE_SDMA
QUEUE_TYPE_COMPUTE_AQL = uapi.KFD_IOC_QUEUE_TYPE_COMPUTE_AQL

QUEUE_PERCENTAGE = 100
QUEUE_PRIORITY = 7
"""Of 0..15: the middle, which every known runtime asks for."""

EVENTS_SINCE_MINOR = 14
"""From interface version 1.14 on there are RUNTIME_ENABLE and event ages; the event page is handed over then."""
