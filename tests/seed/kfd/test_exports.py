"""The page's exports are there, by name and number."""

from __future__ import annotations

import ctypes
import inspect

import pytest

from amdgpu_emu.abi import requests
from zinc_rt.seed import kfd

NAMES_TEXT = """
DEFAULT_RENDER_NODE KFD_DEVICE_NODE TOPOLOGY_NODES_DIR MIN_KFD_MAJOR ALLOC_MEM_FLAGS_VRAM ALLOC_MEM_FLAGS_GTT
ALLOC_MEM_FLAGS_USERPTR ALLOC_MEM_FLAGS_DOORBELL ALLOC_MEM_FLAGS_COHERENT ALLOC_MEM_FLAGS_PUBLIC
ALLOC_MEM_FLAGS_EXECUTABLE ALLOC_MEM_FLAGS_WRITABLE QUEUE_TYPE_COMPUTE QUEUE_TYPE_SDMA QUEUE_TYPE_COMPUTE_AQL
GetVersionArgs AcquireVmArgs ProcessDeviceApertures GetProcessAperturesNewArgs AllocMemoryOfGpuArgs FreeMemoryOfGpuArgs
MapMemoryToGpuArgs CreateQueueArgs DestroyQueueArgs TopologyNode BringUpStatus BringUpResult last_errno render_minor_of
find_topology_node reachable bring_up_default bring_up_path ComputeQueueSmokeStatus ComputeQueueSmokeResult align_up
compute_cwsr_bo_size create_compute_queue_smoke_default create_compute_queue_smoke_path format_gfx_target
"""
NAMES = NAMES_TEXT.split()
BRING_UP = """
ok unsupported_os kfd_open_failed render_node_open_failed get_version_failed kfd_version_too_old topology_unreadable
topology_node_missing acquire_vm_failed apertures_failed aperture_missing va_reservation_failed va_outside_aperture
alloc_failed map_failed map_incomplete mmap_failed roundtrip_mismatch unmap_failed free_failed
"""
QUEUE_SMOKE = """
ok unsupported_os topology_node_missing kfd_open_failed render_node_open_failed get_version_failed kfd_version_too_old
acquire_vm_failed apertures_failed aperture_missing va_reservation_failed bo_alloc_failed bo_map_failed
create_queue_failed destroy_queue_failed
"""


def test_forty_exports() -> None:
    assert len(NAMES) == 40
    assert sorted(kfd.__all__) == sorted(NAMES)
    assert all(hasattr(kfd, name) for name in NAMES)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DEFAULT_RENDER_NODE", "/dev/dri/renderD128"),
        ("KFD_DEVICE_NODE", "/dev/kfd"),
        ("TOPOLOGY_NODES_DIR", "/sys/devices/virtual/kfd/kfd/topology/nodes"),
        ("MIN_KFD_MAJOR", 1),
        ("ALLOC_MEM_FLAGS_VRAM", 1 << 0),
        ("ALLOC_MEM_FLAGS_GTT", 1 << 1),
        ("ALLOC_MEM_FLAGS_USERPTR", 1 << 2),
        ("ALLOC_MEM_FLAGS_DOORBELL", 1 << 3),
        ("ALLOC_MEM_FLAGS_COHERENT", 1 << 26),
        ("ALLOC_MEM_FLAGS_PUBLIC", 1 << 29),
        ("ALLOC_MEM_FLAGS_EXECUTABLE", 1 << 30),
        ("ALLOC_MEM_FLAGS_WRITABLE", 1 << 31),
        ("QUEUE_TYPE_COMPUTE", 0),
        ("QUEUE_TYPE_SDMA", 1),
        ("QUEUE_TYPE_COMPUTE_AQL", 2),
    ],
)
def test_constants(name: str, value: int | str) -> None:
    assert getattr(kfd, name) == value


@pytest.mark.parametrize(
    ("name", "size", "request_name", "request_value"),
    [
        ("GetVersionArgs", 8, "KFD_GET_VERSION", 0x80084B01),
        ("AcquireVmArgs", 8, "KFD_ACQUIRE_VM", 0x40084B15),
        ("GetProcessAperturesNewArgs", 16, "KFD_GET_PROCESS_APERTURES_NEW", 0xC0104B14),
        ("AllocMemoryOfGpuArgs", 40, "KFD_ALLOC_MEMORY_OF_GPU", 0xC0284B16),
        ("FreeMemoryOfGpuArgs", 8, "KFD_FREE_MEMORY_OF_GPU", 0x40084B17),
        ("MapMemoryToGpuArgs", 24, "KFD_MAP_MEMORY_TO_GPU", 0xC0184B18),
        ("MapMemoryToGpuArgs", 24, "KFD_UNMAP_MEMORY_FROM_GPU", 0xC0184B19),
        ("CreateQueueArgs", 88, "KFD_CREATE_QUEUE", 0xC0584B02),
        ("DestroyQueueArgs", 8, "KFD_DESTROY_QUEUE", 0xC0084B03),
    ],
)
def test_structs_and_requests(name: str, size: int, request_name: str, request_value: int) -> None:
    assert ctypes.sizeof(getattr(kfd, name)) == size
    assert getattr(requests, request_name).value == request_value
    assert ctypes.sizeof(kfd.ProcessDeviceApertures) == 56


def test_statuses() -> None:
    assert [s.value for s in kfd.BringUpStatus] == BRING_UP.split()
    assert [s.value for s in kfd.ComputeQueueSmokeStatus] == QUEUE_SMOKE.split()


def test_results_start_empty() -> None:
    result = kfd.BringUpResult(kfd.BringUpStatus.alloc_failed)
    assert (result.render_node, result.gpu_id, result.errno, result.ok()) == ("/dev/dri/renderD128", 0, None, False)
    assert kfd.BringUpResult(kfd.BringUpStatus.ok).ok()
    queue = kfd.ComputeQueueSmokeResult(kfd.ComputeQueueSmokeStatus.ok)
    assert queue.create_queue_arg_size == 88
    assert queue.ok()
    assert not kfd.ComputeQueueSmokeResult(kfd.ComputeQueueSmokeStatus.ok, destroy_errno=5).ok()


def test_whatever_touches_the_system_takes_it_as_last_keyword() -> None:
    for name in (
        "find_topology_node",
        "reachable",
        "bring_up_default",
        "bring_up_path",
        "create_compute_queue_smoke_default",
        "create_compute_queue_smoke_path",
    ):
        last = list(inspect.signature(getattr(kfd, name)).parameters.values())[-1]
        assert (last.name, last.kind, last.default) == ("linux", inspect.Parameter.KEYWORD_ONLY, None)
