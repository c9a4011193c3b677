"""Queries of the kernel about a GPU, and the search for compute user queues."""

from __future__ import annotations

import contextlib
import ctypes
from ctypes import Structure, Union
from dataclasses import dataclass
from enum import StrEnum

from zinc_rt.amdgpu.abi.cs import AMDGPU_HW_IP_COMPUTE
from zinc_rt.amdgpu.abi.info import (
    AMDGPU_INFO_HW_IP_INFO,
    AMDGPU_INFO_UQ_FW_AREAS,
    DrmAmdgpuInfo,
    DrmAmdgpuInfoHwIp,
    DrmAmdgpuInfoUqMetadata,
)
from zinc_rt.amdgpu.abi.requests import AMDGPU_INFO
from zinc_rt.amdgpu.drm.call import File, ioctl
from zinc_rt.amdgpu.errors import IoctlFailed
from zinc_rt.utils.linux import Linux, host


class QueryStatus(StrEnum):
    """The result of the search for compute user queues: every step that can fail has a word of its own."""

    available = "available"
    unsupported_os = "unsupported_os"
    render_node_open_failed = "render_node_open_failed"
    hw_ip_info_failed = "hw_ip_info_failed"
    compute_userq_unsupported = "compute_userq_unsupported"
    compute_userq_slots_missing = "compute_userq_slots_missing"
    fw_metadata_failed = "fw_metadata_failed"
    invalid_fw_metadata = "invalid_fw_metadata"


@dataclass(frozen=True)
class ComputeUserqInfo:
    """The sizes that a compute user queue needs. userq_slots: queues that can be resident at once; eop_size,
    eop_alignment: bytes of the end-of-pipe buffer that the firmware keeps its fence packets in.
    """

    userq_slots: int
    eop_size: int
    eop_alignment: int


@dataclass(frozen=True)
class QueryResult:
    """The answer of `query_compute_userq`. info: when available; errno: of the call that failed."""

    status: QueryStatus
    info: ComputeUserqInfo | None = None
    errno: int | None = None


def query_compute_userq(render_node: str, *, linux: Linux | None = None) -> QueryResult:
    """Whether the kernel behind a render node, a path, offers compute user queues. Never raises.

    In this order: the node can be opened, it answers for its compute engine, that has kernel rings, it has slots for
    user queues, and the firmware says how large an end-of-pipe buffer is.
    """
    linux = linux or host()
    if not linux.is_linux:
        return QueryResult(QueryStatus.unsupported_os)
    try:
        fd = linux.open(render_node)
    except OSError as error:
        return QueryResult(QueryStatus.render_node_open_failed, errno=error.errno)
    except ValueError:  # a path that no file can have
        return QueryResult(QueryStatus.render_node_open_failed)
    try:
        return _query(fd, linux)
    finally:
        with contextlib.suppress(OSError):
            linux.close(fd)


def _query(fd: int, linux: Linux) -> QueryResult:
    try:
        ip = query_hw_ip(fd, AMDGPU_HW_IP_COMPUTE, linux=linux)
    except IoctlFailed as error:
        return QueryResult(QueryStatus.hw_ip_info_failed, errno=error.errno)
    if not ip.available_rings:
        return QueryResult(QueryStatus.compute_userq_unsupported)
    if not ip.userq_num_slots:
        return QueryResult(QueryStatus.compute_userq_slots_missing)
    areas = DrmAmdgpuInfoUqMetadata()
    try:
        query_info(fd, AMDGPU_INFO_UQ_FW_AREAS, areas, ip_type=AMDGPU_HW_IP_COMPUTE, linux=linux)
    except IoctlFailed as error:
        return QueryResult(QueryStatus.fw_metadata_failed, errno=error.errno)
    size, alignment = areas.compute.eop_size, areas.compute.eop_alignment
    if not size or not alignment:
        return QueryResult(QueryStatus.invalid_fw_metadata)
    return QueryResult(QueryStatus.available, ComputeUserqInfo(ip.userq_num_slots, size, alignment))


def query_hw_ip(file: File, ip_type: int, *, linux: Linux | None = None) -> DrmAmdgpuInfoHwIp:
    """What the kernel says of the first engine of a type, as `AMDGPU_HW_IP_COMPUTE`. Raises `IoctlFailed`.

    Kernels before 6.17 leave `userq_num_slots` out: 0. An engine that is not there is all zeros.
    """
    ip = DrmAmdgpuInfoHwIp()
    query_info(file, AMDGPU_INFO_HW_IP_INFO, ip, ip_type=ip_type, linux=linux)
    return ip


def query_info(
    file: File, query: int, answer: Structure | Union, *, ip_type: int = 0, linux: Linux | None = None
) -> None:
    """Any question of INFO; the answer is written to the struct. ip_type: for those about an engine (for FW_VERSION
    the firmware). A kernel that knows less of the struct leaves the rest as it was. Raises `IoctlFailed`.
    """
    info = DrmAmdgpuInfo(ctypes.addressof(answer), ctypes.sizeof(answer), query)
    info.query_hw_ip.type = ip_type
    ioctl(file, AMDGPU_INFO, info, linux)
