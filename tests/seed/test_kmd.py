"""amdgpu's render node, call by call: what is asked of the kernel, and what its answers become."""

from __future__ import annotations

import ctypes
import errno
import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import zinc_rt
from zinc_rt.amdgpu.errors import CallFailed
from zinc_rt.seed import kmd
from zinc_rt.seed.kmd import Bo, IoctlFailed, QueryStatus, last_errno
from zinc_rt.utils.linux import MAP_SHARED, PROT_READ, PROT_WRITE, Argument, Linux

# Requests as the kernel's headers make them (exports, section 1.1a), and the variant of INFO's direction.
GEM_CREATE, GEM_MMAP, INFO, GEM_VA, USERQ = 0xC0206440, 0xC0086441, 0x40206445, 0x40406448, 0xC0486456
GEM_CLOSE = 0x40086409

EXPORTS: list[str] = re.findall(
    r"\w+",
    """
QueryStatus ComputeUserqInfo QueryResult AMDGPU_HW_IP_COMPUTE AMDGPU_INFO_HW_IP_INFO AMDGPU_INFO_UQ_FW_AREAS
AMDGPU_USERQ_OP_CREATE AMDGPU_USERQ_OP_FREE AMDGPU_GEM_DOMAIN_GTT AMDGPU_GEM_DOMAIN_VRAM AMDGPU_GEM_DOMAIN_DOORBELL
AMDGPU_GEM_CREATE_CPU_GTT_USWC AMDGPU_GEM_CREATE_VRAM_CLEARED AMDGPU_GEM_CREATE_VM_ALWAYS_VALID AMDGPU_VA_OP_MAP
AMDGPU_VM_PAGE_READABLE AMDGPU_VM_PAGE_WRITEABLE AMDGPU_VM_PAGE_EXECUTABLE AMDGPU_VM_MTYPE_DEFAULT
DrmAmdgpuGemCreateIn DrmAmdgpuGemCreateOut DrmAmdgpuGemCreate DrmAmdgpuGemMmapIn DrmAmdgpuGemMmapOut DrmAmdgpuGemMmap
DrmAmdgpuGemVa DrmAmdgpuInfo DrmAmdgpuInfoHwIp DrmAmdgpuInfoUqMetadata DrmAmdgpuUserqIn DrmAmdgpuUserqOut
DrmAmdgpuUserq DrmAmdgpuUserqMqdComputeGfx11 Bo query_compute_userq query_hw_ip create_gem mmap_gem map_gem_va
create_compute_userq free_userq last_errno
""",
)

CONSTANTS = {
    "AMDGPU_HW_IP_COMPUTE": 1,
    "AMDGPU_INFO_HW_IP_INFO": 0x02,
    "AMDGPU_INFO_UQ_FW_AREAS": 0x24,
    "AMDGPU_USERQ_OP_CREATE": 1,
    "AMDGPU_USERQ_OP_FREE": 2,
    "AMDGPU_GEM_DOMAIN_GTT": 0x2,
    "AMDGPU_GEM_DOMAIN_VRAM": 0x4,
    "AMDGPU_GEM_DOMAIN_DOORBELL": 0x40,
    "AMDGPU_GEM_CREATE_CPU_GTT_USWC": 1 << 2,
    "AMDGPU_GEM_CREATE_VRAM_CLEARED": 1 << 3,
    "AMDGPU_GEM_CREATE_VM_ALWAYS_VALID": 1 << 6,
    "AMDGPU_VA_OP_MAP": 1,
    "AMDGPU_VM_PAGE_READABLE": 1 << 1,
    "AMDGPU_VM_PAGE_WRITEABLE": 1 << 2,
    "AMDGPU_VM_PAGE_EXECUTABLE": 1 << 3,
    "AMDGPU_VM_MTYPE_DEFAULT": 0,
}
SIZES = {
    "DrmAmdgpuGemCreateIn": 32, "DrmAmdgpuGemCreateOut": 8, "DrmAmdgpuGemCreate": 32, "DrmAmdgpuGemMmapIn": 8,
    "DrmAmdgpuGemMmapOut": 8, "DrmAmdgpuGemMmap": 8, "DrmAmdgpuGemVa": 64, "DrmAmdgpuInfo": 32, "DrmAmdgpuInfoHwIp": 40,
    "DrmAmdgpuInfoUqMetadata": 16, "DrmAmdgpuUserqIn": 72, "DrmAmdgpuUserqOut": 8, "DrmAmdgpuUserq": 72,
    "DrmAmdgpuUserqMqdComputeGfx11": 8,
}  # fmt: skip


class FakeKernel(Linux):
    """A kernel of a few lines. answers: by request, what the ioctl does with its argument; an int is its errno."""

    def __init__(self, answers: dict[int, Any] | None = None) -> None:
        self.answers = answers or {}
        self.opened: list[str] = []
        self.closed: list[int] = []
        self.requests: list[tuple[int, int]] = []
        self.mapped: list[tuple[int, ...]] = []
        self.refuse_open = self.refuse_mmap = self.refuse_close = 0
        self.memory = ctypes.create_string_buffer(1 << 16)

    @property
    def is_linux(self) -> bool:
        return True

    def open(self, path: str, flags: int = os.O_RDWR) -> int:
        if "\0" in path:
            raise ValueError("embedded null byte")
        assert flags & os.O_ACCMODE == os.O_RDWR
        self.opened.append(path)
        if self.refuse_open:
            raise OSError(self.refuse_open, "refused")
        return 42

    def close(self, fd: int) -> None:
        self.closed.append(fd)
        if self.refuse_close:
            raise OSError(self.refuse_close, "refused")

    def ioctl(self, fd: int, request: int, argument: Argument) -> int:
        self.requests.append((fd, request))
        answer = self.answers[request]
        if isinstance(answer, int):
            raise OSError(answer, os.strerror(answer))
        answer(argument)
        return 0

    def mmap(self, address: int, length: int, protection: int, flags: int, fd: int = -1, offset: int = 0) -> int:
        self.mapped.append((address, length, protection, flags, fd, offset))
        if self.refuse_mmap:
            raise OSError(self.refuse_mmap, "refused")
        return ctypes.addressof(self.memory)

    def munmap(self, address: int, length: int) -> None:
        self.mapped.append((address, length))


class OtherSystem(Linux):
    """Whatever is asked of it is a bug."""

    @property
    def is_linux(self) -> bool:
        return False

    def open(self, path: str, flags: int = 0) -> int:
        raise AssertionError("nothing may be opened here")


def hw_ip(*, rings: int = 0xF, slots: int = 4) -> kmd.DrmAmdgpuInfoHwIp:
    return kmd.DrmAmdgpuInfoHwIp(12, 0, 0, 32, 32, rings, 0x0C0001, slots)


def info(ip: Any = None, areas: Any = (2048, 256)) -> Callable[[kmd.DrmAmdgpuInfo], None]:
    """What INFO answers. ip: the engine, areas: bytes and alignment of its end-of-pipe buffer, each or an errno."""

    def answer(argument: kmd.DrmAmdgpuInfo) -> None:
        assert (argument.query_hw_ip.type, argument.query_hw_ip.ip_instance) == (1, 0)
        if argument.query == 0x02:
            reply, n = hw_ip() if ip is None else ip, 40
        else:
            assert argument.query == 0x24
            reply, n = areas, 16
        if isinstance(reply, int):
            raise OSError(reply, os.strerror(reply))
        data = bytes(reply) if not isinstance(reply, tuple) else b"".join(w.to_bytes(4, "little") for w in reply)
        assert argument.return_size == n
        ctypes.memmove(argument.return_pointer, data, min(len(data), argument.return_size))

    return answer


# The page.


def test_every_export_is_there() -> None:
    assert len(EXPORTS) == 42
    assert [name for name in EXPORTS if not hasattr(kmd, name)] == []
    assert set(EXPORTS) <= set(kmd.__all__)
    assert zinc_rt.kmd is kmd


def test_constants_and_sizes() -> None:
    assert {name: getattr(kmd, name) for name in CONSTANTS} == CONSTANTS
    assert {name: ctypes.sizeof(getattr(kmd, name)) for name in SIZES} == SIZES


def test_statuses_keep_their_words() -> None:
    assert [s.value for s in QueryStatus] == [
        "available",
        "unsupported_os",
        "render_node_open_failed",
        "hw_ip_info_failed",
        "compute_userq_unsupported",
        "compute_userq_slots_missing",
        "fw_metadata_failed",
        "invalid_fw_metadata",
    ]


# query_compute_userq: one test a status, and that the file is closed behind each.


def query(**how: Any) -> tuple[kmd.QueryResult, FakeKernel]:
    kernel = FakeKernel({INFO: info(**how)})
    result = kmd.query_compute_userq("/dev/dri/renderD129", linux=kernel)
    assert kernel.opened == ["/dev/dri/renderD129"]
    assert kernel.closed == [42]
    return result, kernel


def test_available() -> None:
    result, kernel = query()
    assert result == kmd.QueryResult(QueryStatus.available, kmd.ComputeUserqInfo(4, 2048, 256))
    assert kernel.requests == [(42, INFO), (42, INFO)]


def test_unsupported_os() -> None:
    assert kmd.query_compute_userq("/dev/dri/renderD128", linux=OtherSystem()).status is QueryStatus.unsupported_os


@pytest.mark.parametrize("code", [errno.ENOENT, errno.EACCES])
def test_render_node_open_failed(code: int) -> None:
    kernel = FakeKernel()
    kernel.refuse_open = code
    result = kmd.query_compute_userq("/dev/dri/renderD128", linux=kernel)
    assert result == kmd.QueryResult(QueryStatus.render_node_open_failed, errno=code)
    assert not kernel.closed


def test_a_path_that_no_file_can_have() -> None:
    result = kmd.query_compute_userq("/dev/\0", linux=FakeKernel())
    assert result == kmd.QueryResult(QueryStatus.render_node_open_failed)


def test_hw_ip_info_failed() -> None:
    result, _ = query(ip=errno.ENODEV)
    assert result == kmd.QueryResult(QueryStatus.hw_ip_info_failed, errno=errno.ENODEV)


def test_compute_userq_unsupported() -> None:
    result, kernel = query(ip=hw_ip(rings=0))
    assert result == kmd.QueryResult(QueryStatus.compute_userq_unsupported)
    assert len(kernel.requests) == 1


def test_compute_userq_slots_missing() -> None:
    result, kernel = query(ip=hw_ip(slots=0))
    assert result == kmd.QueryResult(QueryStatus.compute_userq_slots_missing)
    assert len(kernel.requests) == 1


def test_a_kernel_that_knows_no_slots() -> None:
    """Before 6.17 the struct had 32 bytes."""
    result, _ = query(ip=bytes(hw_ip())[:32])
    assert result.status is QueryStatus.compute_userq_slots_missing


def test_fw_metadata_failed() -> None:
    result, _ = query(areas=errno.EINVAL)
    assert result == kmd.QueryResult(QueryStatus.fw_metadata_failed, errno=errno.EINVAL)


@pytest.mark.parametrize("areas", [(0, 256), (2048, 0), (0, 0)])
def test_invalid_fw_metadata(areas: tuple[int, int]) -> None:
    result, _ = query(areas=areas)
    assert result == kmd.QueryResult(QueryStatus.invalid_fw_metadata)


def test_a_close_that_fails_is_no_failure_of_the_query() -> None:
    kernel = FakeKernel({INFO: info()})
    kernel.refuse_close = errno.EIO
    assert kmd.query_compute_userq("/dev/dri/renderD128", linux=kernel).status is QueryStatus.available


# The calls.


def test_query_hw_ip() -> None:
    kernel = FakeKernel({INFO: info()})
    ip = kmd.query_hw_ip(7, kmd.AMDGPU_HW_IP_COMPUTE, linux=kernel)
    assert (ip.hw_ip_version_major, ip.available_rings, ip.userq_num_slots) == (12, 0xF, 4)
    assert kernel.requests == [(7, INFO)]


def test_files_are_taken_as_well_as_descriptors(tmp_path: Path) -> None:
    kernel = FakeKernel({INFO: info()})
    with (tmp_path / "node").open("w") as file:
        kmd.query_hw_ip(file, 1, linux=kernel)
        assert kernel.requests == [(file.fileno(), INFO)]


def test_create_gem() -> None:
    def create(argument: kmd.DrmAmdgpuGemCreate) -> None:
        given = argument.in_
        assert (given.bo_size, given.alignment, given.domains, given.domain_flags) == (5000, 256, 2, 0x44)
        argument.out.handle = 9

    bo = kmd.create_gem(7, 5000, 256, 2, 0x44, linux=FakeKernel({GEM_CREATE: create}))
    assert bo == Bo(9, 5000)


def test_close_gem() -> None:
    seen: list[int] = []
    kmd.close_gem(7, Bo(9, 1), linux=FakeKernel({GEM_CLOSE: lambda a: seen.append(a.handle)}))
    assert seen == [9]


def test_mmap_gem() -> None:
    def offset(argument: kmd.DrmAmdgpuGemMmap) -> None:
        assert argument.in_.handle == 9
        argument.out.addr_ptr = 0x1_0000_2000

    kernel = FakeKernel({GEM_MMAP: offset})
    mapped = kmd.mmap_gem(7, Bo(9, 5000), PROT_READ | PROT_WRITE, linux=kernel)
    assert kernel.mapped == [(0, 5000, 3, MAP_SHARED, 7, 0x1_0000_2000)]
    assert len(mapped) == 5000
    mapped[4999] = 0x5A
    assert kernel.memory[4999] == b"\x5a"
    assert memoryview(mapped).nbytes == 5000
    kmd.unmap_gem(mapped, linux=kernel)
    assert kernel.mapped[1:] == [(ctypes.addressof(kernel.memory), 5000)]


def test_mmap_gem_that_fails() -> None:
    kernel = FakeKernel({GEM_MMAP: errno.ENOENT})
    with pytest.raises(IoctlFailed, match="AMDGPU_GEM_MMAP failed: No such file"):
        kmd.mmap_gem(7, Bo(9, 4096), PROT_READ, linux=kernel)
    assert last_errno() == errno.ENOENT
    kernel = FakeKernel({GEM_MMAP: lambda a: None})
    kernel.refuse_mmap = errno.ENOMEM
    with pytest.raises(CallFailed, match="mmap of the render node") as caught:
        kmd.mmap_gem(7, Bo(9, 4096), PROT_READ, linux=kernel)
    assert caught.value.errno == errno.ENOMEM
    assert last_errno() is None  # the ioctl went well


def va_call(call: Callable[[Linux], None]) -> kmd.DrmAmdgpuGemVa:
    seen: list[kmd.DrmAmdgpuGemVa] = []

    def keep(argument: kmd.DrmAmdgpuGemVa) -> None:
        seen.append(kmd.DrmAmdgpuGemVa.from_buffer_copy(argument))

    call(FakeKernel({GEM_VA: keep}))
    return seen[0]


def test_map_gem_va() -> None:
    a = va_call(lambda linux: kmd.map_gem_va(7, Bo(9, 0x3000), 0x1_0000_0000, 0xE, linux=linux))
    assert (a.handle, a.operation, a.flags, a.va_address) == (9, 1, 0xE, 0x1_0000_0000)
    assert (a.offset_in_bo, a.map_size) == (0, 0x3000)
    assert (a.vm_timeline_point, a.vm_timeline_syncobj_out, a.num_syncobj_handles) == (0, 0, 0)


def test_a_size_that_is_no_page_is_mapped_as_the_kernel_rounded_it() -> None:
    assert va_call(lambda linux: kmd.map_gem_va(7, Bo(9, 4097), 0x10000, 2, linux=linux)).map_size == 8192


def test_a_timeline_point_goes_with_a_map() -> None:
    a = va_call(lambda linux: kmd.map_gem_va(7, Bo(9, 4096), 0x10000, 2, timeline=(3, 17), linux=linux))
    assert (a.vm_timeline_syncobj_out, a.vm_timeline_point) == (3, 17)


def test_unmap_gem_va() -> None:
    a = va_call(lambda linux: kmd.unmap_gem_va(7, Bo(9, 4096), 0x10000, linux=linux))
    assert (a.handle, a.operation, a.flags, a.va_address) == (9, 2, 0, 0x10000)


def test_create_compute_userq() -> None:
    def create(argument: kmd.DrmAmdgpuUserq) -> None:
        given = argument.in_
        assert (given.op, given.queue_id, given.ip_type, given.flags) == (1, 0, 1, 2)
        assert (given.doorbell_handle, given.doorbell_offset) == (5, 4)
        assert (given.queue_va, given.queue_size) == (0x100000000, 0x10000)
        assert (given.rptr_va, given.wptr_va) == (0x100030000, 0x100020000)
        assert given.mqd_size == 8
        assert ctypes.c_uint64.from_address(given.mqd).value == 0x100040000
        argument.out.queue_id = 3

    kernel = FakeKernel({USERQ: create})
    made = kmd.create_compute_userq(
        7, 5, 4, 0x100000000, 0x10000, 0x100030000, 0x100020000, 0x100040000, 2, linux=kernel
    )
    assert made == 3


def test_free_userq() -> None:
    def free(argument: kmd.DrmAmdgpuUserq) -> None:
        assert bytes(argument) == (2).to_bytes(4, "little") + (3).to_bytes(4, "little") + bytes(64)

    kmd.free_userq(7, 3, linux=FakeKernel({USERQ: free}))


# Errors.


def calls() -> list[Callable[[Linux], object]]:
    bo = Bo(9, 4096)
    return [
        lambda linux: kmd.query_hw_ip(7, 1, linux=linux),
        lambda linux: kmd.create_gem(7, 4096, 256, 2, 0, linux=linux),
        lambda linux: kmd.close_gem(7, bo, linux=linux),
        lambda linux: kmd.mmap_gem(7, bo, 3, linux=linux),
        lambda linux: kmd.map_gem_va(7, bo, 0x10000, 2, linux=linux),
        lambda linux: kmd.unmap_gem_va(7, bo, 0x10000, linux=linux),
        lambda linux: kmd.create_compute_userq(7, 1, 4, 1, 2, 3, 4, 5, 0, linux=linux),
        lambda linux: kmd.free_userq(7, 3, linux=linux),
    ]


@pytest.mark.parametrize("i", range(8))
@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOMEM, errno.ENODEV])
def test_every_call_tells_its_errno(i: int, code: int) -> None:
    kernel = FakeKernel(dict.fromkeys((GEM_CREATE, GEM_MMAP, INFO, GEM_VA, USERQ, GEM_CLOSE), code))
    with pytest.raises(IoctlFailed) as caught:
        calls()[i](kernel)
    assert caught.value.errno == last_errno() == code
    assert os.strerror(code) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_last_errno_is_cleared_at_the_start_of_every_ioctl() -> None:
    with pytest.raises(IoctlFailed):
        kmd.query_hw_ip(7, 1, linux=FakeKernel({INFO: errno.EINVAL}))
    assert last_errno() == errno.EINVAL
    seen: list[int | None] = []
    kmd.close_gem(7, Bo(9, 1), linux=FakeKernel({GEM_CLOSE: lambda a: seen.append(last_errno())}))
    assert seen == [None]
    assert last_errno() is None


def test_last_errno_is_each_threads_own() -> None:
    with pytest.raises(IoctlFailed):
        kmd.query_hw_ip(7, 1, linux=FakeKernel({INFO: errno.EINVAL}))
    seen: list[int | None] = []
    thread = threading.Thread(target=lambda: seen.append(last_errno()))
    thread.start()
    thread.join()
    assert seen == [None]
    assert last_errno() == errno.EINVAL


# The real kernel.


def test_a_render_node_that_is_not_there() -> None:
    result = kmd.query_compute_userq("/dev/dri/renderD1000")
    assert result == kmd.QueryResult(QueryStatus.render_node_open_failed, errno=errno.ENOENT)


def test_files_that_are_no_render_nodes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in ("/dev/null", str(tmp_path / "file")):
        result = kmd.query_compute_userq(path)
        assert result == kmd.QueryResult(QueryStatus.hw_ip_info_failed, errno=errno.ENOTTY)
    assert kmd.query_compute_userq(str(tmp_path)).errno == errno.EISDIR


def test_no_descriptor_is_left() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    for path in ("/dev/null", "/dev/dri/renderD1000"):
        kmd.query_compute_userq(path)
    assert sorted(os.listdir("/proc/self/fd")) == before
