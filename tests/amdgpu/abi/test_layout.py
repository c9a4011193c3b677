"""Every struct, request and constant against what the kernel's own headers say, printed from C (`layout.json`)."""

from __future__ import annotations

import ctypes
import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from amdgpu_emu.abi import driver, requests
from amdgpu_emu.abi.requests import REQUESTS, Ioctl, direction_of, kind_of, number_of, request_value, size_of

LAYOUT: dict[str, Any] = json.loads(Path(__file__).with_name("layout.json").read_text(encoding="utf-8"))
MODULES = [
    importlib.import_module(f"{package}.{name}")
    for name in ("cs", "drm", "gem", "info", "kfd", "userq")
    for package in ("zinc_rt.amdgpu.abi", "amdgpu_emu.abi")
]
"""The runtime's rows, and these with those that the emulator alone has."""
Aggregate = type[ctypes.Structure | ctypes.Union]
Fields = list[tuple[str, int, int]]

# Structs without a name of their own in the header: the aggregate and the member that they are.
MEMBERS = {
    "DrmAmdgpuCtxOutAlloc": ("drm_amdgpu_ctx_out", "alloc"),
    "DrmAmdgpuCtxOutState": ("drm_amdgpu_ctx_out", "state"),
    "DrmAmdgpuCtxOutPstate": ("drm_amdgpu_ctx_out", "pstate"),
    "DrmAmdgpuFenceToHandleIn": ("drm_amdgpu_fence_to_handle", "in"),
    "DrmAmdgpuFenceToHandleOut": ("drm_amdgpu_fence_to_handle", "out"),
    "DrmAmdgpuGemMetadataData": ("drm_amdgpu_gem_metadata", "data"),
    "DrmAmdgpuInfoModeCrtc": ("drm_amdgpu_info", "mode_crtc"),
    "DrmAmdgpuInfoQueryHwIp": ("drm_amdgpu_info", "query_hw_ip"),
    "DrmAmdgpuInfoReadMmrReg": ("drm_amdgpu_info", "read_mmr_reg"),
    "DrmAmdgpuInfoVbiosInfo": ("drm_amdgpu_info", "vbios_info"),
    "DrmAmdgpuInfoSensorInfo": ("drm_amdgpu_info", "sensor_info"),
    "DrmAmdgpuInfoVideoCap": ("drm_amdgpu_info", "video_cap"),
}
# The one struct that is there twice, and which of the header's layouts each one is.
VERSIONS = {
    "CreateQueueArgs": ("kfd_ioctl_create_queue_args", 88),
    "CreateQueueArgs96": ("kfd_ioctl_create_queue_args", 96),
}


def aggregates() -> dict[str, Aggregate]:
    """All public structs and unions of the package, by name."""
    return {
        name: value
        for module in MODULES
        for name, value in vars(module).items()
        if isinstance(value, type)
        and issubclass(value, ctypes.Structure | ctypes.Union)
        and value.__module__ == module.__name__
        and not name.startswith("_")
    }


ALL = aggregates()


def header_name(name: str) -> str:
    snake = re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()
    names = [n for n in (snake, f"kfd_ioctl_{snake}", f"kfd_{snake}") if n in LAYOUT["structs"]]
    assert names, f"{name} is in no header"
    return names[0]


def expected(name: str) -> tuple[int, Fields]:
    """Bytes and fields of a struct as the header has them."""
    if name in MEMBERS:
        header, member = MEMBERS[name]
        fields = LAYOUT["structs"][header][0][1]
        _, start, size = next(f for f in fields if f[0] == member)
        return size, [
            (n.removeprefix(f"{member}."), at - start, k) for n, at, k in fields if n.startswith(f"{member}.")
        ]
    if name in VERSIONS:
        header, size = VERSIONS[name]
        versions = [v for v in LAYOUT["structs"][header] if v[0] == size]
    else:
        versions = LAYOUT["structs"][header_name(name)]
    size, fields = versions[0]
    return size, [tuple(f) for f in fields]


def place(kind: Aggregate, dotted: str) -> tuple[int, int]:
    """Offset and bytes of a field, reached through members."""
    offset = size = 0
    for part in dotted.split("."):
        field = getattr(kind, f"{part}_" if hasattr(kind, f"{part}_") else part)
        offset, size = offset + field.offset, field.size
        kind = next((t for n, t in fields_of(kind) if n.removesuffix("_") == part), kind)
    return offset, size


def fields_of(kind: Aggregate) -> list[tuple[str, Any]]:
    """Names and types, those of anonymous members among them."""
    found: list[tuple[str, Any]] = []
    for name, type_, *_ in kind._fields_:
        found += fields_of(type_) if name in getattr(kind, "_anonymous_", ()) else [(name, type_)]
    return found


@pytest.mark.parametrize("name", sorted(ALL))
def test_struct(name: str) -> None:
    kind, (size, fields) = ALL[name], expected(name)
    assert ctypes.sizeof(kind) == size
    if name == "DrmAmdgpuCtx":  # its `out` is a union of three, which are its members here
        fields = [f for f in fields if f[0] != "out"] + [(f"out_{n}", 0, k) for n, _, k in outs()]
    for field, offset, length in fields:
        assert place(kind, field) == (offset, length), f"{name}.{field}"
    theirs = {field.partition(".")[0] for field, _, _ in fields}
    ours = {field if field.startswith("_") else field.removesuffix("_") for field, _ in fields_of(kind)}
    assert ours == theirs


def outs() -> Fields:
    return [tuple(f) for f in LAYOUT["structs"]["drm_amdgpu_ctx_out"][0][1] if "." not in f[0]]


@pytest.mark.parametrize(
    ("name", "older"),
    [
        ("DrmAmdgpuGemVa", 40),
        ("DrmAmdgpuGemOp", 16),
        ("DrmAmdgpuInfoHwIp", 32),
        ("DrmAmdgpuInfoDevice", 368),
        ("CreateQueueArgs96", 88),
    ],
)
def test_older_kernels_know_the_beginning(name: str, older: int) -> None:
    """A kernel that knows less of a struct takes the first bytes of ours, so those must be its own layout."""
    kind = ALL[name]
    header = VERSIONS[name][0] if name in VERSIONS else header_name(name)
    layouts = [fields for size, fields in LAYOUT["structs"][header] if size == older]
    assert layouts
    for fields in layouts:
        for field, offset, length in fields:
            if not field.startswith("_pad"):  # what was padding got a meaning
                assert place(kind, field) == (offset, length), field


@pytest.mark.parametrize("name", ["DrmAmdgpuUserqWait", "DrmAmdgpuUserqSignal"])
def test_counts_that_grew_narrower_stay_where_they_were(name: str) -> None:
    """Kernels before 7.2 read the count of sync objects as u32 or u64: the rest of those bytes must be padding."""
    kind = ALL[name]
    _, old = LAYOUT["structs"][header_name(name)][1]
    _, at, wide = next(f for f in old if f[0] == "num_syncobj_handles")
    assert place(kind, "num_syncobj_handles")[0] == at
    inside = {n for n, t in fields_of(kind) if at <= getattr(kind, n).offset < at + wide}
    assert all(n == "num_syncobj_handles" or n.startswith("pad") for n in inside)
    assert ctypes.sizeof(kind) == LAYOUT["structs"][header_name(name)][1][0]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda r: r.name)
def test_request(request_: Ioctl) -> None:
    assert request_.value in LAYOUT["ioctls"][request_.name]
    assert (direction_of(request_.value), kind_of(request_.value)) == (request_.direction, request_.type)
    assert (number_of(request_.value), size_of(request_.value)) == (request_.number, request_.size)
    assert ctypes.sizeof(request_.argument) == request_.size


def test_requests_of_other_versions() -> None:
    """The numbers that older or newer headers give to the same calls differ in the size alone."""
    seen = {r.name: r for r in REQUESTS}
    others = {name: [v for v in values if v != seen[name].value] for name, values in LAYOUT["ioctls"].items()}
    assert {name: [size_of(v) for v in values] for name, values in others.items() if values} == {
        "AMDGPU_GEM_OP": [16],
        "AMDGPU_GEM_VA": [40],
        "KFD_CREATE_QUEUE": [96],
    }
    for name, values in others.items():
        r = seen[name]
        assert [request_value(r.direction, r.type, r.number, size_of(v)) for v in values] == values


def test_every_request_is_named_once() -> None:
    names = [r.name for r in REQUESTS]
    assert len(set(names)) == len(names)
    assert len({(r.type, r.number) for r in REQUESTS}) == len(REQUESTS)
    assert {getattr(requests, r.name) for r in REQUESTS} == set(REQUESTS)
    assert set(LAYOUT["ioctls"]) == set(names)


def test_constants() -> None:
    ours = {
        name: value
        for module in MODULES
        for name, value in vars(module).items()
        if name.isupper() and isinstance(value, int)
    }
    assert ours == LAYOUT["constants"]


def test_the_drivers_own_constants() -> None:
    theirs = LAYOUT["driver"]
    for name in (
        "KFD_MMAP_TYPE_MMIO", "KFD_MMAP_TYPE_RESERVED_MEM", "KFD_MMAP_TYPE_EVENTS", "KFD_MMAP_TYPE_DOORBELL",
        "KFD_MMAP_GPU_ID_SHIFT", "KFD_MMAP_GPU_ID_MASK", "KFD_MAX_NUM_OF_QUEUES_PER_PROCESS",
    ):  # fmt: skip
        assert getattr(driver, name) == theirs[name], name
    assert theirs["KFD doorbell slice bytes (x86-64, MES or not)"] == driver.KFD_DOORBELL_SLICE
