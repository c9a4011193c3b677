"""Buffers: handles, placements, mappings, rights, sharing (section 1)."""

from __future__ import annotations

import ctypes
import errno
import mmap

import pytest

from amdgpu_emu.abi import kfd as u
from amdgpu_emu.abi import requests as r
from amdgpu_emu.machine import Machine
from amdgpu_emu.memory import Placement
from amdgpu_emu.models import R9700, RAPHAEL, RX9070, SMALL_BAR
from amdgpu_emu.vm import Mapping
from tests.amdgpu_emu.kfd import stage as s
from tests.amdgpu_emu.kfd.stage import DATA, GTT, PAGE, RWX, VRAM, Stage, refused
from zinc_rt.utils.linux import MAP_FIXED, MAP_SHARED, PROT_READ, PROT_WRITE

TWO = pytest.mark.parametrize("machine", [{"models": (R9700, RX9070)}], indirect=True)


def mapping_at(stage: Stage, va: int, gpu: int = 0) -> Mapping | None:
    assert stage.process.kfd is not None
    device = stage.process.kfd.device(stage.machine.gpus[gpu].gpu_id)
    return device.vm.starting_at(va)


def test_handles_are_gpu_id_and_lowest_free_number(stage: Stage) -> None:
    handles = [stage.alloc(DATA, PAGE).handle for _ in range(3)]
    assert handles == [stage.gpu_id << 32 | i for i in range(3)]
    stage.free(handles[1])
    assert stage.alloc(DATA, PAGE).handle == handles[1]


def test_offsets_begin_at_4_gib_and_are_whole_pages(stage: Stage) -> None:
    offsets = [stage.alloc(DATA, PAGE + 1).mmap_offset for _ in range(3)]
    assert offsets[0] >= 1 << 32
    assert all(offset % PAGE == 0 for offset in offsets)
    assert len(set(offsets)) == 3


def test_sizes_are_rounded_up_to_pages(stage: Stage) -> None:
    handle = stage.buffer(DATA, PAGE + 1)
    found = mapping_at(stage, DATA)
    assert found is not None
    assert found.size == 2 * PAGE
    assert stage.process.kfd is not None
    assert stage.process.kfd.memory(handle, errno.EINVAL).bo.size == 2 * PAGE


def test_the_address_is_not_looked_at_before_map(stage: Stage) -> None:
    handle = stage.alloc(DATA + 3, PAGE).handle
    with refused(errno.EINVAL):
        stage.map(handle)


@pytest.mark.parametrize(
    ("flags", "place"),
    [
        (VRAM | GTT, Placement.VRAM),
        (GTT | u.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR, Placement.GTT),
        (GTT, Placement.GTT),
        (VRAM | u.KFD_IOC_ALLOC_MEM_FLAGS_PUBLIC, Placement.VRAM),
    ],
)
def test_the_first_placement_counts(stage: Stage, flags: int, place: Placement) -> None:
    handle = stage.alloc(DATA, PAGE, flags).handle
    assert stage.process.kfd is not None
    assert stage.process.kfd.memory(handle, errno.EINVAL).bo.placement is place


def test_memory_shows_what_the_other_side_wrote(stage: Stage) -> None:
    at = stage.cpu(DATA, PAGE)
    assert stage.process.load64(at) == 0
    stage.process.store64(at, 0x5A494E435F525431)
    found = mapping_at(stage, DATA)
    assert found is not None
    assert found.bo.bytes[:8].tobytes() == b"1TR_CNIZ"


def test_mapped_where_a_reservation_was(stage: Stage) -> None:
    """The bring-up's way: an empty range chooses the address, the buffer takes its place."""
    process = stage.process
    reserved = process.mmap(0, 0x10000, 0, 0x22)
    args = stage.alloc(reserved, PAGE)
    at = process.mmap(reserved, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, stage.drm, args.mmap_offset)
    assert at == reserved
    stage.map(args.handle)
    process.store64(at, 7)
    assert process.load64(at) == 7
    process.munmap(reserved, 0x10000)


@pytest.mark.parametrize(
    ("flags", "writable", "executable"),
    [
        (0, False, False),
        (u.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE, True, False),
        (u.KFD_IOC_ALLOC_MEM_FLAGS_EXECUTABLE, False, True),
        (RWX, True, True),
    ],
)
def test_rights_of_a_mapping(stage: Stage, flags: int, writable: bool, executable: bool) -> None:
    stage.buffer(DATA, PAGE, GTT | flags)
    found = mapping_at(stage, DATA)
    assert found is not None
    assert (found.readable, found.writable, found.executable) == (True, writable, executable)


def test_uncached_buffers_are(stage: Stage) -> None:
    plain = stage.buffer(DATA, PAGE)
    uncached = stage.buffer(DATA + PAGE, PAGE, GTT | s.UNCACHED)
    kfd = stage.process.kfd
    assert kfd is not None
    assert not kfd.memory(plain, errno.EINVAL).bo.uncached
    assert kfd.memory(uncached, errno.EINVAL).bo.uncached


def test_mapping_again_changes_nothing(stage: Stage) -> None:
    handle = stage.buffer(DATA, PAGE)
    found = mapping_at(stage, DATA)
    assert stage.map(handle).n_success == 1
    assert mapping_at(stage, DATA) is found


def test_unmapped_is_gone_and_can_be_mapped_again(stage: Stage) -> None:
    handle = stage.buffer(DATA, PAGE)
    stage.unmap(handle)
    assert mapping_at(stage, DATA) is None
    with refused(errno.EINVAL):
        stage.unmap(handle)
    stage.map(handle)
    assert mapping_at(stage, DATA) is not None


def test_n_success_continues(stage: Stage) -> None:
    """What was done already is not done again: the array before n_success may hold anything."""
    handle = stage.alloc(DATA, PAGE).handle
    ids = (ctypes.c_uint32 * 2)(0xDEAD, stage.gpu_id)
    args = u.MapMemoryToGpuArgs(handle=handle, device_ids_array_ptr=ctypes.addressof(ids), n_devices=2, n_success=1)
    stage.call(r.KFD_MAP_MEMORY_TO_GPU, args)
    assert args.n_success == 2
    assert mapping_at(stage, DATA) is not None


def test_the_last_page_of_the_address_space(stage: Stage) -> None:
    stage.buffer((1 << 48) - PAGE, PAGE)
    assert mapping_at(stage, (1 << 48) - PAGE) is not None


def test_nothing_left_to_do(stage: Stage) -> None:
    """n_success = n_devices: done, without a look at any device."""
    handle = stage.alloc(DATA, PAGE).handle
    ids = (ctypes.c_uint32 * 1)(0xDEAD)
    for request, kind in (
        (r.KFD_MAP_MEMORY_TO_GPU, u.MapMemoryToGpuArgs),
        (r.KFD_UNMAP_MEMORY_FROM_GPU, u.UnmapMemoryFromGpuArgs),
    ):
        args = kind(handle=handle, device_ids_array_ptr=ctypes.addressof(ids), n_devices=1, n_success=1)
        stage.call(request, args)
        assert mapping_at(stage, DATA) is None


def test_queue_memory_is_mapped_twice(stage: Stage) -> None:
    """AQL_QUEUE_MEM: half of the size, its two mappings end to end."""
    flags = GTT | RWX | u.KFD_IOC_ALLOC_MEM_FLAGS_AQL_QUEUE_MEM
    handle = stage.buffer(DATA, 4 * PAGE, flags)
    first, second = mapping_at(stage, DATA), mapping_at(stage, DATA + 2 * PAGE)
    assert first is not None
    assert second is not None
    assert first.bo is second.bo
    assert (first.size, second.size) == (2 * PAGE, 2 * PAGE)
    stage.unmap(handle)
    assert mapping_at(stage, DATA) is None
    assert mapping_at(stage, DATA + 2 * PAGE) is None


def test_user_memory(stage: Stage) -> None:
    memory = mmap.mmap(-1, PAGE)
    at = ctypes.addressof(ctypes.c_uint8.from_buffer(memory))
    args = stage.alloc(DATA, PAGE, u.KFD_IOC_ALLOC_MEM_FLAGS_USERPTR | RWX, mmap_offset=at)
    stage.map(args.handle)
    memory[:4] = b"user"
    found = mapping_at(stage, DATA)
    assert found is not None
    assert found.bo.bytes[:4].tobytes() == b"user"
    with refused(errno.EPERM):
        stage.mmap(stage.drm, PAGE, args.mmap_offset)


def test_doorbells_as_a_buffer(stage: Stage) -> None:
    stage.buffer(DATA, 8192, u.KFD_IOC_ALLOC_MEM_FLAGS_DOORBELL | u.KFD_IOC_ALLOC_MEM_FLAGS_WRITABLE)
    found = mapping_at(stage, DATA)
    assert found is not None
    assert found.bo.doorbell is not None


def test_remapped_registers(stage: Stage) -> None:
    args = stage.alloc(DATA, PAGE, u.KFD_IOC_ALLOC_MEM_FLAGS_MMIO_REMAP)
    assert args.mmap_offset == stage.gpu_id << 46, "type MMIO, on /dev/kfd"
    stage.process.store32(stage.mmap(stage.kfd, PAGE, args.mmap_offset), 1)


@TWO
def test_two_gpus_have_two_address_spaces(machine: Machine) -> None:
    stage = Stage(machine)
    second = machine.gpus[1].gpu_id
    drm = stage.open(machine.gpus[1].render_node)
    handle = stage.alloc(DATA, PAGE).handle
    with refused(errno.ENODEV):
        stage.map(handle, stage.gpu_id, second)
    assert mapping_at(stage, DATA) is not None, "the first was mapped before the second failed"
    stage.call(r.KFD_ACQUIRE_VM, drm_fd=drm, gpu_id=second)
    assert stage.map(handle, stage.gpu_id, second).n_success == 2
    here, there = mapping_at(stage, DATA), mapping_at(stage, DATA, 1)
    assert here is not None
    assert there is not None
    assert here.bo is there.bo
    stage.unmap(handle, second)
    with refused(errno.EBUSY):
        stage.free(handle)
    other = stage.alloc(DATA, PAGE, gpu_id=second).handle
    assert other == second << 32, "numbers count for each GPU"
    stage.close()


@pytest.mark.parametrize("machine", [{"models": (SMALL_BAR, R9700)}], indirect=True)
def test_vram_behind_a_small_bar_is_out_of_reach_of_others(machine: Machine) -> None:
    stage = Stage(machine)
    second = machine.gpus[1].gpu_id
    stage.call(r.KFD_ACQUIRE_VM, drm_fd=stage.open(machine.gpus[1].render_node), gpu_id=second)
    handle = stage.alloc(DATA, PAGE, VRAM).handle
    with refused(errno.EINVAL):
        stage.map(handle, second)
    stage.map(handle)
    stage.close()


def test_available_memory_is_rounded_and_shrinks(stage: Stage) -> None:
    def available() -> int:
        return int(stage.call(r.KFD_AVAILABLE_MEMORY, gpu_id=stage.gpu_id).available)

    before = available()
    assert before % (2 << 20) == 0
    assert before <= R9700.vram
    handle = stage.alloc(DATA, 64 << 20, VRAM).handle
    assert available() == before - (64 << 20)
    stage.free(handle)
    assert available() == before


@pytest.mark.parametrize("machine", [{"models": (RAPHAEL,)}], indirect=True)
def test_an_integrated_gpu_counts_system_memory(machine: Machine) -> None:
    stage = Stage(machine)
    assert stage.call(r.KFD_AVAILABLE_MEMORY, gpu_id=stage.gpu_id).available == RAPHAEL.gtt
    stage.close()


def test_the_trap_handler_is_in_every_address_space(stage: Stage) -> None:
    found = mapping_at(stage, (1 << 48) - 0x410000)
    assert found is not None
    assert found.size == 8192
    assert found.executable


# Sharing.


def test_a_buffer_as_a_file(stage: Stage) -> None:
    handle = stage.buffer(DATA, 2 * PAGE, GTT)
    exported = stage.call(r.KFD_EXPORT_DMABUF, handle=handle, flags=0)
    info = stage.call(r.KFD_GET_DMABUF_INFO, dmabuf_fd=exported.dmabuf_fd)
    assert (info.size, info.gpu_id, info.flags & GTT) == (2 * PAGE, stage.gpu_id, GTT)
    imported = stage.call(
        r.KFD_IMPORT_DMABUF, dmabuf_fd=exported.dmabuf_fd, gpu_id=stage.gpu_id, va_addr=DATA + 0x10000
    )
    stage.handles.append(imported.handle)
    stage.map(imported.handle)
    here, there = mapping_at(stage, DATA), mapping_at(stage, DATA + 0x10000)
    assert here is not None
    assert there is not None
    assert here.bo is there.bo
    assert not here.writable
    assert there.writable
    assert there.executable
    stage.process.close(exported.dmabuf_fd)
    used = stage.machine.gpus[0].used[Placement.GTT]
    stage.unmap(handle)
    stage.free(handle)
    assert stage.machine.gpus[0].used[Placement.GTT] == used, "the import holds the pages"
    stage.unmap(imported.handle)
    stage.free(imported.handle)
    assert stage.machine.gpus[0].used[Placement.GTT] == used - 2 * PAGE


def test_what_is_freed_is_given_back(stage: Stage) -> None:
    gpu = stage.machine.gpus[0]
    before = dict(gpu.used)
    for flags in (GTT, VRAM):
        stage.free(stage.alloc(DATA, 1 << 20, flags).handle)
    assert gpu.used == before
