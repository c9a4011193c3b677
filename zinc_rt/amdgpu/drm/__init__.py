"""Calls of amdgpu's render node: buffers, questions, user queues.

`file` is an open render node: a descriptor, or anything with `fileno`. A call that is refused raises `IoctlFailed`.
"""

from zinc_rt.amdgpu.drm.call import File, ioctl
from zinc_rt.amdgpu.drm.gem import Bo, Mapped, close_gem, create_gem, map_gem_va, mmap_gem, unmap_gem, unmap_gem_va
from zinc_rt.amdgpu.drm.query import QueryResult, QueryStatus, query_compute_userq, query_hw_ip, query_info
from zinc_rt.amdgpu.drm.userq import create_compute_userq, free_userq

__all__ = [
    "Bo",
    "File",
    "Mapped",
    "QueryResult",
    "QueryStatus",
    "close_gem",
    "create_compute_userq",
    "create_gem",
    "free_userq",
    "ioctl",
    "map_gem_va",
    "mmap_gem",
    "query_compute_userq",
    "query_hw_ip",
    "query_info",
    "unmap_gem",
    "unmap_gem_va",
]
