"""Queues as objects: ids, doorbells, sizes, versions, masks, GWS (section 2)."""

from __future__ import annotations

import ctypes
import errno

import pytest

from amdgpu_emu.abi import kfd as u
from amdgpu_emu.abi import requests as r
from amdgpu_emu.kfd.doorbells import Doorbells
from amdgpu_emu.kfd.queue_calls import ENOTSUPP
from amdgpu_emu.machine import Machine
from amdgpu_emu.models import R9700, RAPHAEL, RX9060XT, RX9070
from amdgpu_emu.profiles import LINUX_6_12, LINUX_6_17, LINUX_7_3
from tests.amdgpu_emu.kfd import stage as s
from tests.amdgpu_emu.kfd.stage import CWSR, CWSR_BO, CWSR_SIZE, EOP, PAGE, RING, RING_BYTES, RPTR, WPTR, Stage, refused

STRICT = pytest.mark.parametrize("machine", [LINUX_6_17], indirect=True)
RELAXED = pytest.mark.parametrize("machine", [LINUX_6_12, LINUX_7_3], ids=lambda k: k.name, indirect=True)


def sdma(stage: Stage, **changes: int) -> u.CreateQueueArgs:
    return stage.create_queue(queue_type=u.KFD_IOC_QUEUE_TYPE_SDMA, **changes)


def cell(args: u.CreateQueueArgs) -> int:
    """Number of the doorbell."""
    return (args.doorbell_offset & 0x1FFF) // 8


def test_figures_of_the_models_are_the_kernels() -> None:
    """Worked out by hand from kfd_queue_ctx_save_restore_size for 64, 56 and 32 compute units."""
    assert (R9700.ctl_stack_size, R9700.cwsr_size, R9700.debug_memory_size) == (0x7000, 0x1D47000, 0x10000)
    assert (RX9070.ctl_stack_size, RX9070.cwsr_size) == (0x6000, 0x199E000)
    assert (RX9060XT.ctl_stack_size, RX9060XT.cwsr_size) == (0x4000, 0xEA4000)


def test_what_create_gives_back(stage: Stage) -> None:
    stage.queue_buffers()
    args = stage.create_queue()
    assert args.queue_id == 0
    assert args.doorbell_offset == 3 << 62 | stage.gpu_id << 46


def test_ids_and_doorbells_are_the_lowest_free(stage: Stage) -> None:
    stage.queue_buffers()
    made = [stage.create_queue() for _ in range(4)]
    assert [(args.queue_id, cell(args)) for args in made] == [(0, 0), (1, 1), (2, 2), (3, 3)]
    stage.destroy_queue(1)
    again = stage.create_queue()
    assert (again.queue_id, cell(again)) == (1, 1)


def test_queues_of_copy_engines(stage: Stage) -> None:
    """Six of each of two engines, in turn; even and odd ones lie in the two halves of the doorbells."""
    stage.queue_buffers()
    made = [sdma(stage, eop_buffer_address=0, ctx_save_restore_address=0) for _ in range(12)]
    expected = [(0x100, 0x10A)[i % 2] + (i // 2 & 1) * 512 + (i // 2 >> 1) for i in range(12)]
    assert [cell(args) for args in made] == expected
    with refused(errno.ENOMEM):
        sdma(stage)


def test_a_queue_of_a_chosen_engine(stage: Stage) -> None:
    stage.queue_buffers()
    args = u.CreateQueueArgs96(sdma_engine_id=1)
    args.base = stage.queue_args(queue_type=u.KFD_IOC_QUEUE_TYPE_SDMA_BY_ENG_ID)
    stage.process.ioctl(stage.kfd, s.sized(r.KFD_CREATE_QUEUE, 96), args)
    stage.queues.append(args.queue_id)
    assert cell(args.base) == 0x10A
    args.sdma_engine_id = 2
    with refused(errno.EINVAL):
        stage.process.ioctl(stage.kfd, s.sized(r.KFD_CREATE_QUEUE, 96), args)


def test_no_engine_for_links(stage: Stage) -> None:
    stage.queue_buffers()
    with refused(errno.ENOMEM):
        stage.create_queue(queue_type=u.KFD_IOC_QUEUE_TYPE_SDMA_XGMI)


def test_127_queues_of_a_process_on_a_gpu(stage: Stage) -> None:
    stage.queue_buffers()
    for _ in range(127):
        stage.create_queue()
    with refused(errno.ENOSPC):
        stage.create_queue()


def test_compute_doorbells_skip_those_of_other_engines(machine: Machine) -> None:
    doorbells = Doorbells(machine.gpus[0], lambda cell, value: None)
    taken = [doorbells.take() for _ in range(1024 - 2 * 0x91)]
    others = {*range(0x100, 0x191), *range(0x300, 0x391)}
    assert taken == [n for n in range(1024) if n not in others]
    with refused(errno.EBUSY):
        doorbells.take()
    doorbells.give_back(5)
    assert doorbells.take() == 5


def test_the_bits_above_a_percentage_choose_a_die(stage: Stage) -> None:
    stage.queue_buffers()
    stage.create_queue(queue_percentage=100 | 3 << 8)
    with refused(errno.EINVAL):
        stage.create_queue(queue_percentage=101 | 3 << 8)


@pytest.mark.parametrize("size", [1, 2, 512])
def test_small_rings_become_1024_bytes(stage: Stage, size: int) -> None:
    """So a queue with a ring of one byte looks at one page and more (6.17: any size of mapping)."""
    stage.queue_buffers()
    stage.create_queue(ring_size=size)
    assert stage.process.kfd is not None
    assert stage.process.kfd.queues.find(0, 0).properties.ring_bytes == 1024


@STRICT
def test_a_ring_below_a_page_is_not_compared(machine: Machine) -> None:
    stage = Stage(machine)
    stage.queue_buffers()
    stage.create_queue(ring_size=1024)
    stage.close()


@RELAXED
def test_a_ring_below_a_page_needs_one_page(machine: Machine) -> None:
    stage = Stage(machine)
    stage.queue_buffers(ring=PAGE)
    stage.create_queue(ring_size=1024)
    stage.close()


@RELAXED
def test_a_larger_eop_buffer(machine: Machine) -> None:
    stage = Stage(machine)
    stage.queue_buffers(eop=2 * PAGE)
    stage.create_queue(eop_buffer_size=2 * PAGE)
    stage.create_queue(eop_buffer_size=2 * PAGE - 100)
    with refused(errno.EINVAL):
        stage.create_queue(eop_buffer_size=PAGE)
    stage.close()


@STRICT
def test_an_eop_buffer_has_4096_bytes(machine: Machine) -> None:
    stage = Stage(machine)
    stage.queue_buffers(eop=2 * PAGE)
    with refused(errno.EINVAL):
        stage.create_queue(eop_buffer_size=2 * PAGE)
    stage.close()


def test_no_eop_buffer_at_all(stage: Stage) -> None:
    stage.queue_buffers(eop=0)
    stage.create_queue(eop_buffer_address=0, eop_buffer_size=0)


def test_a_larger_save_area(stage: Stage) -> None:
    stage.queue_buffers(cwsr=CWSR_BO + PAGE)
    stage.create_queue(ctx_save_restore_size=CWSR_SIZE + PAGE)


def test_pointers_in_one_page_or_two(stage: Stage) -> None:
    stage.queue_buffers()
    stage.buffer(s.DATA, PAGE)
    stage.create_queue(write_pointer_address=s.DATA + 0x38, read_pointer_address=RPTR + 3)


@pytest.mark.parametrize("bytes_", [2 * PAGE])
def test_pointers_need_a_mapping_of_one_page(stage: Stage, bytes_: int) -> None:
    stage.queue_buffers(pointers=bytes_)
    with refused(errno.EINVAL):
        stage.create_queue()


def test_copy_queues_need_no_save_area(stage: Stage) -> None:
    stage.queue_buffers(eop=0, cwsr=0)
    sdma(stage, ctl_stack_size=0, ctx_save_restore_size=0)
    with refused(errno.EINVAL):
        stage.create_queue()


@pytest.mark.parametrize("machine", [LINUX_7_3], indirect=True)
def test_metadata_rings_of_new_kernels(machine: Machine) -> None:
    stage = Stage(machine)
    stage.queue_buffers(ring=RING_BYTES + PAGE)
    args = u.CreateQueueArgs96(metadata_ring_size=PAGE)
    args.base = stage.queue_args(queue_type=u.KFD_IOC_QUEUE_TYPE_COMPUTE_AQL)
    stage.process.ioctl(stage.kfd, s.sized(r.KFD_CREATE_QUEUE, 96), args)
    stage.queues.append(args.queue_id)
    args.metadata_ring_size = 3000
    with refused(errno.EINVAL):
        stage.process.ioctl(stage.kfd, s.sized(r.KFD_CREATE_QUEUE, 96), args)
    stage.close()


def test_metadata_rings_were_padding(stage: Stage) -> None:
    stage.queue_buffers()
    args = u.CreateQueueArgs96(metadata_ring_size=3000)
    args.base = stage.queue_args(queue_type=u.KFD_IOC_QUEUE_TYPE_COMPUTE_AQL)
    stage.process.ioctl(stage.kfd, s.sized(r.KFD_CREATE_QUEUE, 96), args)
    stage.queues.append(args.queue_id)


@pytest.mark.parametrize("va", [RING, RPTR, EOP, CWSR])
def test_buffers_of_a_queue_stay_until_it_is_destroyed(stage: Stage, va: int) -> None:
    stage.queue_buffers()
    number = stage.create_queue().queue_id
    handle = stage.handles[(RING, RPTR, EOP, CWSR).index(va)]
    with refused(errno.EBUSY):
        stage.unmap(handle)
    stage.destroy_queue(number)
    stage.unmap(handle)
    stage.free(handle)


def test_not_the_kernels_eopnotsupp() -> None:
    assert ENOTSUPP == 524 != errno.EOPNOTSUPP


# Changes.


def test_update_can_move_the_ring(stage: Stage) -> None:
    stage.queue_buffers()
    number = stage.create_queue().queue_id
    other = stage.buffer(s.DATA, RING_BYTES)
    stage.call(
        r.KFD_UPDATE_QUEUE, queue_id=number, ring_base_address=s.DATA, ring_size=RING_BYTES, queue_percentage=100
    )
    with refused(errno.EBUSY):
        stage.unmap(other)
    stage.unmap(stage.handles[0])


def test_a_stopped_queue_tells_its_wave_state(stage: Stage) -> None:
    stage.queue_buffers()
    number = stage.create_queue().queue_id
    stage.call(r.KFD_UPDATE_QUEUE, queue_id=number, queue_percentage=100)
    state = stage.call(r.KFD_GET_QUEUE_WAVE_STATE, queue_id=number, ctl_stack_used_size=7)
    assert (state.ctl_stack_used_size, state.save_area_used_size) == (0, 0)


def test_a_mask_beyond_1024_bits_is_cut(stage: Stage) -> None:
    stage.queue_buffers()
    number = stage.create_queue().queue_id
    words = (ctypes.c_uint32 * 32)(*[3] * 32)
    stage.call(r.KFD_SET_CU_MASK, queue_id=number, num_cu_mask=2048, cu_mask_ptr=ctypes.addressof(words))
    assert stage.process.kfd is not None
    assert stage.process.kfd.queues.find(number, 0).cu_mask == (3,) * 32


def test_one_queue_has_the_gws(stage: Stage) -> None:
    stage.queue_buffers()
    first, second = stage.create_queue().queue_id, stage.create_queue().queue_id
    assert stage.call(r.KFD_ALLOC_QUEUE_GWS, queue_id=first, num_gws=64, first_gws=9).first_gws == 0
    with refused(errno.EBUSY):
        stage.call(r.KFD_ALLOC_QUEUE_GWS, queue_id=second, num_gws=64)
    stage.call(r.KFD_ALLOC_QUEUE_GWS, queue_id=first, num_gws=0)
    stage.call(r.KFD_ALLOC_QUEUE_GWS, queue_id=second, num_gws=64)


@pytest.mark.parametrize("machine", [{"models": (RAPHAEL,)}], indirect=True)
def test_a_gpu_without_gws(machine: Machine) -> None:
    stage = Stage(machine)
    waves = 2 * 32
    debug = waves * 32
    size = 2 * (0x40000 + 0x4000 + 0x10000 + 0x1000) + 4096
    stage.queue_buffers(cwsr=(size + debug + PAGE - 1) // PAGE * PAGE)
    number = stage.create_queue(ctl_stack_size=4096, ctx_save_restore_size=size).queue_id
    with refused(errno.ENODEV):
        stage.call(r.KFD_ALLOC_QUEUE_GWS, queue_id=number, num_gws=64)
    stage.close()


@pytest.mark.parametrize("machine", [{"models": (R9700, R9700)}], indirect=True)
def test_queue_ids_count_for_the_process_doorbells_for_the_gpu(machine: Machine) -> None:
    stage = Stage(machine)
    stage.queue_buffers()
    second = machine.gpus[1].gpu_id
    stage.call(r.KFD_ACQUIRE_VM, drm_fd=stage.open(machine.gpus[1].render_node), gpu_id=second)
    for handle in stage.handles:
        stage.map(handle, second)
    one, two = stage.create_queue(), stage.create_queue(gpu_id=second)
    assert (one.queue_id, cell(one)) == (0, 0)
    assert (two.queue_id, cell(two)) == (1, 0)
    assert two.doorbell_offset >> 46 & 0xFFFF == second
    stage.close()


def test_both_pointers_may_be_one(stage: Stage) -> None:
    assert WPTR - RPTR == 8
    stage.queue_buffers()
    stage.create_queue(write_pointer_address=RPTR, read_pointer_address=RPTR)


@pytest.mark.parametrize("machine", [{"models": (R9700, R9700)}], indirect=True)
def test_the_write_pointer_lies_on_the_same_gpu(machine: Machine) -> None:
    stage = Stage(machine)
    stage.queue_buffers()
    second = machine.gpus[1].gpu_id
    stage.call(r.KFD_ACQUIRE_VM, drm_fd=stage.open(machine.gpus[1].render_node), gpu_id=second)
    stage.buffer(s.DATA, PAGE, s.VRAM)
    for handle in stage.handles:
        stage.map(handle, second)
    with refused(errno.EINVAL):
        stage.create_queue(gpu_id=second, write_pointer_address=s.DATA)
    stage.create_queue(write_pointer_address=s.DATA)
    stage.create_queue(gpu_id=second, read_pointer_address=s.DATA)
    stage.close()
