"""mmap of /dev/kfd and of the render node (section 1)."""

from __future__ import annotations

import errno

import pytest

from amdgpu_emu.abi.driver import KFD_MMAP_TYPE_DOORBELL, KFD_MMAP_TYPE_EVENTS, KFD_MMAP_TYPE_RESERVED_MEM
from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, RX9070
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3
from tests.amdgpu_emu.kfd.stage import DATA, PAGE, Stage, refused

SLICE = 8192
OLD = pytest.mark.parametrize("machine", [LINUX_6_12, LINUX_6_17], ids=lambda k: k.name, indirect=True)


def doorbells(gpu_id: int) -> int:
    return KFD_MMAP_TYPE_DOORBELL | gpu_id << 46


def test_doorbells_can_be_mapped_before_any_queue(stage: Stage) -> None:
    assert stage.mmap(stage.kfd, SLICE, doorbells(stage.gpu_id))


@pytest.mark.parametrize("length", [4096, 12288, 16384])
def test_doorbells_have_one_length(stage: Stage, length: int) -> None:
    with refused(errno.EINVAL):
        stage.mmap(stage.kfd, length, doorbells(stage.gpu_id))


def test_doorbells_of_an_unknown_gpu(stage: Stage) -> None:
    with refused(errno.ENODEV):
        stage.mmap(stage.kfd, SLICE, doorbells(0xDEAD))


def test_low_bits_below_the_slice_do_not_matter(stage: Stage) -> None:
    """Within the slice's alignment: an offset of one page still shows the slice from its start."""
    stage.queue_buffers()
    stage.create_queue()
    at = stage.mmap(stage.kfd, SLICE, doorbells(stage.gpu_id) + PAGE)
    found = stage.process.map_at(at)
    assert found is not None
    assert stage.process.kfd is not None
    assert found[2] is stage.process.kfd.device(stage.gpu_id).doorbells.page()


def test_an_offset_that_is_no_page(stage: Stage) -> None:
    with refused(errno.EINVAL):
        stage.mmap(stage.kfd, SLICE, doorbells(stage.gpu_id) + 8)


@pytest.mark.parametrize(("length", "gpu", "code"), [(8192, 0, errno.EINVAL), (4096, 0xDEAD, errno.ENODEV)])
def test_registers(stage: Stage, length: int, gpu: int, code: int) -> None:
    with refused(code):
        stage.mmap(stage.kfd, length, (gpu or stage.gpu_id) << 46)


@OLD
def test_the_kernels_event_page(machine: Machine) -> None:
    stage = Stage(machine)
    with refused(errno.EINVAL):
        stage.mmap(stage.kfd, PAGE, KFD_MMAP_TYPE_EVENTS)
    made = stage.event()
    assert made.event_page_offset == KFD_MMAP_TYPE_EVENTS
    at = stage.mmap(stage.kfd, 32768, KFD_MMAP_TYPE_EVENTS)
    assert stage.process.load64(at + 8 * made.event_slot_index) == (1 << 64) - 1
    with refused(errno.EINVAL):
        stage.mmap(stage.kfd, 65536, KFD_MMAP_TYPE_EVENTS)
    stage.close()


@pytest.mark.parametrize("machine", [LINUX_7_3], indirect=True)
@pytest.mark.parametrize("kind", [KFD_MMAP_TYPE_EVENTS, KFD_MMAP_TYPE_RESERVED_MEM])
def test_new_kernels_map_neither_events_nor_reserved_memory(machine: Machine, kind: int) -> None:
    stage = Stage(machine)
    stage.event_page()
    with refused(errno.EINVAL):
        stage.mmap(stage.kfd, SLICE, kind | stage.gpu_id << 46)
    stage.close()


@pytest.mark.parametrize("machine", [LINUX_6_12], indirect=True)
def test_reserved_memory_of_an_old_kernel(machine: Machine) -> None:
    stage = Stage(machine)
    at = stage.mmap(stage.kfd, SLICE, KFD_MMAP_TYPE_RESERVED_MEM | stage.gpu_id << 46)
    found = stage.process.map_at(at)
    assert found is not None
    assert stage.process.kfd is not None
    assert found[2] is stage.process.kfd.device(stage.gpu_id).trap_page()
    with refused(errno.EINVAL):
        stage.mmap(stage.kfd, PAGE, KFD_MMAP_TYPE_RESERVED_MEM | stage.gpu_id << 46)
    stage.close()


# The render node.


@pytest.mark.parametrize(("shift", "length"), [(PAGE, PAGE), (0, 3 * PAGE)])
def test_a_map_begins_at_a_buffer_and_fits(stage: Stage, shift: int, length: int) -> None:
    args = stage.alloc(DATA, 2 * PAGE)
    with refused(errno.EINVAL):
        stage.mmap(stage.drm, length, args.mmap_offset + shift)
    assert stage.mmap(stage.drm, PAGE, args.mmap_offset)


def test_a_freed_buffers_offset_shows_nothing(stage: Stage) -> None:
    args = stage.alloc(DATA, PAGE)
    stage.free(args.handle)
    with refused(errno.EINVAL):
        stage.mmap(stage.drm, PAGE, args.mmap_offset)


def test_only_the_acquired_file_maps_it(stage: Stage) -> None:
    args = stage.alloc(DATA, PAGE)
    other = stage.open(stage.machine.gpus[0].render_node)
    with refused(errno.EACCES):
        stage.mmap(other, PAGE, args.mmap_offset)


@pytest.mark.parametrize("machine", [{"models": (R9700, RX9070)}], indirect=True)
def test_each_gpu_has_its_own_doorbells(machine: Machine) -> None:
    stage = Stage(machine)
    first, second = (stage.mmap(stage.kfd, SLICE, doorbells(gpu.gpu_id)) for gpu in machine.gpus)
    one, two = stage.process.map_at(first), stage.process.map_at(second)
    assert one is not None
    assert two is not None
    assert one[2] is not two[2]
    stage.close()
